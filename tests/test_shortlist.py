"""Which tokens a network can say."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specmt.bundles.shortlist import BLOCK, frequent_ids, never_said, seen_ids
from specmt.text.vocabulary import BOS_ID, EOS_ID, MASK_ID, PAD_ID

SIZE = 300
COUNTS = arrays(np.int64, SIZE, elements=st.sampled_from([0, 0, 0, 1, 5, 1000]))


@given(COUNTS)
def test_every_token_that_was_seen_can_be_said_and_none_that_marks_no_text(counts: np.ndarray) -> None:
    ids = seen_ids(counts)
    seen = set(np.flatnonzero(counts)) - {BOS_ID, PAD_ID}
    assert seen | {EOS_ID} <= set(ids)
    assert not set(ids) & set(never_said(counts))
    assert (MASK_ID in ids) == (counts[MASK_ID] > 0), "it is a word where it occurs"
    assert (np.diff(ids) > 0).all()
    assert len(ids) % BLOCK == 0 or len(ids) == SIZE - len(never_said(counts))


@given(COUNTS, st.integers(1, SIZE - 3))
def test_the_most_frequent_are_kept(counts: np.ndarray, size: int) -> None:
    ids = frequent_ids(counts, size)
    left_out = [counts[id_] for id_ in range(SIZE) if id_ not in {*ids, *never_said(counts)}]
    kept = [counts[id_] for id_ in ids if id_ != EOS_ID]
    assert len(ids) == size
    assert EOS_ID in ids
    assert not kept or not left_out or min(kept) >= max(left_out)
