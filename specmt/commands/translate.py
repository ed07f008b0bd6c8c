"""`specmt translate`: its options. What is done with them stands in `translating`, which takes longer to import."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specmt import BUNDLED_MODEL
from specmt.choices import InputFormat, OnBadBytes, OutputFormat, StrategyName
from specmt.cli_options import (
    CORES,
    MOST_ROWS,
    BetaOption,
    DeviceOption,
    EngineOption,
    ModelOption,
    PrecisionOption,
    ReplayGroupOption,
    ReplayWindowOption,
    StrictOption,
    TauOption,
    ThreadsOption,
)
from specmt.commands.from_options import drafts_asked, load, settings_of, with_replay
from specmt.engines.names import EngineName, Precision
from specmt.errors import UsageError
from specmt.settings import BATCH_SIZE

if TYPE_CHECKING:
    from specmt.translator import Translator

InputOption = Annotated[
    Path | None, typer.Option("--input", "-i", help="Input file, one text per line.", show_default="stdin")
]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Written whole or not at all; see --append-resume.", show_default="stdout"),
]
AppendResumeOption = Annotated[
    bool, typer.Option("--append-resume", help="With -o: write line by line, and go on where a run was stopped.")
]
StrategyOption = Annotated[StrategyName, typer.Option(help="Draft and verify, decode and replay, or a token per pass.")]
ReproducibleOption = Annotated[
    bool, typer.Option("--reproducible", help="The same bytes whatever is decoded beside a sentence.")
]
BeamOption = Annotated[int, typer.Option("--beam", "--beam-size", min=1, help="Beam width, with --strategy ar.")]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option("--length-penalty", "--lenpen", help="Exponent of the length in scores.", show_default="the model's"),
]
NBestOption = Annotated[int, typer.Option("--n-best", "--nbest", min=1, help="Alternatives a line, with --beam.")]
SplitOption = Annotated[
    bool, typer.Option("--split/--no-split", help="Translate a line's sentences one by one; split longer ones.")
]
MaxSourceTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens of the longest segment; with --no-split a longer line is an error.",
        show_default="the model's",
    ),
]
GuardsOption = Annotated[
    bool,
    typer.Option(
        "--guards/--no-guards",
        help="Stop runaway repetition; copy unknown symbols; read capitals; end as the source does.",
    ),
]
ProtectOption = Annotated[
    str, typer.Option(help="What comes out unchanged: some of url,email,tag,placeholder,file,code,number; or none.")
]
TerminologyOption = Annotated[
    Path | None, typer.Option(help="Required translations: source term, tab, target term per line.", show_default=False)
]
BatchSizeOption = Annotated[
    int,
    typer.Option(
        "--batch-size", "--max-sentences", min=1, max=MOST_ROWS, help="Sentences decoded at a time, per core."
    ),
]
MaxBatchTokensOption = Annotated[
    int | None,
    typer.Option(
        "--max-batch-tokens",
        "--max-tokens",
        min=1,
        help="Source tokens decoded at a time, per core, padding included.",
        show_default="no limit",
    ),
]
InputFormatOption = Annotated[
    InputFormat,
    typer.Option(
        help="Text, or JSON objects with `source`; fields whose names the output never has pass through, "
        "but `reproducible`, an option of the line."
    ),
]
OutputFormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format", "--output-format", help="Text, a JSON object per line, or S- H- D- P- lines (A- with --alignment)."
    ),
]
ScoresOption = Annotated[bool, typer.Option("--scores", help="In text: score and tab before each translation.")]


AlignmentOption = Annotated[
    bool,
    typer.Option(
        "--alignment",
        "--print-alignment",
        help="Pairs of source and target words, from 0.",
    ),
]
ErrorsOption = Annotated[
    OnBadBytes, typer.Option(help="Bytes that are not UTF-8: stop and name the line, or translate the rest of it.")
]
FastestDraftLengthOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Tokens drafted an iteration. If given, strict drafts in batches too.",
        show_default="the model's; strict: what is fastest",
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Neither bar, summary nor count of warnings on stderr.")
]


def translate(
    input_path: InputOption = None,
    output_path: OutputOption = None,
    append_resume: AppendResumeOption = False,
    model: ModelOption = BUNDLED_MODEL,
    strategy: StrategyOption = StrategyName.spec,
    reproducible: ReproducibleOption = False,
    replay_window: ReplayWindowOption = None,
    replay_group: ReplayGroupOption = None,
    beam: BeamOption = 1,
    length_penalty: LengthPenaltyOption = None,
    n_best: NBestOption = 1,
    draft_length: FastestDraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    strict: StrictOption = None,
    split: SplitOption = True,
    max_source_tokens: MaxSourceTokensOption = None,
    guards: GuardsOption = True,
    protect: ProtectOption = "url,email,tag,placeholder,file,code,number",
    terminology: TerminologyOption = None,
    batch_size: BatchSizeOption = BATCH_SIZE,
    max_batch_tokens: MaxBatchTokensOption = None,
    threads: ThreadsOption = CORES,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    input_format: InputFormatOption = InputFormat.text,
    output_format: OutputFormatOption = OutputFormat.text,
    scores: ScoresOption = False,
    alignment: AlignmentOption = False,
    errors: ErrorsOption = OnBadBytes.STRICT,
    quiet: QuietOption = False,
) -> None:
    """Translate text: one line out for each line in, in order. Only translations go to stdout.

    For example:

      specmt translate < input.de > output.en

      specmt translate -i input.de -o output.en --append-resume

      specmt translate --strategy ar --beam 5 --n-best 3 --format fairseq < input.de
    """
    _keep_to_one_thread(alignment)
    from specmt.commands.translating import Required, Streams, run
    from specmt.streams.forms import Form
    from specmt.tuned import fastest

    streams = Streams(input_path, input_format, errors, output_path, append_resume)
    required = Required.read(protect, terminology, output_path)
    translator = load(model, engine, device, precision, threads)
    strategy = _possible(strategy, translator, model, drafts_asked(strict, draft_length, beta, tau))
    settings = settings_of(translator, strategy, draft_length, beta, tau, strict, beam, length_penalty, n_best)
    settings = with_replay(settings, replay_window, replay_group, reproducible, streams.is_jsonl)
    settings = replace(settings, split=split, max_source_tokens=max_source_tokens, guards=guards, align=alignment)
    settings = settings if draft_length else fastest(settings, translator, reproducible or streams.is_jsonl)
    form = Form(output_format, translator.vocabulary, n_best, scores, alignment)
    run(translator, translator.checked(settings), streams, required, form, batch_size, max_batch_tokens, quiet)


def _keep_to_one_thread(alignment: bool) -> None:
    """Where numpy is to align, which is imported later: more of its threads would add to `--threads`."""
    if alignment:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _possible(strategy: StrategyName, translator: Translator, model: Path, speculates: bool) -> StrategyName:
    """The strategy; `ar`, and a word on it, where there is no drafter to speculate with.

    Raises:
        UsageError: it was asked how to speculate.
    """
    if strategy is StrategyName.spec and not translator.has_drafter:
        if speculates:
            raise UsageError(f"--relaxed, --draft-length, --beta and --tau are for drafts, and {model} has no drafter")
        typer.echo(f"specmt: {model} has no drafter: decoding with --strategy ar", err=True)
        return StrategyName.ar
    return strategy
