"""An evaluation as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from specmt.evaluation.measuring import Evaluation, StrategyResult

NARROWEST = 80
"""Columns that the tables need; a narrower terminal wraps their lines."""


def show(evaluation: Evaluation) -> None:
    """Print the tables to standard output."""
    console = Console()
    console.width = max(console.width, NARROWEST)
    console.print(render(evaluation))


def render(evaluation: Evaluation) -> RenderableType:
    """What was measured, on which machine, with which signatures."""
    results = evaluation.results
    speculative = [result for result in results if result.settings.strategy == "spec"]
    parts: list[RenderableType] = [_speed(results), Text(), _latency(results), Text()]
    if speculative:
        parts += [_acceptance(speculative), Text()]
    if any(result.replay for result in results):
        parts += [_replays(results), Text()]
    return Group(*parts, *_conditions(evaluation))


def _table(*columns: str) -> Table:
    """A plain table: the first column left, numbers right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for place, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if place else "left", vertical="bottom", no_wrap=not place)
    return table


def _speed(results: Sequence[StrategyResult]) -> Table:
    table = _table("strategy", "BLEU", "chrF", "seconds", "sentences/s", "speedup vs ar", "same as ar")
    for result in results:
        table.add_row(
            result.strategy,
            f"{result.bleu:.1f}",
            f"{result.chrf:.1f}",
            f"{result.seconds:.2f}",
            f"{result.sentences_per_second:.1f}",
            f"{result.speedup_vs_ar:.2f} ({result.speedup_vs_ar_min:.2f}–{result.speedup_vs_ar_max:.2f})",
            _percent(result.identical_to_ar),
        )
    return table


def _latency(results: Sequence[StrategyResult]) -> Table:
    table = _table("strategy", "latency\nmean ms", "p50 ms", "p95 ms", "p99 ms", "mean emitted\ntokens", "accepted")
    for result in results:
        latency = result.latency_ms
        table.add_row(
            result.strategy,
            *(f"{value:.1f}" for value in (latency.mean, latency.p50, latency.p95, latency.p99)),
            "–" if result.settings.strategy == "replay" else f"{result.mean_emitted_tokens:.2f}",
            "–" if result.acceptance_rate is None else _percent(result.acceptance_rate),
        )
    return table


def _acceptance(results: Sequence[StrategyResult]) -> Table:
    """A line for each n: the share of iterations that accepted slot n once drafted, and that emitted n tokens."""
    columns = [f"{result.strategy}\n{what}" for result in results for what in ("slot n accepted", "n tokens emitted")]
    table = _table("n", *columns)
    shares: list[Sequence[float]] = []
    for result in results:
        shares.append(result.acceptance_by_position)
        shares.append([count / result.iterations for count in result.emitted_histogram[1:]])
    for tokens, row in enumerate(zip_longest(*shares), start=1):
        table.add_row(str(tokens), *("–" if share is None else _percent(share) for share in row))
    return table


def _replays(results: Sequence[StrategyResult]) -> Table:
    table = _table("strategy", "replays", "mismatches", "rollbacks", "tokens recomputed")
    for result in results:
        if (counts := result.replay) is not None:
            row = (counts.replays, counts.mismatches, counts.rollbacks, counts.recomputed)
            table.add_row(result.strategy, *map(str, row))
    return table


def _conditions(evaluation: Evaluation) -> list[Text]:
    machine = evaluation.machine
    threads = "" if machine.threads is None else f", threads: {machine.threads}"
    torch = "" if machine.torch is None else f", torch {machine.torch}"
    first = evaluation.results[0]
    lines = [
        f"{evaluation.lines} lines, median (range) of {evaluation.repeats} rounds at batch size {evaluation.batch_size}"
        ", latency line by line",
        f"{machine.engine}{threads}, {machine.cpu}, cores: {machine.cores}",
        f"Python {machine.python}{torch}, {machine.os}",
        f"BLEU {first.bleu_signature}",
        f"chrF {first.chrf_signature}",
    ]
    return [Text(line, style="dim", overflow="fold") for line in lines]


def _percent(share: float) -> str:
    """A share of 0 to 1; 100.0% of nothing less than all."""
    return f"{100 * share if share == 1 else min(100 * share, 99.9):.1f}%"
