"""Rows in flight: who enters when, what a pass holds, and where a hypothesis ends."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted import Arrivals, ScriptedEngine, ScriptedRows, decoded

from specmt.decoding.hypotheses import Hypothesis, Iteration, Request
from specmt.decoding.loops import Greedy, Plan, RequestQueue, Speculative, decode
from specmt.engines.base import Run, step
from specmt.text.vocabulary import EOS_ID


def limited(*limits: int) -> list[Request]:
    """Requests that end by their limit after so many tokens."""
    return [Request(index, [*range(5 + index, 8 + index), EOS_ID], limit) for index, limit in enumerate(limits)]


def never_ending() -> ScriptedEngine:
    return ScriptedEngine(length=lambda source: 1000)


def test_one_row_at_a_time_with_batch_size_1() -> None:
    engine = never_ending()
    decoded(engine, limited(1, 2, 1), Greedy(), batch_size=1)
    assert engine.calls == [
        *[("encode", 1), ("verify", 1)],
        *[("encode", 1), ("verify", 1), ("verify", 1)],
        *[("encode", 1), ("verify", 1)],
    ]


def test_a_waiting_row_takes_the_place_of_a_finished_one() -> None:
    engine = never_ending()
    decoded(engine, limited(1, 3, 3, 2, 1), Greedy(), batch_size=3)
    assert engine.calls == [
        *[("encode", 3), ("verify", 3)],
        *[("encode", 1), ("verify", 3), ("verify", 3)],
        *[("encode", 1), ("verify", 1)],
    ]


def test_rows_enter_once_a_quarter_of_the_places_is_free() -> None:
    engine = never_ending()
    decoded(engine, limited(1, 3, 3, 5, 5, 5, 5, 5, 2, 2), Greedy(), batch_size=8)
    assert engine.calls == [
        *[("encode", 8), ("verify", 8), ("verify", 7), ("verify", 7)],
        *[("encode", 2), ("verify", 7), ("verify", 7)],
    ]


def test_hypotheses_come_in_the_order_in_which_they_finish() -> None:
    hypotheses = decode(never_ending(), Arrivals(limited(4, 1, 2, 1, 1)), Greedy(), batch_size=3)
    assert [hypothesis.request.index for hypothesis in hypotheses] == [1, 2, 3, 4, 0]


def test_a_hypothesis_is_handed_out_before_the_next_pass_is_run() -> None:
    engine = never_ending()
    hypotheses = decode(engine, Arrivals(limited(1, 9)), Greedy(), batch_size=2)
    assert next(hypotheses).request.index == 0
    assert engine.calls == [("encode", 2), ("verify", 2)]


def test_more_requests_are_awaited_only_when_no_row_is_in_flight() -> None:
    class LateArrival(Arrivals):
        """The second request is not there until it is waited for."""

        def take(self, count: int, wait: bool) -> list[Request]:
            return super().take(1 if wait else 0, wait)

    arrivals = LateArrival(limited(2, 1))
    hypotheses = list(decode(never_ending(), arrivals, Greedy(), batch_size=2))
    assert [hypothesis.request.index for hypothesis in hypotheses] == [0, 1]
    assert [wait for _, wait in arrivals.asked] == [True, False, True, True]


def test_no_more_requests_are_asked_for_than_places_are_free() -> None:
    arrivals = Arrivals(limited(1, 2, 2, 1, 1))
    list(decode(never_ending(), arrivals, Greedy(), batch_size=3))
    assert [count for count, _ in arrivals.asked] == [3, 1, 3, 3]


def test_nothing_to_decode_runs_no_pass() -> None:
    engine = ScriptedEngine()
    assert decoded(engine, [], Speculative(4, beta=1, tau=0.0), batch_size=3) == {}
    assert engine.calls == []


@pytest.mark.parametrize(
    ("most_rows", "first_two"),
    [
        pytest.param(1, [("verify", 2), ("verify", 2), ("verify", 1), ("verify", 1)], id="more than it drafts for"),
        pytest.param(2, [("draft", 2), ("verify", 2)], id="as many as it drafts for"),
    ],
)
def test_nothing_is_drafted_for_more_rows_than_allowed_nor_for_those_that_stay_behind(
    most_rows: int, first_two: list[tuple[str, int]]
) -> None:
    """For rows that enter after all of those have left, there is a draft again."""
    engine, asked = never_ending(), limited(2, 4, 5)
    plan = Plan(Speculative(4, beta=1, tau=0.0, most_rows=most_rows), in_flight=False)
    hypotheses = decoded(engine, asked, plan, batch_size=2)
    assert engine.calls == [("encode", 2), *first_two, ("encode", 1), ("draft", 1), ("verify", 1)]
    for request in asked:
        assert hypotheses[request.index].ids == engine.greedy(request.source_ids, request.max_tokens)


@example([9, 1, 1], 3, 12, [0])
@given(
    st.lists(st.integers(1, 20), max_size=12),
    st.integers(1, 6),
    st.integers(1, 60),
    st.lists(st.integers(0, 5), min_size=1),
)
def test_no_more_source_tokens_are_in_flight_than_allowed_unless_one_sentence_has_them(
    lengths: list[int], batch_size: int, most_tokens: int, leaving: list[int]
) -> None:
    """Counted with padding to the longest; `leaving`: the places of the rows that leave, in turn."""
    asked = [Request(index, [5] * (length - 1) + [EOS_ID], 9) for index, length in enumerate(lengths)]
    queue = RequestQueue(asked, batch_size, most_tokens)
    in_flight: list[Request] = []
    seen: list[int] = []
    for turn in range(len(lengths) + 1):
        taken = queue.take(batch_size - len(in_flight), wait=not in_flight)
        in_flight += taken
        seen += [request.index for request in taken]
        if not in_flight:
            break
        longest = max(len(request.source_ids) for request in in_flight)
        assert len(in_flight) == 1 or (len(in_flight) * longest <= most_tokens and len(in_flight) <= batch_size)
        del in_flight[leaving[turn % len(leaving)] % len(in_flight)]
    assert sorted(seen) == list(range(len(lengths))) and not in_flight


@dataclass
class IteratingEngine(ScriptedEngine):
    """Iterates on its own, a step at a time; `asked`: rows in flight, and how many of them are to end."""

    asked: list[tuple[int, int]] = field(default_factory=list)

    def iterate(
        self,
        rows: ScriptedRows,
        last_ids: list[int],
        room: list[int],
        draft_length: int,
        beta: int,
        tau: float,
        ends: int,
        scored: bool,
    ) -> Run:
        self.asked.append((len(last_ids), ends))
        candidates = step(self, rows, np.array(last_ids), 1)
        return Run([[0]] * len(last_ids), candidates.ids[:, 0].tolist(), candidates.log_probs[:, 0].tolist())


def test_rows_that_ended_wait_until_there_is_room_for_new_ones_and_no_longer() -> None:
    engine = IteratingEngine(length=lambda source: 1000)
    decoded(engine, limited(1, 2, 2, 3, 4, 9, 9, 9, 9, 9), Greedy(), batch_size=8)
    assert engine.asked[:3] == [(8, 2), (7, 1), (7, 1)]
    assert all(ends == max(1, 2 - (8 - rows)) for rows, ends in engine.asked)


# -- a hypothesis


@pytest.mark.parametrize(
    ("max_tokens", "ids", "taken"),
    [
        pytest.param(9, [6, 7, 8], [6, 7, 8], id="all"),
        pytest.param(9, [6, EOS_ID, 8, EOS_ID], [6, EOS_ID], id="up to the first end-of-sentence"),
        pytest.param(3, [6, 7, 8], [6, 7], id="up to the limit"),
        pytest.param(3, [6, EOS_ID, 8], [6, EOS_ID], id="the end at the limit"),
        pytest.param(3, [6, 7, EOS_ID], [6, 7], id="the end beyond the limit"),
        pytest.param(9, [EOS_ID, 6, 7], [EOS_ID], id="nothing but the end"),
    ],
)
def test_a_hypothesis_takes_tokens_up_to_the_end_or_the_limit(
    max_tokens: int, ids: list[int], taken: list[int]
) -> None:
    hypothesis = Hypothesis(Request(0, [EOS_ID], max_tokens), [5], -1.0)
    log_probs = np.array([-0.5, -0.25, -0.125, -0.0625], dtype=np.float32)[: len(ids)]
    assert hypothesis.extend(ids, log_probs.tolist()) == len(taken)
    assert hypothesis.ids == [5, *taken]
    assert hypothesis.log_prob == -1.0 - sum([0.5, 0.25, 0.125, 0.0625][: len(taken)])


def test_what_iterations_emitted_counts_as_far_as_the_row_goes() -> None:
    hypothesis = Hypothesis(Request(0, [EOS_ID], 20))
    hypothesis.emit(3, [2, 0, 3, 1], [5, 6, 7, 8, 9, EOS_ID, 11, 12, 13, 14], [-0.5] * 10)
    assert hypothesis.iterations == [Iteration(3, 2, (5, 6, 7)), Iteration(3, 0, (8,)), Iteration(2, 2, (9, EOS_ID))]
    assert (hypothesis.ids, hypothesis.log_prob) == ([5, 6, 7, 8, 9, EOS_ID], -3.0)
    assert hypothesis.finished


def test_a_hypothesis_starts_from_end_of_sentence_without_being_finished() -> None:
    hypothesis = Hypothesis(Request(0, [EOS_ID], 2))
    assert (hypothesis.last_id, hypothesis.finished) == (EOS_ID, False)
