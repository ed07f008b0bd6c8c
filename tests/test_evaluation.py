"""Evaluation: scores, counts, times by a clock that the engine drives, and the JSON that programs read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sacrebleu
from scripted import (
    DEFAULTS,
    SENTENCES,
    RankOf,
    ScriptedEngine,
    ScriptedRows,
    always_right,
    by_position,
    never_right,
    right_before,
    scripted_translator,
    tiny_vocabulary,
)

from specmt import evaluation
from specmt.engines.base import Candidates, IntArray, Lattice
from specmt.errors import InputError, UsageError
from specmt.evaluation import Evaluation, Latency, StrategyResult, evaluate, strategy_settings
from specmt.settings import DecodingSettings

SPEC = DecodingSettings.from_defaults(DEFAULTS)
AR = replace(SPEC, strategy="ar")


def measure(engine: ScriptedEngine, *strategies: str, lines: tuple[str, ...] = SENTENCES) -> dict[str, StrategyResult]:
    result = evaluate(scripted_translator(engine), lines, lines, strategies, batch_size=3, repeats=1)
    return {strategy.strategy: strategy for strategy in result.results}


def texts(engine: ScriptedEngine, settings: DecodingSettings, lines: tuple[str, ...] = SENTENCES) -> list[str]:
    return [translation.text for translation in scripted_translator(engine).translate(lines, settings, 3)]


# -- strategies


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ar", AR),
        ("beam2", replace(AR, beam=2)),
        ("beam12", replace(AR, beam=12)),
        ("spec-strict", replace(SPEC, beta=1)),
        ("spec", SPEC),
        ("replay", replace(AR, strategy="replay")),
        ("spec-reproducible", replace(SPEC, reproducible=True)),
    ],
)
def test_a_strategys_name_stands_for_settings(name: str, settings: DecodingSettings) -> None:
    assert strategy_settings(name, DEFAULTS) == settings


@pytest.mark.parametrize("name", ["", "greedy", "beam", "beam0", "beam-5", "5beam", "spec strict", "AR"])
def test_an_unknown_strategy_is_refused_and_the_known_ones_named(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"ar, beam2 \(or another number\), replay, spec-strict, spec, spec-rep"
    ) as error:
        measure(ScriptedEngine(), "ar", name)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        (["spec", "ar"], ["spec", "ar"]),
        (["spec-strict", "spec"], ["ar", "spec-strict", "spec"]),
        (["spec", "spec"], ["ar", "spec"]),
        ([], ["ar"]),
    ],
)
def test_results_come_in_the_order_asked_for_and_ar_is_always_there(asked: list[str], reported: list[str]) -> None:
    assert list(measure(ScriptedEngine(), *asked)) == reported


def test_sources_and_references_must_be_line_aligned() -> None:
    with pytest.raises(InputError, match="2 source lines, 1 reference lines"):
        evaluate(scripted_translator(ScriptedEngine()), ["a", "b"], ["a"], ["ar"], 1)


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_a_text_without_sentences_is_refused(lines: list[str]) -> None:
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(scripted_translator(ScriptedEngine()), lines, lines, ["ar"], 1)


# -- scores


def test_scores_and_signatures_are_sacrebleus_cased_on_13a_tokens() -> None:
    engine = ScriptedEngine()
    outputs = texts(engine, AR)
    references = [outputs[0].swapcase(), *outputs[1:]]
    result = evaluate(scripted_translator(engine), SENTENCES, references, ["ar"], 3, repeats=1).results[0]
    assert result.bleu == sacrebleu.corpus_bleu(outputs, [references], tokenize="13a").score
    assert result.bleu < sacrebleu.corpus_bleu(outputs, [references], lowercase=True).score
    assert result.chrf == sacrebleu.corpus_chrf(outputs, [references]).score
    version = sacrebleu.__version__
    assert result.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert result.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


def test_a_strategy_is_scored_on_its_own_output() -> None:
    engine = ScriptedEngine(by_position((0, 1)))
    references = texts(engine, SPEC)
    results = evaluate(scripted_translator(engine), SENTENCES, references, ["ar", "spec"], 3, repeats=1).results
    assert results[1].bleu == pytest.approx(100)
    assert results[0].bleu < 50


# -- acceptance: every line has 8 tokens and an end-of-sentence; 4 slots


@dataclass(frozen=True)
class Counts:
    rank_of: RankOf
    mean: float
    rate: float
    by_position: tuple[float, ...]
    histogram: tuple[int, ...]
    """Of one line."""


@pytest.mark.parametrize(
    "expected",
    [
        # 5 tokens, then 3 and the end: 8 drafted, 8 accepted.
        Counts(always_right, 4.5, 1.0, (1, 1, 1, 1), (0, 0, 0, 0, 1, 1)),
        # 9 recovered tokens; the last iteration drafted one that counts, the others four.
        Counts(never_right, 1.0, 0.0, (0, 0, 0, 0), (0, 9)),
        # 3 + 3 + 3 tokens, the last of them the end: 4 + 4 + 3 drafted.
        Counts(right_before(2), 3.0, 6 / 11, (1, 1, 0, 0), (0, 0, 0, 3)),
        # The first rejection is at target place 3: 4 tokens, then 5 with the end as bonus token.
        Counts(by_position((0, 0, 0, -1, 0, 0, 0, 0, 0)), 4.5, 7 / 8, (1, 1, 1, 0.5), (0, 0, 0, 0, 1, 1)),
        # A rejection at target place 1: 2 tokens, then 5, then 1 and the end, where slots 3 and 4 do not count.
        Counts(by_position((0, -1, 0, 0, 0, 0, 0, 0, 0)), 3.0, 7 / 10, (1, 2 / 3, 1 / 2, 1 / 2), (0, 0, 2, 0, 0, 1)),
    ],
)
def test_acceptance_is_counted_by_hand(expected: Counts) -> None:
    result = measure(ScriptedEngine(expected.rank_of, length=lambda source: 8), "spec-strict")["spec-strict"]
    lines = len(SENTENCES)
    assert result.mean_emitted_tokens == pytest.approx(expected.mean)
    assert result.acceptance_rate == pytest.approx(expected.rate)
    assert result.acceptance_by_position == pytest.approx(expected.by_position)
    assert result.emitted_histogram == tuple(lines * count for count in expected.histogram)
    assert result.iterations == lines * sum(expected.histogram)


def test_ar_emits_one_token_an_iteration_and_drafts_none() -> None:
    result = measure(ScriptedEngine(length=lambda source: 8), "ar")["ar"]
    assert (result.mean_emitted_tokens, result.iterations) == (1.0, 9 * len(SENTENCES))
    assert (result.acceptance_rate, result.acceptance_by_position) == (None, ())
    assert result.emitted_histogram == (0, 9 * len(SENTENCES))


def test_identical_lines_are_counted_against_ar() -> None:
    engine = ScriptedEngine(by_position((0, 0, 0, 0, 0, 1)))
    lines = (*SENTENCES, "", "Ein Hund.")
    same = [ar == spec for ar, spec in zip(texts(engine, AR, lines), texts(engine, SPEC, lines), strict=True)]
    assert 0 < sum(same) < len(lines)
    results = measure(engine, "ar", "spec-strict", "spec", lines=lines)
    shares = {name: result.identical_to_ar for name, result in results.items()}
    assert shares == {"ar": 1.0, "spec-strict": 1.0, "spec": sum(same) / len(lines)}


# -- time


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
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(perf_counter=clock.perf_counter))
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
    scores = evaluation._scores

    def slow_scores(outputs: list[str], references: list[str]) -> tuple[float, str, float, str]:
        clock.work(1e6)
        return scores(outputs, references)

    monkeypatch.setattr(evaluation, "_scores", slow_scores)
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
    assert spec.speedup_vs_ar == pytest.approx(66 / 20)
    # Round by round: 22 / 10, 88 / 20, 66 / 60.
    assert (spec.speedup_vs_ar_min, spec.speedup_vs_ar_max) == pytest.approx((66 / 60, 88 / 20))
    assert (ar.speedup_vs_ar_min, ar.speedup_vs_ar_max) == (1.0, 1.0)


def test_each_strategy_is_warmed_up_before_the_first_clock_runs() -> None:
    engine = ScriptedEngine(length=lambda source: 8)
    calls: list[int] = []
    evaluate(
        scripted_translator(engine),
        SENTENCES,
        SENTENCES,
        ["ar", "beam2", "spec"],
        1,
        1,
        lambda line: calls.append(len(engine.calls)),
    )
    warm_up = engine.calls[: calls[0]]
    assert [name for name, _ in warm_up].count("encode") == 3 * evaluation.WARM_UP_LINES
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
    monkeypatch.setattr(evaluation, "LATENCY_LINES", 4)
    monkeypatch.setattr(evaluation, "WARM_UP_LINES", 2)
    result, engine = evaluate_timed(clock, (*SENTENCES, ""), "ar", "spec", batch_size=8)
    ar, spec = result.results
    assert (ar.seconds, spec.seconds) == (22, 10), "one batch of eight"
    assert ar.latency_ms == Latency(22000, 22000, 22000, 22000)
    assert spec.latency_ms == Latency(10000, 10000, 10000, 10000)
    # Of each strategy: a batch to warm up, the timed one, two lines to warm up, four for latency.
    encoded = [rows for name, rows in engine.calls if name == "encode"]
    assert encoded == [8, 8, 8, 8] + [1] * 2 * (2 + 4)


def test_the_lines_for_latency_are_spread_over_the_text(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LATENCY_LINES", 3)
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


# -- the result object


def test_json_has_the_documented_keys_and_no_number_that_json_lacks() -> None:
    engine = ScriptedEngine(right_before(2))
    lines = SENTENCES[:2]
    result = evaluate(
        scripted_translator(engine), lines, lines, ["ar", "beam5", "spec"], batch_size=2, repeats=2, threads=7
    )
    value = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(value) == ["machine", "lines", "batch_size", "repeats", "results"]
    assert (value["lines"], value["batch_size"], value["repeats"]) == (2, 2, 2)
    assert list(value["machine"]) == ["cpu", "cores", "threads", "os", "python", "torch", "engine", "precision"]
    machine = {key: value["machine"][key] for key in ("threads", "engine", "precision", "python")}
    python = ".".join(map(str, sys.version_info[:3]))
    assert machine == {"threads": 7, "engine": "scripted-cpu-fp32", "precision": "fp32", "python": python}
    keys = {"strategy", "settings", "bleu", "bleu_signature", "chrf", "chrf_signature"}
    keys |= {"seconds", "seconds_min", "seconds_max", "sentences_per_second", "latency_ms"}
    keys |= {"speedup_vs_ar", "speedup_vs_ar_min", "speedup_vs_ar_max", "identical_to_ar"}
    keys |= {
        "mean_emitted_tokens",
        "acceptance_rate",
        "acceptance_by_position",
        "emitted_histogram",
        "iterations",
        "replay",
    }
    assert [set(entry) for entry in value["results"]] == [keys] * 3
    assert [entry["strategy"] for entry in value["results"]] == ["ar", "beam5", "spec"]
    assert [set(entry["latency_ms"]) for entry in value["results"]] == [{"mean", "p50", "p95", "p99"}] * 3
    assert [entry["settings"] for entry in value["results"]] == [
        {"beam": 1, "length_penalty": 1.0},
        {"beam": 5, "length_penalty": 1.0},
        {"draft_length": 4, "beta": 3, "tau": 1.0, "reproducible": False},
    ]
    assert value["results"][0]["acceptance_rate"] is None


def test_without_torch_the_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    machine = evaluate(scripted_translator(ScriptedEngine()), SENTENCES, SENTENCES, ["ar"], 1, repeats=1).machine
    assert (machine.torch, machine.threads) == (None, None)


def test_importing_loads_no_heavy_package() -> None:
    code = "import sys, specmt.evaluation, specmt.plotting, specmt.explanation, specmt.reporting; print(*sys.modules)"
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert {"sacrebleu", "matplotlib", "torch", "fairseq"}.isdisjoint(done.stdout.split())


def test_the_tiny_vocabulary_knows_every_character_of_its_sentences() -> None:
    vocabulary = tiny_vocabulary()
    assert [vocabulary.decode(vocabulary.encode(line)) for line in SENTENCES] == list(SENTENCES)
