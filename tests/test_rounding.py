"""Weights in 4 bits."""

from __future__ import annotations

import numpy as np
import pytest

from specmt.arrays import FloatArray
from specmt.bundles.rounding import LEAST, MOST, quantise_to_4_bits


def drawn(outputs: int = 40, inputs: int = 100, seen: int = 400) -> tuple[FloatArray, FloatArray]:
    """A matrix, and inputs that depend on one another as a network's do."""
    random = np.random.default_rng(0)
    mixed = random.standard_normal((inputs // 4, inputs)) * random.exponential(size=inputs)
    read = random.standard_normal((seen, inputs // 4)) @ mixed + 0.1 * random.standard_normal((seen, inputs))
    return random.standard_normal((outputs, inputs), dtype=np.float32), read.astype(np.float32)


def nearest(matrix: FloatArray) -> FloatArray:
    scales = np.abs(matrix).max(axis=1, keepdims=True) / MOST
    rounded: FloatArray = np.rint(matrix / scales) * scales
    return rounded


def test_products_stay_nearer_than_those_of_the_nearest_integers() -> None:
    matrix, read = drawn()
    integers, scales = quantise_to_4_bits(matrix, read.T @ read)
    assert (integers.dtype, scales.dtype) == (np.int8, np.float32)
    assert (integers.min(), integers.max()) == (LEAST, MOST)
    stored, plain = integers * scales[:, None], nearest(matrix)
    errors = [np.square(read @ (rounded - matrix).T).mean() for rounded in (stored, plain)]
    assert errors[0] < errors[1] / 4


def test_weights_whose_inputs_were_never_seen_are_at_most_half_a_step_from_their_integers() -> None:
    matrix, read = drawn()
    integers, scales = quantise_to_4_bits(matrix, np.zeros((100, 100), dtype=np.float32))
    within = np.abs(matrix) <= MOST * scales[:, None]
    assert within.mean() > 0.9
    steps = np.abs(integers * scales[:, None] - matrix) / scales[:, None]
    assert steps[within].max() < 0.5001
    read[:, 50:] = 0
    integers, scales = quantise_to_4_bits(matrix, read.T @ read)
    assert np.isfinite(scales).all() and (scales > 0).all()


@pytest.mark.parametrize("inputs", [1, 63, 64, 65])
def test_rows_of_zeros_and_matrices_of_any_width_are_rounded(inputs: int) -> None:
    matrix, read = drawn(outputs=3, inputs=max(inputs, 4))
    matrix, read = matrix[:, :inputs].copy(), read[:, :inputs]
    matrix[1] = 0
    integers, scales = quantise_to_4_bits(matrix, read.T @ read)
    assert not integers[1].any()
    assert np.square(integers * scales[:, None] - matrix).mean() < 0.05


def test_integers_lie_in_memory_as_files_want_them() -> None:
    matrix, read = drawn()
    assert quantise_to_4_bits(matrix, read.T @ read)[0].flags.c_contiguous
