"""Which tokens a network can say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specmt.shortlist import BLOCK, NEVER_SAID, frequent_ids, seen_ids
from specmt.vocabulary import EOS_ID

SIZE = 300
COUNTS = arrays(np.int64, SIZE, elements=st.sampled_from([0, 0, 0, 1, 5, 1000]))


@given(COUNTS)
def test_every_token_that_was_seen_can_be_said_and_none_that_marks_no_text(counts: np.ndarray) -> None:
    ids = seen_ids(counts)
    seen = set(np.flatnonzero(counts)) - set(NEVER_SAID)
    assert seen | {EOS_ID} <= set(ids)
    assert not set(ids) & set(NEVER_SAID)
    assert (np.diff(ids) > 0).all()
    assert len(ids) % BLOCK == 0 or len(ids) == SIZE - len(NEVER_SAID)


@given(COUNTS, st.integers(1, SIZE - len(NEVER_SAID)))
def test_the_most_frequent_are_kept(counts: np.ndarray, size: int) -> None:
    ids = frequent_ids(counts, size)
    left_out = [counts[id_] for id_ in range(SIZE) if id_ not in {*ids, *NEVER_SAID}]
    kept = [counts[id_] for id_ in ids if id_ != EOS_ID]
    assert len(ids) == size
    assert EOS_ID in ids
    assert not kept or not left_out or min(kept) >= max(left_out)
