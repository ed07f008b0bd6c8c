"""Reproducible decoding: the same ids and scores whatever is decoded beside a sentence, and whatever goes wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from faults import FaultyEngine, FaultyIteratingEngine
from hypothesis import given
from hypothesis import strategies as st
from pairs import TINY, random_weights
from scripted import (
    FIRST_PIECE_ID,
    Arrivals,
    ScriptedEngine,
    ScriptedRows,
    by_position,
    decoded,
)

from specmt import BUNDLED_MODEL
from specmt.arrays import IntArray
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.decoding.loops import Greedy, Plan, Speculative, decode
from specmt.decoding.replay import FixedSpeculative, Replay
from specmt.engines.base import AnyEngine, Candidates, Size
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import EngineError
from specmt.loading import load_translator
from specmt.text.vocabulary import EOS_ID

ROOT = Path(__file__).parent.parent


def requests(lengths: Sequence[int], max_tokens: int = 100, reproducible: bool = True) -> list[Request]:
    return [
        Request(index, [*range(5 + index, 5 + index + length), EOS_ID], max_tokens, reproducible)
        for index, length in enumerate(lengths)
    ]


LENGTHS = [3, 0, 12, 7, 1, 5, 5, 9, 2, 4, 8, 16]


def ids_of(hypotheses: dict[int, Hypothesis]) -> list[list[int]]:
    return [hypotheses[index].ids for index in sorted(hypotheses)]


# -- the loop, over a scripted engine


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize(("window", "group"), [(1, 1), (3, 2), (4, 4), (16, 1), (5, 8)])
def test_replay_gives_greedys_ids(window: int, group: int, batch_size: int) -> None:
    engine, asked = ScriptedEngine(), requests(LENGTHS)
    hypotheses = decoded(engine, asked, Replay(window, group), batch_size)
    assert ids_of(hypotheses) == [engine.greedy(one.source_ids, one.max_tokens) for one in asked]
    assert sum(one.replay.mismatches for one in hypotheses.values()) == 0
    for request in asked:
        tokens = len(hypotheses[request.index].ids)
        assert hypotheses[request.index].replay.replays == -(-tokens // window)


@given(st.data())
def test_a_fast_path_that_is_wrong_at_random_changes_only_the_counters(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=9))
    asked = requests(lengths, data.draw(st.integers(1, 20)))
    strategy = Replay(data.draw(st.integers(1, 7)), data.draw(st.integers(1, 4)))
    batch_size = data.draw(st.integers(1, 10))
    engine = ScriptedEngine()
    right = decoded(engine, asked, strategy, batch_size)
    kind = data.draw(st.sampled_from([FaultyEngine, FaultyIteratingEngine]))
    faulty = kind(engine, noise=data.draw(st.floats(0.1, 5)), seed=data.draw(st.integers(0, 99)))
    found = decoded(faulty, asked, strategy, batch_size)
    assert ids_of(found) == ids_of(right) == [engine.greedy(one.source_ids, one.max_tokens) for one in asked]
    assert [found[i].log_prob for i in sorted(found)] == [right[i].log_prob for i in sorted(right)]
    assert set(faulty.passes) == {(strategy.group, strategy.window)}
    assert all(start % strategy.window == 0 for start in faulty.starts)


@pytest.mark.parametrize("kind", [FaultyEngine, FaultyIteratingEngine])
@pytest.mark.parametrize("window", [1, 4, 16])
def test_a_fast_path_that_is_always_wrong_ends_with_a_token_a_replay(window: int, kind: type[FaultyEngine]) -> None:
    engine, asked = ScriptedEngine(), requests(LENGTHS)
    found = decoded(kind(engine, always_wrong=True), asked, Replay(window, 3), batch_size=5)
    assert ids_of(found) == [engine.greedy(one.source_ids, one.max_tokens) for one in asked]
    for hypothesis in found.values():
        assert [len(one.emitted) for one in hypothesis.iterations] == [1] * len(hypothesis.ids)
        assert hypothesis.replay.replays == hypothesis.replay.mismatches == len(hypothesis.ids)
        assert hypothesis.replay.recomputed >= hypothesis.replay.rollbacks
    assert (sum(one.replay.rollbacks for one in found.values()) > 0) == (window > 1)


class Stepping(ScriptedEngine):
    """Ends no row by itself; keeps how many plain steps were run before each replay."""

    def __init__(self) -> None:
        super().__init__(length=lambda source: 1000)
        self.steps: list[int] = []

    def gather(self, rows: ScriptedRows, indices: IntArray, lengths: IntArray, size: Size) -> ScriptedRows:
        passes = sum(method == "verify" for method, _ in self.calls)
        self.steps.append(passes - len(self.steps))
        return super().gather(rows, indices, lengths, size)


@pytest.mark.parametrize(("reproducible", "waits"), [(True, 8 // 2), (False, 0)])
def test_a_row_waits_half_a_window_for_a_group_to_fill_and_not_at_all_where_no_other_can_come(
    reproducible: bool, waits: int
) -> None:
    engine, source = Stepping(), [5, 6, 7, EOS_ID]
    decoded(engine, [Request(0, source, 2, True), Request(1, source, 40, reproducible)], Replay(8, 2), batch_size=2)
    assert engine.steps[0] == 2 + waits


def test_a_row_waits_as_long_for_its_next_replay() -> None:
    """The other row that is replayed enters six steps after the first one."""
    engine, source = Stepping(), [5, 6, 7, EOS_ID]
    asked = [Request(0, source, 17, True), Request(1, source, 6), Request(2, source, 16, True)]
    decoded(engine, asked, Replay(8, 2), batch_size=2)
    # The first row's windows end at 8, 16 and 17, the other's at 6 + 8 and 6 + 16: at 16 both are ready.
    assert engine.steps == [8 + 4, 16, 16, 17 + 4, 6 + 16]


def test_counters_count_what_is_replaced_and_what_is_forgotten_behind_it() -> None:
    class WrongOnce(ScriptedEngine):
        """The fast path says another token at position 2, once."""

        wrong = True

        def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
            candidates = super().verify(rows, token_ids, beta)
            if rows.size is None and self.wrong and rows.lengths[0] == 2:
                self.wrong = False
                candidates.ids[0, 0, 0] = FIRST_PIECE_ID + candidates.ids[0, 0, 0] % 50
            return candidates

    engine, (asked,) = WrongOnce(), requests([9])
    hypothesis = decoded(engine, [asked], Replay(5, 2), batch_size=1)[0]
    assert hypothesis.ids == engine.greedy(asked.source_ids, 100)
    counts = hypothesis.replay
    assert (counts.replays, counts.mismatches, counts.rollbacks, counts.recomputed) == (3, 1, 1, 2)
    assert [(one.drafted, one.accepted, len(one.emitted)) for one in hypothesis.iterations] == [
        (5, 2, 3),
        (2, 2, 2),
        (5, 5, 5),
    ]


def test_what_a_guard_cuts_off_counts_neither_as_drafted_nor_as_accepted() -> None:
    class Stuttering(ScriptedEngine):
        """Says the same token for ever."""

        def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
            candidates = super().verify(rows, token_ids, beta)
            candidates.ids[:, :, 0] = FIRST_PIECE_ID
            return candidates

    asked = Request(0, [FIRST_PIECE_ID, EOS_ID], 100, reproducible=True, source_repeats=1)
    hypothesis = decoded(Stuttering(), [asked], Replay(16, 1), batch_size=1)[0]
    assert hypothesis.runaway and len(hypothesis.ids) == 24
    assert [(one.drafted, one.accepted, len(one.emitted)) for one in hypothesis.iterations] == [(16,) * 3, (8,) * 3]


@pytest.mark.parametrize("kind", [FaultyEngine, FaultyIteratingEngine])
def test_rows_that_do_not_ask_for_it_are_not_replayed_in_a_shared_batch(kind: type[FaultyEngine]) -> None:
    asked = [replace(one, reproducible=one.index % 3 == 0) for one in requests(LENGTHS)]
    engine = kind(ScriptedEngine(), always_wrong=True)
    found = decoded(engine, asked, Replay(4, 2), batch_size=6)
    for request in asked:
        greedy = engine.engine.greedy(request.source_ids, request.max_tokens)
        assert (found[request.index].ids == greedy) == request.reproducible
        assert (found[request.index].replay.replays > 0) == request.reproducible


def test_speculating_rows_that_ask_for_it_have_passes_of_their_own() -> None:
    asked = [replace(one, reproducible=one.index % 3 == 0) for one in requests(LENGTHS)]
    engine = FaultyEngine(ScriptedEngine(by_position([0, 0, -1])), always_wrong=True)
    speculative = Speculative(3, 1, 0.0)
    plan = Plan(speculative, FixedSpeculative(speculative, 2), 2)
    found = {one.request.index: one for one in decode(engine, Arrivals(asked), plan, 6)}
    for request in asked:
        greedy = engine.engine.greedy(request.source_ids, request.max_tokens)
        assert (found[request.index].ids == greedy) == request.reproducible
    assert set(engine.passes) == {(2, 4)}


@pytest.mark.parametrize("in_flight", [True, False])
def test_without_in_flight_batching_rows_enter_when_all_others_have_left(in_flight: bool) -> None:
    engine, asked = ScriptedEngine(), requests(LENGTHS, reproducible=False)
    plan = Plan(Greedy(), in_flight=in_flight)
    found = {one.request.index: one.ids for one in decode(engine, Arrivals(asked), plan, 4)}
    assert [found[one.index] for one in asked] == [engine.greedy(one.source_ids, 100) for one in asked]
    entering = [rows for method, rows in engine.calls if method == "encode"]
    assert (entering == [4, 4, 4]) != in_flight


def test_an_engine_whose_results_depend_on_the_place_in_a_group_is_found_out() -> None:
    class PlaceMatters(ScriptedEngine):
        def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
            candidates = super().verify(rows, token_ids, beta)
            if rows.size is not None:
                candidates.ids[:, 0, 0] = FIRST_PIECE_ID + len(self.calls) % 50
            return candidates

    with pytest.raises(EngineError, match="place in a group") as raised:
        decoded(PlaceMatters(), requests([9, 9, 9]), Replay(6, 2), batch_size=3)
    assert "\n" not in str(raised.value)


# -- the torch engine, on random weights; the 8-bit ones, with the bundled pair


@cache
def tiny_engine(bf16: bool) -> TorchEngine:
    return TorchEngine(TINY, random_weights(TINY, seed=3), bf16=bf16)


def outcome(engine: AnyEngine, asked: Sequence[Request], plan: Plan, batch_size: int) -> list[tuple[list[int], float]]:
    found = {one.request.index: one for one in decode(engine, Arrivals(asked), plan, batch_size)}
    return [(found[index].ids, found[index].log_prob) for index in sorted(found)]


def sentences(count: int) -> list[Request]:
    draw = np.random.default_rng(5)
    lengths = draw.integers(1, 30, count).tolist()
    return [
        Request(index, [*draw.integers(5, TINY.vocabulary_size, length).tolist(), EOS_ID], length + 6, True)
        for index, length in enumerate(lengths)
    ]


PLANS = {
    "replay": Plan(Replay(4, 3), None, 3),
    "spec": Plan(Greedy(), FixedSpeculative(Speculative(3, 2, 0.5), 3), 3),
}


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("plan", PLANS)
def test_ids_and_scores_are_the_same_bits_in_any_batch_and_order(plan: str, bf16: bool) -> None:
    engine, asked = tiny_engine(bf16), sentences(14)
    expected = outcome(engine, asked, PLANS[plan], 1)
    assert len({len(ids) for ids, _ in expected}) > 5
    for batch_size, in_flight, seed in [(3, True, 0), (8, True, 1), (8, False, 2), (32, True, 3)]:
        shuffled = random.Random(seed).sample(asked, len(asked))
        assert outcome(engine, shuffled, replace(PLANS[plan], in_flight=in_flight), batch_size) == expected


@pytest.mark.parametrize("fault", [{"noise": 0.5}, {"noise": 3.0}, {"always_wrong": True}])
def test_faults_in_the_fast_path_and_its_caches_change_no_bit(fault: dict[str, float]) -> None:
    engine, asked = tiny_engine(False), sentences(16)
    expected = outcome(engine, asked, PLANS["replay"], 4)
    faulty = FaultyEngine(engine, **fault)  # type: ignore[arg-type]
    assert outcome(faulty, asked, PLANS["replay"], 8) == expected
    assert outcome(faulty, asked, Plan(Greedy()), 8) != expected


def test_a_group_has_one_layout_wherever_its_rows_come_from() -> None:
    """Kernels are chosen by strides as well as by shapes."""
    engine = tiny_engine(False)
    mine, *others = [request.source_ids for request in sentences(6)]
    alone = engine.encode_fixed([mine], 2)
    among = engine.select(engine.join(engine.encode_fixed(others, 2), alone), np.array([3, 5, 0]))
    size = engine.size(len(mine), 9)
    expected = engine.gather(alone, np.array([0, 0]), np.zeros(2, dtype=np.int64), size)
    found = engine.gather(among, np.array([1, 2]), np.zeros(2, dtype=np.int64), Size(*size))
    for cache_, other in zip(expected.memory + expected.caches, found.memory + found.caches, strict=True):
        assert cache_.keys.shape == other.keys.shape and cache_.keys.stride() == other.keys.stride()
    tokens = np.arange(8)[None] + 6
    results = [engine.verify(group, np.repeat(tokens, 2, axis=0), 2) for group in (expected, found)]
    assert np.array_equal(results[0].log_probs[0], results[1].log_probs[0])


@pytest.mark.parametrize("engine", ["native", "onnx"])
def test_the_8_bit_engines_give_the_same_bits_at_a_fixed_shape(engine: str) -> None:
    """They declare their rows exact, and then draft and verify reproducible rows with all others; is that right?"""
    translator = load_translator(BUNDLED_MODEL, engine=engine)
    lines = (ROOT / "data" / "sample.de").read_text().splitlines()[:12]
    asked = [
        Request(index, [*translator.vocabulary.encode(line), EOS_ID], 60, True) for index, line in enumerate(lines)
    ]
    speculative = Speculative(6, 3, 0.3)
    expected = outcome(translator.engine, asked, Plan(speculative), 1)
    for batch_size in (1, 5, 12):
        found = outcome(translator.engine, asked, Plan(Greedy(), FixedSpeculative(speculative, 3), 3), batch_size)
        assert found == expected
