"""The command line: parse, call, print, exit code. With `status.py` and `progress.py`, all that prints."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from specmt import __version__
from specmt.bundle import BUNDLED_MODEL
from specmt.cli_options import (
    CORES,
    DEFAULT_BATCH_SIZE,
    DEFAULT_STRATEGIES,
    BetaOption,
    DeviceOption,
    DraftLengthOption,
    EngineName,
    EngineOption,
    ExplainedStrategy,
    ExplainFormat,
    InputFormat,
    ModelOption,
    OnBadBytes,
    OutputFormat,
    Precision,
    PrecisionOption,
    ReplayGroupOption,
    ReplayWindowOption,
    StrategyName,
    StrictOption,
    TauOption,
    ThreadsOption,
)
from specmt.commands.convert import convert
from specmt.commands.inspect import doctor, info
from specmt.errors import InputError, SpecmtError, UsageError
from specmt.files import file_digest
from specmt.tune_command import tune

if TYPE_CHECKING:
    from specmt.translator import DecodingSettings, Translator

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    # `--beam_size` is `--beam-size`, as other tools of the field write it.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"specmt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with an error; stands before the command.")
    ] = False,
) -> None:
    """Machine translation that drafts many tokens in one pass and verifies them in another.

    For example:

      specmt translate < input.de > output.en

      specmt explain "Ein Mann spielt Gitarre."

      specmt eval --source test.de --reference test.en
    """
    _Debug.wanted = debug


class _Debug:
    """Whether errors come with a traceback; set once, when the command line is parsed."""

    wanted = False


@app.command()
def translate(
    input_path: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text, a line for each translation.", show_default="stdin")
    ] = None,
    output_path: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Written whole or not at all; see --append-resume.", show_default="stdout"),
    ] = None,
    append_resume: Annotated[
        bool, typer.Option("--append-resume", help="With -o: write line by line, and go on where a run was stopped.")
    ] = False,
    model: ModelOption = BUNDLED_MODEL,
    strategy: Annotated[
        StrategyName, typer.Option(help="Draft and verify, decode and replay, or one token a pass.")
    ] = StrategyName.spec,
    reproducible: Annotated[
        bool, typer.Option("--reproducible", help="The same bytes whatever is decoded beside a sentence.")
    ] = False,
    replay_window: ReplayWindowOption = None,
    replay_group: ReplayGroupOption = None,
    beam: Annotated[int, typer.Option("--beam", "--beam-size", min=1, help="Beam width, with --strategy ar.")] = 1,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            "--length-penalty", "--lenpen", help="Exponent of the length in scores.", show_default="the model's"
        ),
    ] = None,
    n_best: Annotated[int, typer.Option("--n-best", "--nbest", min=1, help="Alternatives a line, with --beam.")] = 1,
    draft_length: DraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    strict: StrictOption = False,
    split: Annotated[
        bool, typer.Option("--split/--no-split", help="Translate a line's sentences one by one; split longer ones.")
    ] = True,
    max_source_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Tokens of the longest segment; with --no-split a longer line is an error.",
            show_default="the model's",
        ),
    ] = None,
    guards: Annotated[
        bool, typer.Option("--guards/--no-guards", help="End what repeats itself; copy what the model cannot know.")
    ] = True,
    protect: Annotated[
        str, typer.Option(help="What comes out unchanged: some of url,email,tag,placeholder,number; or none.")
    ] = "url,email,tag,placeholder,number",
    terminology: Annotated[
        Path | None,
        typer.Option(help="Required translations: source term, tab, target term a line.", show_default=False),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "--max-sentences", min=1, help="Sentences decoded at a time.")
    ] = DEFAULT_BATCH_SIZE,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-batch-tokens",
            "--max-tokens",
            min=1,
            help="Source tokens decoded at a time, padding included.",
            show_default="no limit",
        ),
    ] = None,
    threads: ThreadsOption = CORES,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    input_format: Annotated[
        InputFormat, typer.Option(help="Text, or JSON objects with `source`; their other fields pass through.")
    ] = InputFormat.text,
    output_format: Annotated[
        OutputFormat,
        typer.Option("--format", "--output-format", help="Text, a JSON object a line, or S- H- D- P- lines."),
    ] = OutputFormat.text,
    scores: Annotated[bool, typer.Option("--scores", help="In text: score and tab before each translation.")] = False,
    alignment: Annotated[
        bool, typer.Option("--alignment", "--print-alignment", help="Pairs of source and target words, from 0.")
    ] = False,
    errors: Annotated[
        OnBadBytes, typer.Option(help="Bytes that are not UTF-8: stop and name the line, or put U+FFFD.")
    ] = OnBadBytes.STRICT,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Neither bar nor summary on stderr.")] = False,
) -> None:
    """Translate text: one line out for each line in, in order. Only translations go to stdout.

    For example:

      specmt translate < input.de > output.en

      specmt translate -i input.de -o output.en --append-resume

      specmt translate --strategy ar --beam 5 --n-best 3 --format fairseq < input.de

      specmt translate --input-format jsonl --format jsonl < in.jsonl > out.jsonl
    """
    from specmt.forms import Form
    from specmt.inputs import jsonl_parser, reading, text_parser
    from specmt.outputs import Resumable, writing
    from specmt.protection import Protection, read_terminology
    from specmt.status import status

    if append_resume and output_path is None:
        raise UsageError("--append-resume needs --output FILE")
    if append_resume and input_path and output_path and input_path.resolve() == output_path.resolve():
        raise UsageError(f"--append-resume: {output_path} is the input")
    kinds = [] if protect == "none" else [kind.strip() for kind in protect.split(",")]
    terms = read_terminology(terminology) if terminology else None
    translator = _load(model, engine, device, precision, threads)
    if strategy is StrategyName.spec and not translator.has_drafter:
        print(f"specmt: {model} has no drafter: decoding with --strategy ar", file=sys.stderr)
        strategy = StrategyName.ar
    settings = _settings(translator, strategy, draft_length, beta, tau, strict, beam, length_penalty, n_best)
    settings = _with_replay(settings, replay_window, replay_group, reproducible)
    settings = replace(
        settings, split=split, max_source_tokens=max_source_tokens, guards=guards, align=alignment
    ).checked(translator.engine)
    if (settings.strategy, settings.beta, draft_length) == ("spec", 1, None):
        settings = _tuned(translator, settings)
    protection = Protection(translator.vocabulary, kinds, terms)
    form = Form(output_format, translator.vocabulary, n_best, scores, alignment)
    options_that_matter = {
        "model": translator.model_digest,
        "engine": translator.engine.name,
        **asdict(settings),
        "input-format": input_format,
        "format": output_format,
        "scores": scores,
        "errors": errors,
        "protect": kinds,
        "terminology": file_digest(terminology) if terminology else None,
    }
    resumable = Resumable(form.lines_each, options_that_matter, input_path) if append_resume else None
    parser = jsonl_parser if input_format is InputFormat.jsonl else text_parser
    with (
        reading(input_path, parser, errors is OnBadBytes.REPLACE) as lines,
        writing(output_path, resumable) as target,
        status(input_path, target, quiet) as show,
    ):
        target.pass_over(lines)
        first = target.finished_before
        options_in_lines = input_format is InputFormat.jsonl
        for translation in translator.translate_stream(
            lines, settings, batch_size, max_batch_tokens, first, protection, options_in_lines
        ):
            if translation.unplaced:
                missing = ", ".join(translation.unplaced)
                print(f"specmt: line {translation.index + 1}: not in the translation: {missing}", file=sys.stderr)
            target.write(form.render(translation))
            show(translation)


for _command in (convert, info, doctor, tune):
    app.command()(_command)


@app.command()
def explain(
    sentence: Annotated[str, typer.Argument(help="The sentence.")],
    model: ModelOption = BUNDLED_MODEL,
    strategy: Annotated[
        ExplainedStrategy, typer.Option(help="Draft and verify, or decode and replay.")
    ] = ExplainedStrategy.spec,
    replay_window: ReplayWindowOption = None,
    replay_group: ReplayGroupOption = None,
    draft_length: DraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    strict: StrictOption = False,
    threads: ThreadsOption = 1,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    output_format: Annotated[
        ExplainFormat, typer.Option("--format", help="A picture, or JSON for programs.")
    ] = ExplainFormat.text,
) -> None:
    """Show how a sentence is decoded, iteration by iteration: draft, candidates, what is accepted."""
    from rich.console import Console

    from specmt import explanation, replay_explanation

    translator = _load(model, engine, device, precision, threads)
    settings = _settings(translator, StrategyName(strategy.value), draft_length, beta, tau, strict)
    settings = replace(settings, trace=True, split=False, max_source_tokens=sys.maxsize, guards=False)
    settings = _with_replay(settings, replay_window, replay_group)
    (translation,) = translator.translate([sentence], settings, batch_size=1)
    explained: explanation.Explanation | replay_explanation.ReplayExplanation
    if strategy is ExplainedStrategy.replay:
        explained = replay_explanation.explain(translation, settings, translator.vocabulary)
        picture = replay_explanation.render(explained)
    else:
        explained = explanation.explain(translation, settings, translator.vocabulary)
        picture = explanation.render(explained)
    if output_format is ExplainFormat.json:
        print(json.dumps(explained.to_json(), ensure_ascii=False, indent=2))
    else:
        Console().print(picture)


@app.command(name="eval")
def evaluate(
    source: Annotated[Path, typer.Option(help="Text to translate.")],
    reference: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    model: ModelOption = BUNDLED_MODEL,
    strategies: Annotated[
        str,
        typer.Option(help="Of ar, beamN, replay, spec-strict, spec, spec-reproducible; separated by commas."),
    ] = DEFAULT_STRATEGIES,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences decoded at a time.")] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs of each strategy, in turn.")] = 3,
    threads: ThreadsOption = 1,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a figure: .png or .svg.", show_default=False)] = None,
) -> None:
    """Measure quality (BLEU, chrF) and speed of decoding strategies side by side."""
    from rich.console import Console

    from specmt import evaluation, plotting, reporting
    from specmt.corpus import read_parallel

    pairs = read_parallel(source, reference)
    if not pairs:
        raise InputError(f"{source}: no lines")
    if plot:
        plotting.check_plot(plot)
    translator = _load(model, engine, device, precision, threads)
    result = evaluation.evaluate(
        translator,
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        [name.strip() for name in strategies.split(",")],
        batch_size=batch_size,
        repeats=repeats,
        report=lambda line: print(line, file=sys.stderr),
        threads=threads,
    )
    if plot:
        plotting.plot(result, plot)
    if as_json:
        print(json.dumps(result.to_json(), ensure_ascii=False, indent=2))
    else:
        Console().print(reporting.render(result))


@app.command()
def train(
    config: Annotated[Path, typer.Option(help="A file such as configs/multi30k-de-en.yaml.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, as in verifier.dropout=0.2; repeatable.", show_default=False),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Run this stage only.", show_default="all")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--restart", help="Go on where an earlier run stopped, or begin anew (what stands is moved aside)."
        ),
    ] = True,
) -> None:
    """Train a pair: tokenizer, binarise, verifier, distil, drafter, export, evaluate.

    Each stage is skipped when its outputs stand and its inputs have not changed; interrupted, it goes on from its last
    checkpoint.
    """
    try:
        from specmt import training
        from specmt.config import load_config
    except ModuleNotFoundError as error:
        raise SpecmtError(
            f"training needs {error.name}: pip install 'specmt[train]' && pip install --no-deps fairseq==0.12.2"
        ) from None
    from specmt.progress import training_reporter

    loaded = load_config(config, overrides or [])
    with training_reporter() as reporter:
        pipeline = training.Pipeline(loaded, reporter)
        bundle = pipeline.run(stage, restart=not resume)
    print(bundle)


@app.command()
def export(
    bundle: Annotated[Path, typer.Argument(help="Model directory; replaced as a whole when all is done.")],
    calibration: Annotated[Path, typer.Option(help="Text in the source language like that to be translated.")],
) -> None:
    """Write the graphs of the 8-bit engine into a model directory."""
    from specmt.corpus import read_lines

    try:
        from specmt.exporting import export_bundle
    except ModuleNotFoundError as error:
        raise SpecmtError(f"exporting needs {error.name}: pip install 'specmt[train]'") from None

    export_bundle(bundle, read_lines(calibration))
    print(bundle)


# -- parts


def _load(model: Path, engine: EngineName, device: str, precision: Precision, threads: int) -> Translator:
    from specmt.loading import load_translator

    return load_translator(model, device, precision.value, threads, engine.value)


def _settings(
    translator: Translator,
    strategy: StrategyName,
    draft_length: int | None,
    beta: int | None,
    tau: float | None,
    strict: bool,
    beam: int = 1,
    length_penalty: float | None = None,
    n_best: int = 1,
) -> DecodingSettings:
    from specmt.translator import DecodingSettings

    if strict and (beta or 1) > 1:
        raise UsageError("--strict means --beta 1; give one of them")
    given: dict[str, Any] = {
        "draft_length": draft_length,
        "beta": 1 if strict else beta,
        "tau": tau,
        "length_penalty": length_penalty,
    }
    settings = DecodingSettings.from_defaults(translator.defaults)
    settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
    return replace(settings, strategy=strategy.value, beam=beam, n_best=n_best).checked(translator.engine)


def _tuned(translator: Translator, settings: DecodingSettings) -> DecodingSettings:
    """Strict settings with the draft length that `specmt tune` found here, if it did: the text stays the same."""
    from specmt import tuned

    key = tuned.Key.here(translator.model_digest, translator.engine.name)
    found = tuned.stored(key, translator.engine.max_draft_length)
    return replace(settings, draft_length=found) if found else settings


def _with_replay(
    settings: DecodingSettings, window: int | None, group: int | None, reproducible: bool = False
) -> DecodingSettings:
    return replace(
        settings,
        replay_window=window or settings.replay_window,
        replay_group=group or settings.replay_group,
        reproducible=reproducible,
    )


def _terminated(signal_number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)


def _one_line(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, SpecmtError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return "not enough memory: lower --batch-size, --max-batch-tokens or --threads", 1
    if isinstance(error, OSError):
        return str(error), 1
    # typer carries its own copy of click, or uses the one that is installed: its errors have no class to import.
    if callable(message := getattr(error, "format_message", None)):
        text = str(message())  # none where the help was shown instead
        return text and f"{text} (see specmt --help)", int(getattr(error, "exit_code", 2))
    return f"unexpected {type(error).__name__}: {error} (specmt --debug … shows where; please report it)", 1


def main() -> NoReturn:
    """Run the command line; the only place where an error becomes a line and an exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        status = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone: nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except Exception as error:
        if _Debug.wanted:
            traceback.print_exc()
        text, status = _one_line(error)
        if text:
            print("specmt:", " ".join(text.split()), file=sys.stderr)
    sys.exit(status)
