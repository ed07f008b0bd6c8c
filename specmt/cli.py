"""The command line: parse, call, print, exit code. The only module that prints."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NoReturn, TextIO

import typer

from specmt.bundle import BUNDLED_MODEL
from specmt.commands.convert import convert
from specmt.commands.inspect import doctor, info
from specmt.errors import InputError, SpecmtError, UsageError
from specmt.files import atomic_path
from specmt.tune_command import tune

if TYPE_CHECKING:
    from specmt.translator import DecodingSettings, Translation, Translator

DEFAULT_BATCH_SIZE = 32
DEFAULT_STRATEGIES = "ar,beam5,spec-strict,spec"

app = typer.Typer(
    help="Machine translation that drafts many tokens in one pass and verifies them in another.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for _command in (convert, info, doctor):
    app.command()(_command)


class StrategyName(StrEnum):
    """How to decode."""

    spec = "spec"
    replay = "replay"
    ar = "ar"


class ExplainedStrategy(StrEnum):
    """What `explain` can lay open."""

    spec = "spec"
    replay = "replay"


class OutputFormat(StrEnum):
    """What `translate` writes."""

    text = "text"
    jsonl = "jsonl"


class ExplainFormat(StrEnum):
    """What `explain` writes."""

    text = "text"
    json = "json"


class EngineName(StrEnum):
    """What runs the networks."""

    auto = "auto"
    onnx = "onnx"
    torch = "torch"


class Precision(StrEnum):
    """Of the torch engine."""

    fp32 = "fp32"
    bf16 = "bf16"


ModelOption = Annotated[
    Path, typer.Option("--model", "-m", help="Model directory (bundle).", show_default="de-en, bundled")
]
EngineOption = Annotated[
    EngineName, typer.Option(help="8-bit integers on CPUs, or torch; auto takes onnx on a CPU if the model has graphs.")
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
PrecisionOption = Annotated[Precision, typer.Option(help="Arithmetic of the torch engine.")]
ThreadsOption = Annotated[int, typer.Option(min=1, help="Cores used.", show_default="all")]
DraftLengthOption = Annotated[
    int | None, typer.Option(min=1, help="Tokens drafted an iteration.", show_default="the model's")
]
BetaOption = Annotated[int | None, typer.Option(min=1, help="Candidates of the verifier.", show_default="the model's")]
TauOption = Annotated[float | None, typer.Option(min=0, help="Nats behind the best.", show_default="the model's")]
StrictOption = Annotated[bool, typer.Option("--strict", help="beta = 1: the very tokens of `--strategy ar`.")]

ReplayWindowOption = Annotated[
    int | None, typer.Option(min=1, help="Tokens of a sentence that are replayed at a time.", show_default="16")
]
ReplayGroupOption = Annotated[
    int | None, typer.Option(min=1, help="Sentences in every pass of fixed shape.", show_default="8")
]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@app.command()
def translate(
    input_path: Annotated[
        Path | None, typer.Option("--input", "-i", help="Text, a sentence a line.", show_default="stdin")
    ] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", "-o", help="Written whole or not at all.", show_default="stdout")
    ] = None,
    model: ModelOption = BUNDLED_MODEL,
    strategy: Annotated[
        StrategyName, typer.Option(help="Draft and verify, decode and replay, or one token a pass.")
    ] = StrategyName.spec,
    reproducible: Annotated[
        bool, typer.Option("--reproducible", help="The same bytes whatever is decoded beside a sentence.")
    ] = False,
    replay_window: ReplayWindowOption = None,
    replay_group: ReplayGroupOption = None,
    beam: Annotated[int, typer.Option(min=1, help="Beam width, with --strategy ar.")] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="Exponent of the length in scores.", show_default="the model's")
    ] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Alternatives a line, with --beam.")] = 1,
    draft_length: DraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    strict: StrictOption = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Sentences decoded at a time.")] = DEFAULT_BATCH_SIZE,
    max_batch_tokens: Annotated[
        int | None,
        typer.Option(min=1, help="Source tokens decoded at a time, padding included.", show_default="no limit"),
    ] = None,
    threads: ThreadsOption = CORES,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    output_format: Annotated[
        OutputFormat, typer.Option("--format", help="Text, or one JSON object a line.")
    ] = OutputFormat.text,
    protect: Annotated[
        str, typer.Option(help="What comes out unchanged: some of url,email,tag,placeholder,number; or none.")
    ] = "url,email,tag,placeholder,number",
    terminology: Annotated[
        Path | None,
        typer.Option(help="Required translations: source term, tab, target term a line.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary on stderr.")] = False,
) -> None:
    """Translate text: one line out for each line in, in order. Only translations go to stdout.

    Examples:  specmt translate < input.de > output.en
               specmt translate -i input.de -o output.en --strategy ar --beam 5
    """
    from specmt.protection import Protection, read_terminology
    from specmt.streams import LineStream
    from specmt.translator import look_ahead

    kinds = [] if protect == "none" else [kind.strip() for kind in protect.split(",")]
    terms = read_terminology(terminology) if terminology else None
    translator = _load(model, engine, device, precision, threads)
    if strategy is StrategyName.spec and not translator.has_drafter:
        print(f"specmt: {model} has no drafter: decoding with --strategy ar", file=sys.stderr)
        strategy = StrategyName.ar
    settings = _settings(translator, strategy, draft_length, beta, tau, strict, beam, length_penalty, n_best)
    settings = _with_replay(settings, replay_window, replay_group, reproducible).checked(translator.engine)
    if (settings.strategy, settings.beta, draft_length) == ("spec", 1, None):
        settings = _tuned(translator, settings)
    protection = Protection(translator.vocabulary, kinds, terms)
    lines = iterations = emitted = 0
    with _reading(input_path) as source, _writing(output_path) as target:
        chunks = LineStream(source, str(input_path or "standard input")).chunks(look_ahead(batch_size))
        for translation in protection.translate(
            chunks, lambda chunks: translator.translate_chunks(chunks, settings, batch_size, max_batch_tokens)
        ):
            if translation.unplaced:
                missing = ", ".join(translation.unplaced)
                print(f"specmt: line {lines + 1}: not in the translation: {missing}", file=sys.stderr)
            target.write(_line(translation, output_format, n_best))
            target.flush()
            lines += 1
            iterations += len(translation.iterations)
            emitted += len(translation.ids)
    if not quiet and sys.stderr.isatty():
        print(f"{lines} lines, {emitted / max(iterations, 1):.2f} tokens an iteration", file=sys.stderr)


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
    settings = _with_replay(replace(settings, trace=True), replay_window, replay_group)
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
    if strategies == DEFAULT_STRATEGIES and not translator.has_drafter:
        strategies = "ar,beam5"
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


app.command()(tune)


# -- parts


def _load(model: Path, engine: EngineName, device: str, precision: Precision, threads: int) -> Translator:
    from specmt.translator import load_translator

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


def _line(translation: Translation, output_format: OutputFormat, n_best: int) -> str:
    if output_format is OutputFormat.text:
        if n_best == 1:
            return f"{translation.text}\n"
        # A blank line has no alternatives, but takes as many lines as any other: nothing may shift.
        texts = [alternative.text for alternative in translation.n_best]
        return "".join(f"{text}\n" for text in [*texts, *[""] * (n_best - len(texts))])
    record: dict[str, Any] = {
        "source": translation.source,
        "translation": translation.text,
        "score": translation.score,
        "iterations": len(translation.iterations),
        "emitted_tokens": [len(iteration.emitted) for iteration in translation.iterations],
    }
    if translation.unplaced:
        record["unplaced"] = list(translation.unplaced)
    if translation.replay:
        record["replay"] = asdict(translation.replay)
    if n_best > 1:
        record["n_best"] = [
            {"translation": alternative.text, "score": alternative.score} for alternative in translation.n_best
        ]
    return json.dumps(record, ensure_ascii=False) + "\n"


@contextmanager
def _reading(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdin.buffer
        return
    try:
        stream = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    with stream:
        yield stream


@contextmanager
def _writing(path: Path | None) -> Iterator[TextIO]:
    """Standard output, a pipe or device, or a file that appears only when all is written."""
    if path is None:
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    path = path.resolve()  # a link stays a link
    special = path.exists() and not path.is_file()
    try:
        with (
            nullcontext(path) if special else atomic_path(path) as written,
            written.open("w", encoding="utf-8", newline="\n") as stream,
        ):
            yield stream
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _terminated(signal_number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)


def main() -> NoReturn:
    """Run the command line; the only place where an error becomes a line and an exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    status = 0
    try:
        app(standalone_mode=True)
    except SpecmtError as error:
        print(f"specmt: {error}", file=sys.stderr)
        status = error.exit_code
    except BrokenPipeError:
        # The reader has gone: nothing more can be said on stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 128 + signal.SIGPIPE
    except OSError as error:
        print(f"specmt: {error}", file=sys.stderr)
        status = 1
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    sys.exit(status)
