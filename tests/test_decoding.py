"""The decoding loops over a scripted engine: every expected token, count and pass follows from the script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import (
    RankOf,
    ScriptedEngine,
    TableEngine,
    always_right,
    by_position,
    decoded,
    never_right,
    right_before,
)

from specmt.decoding.hypotheses import Hypothesis, Iteration, Request
from specmt.decoding.loops import Greedy, Plan, Speculative, Strategy
from specmt.decoding.replay import FixedSpeculative
from specmt.decoding.verification import BLANK_ID
from specmt.text.vocabulary import EOS_ID

UNLIMITED = 1000
RULES = {
    "always": always_right,
    "never": never_right,
    "all but slot 0": right_before(0),
    "all but slot 1": right_before(1),
    "all but slot 2": right_before(2),
    "by turns": by_position([0, 0, -1, 0, -1]),
}


def source(length: int, first: int = 5) -> list[int]:
    """`length` tokens and end-of-sentence; the script answers with as many."""
    return [*range(first, first + length), EOS_ID]


def requests(lengths: Sequence[int], max_tokens: int = UNLIMITED) -> list[Request]:
    return [Request(index, source(length, 5 + index), max_tokens) for index, length in enumerate(lengths)]


def speculative(draft_length: int) -> Speculative:
    return Speculative(draft_length, beta=1, tau=0.0)


Strict = Callable[[int], Strategy]
STRICT: dict[str, Strict] = {
    "all rows": speculative,
    "fixed shape": lambda draft_length: FixedSpeculative(speculative(draft_length), group=2),
}


@pytest.fixture(params=STRICT)
def strict(request: pytest.FixtureRequest) -> Strict:
    """Both loops that speculate, given a draft length: all rows together, or groups of a fixed shape."""
    return STRICT[request.param]


def ids_of(engine: ScriptedEngine, asked: Sequence[Request], plan: Plan | Strategy, batch_size: int) -> list[list[int]]:
    hypotheses = decoded(engine, asked, plan, batch_size)
    return [hypotheses[request.index].ids for request in asked]


def greedy_ids(engine: ScriptedEngine, asked: Sequence[Request]) -> list[list[int]]:
    """The script's own greedy output, which no decoding loop has touched."""
    return [engine.greedy(request.source_ids, request.max_tokens) for request in asked]


@dataclass
class BySource(ScriptedEngine):
    """Each sentence has a drafter's rule of its own, found by its first token."""

    rules: dict[int, RankOf] = field(default_factory=dict)

    def _draft_row(self, source: tuple[int, ...], read: list[int], draft_length: int) -> list[int]:
        return ScriptedEngine(self.rules[source[0]], self.length, self.gaps)._draft_row(source, read, draft_length)


# -- the same tokens


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_ar_gives_the_scripts_greedy_ids(batch_size: int) -> None:
    engine, asked = ScriptedEngine(), requests([3, 0, 12, 7, 1, 5, 5, 9, 2, 4])
    assert ids_of(engine, asked, Greedy(), batch_size) == greedy_ids(engine, asked)


@pytest.mark.parametrize("batch_size", [1, 3, 8])
@pytest.mark.parametrize("draft_length", [1, 3, 8])
@pytest.mark.parametrize("rule", RULES)
def test_strict_spec_gives_greedys_ids_whatever_the_drafter_does(
    strict: Strict, rule: str, draft_length: int, batch_size: int
) -> None:
    engine, asked = ScriptedEngine(RULES[rule]), requests([3, 0, 12, 7, 1, 5, 5, 9, 2, 4])
    assert ids_of(engine, asked, strict(draft_length), batch_size) == greedy_ids(engine, asked)


@pytest.mark.parametrize("max_tokens", range(1, 9))
@pytest.mark.parametrize("rule", RULES)
def test_strict_spec_gives_greedys_ids_up_to_any_length_limit(strict: Strict, rule: str, max_tokens: int) -> None:
    engine, asked = ScriptedEngine(RULES[rule]), requests([12, 4, 3, 6], max_tokens)
    assert ids_of(engine, asked, strict(3), batch_size=3) == greedy_ids(engine, asked)


def test_rows_that_accept_different_lengths_do_not_disturb_one_another(strict: Strict) -> None:
    rules = dict(zip(range(5, 11), RULES.values(), strict=True))
    engine, asked = BySource(rules=rules), requests([11] * 6)
    hypotheses = decoded(engine, asked, strict(4), batch_size=6)
    assert [hypotheses[i].ids for i in range(6)] == greedy_ids(engine, asked)
    first_accepted = [hypotheses[i].iterations[0].accepted for i in range(6)]
    assert first_accepted == [4, 0, 0, 1, 2, 2]


@given(st.data())
def test_strict_spec_is_greedy_for_any_drafter_and_any_sentences(data: st.DataObject) -> None:
    ranks = data.draw(st.lists(st.integers(-1, 2), min_size=1, max_size=7))
    engine = ScriptedEngine(by_position(ranks), gaps=tuple(data.draw(st.lists(st.floats(0.01, 5), min_size=1))))
    sources = data.draw(st.lists(st.lists(st.integers(5, 95), max_size=12), min_size=1, max_size=9))
    limits = data.draw(st.lists(st.integers(1, 15), min_size=len(sources), max_size=len(sources)))
    asked = [
        Request(index, [*ids, EOS_ID], limit, data.draw(st.booleans(), "reproducible"))
        for index, (ids, limit) in enumerate(zip(sources, limits, strict=True))
    ]
    draft_length, batch_size = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 10))
    strategy, group = Speculative(draft_length, 1, tau=data.draw(st.floats(0, 5))), data.draw(st.integers(1, 4))
    plan = Plan(strategy, FixedSpeculative(strategy, group), group)
    assert ids_of(engine, asked, plan, batch_size) == greedy_ids(engine, asked)


@given(st.data())
def test_relaxed_spec_depends_on_neither_batch_size_nor_order(data: st.DataObject) -> None:
    engine = ScriptedEngine(by_position(data.draw(st.lists(st.integers(-1, 3), min_size=1, max_size=7))))
    sources = data.draw(st.lists(st.lists(st.integers(5, 95), max_size=12), min_size=1, max_size=9))
    asked = [Request(index, [*ids, EOS_ID], 14) for index, ids in enumerate(sources)]
    strategy = Speculative(data.draw(st.integers(1, 6)), beta=3, tau=data.draw(st.sampled_from([0.5, 1.0, 3.0])))
    alone = decoded(engine, asked, strategy, batch_size=1)
    shuffled = decoded(engine, data.draw(st.permutations(asked)), strategy, data.draw(st.integers(1, 10)))
    assert {i: shuffled[i].ids for i in shuffled} == {i: alone[i].ids for i in alone}
    assert {i: shuffled[i].iterations for i in shuffled} == {i: alone[i].iterations for i in alone}
    assert {i: shuffled[i].log_prob for i in shuffled} == {i: alone[i].log_prob for i in alone}


# -- what an iteration yields


def accounts(hypothesis: Hypothesis) -> list[tuple[int, int, int]]:
    return [(one.drafted, one.accepted, len(one.emitted)) for one in hypothesis.iterations]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        # Eleven tokens, the last one end-of-sentence; draft length 4.
        pytest.param(always_right, [(4, 4, 5), (4, 4, 5), (1, 1, 1)], id="the end is the first token of a draft"),
        pytest.param(never_right, [(4, 0, 1)] * 10 + [(1, 0, 1)], id="the end is a recovered token"),
        pytest.param(right_before(0), [(4, 0, 1)] * 10 + [(1, 0, 1)], id="later slots do not help a wrong first"),
        pytest.param(right_before(2), [(4, 2, 3)] * 3 + [(2, 2, 2)], id="the end is accepted before the wrong slot"),
        pytest.param(right_before(3), [(4, 3, 4), (4, 3, 4), (3, 3, 3)], id="the end is accepted just before it"),
    ],
)
def test_each_iteration_counts_what_was_drafted_accepted_and_emitted_up_to_the_end(
    strict: Strict, rule: RankOf, expected: list[tuple[int, int, int]]
) -> None:
    (hypothesis,) = decoded(ScriptedEngine(rule), requests([10]), strict(4), batch_size=1).values()
    assert accounts(hypothesis) == expected


@pytest.mark.parametrize(
    ("length", "draft_length", "expected"),
    [
        pytest.param(3, 3, [(3, 3, 4)], id="the end is the bonus token"),
        pytest.param(2, 3, [(3, 3, 3)], id="the end is the last drafted token"),
        pytest.param(0, 3, [(1, 1, 1)], id="the end is the first token of all"),
        pytest.param(4, 3, [(3, 3, 4), (1, 1, 1)], id="the end comes alone"),
    ],
)
def test_end_of_sentence_ends_the_count_wherever_it_stands_in_an_always_right_draft(
    strict: Strict, length: int, draft_length: int, expected: list[tuple[int, int, int]]
) -> None:
    (hypothesis,) = decoded(ScriptedEngine(), requests([length]), strict(draft_length), batch_size=1).values()
    assert accounts(hypothesis) == expected


@pytest.mark.parametrize(
    ("rule", "max_tokens", "expected"),
    [
        pytest.param(always_right, 7, [(4, 4, 5), (2, 2, 2)], id="inside the accepted tokens"),
        pytest.param(always_right, 9, [(4, 4, 5), (4, 4, 4)], id="after the accepted tokens"),
        pytest.param(always_right, 10, [(4, 4, 5), (4, 4, 5)], id="after the bonus token"),
        pytest.param(always_right, 1, [(1, 1, 1)], id="after the first token of all"),
        pytest.param(right_before(2), 6, [(4, 2, 3), (3, 2, 3)], id="after the recovered token"),
        pytest.param(right_before(2), 5, [(4, 2, 3), (2, 2, 2)], id="before the recovered token"),
        pytest.param(never_right, 2, [(4, 0, 1), (1, 0, 1)], id="where nothing is accepted"),
    ],
)
def test_the_length_limit_cuts_an_iteration_and_its_count(
    strict: Strict, rule: RankOf, max_tokens: int, expected: list[tuple[int, int, int]]
) -> None:
    engine, asked = ScriptedEngine(rule), requests([20], max_tokens)
    (hypothesis,) = decoded(engine, asked, strict(4), batch_size=1).values()
    assert accounts(hypothesis) == expected
    assert [hypothesis.ids] == greedy_ids(engine, asked)


@pytest.mark.parametrize("rule", RULES)
def test_the_emitted_tokens_of_all_iterations_are_the_output(strict: Strict, rule: str) -> None:
    engine, asked = ScriptedEngine(RULES[rule]), requests([9, 4, 0, 13], max_tokens=11)
    for hypothesis in decoded(engine, asked, strict(3), batch_size=4).values():
        assert [id_ for iteration in hypothesis.iterations for id_ in iteration.emitted] == hypothesis.ids


def test_ar_counts_one_emitted_token_an_iteration_and_no_draft() -> None:
    engine, asked = ScriptedEngine(), requests([2])
    (hypothesis,) = decoded(engine, asked, Greedy(), batch_size=1).values()
    first, second, third = greedy_ids(engine, asked)[0]
    assert hypothesis.iterations == [Iteration(0, 0, (first,)), Iteration(0, 0, (second,)), Iteration(0, 0, (third,))]


@pytest.mark.parametrize(("loop", "rows"), [("all rows", 1), ("fixed shape", 2)])
@pytest.mark.parametrize(
    ("rule", "draft_length", "iterations"),
    [
        (always_right, 3, 4),  # 13 tokens, 4 an iteration
        (always_right, 8, 2),
        (never_right, 3, 13),
        (right_before(1), 3, 7),  # 2 an iteration
        (right_before(2), 8, 5),  # 3 an iteration
    ],
)
def test_an_iteration_costs_one_draft_and_one_verification(
    rule: RankOf, draft_length: int, iterations: int, loop: str, rows: int
) -> None:
    engine = ScriptedEngine(rule)
    decoded(engine, requests([12]), STRICT[loop](draft_length), batch_size=1)
    assert engine.calls == [("encode", 1), *[("draft", rows), ("verify", rows)] * iterations]


@pytest.mark.parametrize("rule", RULES)
def test_log_probabilities_of_strict_spec_are_greedys_token_by_token_and_add_up(strict: Strict, rule: str) -> None:
    engine, asked = ScriptedEngine(RULES[rule]), requests([10, 3], max_tokens=9)
    speculated, greedy = (decoded(engine, asked, strategy, batch_size=2) for strategy in (strict(4), Greedy()))
    for request in asked:
        ids = greedy[request.index].ids
        each = [float(engine.log_probs(request.source_ids, ids[:i])[0]) for i in range(len(ids))]
        for hypothesis in (greedy[request.index], speculated[request.index]):
            assert hypothesis.token_log_probs == pytest.approx(each, abs=1e-6)
            assert hypothesis.log_prob == pytest.approx(sum(each), abs=1e-5)


# -- relaxed


def with_second_choice(engine: ScriptedEngine, ids: Sequence[int], place: int, rank: int) -> list[int]:
    """The script's greedy output where the token at `place` is the verifier's choice of `rank` instead."""
    out: list[int] = []
    while EOS_ID not in out:
        out.append(engine.ranked(ids, out)[rank if len(out) == place else 0])
    return out


@pytest.mark.parametrize(
    ("rank", "beta", "tau", "accepted"),
    [
        pytest.param(1, 2, 1.25, True, id="second candidate within tau"),
        pytest.param(1, 2, 0.75, False, id="second candidate beyond tau"),
        pytest.param(1, 1, 9.0, False, id="strict has no second candidate"),
        pytest.param(2, 3, 2.25, True, id="third candidate within tau"),
        pytest.param(2, 3, 1.75, False, id="third candidate beyond tau"),
        pytest.param(2, 2, 9.0, False, id="third candidate of two"),
    ],
)
def test_relaxed_accepts_another_candidate_within_tau_and_goes_on_from_it(
    rank: int, beta: int, tau: float, accepted: bool
) -> None:
    ranks = [0, 0, rank, 0, 0, 0, 0, 0]
    engine = ScriptedEngine(by_position(ranks), gaps=(1.0,))
    (hypothesis,) = decoded(engine, requests([6]), Speculative(4, beta, tau), batch_size=1).values()
    expected = with_second_choice(engine, source(6), 2, rank) if accepted else engine.greedy(source(6), UNLIMITED)
    assert hypothesis.ids == expected
    assert accounts(hypothesis) == ([(4, 4, 5), (2, 2, 2)] if accepted else [(4, 2, 3), (4, 4, 4)])


def test_relaxed_adds_the_log_probability_of_the_token_that_it_took() -> None:
    engine = ScriptedEngine(by_position([0, 1, 0, 0]), gaps=(1.0,))
    (hypothesis,) = decoded(engine, requests([3]), Speculative(3, 2, 1.5), batch_size=1).values()
    best = float(engine.log_probs(source(3), [])[0])
    assert hypothesis.ids == with_second_choice(engine, source(3), 1, 1)
    assert hypothesis.log_prob == pytest.approx(4 * best - 1.0, abs=1e-5)


def test_an_end_of_sentence_accepted_as_second_candidate_ends_the_row() -> None:
    table = {
        (): [(5, -0.5), (6, -1.0)],
        (5,): [(6, -0.5), (EOS_ID, -1.0)],
        (5, EOS_ID): [(7, -0.5), (8, -1.0)],
    }
    engine = TableEngine(by_position([0, 1, 0]), table=table)
    (hypothesis,) = decoded(engine, requests([1]), Speculative(3, 2, 1.0), batch_size=1).values()
    assert hypothesis.ids == [5, EOS_ID]
    assert hypothesis.iterations == [Iteration(2, 2, (5, EOS_ID))]
    assert hypothesis.log_prob == -1.5


# -- the trace


def test_the_trace_holds_the_draft_and_the_candidates_of_the_papers_picture() -> None:
    drivers, will, be, concerned, about, their, motor, worry = range(5, 13)
    table = {
        (): [(drivers, -0.5), (motor, -1.25), (worry, -3.0)],
        (drivers,): [(will, -0.125), (be, -4.0), (worry, -5.0)],
        (drivers, will): [(worry, -1.0), (be, -1.5), (concerned, -2.5)],
        (drivers, will, be): [(concerned, -0.25), (worry, -2.0), (about, -3.0)],
        (drivers, will, be, concerned): [(about, -0.25), (worry, -1.5), (be, -2.0)],
        (drivers, will, be, concerned, about): [(their, -1.0), (about, -2.25), (be, -2.5)],
    }
    engine = TableEngine(by_position([0, 0, 1, 0, 0, 0]), table=table)
    strategy = Speculative(5, beta=3, tau=1.0, trace=True)
    (hypothesis,) = decoded(engine, requests([1], max_tokens=6), strategy, batch_size=1).values()
    blank = (BLANK_ID, -float("inf"))
    assert hypothesis.iterations == [
        Iteration(
            drafted=5,
            accepted=5,
            emitted=(drivers, will, be, concerned, about, their),
            draft=(drivers, will, be, concerned, about),
            candidates=(
                ((drivers, -0.5), (motor, -1.25), blank),
                ((will, -0.125), blank, blank),
                ((worry, -1.0), (be, -1.5), blank),
                ((concerned, -0.25), blank, blank),
                ((about, -0.25), blank, blank),
                ((their, -1.0), blank, blank),
            ),
        )
    ]


def test_each_row_of_a_batch_traces_its_own_drafts() -> None:
    engine, asked = ScriptedEngine(never_right), requests([2, 3])
    strategy = Speculative(2, 1, 0.0, trace=True)
    for request, hypothesis in zip(asked, decoded(engine, asked, strategy, 2).values(), strict=True):
        prefixes = [hypothesis.ids[:i] for i in range(len(hypothesis.ids))]
        first_slots = [engine.ranked(request.source_ids, prefix)[-1] for prefix in prefixes]
        firsts = [engine.ranked(request.source_ids, prefix)[0] for prefix in prefixes]
        assert [iteration.draft[0] for iteration in hypothesis.iterations] == first_slots
        assert [iteration.candidates[0][0][0] for iteration in hypothesis.iterations] == firsts


def test_without_a_trace_no_draft_is_kept() -> None:
    (hypothesis,) = decoded(ScriptedEngine(), requests([2]), speculative(4), batch_size=1).values()
    assert [(one.draft, one.candidates) for one in hypothesis.iterations] == [((), ())]
