"""Decoder input to draft, and its check by the verifier.

Slots that each pick their token alone disagree with their neighbours: `walk` reconciles them.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from specmt.arrays import IntArray
from specmt.engines.base import Engine, Fused, Lattice, R, Speculation


def walk(lattice: Lattice) -> IntArray:
    """Pick one token per slot from left to right, each given the one picked before it; shape (batch, draft_length)."""
    rows = np.arange(len(lattice.ids))
    picked = np.zeros(len(rows), dtype=np.int64)
    draft: IntArray = np.empty((len(rows), lattice.ids.shape[1]), dtype=np.int64)
    for slot in range(draft.shape[1]):
        scores = lattice.scores[:, slot] + lattice.transitions[rows, slot, picked]
        picked = scores.argmax(axis=1)
        draft[:, slot] = lattice.ids[rows, slot, picked]
    return draft


def draft_and_verify(engine: Engine[R], rows: R, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
    """Draft after the last verified ids (shape (batch,)), then let the verifier read them and the draft."""
    fused: Fused[R] | None = getattr(engine, "draft_and_verify", None)
    return (fused or partial(in_two_passes, engine))(rows, last_ids, draft_length, beta)


def in_two_passes(engine: Engine[R], rows: R, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
    """`draft_and_verify` by the engine's `draft`, `walk` and its `verify`."""
    draft = walk(engine.draft(rows, last_ids, draft_length))
    return Speculation(draft, engine.verify(rows, np.concatenate([last_ids[:, None], draft], axis=1), beta))
