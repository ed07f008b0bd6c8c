"""Spec-Verify as tables of literal candidates, and as properties: no model, no engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt.decoding.verification import BLANK_ID, Verdict, blank, check
from specmt.engines.base import Candidates

INFINITY = float("inf")
Column = Sequence[tuple[int, float]]
"""One position's candidates with their log-probabilities, best first."""


def candidates(*rows: Sequence[Column]) -> Candidates:
    ids = [[[id_ for id_, _ in column] for column in row] for row in rows]
    log_probs = [[[log_prob for _, log_prob in column] for column in row] for row in rows]
    return Candidates(np.array(ids, dtype=np.int64), np.array(log_probs, dtype=np.float32))


def best(*rows: Sequence[int]) -> Candidates:
    """With beta = 1; the log-probability of token i is -i."""
    return candidates(*[[[(id_, -float(id_))] for id_ in row] for row in rows])


def emitted(verdict: Verdict) -> list[list[int]]:
    """What each row emits: its accepted tokens, and the recovered or bonus token."""
    rows = zip(verdict.emitted_ids.tolist(), verdict.accepted.tolist(), strict=True)
    return [ids[: accepted + 1] for ids, accepted in rows]


class TestBlank:
    @pytest.mark.parametrize(
        ("tau", "ids", "log_probs"),
        [
            (0.0, [7, BLANK_ID, BLANK_ID, BLANK_ID], [-0.5, -INFINITY, -INFINITY, -INFINITY]),
            (0.75, [7, BLANK_ID, BLANK_ID, BLANK_ID], [-0.5, -INFINITY, -INFINITY, -INFINITY]),
            (1.0, [7, 5, 6, BLANK_ID], [-0.5, -1.5, -1.5, -INFINITY]),
            (1.5, [7, 5, 6, BLANK_ID], [-0.5, -1.5, -1.5, -INFINITY]),
            (2.25, [7, 5, 6, 8], [-0.5, -1.5, -1.5, -2.75]),
            (INFINITY, [7, 5, 6, 8], [-0.5, -1.5, -1.5, -2.75]),
        ],
    )
    def test_a_candidate_more_than_tau_below_the_best_is_emptied_and_one_exactly_tau_below_is_kept(
        self, tau: float, ids: list[int], log_probs: list[float]
    ) -> None:
        blanked = blank(candidates([[(7, -0.5), (5, -1.5), (6, -1.5), (8, -2.75)]]), tau)
        assert blanked.ids.tolist() == [[ids]]
        assert blanked.log_probs.tolist() == [[log_probs]]

    def test_the_best_differs_by_position_and_row(self) -> None:
        table = candidates(
            [[(5, -1.0), (6, -1.5)], [(7, -0.25), (8, -1.5)]],
            [[(9, -3.0), (5, -3.75)], [(6, -0.5), (7, -1.75)]],
        )
        assert blank(table, 1.0).ids.tolist() == [[[5, 6], [7, BLANK_ID]], [[9, 5], [6, BLANK_ID]]]

    def test_tokens_as_probable_as_the_best_stay_at_tau_zero(self) -> None:
        assert blank(candidates([[(5, -1.0), (6, -1.0), (7, -1.25)]]), 0.0).ids.tolist() == [[[5, 6, BLANK_ID]]]

    def test_the_table_given_is_left_as_it_was(self) -> None:
        table = candidates([[(5, -0.5), (6, -9.0)]])
        blank(table, 1.0)
        assert table.ids.tolist() == [[[5, 6]]]
        assert table.log_probs.tolist() == [[[-0.5, -9.0]]]

    def test_types_are_those_of_the_engines_interface(self) -> None:
        blanked = blank(candidates([[(5, -0.5), (6, -9.0)]]), 1.0)
        assert (blanked.ids.dtype, blanked.log_probs.dtype) == (np.int64, np.float32)


class TestCheck:
    def test_the_picture_of_the_paper(self) -> None:
        """Beta = 3, tau = 1: `be` is accepted as second candidate, the bonus token is `their`."""
        drivers, will, be, concerned, about, their, motor, worry, with_, for_ = range(5, 15)
        table = candidates(
            [
                [(drivers, -0.5), (motor, -1.25), (worry, -3.0)],
                [(will, -0.125), (be, -4.0), (worry, -5.0)],
                [(worry, -1.0), (be, -1.5), (concerned, -2.5)],
                [(concerned, -0.25), (worry, -2.0), (about, -3.0)],
                [(about, -0.25), (with_, -1.5), (for_, -2.0)],
                [(their, -1.0), (about, -2.25), (for_, -2.5)],
            ]
        )
        verdict = check(np.array([[drivers, will, be, concerned, about]]), blank(table, 1.0))
        assert blank(table, 1.0).ids.tolist() == [
            [
                [drivers, motor, BLANK_ID],
                [will, BLANK_ID, BLANK_ID],
                [worry, be, BLANK_ID],
                [concerned, BLANK_ID, BLANK_ID],
                [about, BLANK_ID, BLANK_ID],
                [their, BLANK_ID, BLANK_ID],
            ]
        ]
        assert verdict.accepted.tolist() == [5]
        assert emitted(verdict) == [[drivers, will, be, concerned, about, their]]
        assert verdict.log_probs.tolist() == [[-0.5, -0.125, -1.5, -0.25, -0.25, -1.0]]

    def test_the_same_draft_under_strict_is_recovered_where_the_second_candidate_stood(self) -> None:
        drivers, will, be, concerned, about, their, worry = range(5, 12)
        table = best([drivers, will, worry, concerned, about, their])
        verdict = check(np.array([[drivers, will, be, concerned, about]]), table)
        assert verdict.accepted.tolist() == [2]
        assert emitted(verdict) == [[drivers, will, worry]]

    @pytest.mark.parametrize(
        ("draft", "verified", "accepted", "expected"),
        [
            pytest.param([5, 6, 7], [5, 6, 7, 8], 3, [5, 6, 7, 8], id="all accepted: the bonus token is free"),
            pytest.param([9, 6, 7], [5, 6, 7, 8], 0, [5], id="none accepted: the recovered token alone"),
            pytest.param([5, 9, 7], [5, 6, 7, 8], 1, [5, 6], id="what matches after a rejection does not count"),
            pytest.param([5, 6, 9], [5, 6, 7, 8], 2, [5, 6, 7], id="the last slot is rejected"),
            pytest.param([6, 7, 8], [5, 6, 7, 8], 0, [5], id="right tokens one slot too early"),
            pytest.param([5], [5, 6], 1, [5, 6], id="one slot, accepted"),
            pytest.param([6], [5, 6], 0, [5], id="one slot, rejected"),
        ],
    )
    def test_strict_emits_the_accepted_prefix_and_one_token_more(
        self, draft: list[int], verified: list[int], accepted: int, expected: list[int]
    ) -> None:
        verdict = check(np.array([draft]), best(verified))
        assert verdict.accepted.tolist() == [accepted]
        assert emitted(verdict) == [expected]
        assert verdict.log_probs[0, : accepted + 1].tolist() == [-float(id_) for id_ in expected]

    @pytest.mark.parametrize(
        ("tau", "expected"),
        [(1.0, [6, 7]), (0.9375, [5]), (0.0, [5])],
    )
    def test_a_second_candidate_is_accepted_up_to_exactly_tau(self, tau: float, expected: list[int]) -> None:
        table = candidates([[(5, -0.5), (6, -1.5)], [(7, -0.25), (8, -2.0)]])
        assert emitted(check(np.array([[6]]), blank(table, tau))) == [expected]

    def test_a_rejected_slot_gives_the_best_candidate_and_not_another_one_within_tau(self) -> None:
        table = candidates([[(5, -0.5), (6, -0.75)], [(7, -0.25), (8, -0.5)]])
        assert emitted(check(np.array([[9]]), blank(table, 1.0))) == [[5]]

    def test_the_bonus_token_is_the_best_whatever_else_is_within_tau(self) -> None:
        table = candidates([[(5, -0.5), (6, -0.75)], [(7, -0.25), (8, -0.25)]])
        assert emitted(check(np.array([[6]]), blank(table, 1.0))) == [[6, 7]]

    def test_rows_of_a_batch_accept_different_lengths(self) -> None:
        draft = np.array([[5, 6, 7], [5, 6, 7], [5, 6, 7], [5, 6, 7]])
        verdict = check(draft, best([5, 6, 7, 8], [9, 6, 7, 8], [5, 9, 7, 8], [5, 6, 9, 8]))
        assert verdict.accepted.tolist() == [3, 0, 1, 2]
        assert emitted(verdict) == [[5, 6, 7, 8], [9], [5, 9], [5, 6, 9]]

    def test_each_accepted_token_carries_its_own_log_probability(self) -> None:
        table = candidates([[(5, -0.5), (6, -1.0)], [(7, -0.25), (8, -0.75)], [(9, -0.125), (5, -0.25)]])
        verdict = check(np.array([[6, 8]]), blank(table, 1.0))
        assert emitted(verdict) == [[6, 8, 9]]
        assert verdict.log_probs.tolist() == [[-1.0, -0.75, -0.125]]

    def test_the_arrays_given_are_left_as_they_were(self) -> None:
        table, draft = candidates([[(5, -0.5), (6, -1.0)], [(7, -0.25), (8, -0.75)]]), np.array([[6]])
        check(draft, table)
        assert table.ids.tolist() == [[[5, 6], [7, 8]]]
        assert table.log_probs.tolist() == [[[-0.5, -1.0], [-0.25, -0.75]]]
        assert draft.tolist() == [[6]]


# -- properties

Case = tuple[list[list[int]], list[list[list[tuple[int, float]]]]]
"""Drafts, and a row of candidates for each."""


@st.composite
def checks(draw: st.DrawFn) -> Case:
    """A batch of drafts over six tokens and candidates for them, log-probabilities in quarters of a nat."""
    batch, draft_length, beta = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    token = st.integers(5, 10)
    column = st.tuples(
        st.lists(token, min_size=beta, max_size=beta, unique=True),
        st.lists(st.integers(-16, 0), min_size=beta, max_size=beta).map(lambda parts: sorted(parts, reverse=True)),
    ).map(lambda parts: [(id_, quarters / 4) for id_, quarters in zip(*parts, strict=True)])
    draft = st.lists(token, min_size=draft_length, max_size=draft_length)
    row = st.lists(column, min_size=draft_length + 1, max_size=draft_length + 1)
    return tuple(draw(st.lists(part, min_size=batch, max_size=batch)) for part in (draft, row))


taus = st.integers(0, 20).map(lambda quarters: quarters / 4)


def accepted_by_definition(draft: list[int], row: Sequence[Column], tau: float) -> int:
    """The first step of the definition that fails, token by token."""
    for slot, token in enumerate(draft):
        best_log_prob = row[slot][0][1]
        if token not in [id_ for id_, log_prob in row[slot] if log_prob >= best_log_prob - tau]:
            return slot
    return len(draft)


@given(checks(), taus)
def test_the_accepted_tokens_are_the_longest_prefix_of_candidates_and_the_best_follows(case: Case, tau: float) -> None:
    drafts, table = case
    verdict = check(np.array(drafts), blank(candidates(*table), tau))
    accepted = [accepted_by_definition(draft, row, tau) for draft, row in zip(drafts, table, strict=True)]
    assert verdict.accepted.tolist() == accepted
    assert emitted(verdict) == [
        [*draft[:count], row[count][0][0]] for draft, row, count in zip(drafts, table, accepted, strict=True)
    ]


@given(checks(), taus)
def test_every_emitted_token_has_the_log_probability_of_its_candidate_and_none_is_blank(case: Case, tau: float) -> None:
    drafts, table = case
    verdict = check(np.array(drafts), blank(candidates(*table), tau))
    for ids, log_probs, row in zip(emitted(verdict), verdict.log_probs.tolist(), table, strict=True):
        assert BLANK_ID not in ids
        assert [dict(column)[id_] for id_, column in zip(ids, row, strict=False)] == log_probs[: len(ids)]


@given(checks(), taus, taus)
def test_a_larger_tau_never_accepts_fewer_tokens(case: Case, one: float, other: float) -> None:
    drafts, table = np.array(case[0]), candidates(*case[1])
    smaller, larger = sorted((one, other))
    assert (check(drafts, blank(table, smaller)).accepted <= check(drafts, blank(table, larger)).accepted).all()


@given(checks(), taus, st.integers(1, 5))
def test_a_larger_beta_never_accepts_fewer_tokens(case: Case, tau: float, beta: int) -> None:
    drafts, table = np.array(case[0]), candidates(*case[1])
    fewer = Candidates(table.ids[:, :, :beta], table.log_probs[:, :, :beta])
    assert (check(drafts, blank(fewer, tau)).accepted <= check(drafts, blank(table, tau)).accepted).all()


@given(checks(), taus)
def test_with_beta_1_only_best_tokens_are_emitted_whatever_tau(case: Case, tau: float) -> None:
    drafts, table = case
    strict = [[column[:1] for column in row] for row in table]
    verdict = check(np.array(drafts), blank(candidates(*strict), tau))
    bests = [[column[0][0] for column in row] for row in table]
    assert emitted(verdict) == [ids[: len(out)] for ids, out in zip(bests, emitted(verdict), strict=True)]


@given(checks(), taus)
def test_a_row_gives_the_same_alone_as_in_its_batch(case: Case, tau: float) -> None:
    drafts, table = case
    together = emitted(check(np.array(drafts), blank(candidates(*table), tau)))
    alone = [
        emitted(check(np.array([draft]), blank(candidates(row), tau)))[0]
        for draft, row in zip(drafts, table, strict=True)
    ]
    assert together == alone
