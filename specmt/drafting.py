"""From the drafter's lattice to a draft: slots that each pick their token alone disagree with their neighbours."""

from __future__ import annotations

import numpy as np

from specmt.engines.base import IntArray, Lattice


def walk(lattice: Lattice) -> IntArray:
    """Pick one token a slot from left to right, each given the one picked before it; shape (batch, draft_length)."""
    rows = np.arange(len(lattice.ids))
    picked = np.zeros(len(rows), dtype=np.int64)
    draft: IntArray = np.empty((len(rows), lattice.ids.shape[1]), dtype=np.int64)
    for slot in range(draft.shape[1]):
        scores = lattice.scores[:, slot] + lattice.transitions[rows, slot, picked]
        picked = scores.argmax(axis=1)
        draft[:, slot] = lattice.ids[rows, slot, picked]
    return draft
