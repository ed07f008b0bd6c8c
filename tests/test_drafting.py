"""From a lattice to a draft: literal lattices, and a search over all paths of one step."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specmt.engines.base import Lattice
from specmt.engines.drafting import walk


def lattice(ids: object, scores: object, transitions: object = 0.0) -> Lattice:
    """Without transitions, neighbours do not care for one another."""
    token_ids, token_scores = np.array(ids, dtype=np.int64), np.array(scores, dtype=np.float32)
    shape = (*token_ids.shape, token_ids.shape[2])
    return Lattice(token_ids, token_scores, np.broadcast_to(np.array(transitions, dtype=np.float32), shape))


def test_without_transitions_each_slot_takes_its_best_token() -> None:
    draft = walk(lattice([[[5, 6], [7, 8], [9, 10]]], [[[2.0, 1.0], [0.0, 0.5], [-1.0, -2.0]]]))
    assert draft.tolist() == [[5, 8, 9]]
    assert draft.dtype == np.int64


def test_a_transition_changes_the_pick() -> None:
    """Alone, slot 1 would take 7; after 5 it takes 8."""
    ids, scores = [[[5, 6], [7, 8]]], [[[2.0, 1.0], [1.0, 0.0]]]
    assert walk(lattice(ids, scores, [[[[0, 0], [0, 0]], [[0, 1.5], [0, 0]]]])).tolist() == [[5, 8]]


def test_a_transition_too_weak_to_change_the_pick_changes_nothing() -> None:
    ids, scores = [[[5, 6], [7, 8]]], [[[2.0, 1.0], [1.0, 0.0]]]
    assert walk(lattice(ids, scores, [[[[0, 0], [0, 0]], [[0, 0.5], [0, 0]]]])).tolist() == [[5, 7]]


def test_only_the_transitions_from_the_token_that_was_picked_count() -> None:
    """What 8 would gain after 6 does not matter, since 5 was picked; transitions are [left][right]."""
    ids, scores = [[[5, 6], [7, 8]]], [[[2.0, 1.0], [1.0, 0.0]]]
    assert walk(lattice(ids, scores, [[[[0, 0], [0, 0]], [[0, 0], [9, 9.5]]]])).tolist() == [[5, 7]]
    assert walk(lattice(ids, scores, [[[[0, 0], [0, 0]], [[0, 0], [0, 9]]]])).tolist() == [[5, 7]]


def test_a_changed_pick_is_what_the_next_slot_looks_back_at() -> None:
    ids, scores = [[[5, 6], [7, 8], [9, 10]]], [[[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]]
    transitions = [[[[0, 0], [0, 0]], [[0, 2.0], [0, 0]], [[0, 0], [0, 2.0]]]]
    assert walk(lattice(ids, scores, transitions)).tolist() == [[5, 8, 10]]


def test_slot_0_looks_back_at_the_last_verified_token() -> None:
    """There every [left] says what the last verified token says."""
    ids, scores = [[[5, 6]]], [[[1.0, 0.0]]]
    assert walk(lattice(ids, scores, [[[[0, 2.0], [0, 2.0]]]])).tolist() == [[6]]


def test_equal_scores_go_to_the_more_probable_candidate() -> None:
    assert walk(lattice([[[6, 5], [8, 7]]], [[[1.0, 1.0], [2.0, 2.0]]])).tolist() == [[6, 8]]


def test_rows_walk_on_their_own() -> None:
    ids = [[[5, 6], [7, 8]], [[6, 5], [8, 7]], [[9, 10], [11, 12]]]
    scores = [[[1.0, 0.0], [1.0, 0.0]]] * 3
    transitions = np.zeros((3, 2, 2, 2))
    transitions[1, 1, 0, 1] = 2.0
    transitions[2, 0, :, 1] = 2.0
    assert walk(lattice(ids, scores, transitions)).tolist() == [[5, 7], [6, 7], [10, 11]]


@given(st.data())
def test_each_pick_is_the_best_given_the_pick_before_it(data: st.DataObject) -> None:
    batch, slots, width = (data.draw(st.integers(1, 3)) for _ in range(3))
    number = st.integers(-4, 4).map(lambda halves: halves / 2)
    ids = [[data.draw(st.permutations(range(5, 5 + width))) for _ in range(slots)] for _ in range(batch)]

    def numbers(*shape: int) -> np.ndarray:
        size = math.prod(shape)
        return np.array(data.draw(st.lists(number, min_size=size, max_size=size))).reshape(shape)

    scores, transitions = numbers(batch, slots, width), numbers(batch, slots, width, width)
    transitions[:, 0] = transitions[:, 0, :1]
    draft = walk(lattice(ids, scores, transitions)).tolist()
    for row in range(batch):
        left = 0
        for slot in range(slots):
            gains = [scores[row, slot, i] + transitions[row, slot, left, i] for i in range(width)]
            left = gains.index(max(gains))
            assert draft[row][slot] == ids[row][slot][left]
