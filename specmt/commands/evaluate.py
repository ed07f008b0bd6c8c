"""`specmt eval`: quality and speed of strategies side by side."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specmt import BUNDLED_MODEL
from specmt.cli_options import (
    MOST_ROWS,
    BetaOption,
    DeviceOption,
    DraftLengthOption,
    EngineOption,
    ModelOption,
    OneThreadOption,
    PrecisionOption,
    TauOption,
)
from specmt.commands.from_options import load
from specmt.engines.names import EngineName, Precision
from specmt.errors import InputError, UsageError

if TYPE_CHECKING:
    from specmt.bundle import DecodingDefaults
    from specmt.translator import Translator


def _default_strategies(translator: Translator) -> list[str]:
    return ["ar", "beam5", *(["spec-strict", "spec"] if translator.has_drafter else [])]


def _with(defaults: DecodingDefaults, **options: Any) -> DecodingDefaults:  # noqa: ANN401  (fields of any type)
    """The defaults with the options that were given."""
    try:
        return replace(defaults, **{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise UsageError(str(error)) from None


def evaluate(
    source: Annotated[Path, typer.Option(help="Text to translate.")],
    reference: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    model: ModelOption = BUNDLED_MODEL,
    strategies: Annotated[
        str | None,
        typer.Option(
            help="Of ar, beamN, replay, spec-strict, spec, spec-reproducible; separated by commas.",
            show_default="ar,beam5, and with a drafter spec-strict,spec",
        ),
    ] = None,
    draft_length: DraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, max=MOST_ROWS, help="Sentences decoded at a time, per core; 1: one line after the other."),
    ] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Timed runs of each strategy, in turn.")] = 3,
    threads: OneThreadOption = 1,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Write a figure: .png or .svg.", show_default=False)] = None,
) -> None:
    """Measure quality (BLEU, chrF) and speed of decoding strategies side by side.

    spec is relaxed, spec-strict is strict; both draft at any batch size, where `translate` may take plain steps.
    Nothing is protected, as with `translate --protect none`.
    """
    from specmt import evaluation, plotting, reporting
    from specmt.corpus import read_parallel

    pairs = read_parallel(source, reference)
    if not pairs:
        raise InputError(f"{source}: no lines")
    if plot:
        plotting.check_plot(plot)
    translator = load(model, engine, device, precision, threads)
    if not (translator.has_drafter or draft_length is beta is tau is None):
        raise UsageError(f"--draft-length, --beta and --tau are for drafts, and {model} has no drafter")
    translator.defaults = _with(translator.defaults, draft_length=draft_length, beta=beta, tau=tau)
    if translator.defaults.beta == 1 and not beta is tau is None:
        raise UsageError(
            "--beta and --tau are for relaxed decoding: give --beta 2 or more; spec-strict is strict anyway"
        )
    result = evaluation.evaluate(
        translator,
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        _default_strategies(translator) if strategies is None else [name.strip() for name in strategies.split(",")],
        batch_size=batch_size,
        repeats=repeats,
        report=partial(typer.echo, err=True),
        threads=threads,
    )
    if as_json:
        typer.echo(json.dumps(result.to_json(), ensure_ascii=False, indent=2))
    else:
        reporting.show(result)
    if plot:
        plotting.plot(result, plot)
