"""`specmt tune`: the draft length for this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specmt import BUNDLED_MODEL
from specmt.choices import ReportFormat
from specmt.cli_options import CORES, DeviceOption, EngineOption, PrecisionOption, ThreadsOption
from specmt.commands.from_options import load
from specmt.engines.names import EngineName, Precision
from specmt.errors import InputError

if TYPE_CHECKING:
    from specmt.bundles.bundle import Bundle
    from specmt.translator import Translator
    from specmt.tuning import Emission, Tuning


def tune(
    bundle: Annotated[
        Path, typer.Argument(help="Model directory; it is not changed.", show_default="de-en, bundled")
    ] = BUNDLED_MODEL,
    source: Annotated[
        Path | None,
        typer.Option(
            help="Text like that to be translated, to count accepted tokens on.",
            show_default="what training recorded, else the bundled sample",
        ),
    ] = None,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    threads: ThreadsOption = CORES,
    rounds: Annotated[int, typer.Option(min=1, help="Timed rounds over all draft lengths.")] = 5,
    output_format: Annotated[ReportFormat, typer.Option("--format", help="A table, or JSON for programs.")] = (
        ReportFormat.text
    ),
) -> None:
    """Find the fastest draft length on this machine, and the batch size up to which drafting pays, for strict decoding.

    Kept in the user's cache by model, engine, processor and number of cores. With --relaxed the model's own draft
    length holds: there the length can change the text, which must not depend on timings.
    """
    from specmt import tuned, tuning
    from specmt.bundles.bundle import load_bundle

    model = load_bundle(bundle)
    translator = load(bundle, engine, device, precision, threads)
    if not translator.has_drafter:
        raise InputError(f"{bundle}: has no drafter: there is no draft length to tune")
    lines = _lines(model, source)
    requests = tuning.requests_of(translator, lines) if lines is not None else tuning.made_up_requests(translator)
    emission = _emission(translator, model, source, lines)
    found = tuning.tune(translator.engine, requests, emission, rounds, workers=translator.workers)
    key = tuned.Key.here(translator)
    kept_in = None
    try:
        kept_in = str(tuned.store(key, tuned.Tuned(found.best.draft_length, found.rows)))
    finally:  # what was measured need not be lost where it cannot be kept
        if output_format is ReportFormat.json:
            result = {**found.to_json(), **asdict(key), "kept_in": kept_in}
            typer.echo(json.dumps(result, ensure_ascii=False, indent=2))
        else:
            typer.echo(_table(found))
    if output_format is ReportFormat.text:
        typer.echo(f"{key.engine}, {key.cpu}, cores used: {key.cores}; kept in {kept_in}")


def _lines(bundle: Bundle, source: Path | None) -> list[str] | None:
    from specmt.text.languages import usual_code
    from specmt.text_files import read_lines
    from specmt.tuning import sample_lines

    return read_lines(source) if source else sample_lines(usual_code(bundle.source_language))


def _emission(translator: Translator, bundle: Bundle, source: Path | None, lines: list[str] | None) -> Emission:
    from specmt.tuning import counted_emission, recorded_emission

    recorded = None if source else recorded_emission(bundle.scores)
    if recorded:
        return recorded
    if lines is None:
        raise InputError(f"{bundle.path}: records no emitted tokens, and no sample fits: give --source TEXT")
    return counted_emission(translator, lines, str(source) if source else "the bundled sample")


def _table(found: Tuning) -> str:
    """A line a draft length; the fastest is marked."""
    lines = [" k  ms per iteration  tokens emitted  ms per token"]
    for timing in found.timings:
        mark = "  <- fastest" if timing is found.best else ""
        numbers = f"{timing.iteration_seconds * 1e3:15.3f}  {timing.emitted_tokens:14.2f}"
        lines.append(f"{timing.draft_length:2}  {numbers}  {timing.token_seconds * 1e3:10.3f}{mark}")
    ratio = found.ar_token_seconds / found.best.token_seconds
    lines.append(f"ar  {found.ar_token_seconds * 1e3:15.3f}  {1:14.2f}  {found.ar_token_seconds * 1e3:10.3f}")
    lines.append(
        f"An iteration at draft length {found.best.draft_length} is {ratio:.2f} times as fast a token as ar's."
    )
    if found.rows:
        lines.append(f"It is the faster way with up to {found.rows} rows in flight; with more, plain steps are.")
    lines.append(f"Emitted tokens: {found.emission.source}, {found.emission.sentences} sentences, strict.")
    return "\n".join(lines)
