"""Embeddings of positions in numpy: sinusoids, or a table that a converted verifier learned."""

from __future__ import annotations

import math

import numpy as np

from specmt.arrays import FloatArray
from specmt.text.vocabulary import PAD_ID


def position_table(count: int, width: int, learned: FloatArray | None = None) -> FloatArray:
    """Embeddings of positions 0, 1, …, shape (count, width); position 0 is the third row of fairseq's tables.

    Args:
        learned: the table, shape (positions, width), from position 0 on; without it positions are sinusoids. Behind its
            end its last row stands again: windows reach there, but no token that counts does.
    """
    if learned is not None:
        return learned.take(np.arange(count), axis=0, mode="clip")
    half = width // 2
    frequencies = np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    angles = (np.arange(count) + PAD_ID + 1)[:, None] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
