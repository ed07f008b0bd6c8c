"""Weights in 4 bits: what rounding one does to a product, those that are not rounded yet make up for.

The method is GPTQ's (Frantar et al. 2023, arXiv 2210.17323): it needs to know which inputs a product reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmt.arrays import FloatArray

LEAST, MOST = -8, 7
"""The integers of 4 bits. They are stored in a byte each; the native engine puts two in one."""
_SHARES = np.linspace(0.4, 1, 31)
"""Of the scale at which a row's largest weight is the largest integer, what is tried."""
_DAMPING = 0.01
"""Of the mean moment, what is added to each input's: so that what calibration has not seen stays bounded."""
_BLOCK = 64
"""Inputs after which all that follow learn of the errors."""


def quantise_to_4_bits(matrix: FloatArray, moments: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """Integers from -8 to 7 and the scale of each row, so that the matrix's products stay near.

    Args:
        matrix: shape (outputs, inputs).
        moments: sums of products of two inputs over all that were seen, shape (inputs, inputs).
    """
    seen = moments.diagonal().astype(np.float64)
    scales = _scales(matrix, seen)
    order = np.argsort(-seen, kind="stable")  # those that matter most have the most to make up for them
    factor = _factor(moments[np.ix_(order, order)].astype(np.float64))
    rest = matrix[:, order].astype(np.float64)
    integers = np.empty_like(rest)
    for begin in range(0, len(order), _BLOCK):
        end = min(begin + _BLOCK, len(order))
        errors = np.empty((len(rest), end - begin))
        for place in range(begin, end):
            integers[:, place] = _nearest(rest[:, place], scales)
            errors[:, place - begin] = (rest[:, place] - integers[:, place] * scales) / factor[place, place]
            rest[:, place:end] -= errors[:, place - begin, None] * factor[place, place:end]
        rest[:, end:] -= errors @ factor[begin:end, end:]
    stored = np.empty(matrix.shape, dtype=np.int8)
    stored[:, order] = integers
    return stored, scales.astype(np.float32)


def _scales(matrix: FloatArray, seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each row the scale with the smallest error, each input's weighted by what was seen: few weights are cut."""
    largest = np.abs(matrix).max(axis=1)
    whole = np.where(largest > 0, largest / MOST, 1)
    weights = seen + (seen.mean() * _DAMPING or 1)
    scales, least = np.ones(len(matrix)), np.full(len(matrix), np.inf)
    for share in _SHARES:
        tried = (whole * share).astype(np.float32).astype(np.float64)
        errors = np.square(_nearest(matrix, tried[:, None]) * tried[:, None] - matrix) @ weights
        scales[errors < least] = tried[errors < least]
        least = np.minimum(errors, least)
    return scales


def _nearest(values: NDArray[Any], scales: NDArray[np.float64]) -> NDArray[np.float64]:
    nearest: NDArray[np.float64] = np.rint(values / scales).clip(LEAST, MOST)
    return nearest


def _factor(moments: NDArray[np.float64]) -> NDArray[np.float64]:
    """The upper Cholesky factor of the inverse."""
    damping = _DAMPING * moments.diagonal().mean() or 1.0
    inverse = np.linalg.inv(moments + damping * np.eye(len(moments)))
    return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2).T, dtype=np.float64)
