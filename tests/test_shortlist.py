"""Which tokens a network can say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specmt.shortlist import BLOCK, frequent_ids, seen_ids
from specmt.vocabulary import EOS_ID, SPECIAL_PIECES

SIZE = 300
COUNTS = arrays(np.int64, SIZE, elements=st.sampled_from([0, 0, 0, 1, 5, 1000]))


@given(COUNTS)
def test_every_token_that_was_seen_can_be_said_and_no_special_one_but_the_end(counts: np.ndarray) -> None:
    ids = seen_ids(counts)
    seen = set(np.flatnonzero(counts)) - set(range(len(SPECIAL_PIECES)))
    assert seen | {EOS_ID} <= set(ids)
    assert set(ids) & set(range(len(SPECIAL_PIECES))) == {EOS_ID}
    assert (np.diff(ids) > 0).all()
    assert len(ids) % BLOCK == 0 or len(ids) == SIZE - len(SPECIAL_PIECES) + 1


@given(COUNTS, st.integers(1, SIZE - len(SPECIAL_PIECES) + 1))
def test_the_most_frequent_are_kept(counts: np.ndarray, size: int) -> None:
    ids = frequent_ids(counts, size)
    left_out = [counts[id_] for id_ in range(len(SPECIAL_PIECES), SIZE) if id_ not in ids]
    kept = [counts[id_] for id_ in ids if id_ != EOS_ID]
    assert len(ids) == size
    assert EOS_ID in ids
    assert not kept or not left_out or min(kept) >= max(left_out)
