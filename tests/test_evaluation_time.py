"""What evaluation times, by a clock that the engine drives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from scripted import SENTENCES, ScriptedEngine, ScriptedRows, scripted_translator, tiny_vocabulary

from specmt.arrays import IntArray
from specmt.engines.base import Candidates, Lattice
from specmt.evaluation import measuring
from specmt.evaluation.measuring import Evaluation, Latency, evaluate


@dataclass
class Clock:
    """Goes on only when the engine works."""

    now: float = 0.0
    rate: float = 1.0

    def perf_counter(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += self.rate * seconds


@dataclass
class TimedEngine(ScriptedEngine):
    """Takes 4 s to encode a batch, 1 s to draft, 2 s to verify."""

    clock: Clock = field(default_factory=Clock)

    def encode(self, sources: list[list[int]]) -> ScriptedRows:  # type: ignore[override]
        self.clock.work(4)
        return super().encode(sources)

    def draft(self, rows: ScriptedRows, last_ids: IntArray, draft_length: int) -> Lattice:
        self.clock.work(1)
        return super().draft(rows, last_ids, draft_length)

    def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
        self.clock.work(2)
        return super().verify(rows, token_ids, beta)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(measuring, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    return clock


def evaluate_timed(
    clock: Clock,
    lines: tuple[str, ...],
    *strategies: str,
    batch_size: int = 1,
    repeats: int = 1,
    report: Callable[[str], None] | None = None,
) -> tuple[Evaluation, TimedEngine]:
    """Every line: 8 tokens and an end, so 4 + 9 · 2 = 22 s by ar, 4 + 2 · (1 + 2) = 10 s by spec, one at a time."""
    engine = TimedEngine(clock=clock, length=lambda source: 8)
    return (
        evaluate(
            scripted_translator(engine), lines, lines, strategies, batch_size, repeats, report or (lambda line: None)
        ),
        engine,
    )


def test_the_timed_span_holds_encoding_and_decoding_of_every_line_once(clock: Clock) -> None:
    ar, spec = evaluate_timed(clock, SENTENCES, "ar", "spec")[0].results
    assert (ar.seconds, spec.seconds) == (8 * 22, 8 * 10)
    assert ar.sentences_per_second == pytest.approx(1 / 22)
    assert (ar.speedup_vs_ar, spec.speedup_vs_ar) == (1.0, 2.2)


def test_scoring_is_outside_the_timed_span(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = measuring.scores

    def slow_scores(outputs: list[str], references: list[str], language: str) -> measuring.Scores:
        clock.work(1e6)
        return scores(outputs, references, language)

    monkeypatch.setattr(measuring, "scores", slow_scores)
    results = evaluate_timed(clock, SENTENCES, "ar", "spec", repeats=2)[0].results
    assert [result.seconds_max for result in results] == [8 * 22, 8 * 10]


def test_rounds_rotate_and_give_medians_ranges_and_ratios_within_a_round(clock: Clock) -> None:
    """What each pass is slowed by, in the order of the passes: ar spec | spec ar | ar spec."""
    rates = iter([1.0, 1.0, 2.0, 4.0, 3.0, 6.0, 100.0])
    told: list[str] = []

    def report(line: str) -> None:
        told.append(line)
        clock.rate = next(rates)

    clock.rate = 100.0  # while warming up
    result, _ = evaluate_timed(clock, SENTENCES[:1], "ar", "spec", repeats=3, report=report)
    assert [line.split(":")[-1].split()[0] for line in told[1:]] == ["ar", "spec", "spec", "ar", "ar", "spec"]
    ar, spec = result.results
    assert (ar.seconds, ar.seconds_min, ar.seconds_max) == (3 * 22, 22, 4 * 22)
    assert (spec.seconds, spec.seconds_min, spec.seconds_max) == (2 * 10, 10, 6 * 10)
    # Round by round: 22 / 10, 88 / 20, 66 / 60.
    assert spec.speedup_vs_ar == pytest.approx(22 / 10)
    assert (spec.speedup_vs_ar_min, spec.speedup_vs_ar_max) == pytest.approx((66 / 60, 88 / 20))
    assert (ar.speedup_vs_ar_min, ar.speedup_vs_ar_max) == (1.0, 1.0)


@pytest.mark.parametrize("lines", [SENTENCES, [line for one in SENTENCES for line in ("", one)]], ids=["all", "blanks"])
def test_each_strategy_is_warmed_up_before_the_first_clock_runs(lines: Sequence[str]) -> None:
    engine = ScriptedEngine(length=lambda source: 8)
    calls: list[int] = []
    evaluate(
        scripted_translator(engine),
        lines,
        lines,
        ["ar", "beam2", "spec"],
        1,
        1,
        lambda line: calls.append(len(engine.calls)),
    )
    warm_up = engine.calls[: calls[0]]
    assert [name for name, _ in warm_up].count("encode") == 3 * measuring.WARM_UP_LINES
    assert {rows for name, rows in warm_up if name == "verify"} == {1, 2}
    assert ("draft", 1) in warm_up


def test_blank_lines_count_neither_as_sentences_nor_in_latency(clock: Clock) -> None:
    result, _ = evaluate_timed(clock, ("", *SENTENCES[:2], "  "), "ar")
    (ar,) = result.results
    assert (result.lines, ar.seconds, ar.sentences_per_second) == (4, 44, 2 / 44)
    assert ar.latency_ms == Latency(22000, 22000, 22000, 22000)


def test_latency_at_batch_size_1_is_that_of_each_line_of_the_timed_passes(clock: Clock) -> None:
    rates = iter([1.0, 3.0, 0.0])

    def report(line: str) -> None:
        clock.rate = next(rates)

    engine = TimedEngine(clock=clock)
    (ar,) = evaluate(scripted_translator(engine), SENTENCES, SENTENCES, ["ar"], 1, 2, report).results
    tokens = [len(tiny_vocabulary().encode(line)) + 1 for line in SENTENCES]
    expected = [rate * (4 + 2 * count) * 1000 for rate in (1, 3) for count in tokens]
    p50, p95, p99 = np.percentile(expected, [50, 95, 99]).tolist()
    measured = (ar.latency_ms.mean, ar.latency_ms.p50, ar.latency_ms.p95, ar.latency_ms.p99)
    assert measured == pytest.approx((sum(expected) / len(expected), p50, p95, p99))


def test_latency_of_larger_batches_is_measured_line_by_line_in_a_pass_of_its_own(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "LATENCY_LINES", 4)
    monkeypatch.setattr(measuring, "WARM_UP_LINES", 2)
    result, engine = evaluate_timed(clock, (*SENTENCES, ""), "ar", "spec", batch_size=8)
    ar, spec = result.results
    assert (ar.seconds, spec.seconds) == (22, 10), "one batch of eight"
    assert ar.latency_ms == Latency(22000, 22000, 22000, 22000)
    assert spec.latency_ms == Latency(10000, 10000, 10000, 10000)
    # Of each strategy: a batch to warm up, the timed one, two lines to warm up, four for latency.
    encoded = [rows for name, rows in engine.calls if name == "encode"]
    assert encoded == [8, 8, 8, 8] + [1] * 2 * (2 + 4)


def test_lines_that_are_copied_take_no_place_among_those_for_latency(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "LATENCY_LINES", 2)
    lines = ("?!", SENTENCES[0]) * 2  # every other line would be a copied one
    assert scripted_translator(ScriptedEngine()).requests(lines[:1]) == []
    (ar,) = evaluate(scripted_translator(TimedEngine(clock=clock)), lines, lines, ["ar"], 8, 1).results
    assert ar.latency_ms.mean > 0


def test_the_lines_for_latency_are_spread_over_the_text(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "LATENCY_LINES", 3)
    engine = TimedEngine(clock=clock)
    (ar,) = evaluate(scripted_translator(engine), SENTENCES, SENTENCES, ["ar"], 8, 1).results
    taken = [SENTENCES[place] for place in (0, 2, 5)]
    seconds = [4 + 2 * (len(tiny_vocabulary().encode(line)) + 1) for line in taken]
    assert ar.latency_ms.mean == pytest.approx(1000 * sum(seconds) / 3)


def test_the_gpu_is_waited_for_before_and_after_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    engine = ScriptedEngine()
    cuda = SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: waits.append(len(engine.calls)))
    fake = SimpleNamespace(cuda=cuda, get_num_threads=lambda: 3, __version__="9.9")
    monkeypatch.setitem(sys.modules, "torch", fake)
    result = evaluate(scripted_translator(engine), SENTENCES, SENTENCES, ["ar"], 1, repeats=1)
    assert len(waits) == 4, "around the warm-up and the one pass"
    assert waits[0] == 0
    assert waits[3] == len(engine.calls)
    assert (result.machine.torch, result.machine.threads) == ("9.9", 3)
