"""`specmt eval`: quality and speed of strategies side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    from specmt.translator import Translator


def _asked(translator: Translator, strategies: str | None) -> list[str]:
    """The strategies that were given, else those that make sense."""
    if strategies is not None:
        return [name.strip() for name in strategies.split(",")]
    return ["ar", "beam5", *(["spec-strict", "spec"] if translator.has_drafter else [])]


def _take(translator: Translator, model: Path, strategies: Sequence[str], given: Mapping[str, Any]) -> None:
    """Have a translator draft and verify as was asked for.

    Raises:
        UsageError: values that no manifest may have, for strict decoding, without a drafter, or read by no strategy.
    """
    if given and not translator.has_drafter:
        raise UsageError(f"--draft-length, --beta and --tau are for drafts, and {model} has no drafter")
    try:
        translator.defaults = replace(translator.defaults, **given)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if translator.defaults.beta == 1 and given.keys() & {"beta", "tau"}:
        raise UsageError(
            "--beta and --tau are for relaxed decoding: give --beta 2 or more; spec-strict is strict anyway"
        )
    _check_needed(strategies, given)


def _check_needed(strategies: Sequence[str], given: Mapping[str, Any]) -> None:
    """Refuse options that none of the strategies reads, as `translate` does.

    Raises:
        UsageError: there is one.
    """
    for name in given:
        readers = ["spec", "spec-reproducible", *(["spec-strict"] if name == "draft_length" else [])]
        if not {*readers} & {*strategies}:
            raise UsageError(f"--{name.replace('_', '-')} is for {', '.join(readers)}, of which none is asked for")


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
    from specmt.corpus import read_parallel
    from specmt.evaluation import measuring, plotting, reporting

    pairs = read_parallel(source, reference)
    if not pairs:
        raise InputError(f"{source}: no lines")
    if plot:
        plotting.check_plot(plot)
    translator = load(model, engine, device, precision, threads)
    options = {"draft_length": draft_length, "beta": beta, "tau": tau}
    given = {name: value for name, value in options.items() if value is not None}
    asked = _asked(translator, strategies)
    _take(translator, model, asked, given)
    result = measuring.evaluate(
        translator,
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
        asked,
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
