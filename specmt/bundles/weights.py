"""Weights of a pair in numpy, to and from the 8- or 4-bit integers in which matrices are stored (`bundles.tensors`).

Every engine runs these very numbers. Nothing here needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save

from specmt.arrays import FloatArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import Bundle
from specmt.bundles.rounding import LEAST, MOST, quantise_to_4_bits
from specmt.bundles.tensors import (
    DRAFTER_OUTPUT,
    LARGEST_WEIGHT,
    learned_positions,
    read_tensors,
    scale_name,
    vector_type,
)
from specmt.errors import BundleError

Stored = dict[str, NDArray[Any]]
"""Tensors of a weights file by name: int8 matrices, float32 scales and vectors, int64 token ids."""
LARGEST = 127
"""Stored integers reach from -127 to 127: symmetric, so that no zero point is needed."""


def quantise(matrix: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """The nearest integers to a matrix and the scale of each row: matrix is about integers * scales[:, None]."""
    largest = np.abs(matrix).max(axis=1)
    scales = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def is_read_in_each_pass(name: str) -> bool:
    """Whether a matrix may have 4 bits: one that a pass reads as a whole, and that does not choose the translation."""
    return ".layers." in name or name.startswith((DRAFTER_OUTPUT, "drafter.bigram_gate"))


def weight_bits(stored: Stored) -> int:
    """How many bits those matrices have of which `is_read_in_each_pass`: 4 or 8."""
    matrices = (array for name, array in stored.items() if array.ndim == 2 and is_read_in_each_pass(name))
    return 4 if all(array.min() >= LEAST and array.max() <= MOST for array in matrices) else 8


def save_weights(
    weights: Mapping[str, ArrayLike],
    path: Path,
    others: Mapping[str, NDArray[Any]] | None = None,
    moments: Mapping[str, FloatArray] | None = None,
) -> None:
    """Store weights (float32; ids int64), matrices as integers.

    Args:
        others: tensors that stand beside them, stored already.
        moments: of the inputs of those matrices that get 4 bits (`calibration.input_moments`); None: all get 8.

    Raises:
        BundleError: a weight is no number, or one that no bundle may have.
    """
    stored: Stored = dict(others or {})
    for name, weight in weights.items():
        array = np.asarray(weight, dtype=vector_type(name))
        if not (np.abs(array) <= LARGEST_WEIGHT).all():
            raise BundleError(f"{path}: {name} is not finite, or beyond {LARGEST_WEIGHT:,.0f}: training has diverged")
        if array.ndim == 2:
            few = moments is not None and is_read_in_each_pass(name)
            made = quantise_to_4_bits(array, moments[name]) if moments is not None and few else quantise(array)
            stored[name], stored[scale_name(name)] = made
        else:
            stored[name] = np.ascontiguousarray(array)
    path.write_bytes(save(stored))  # save_file would write for the owner alone


def load_weights(bundle: Bundle) -> dict[str, FloatArray]:
    """A bundle's weights in float32, ids in int64.

    Raises:
        BundleError: see `read_stored`.
    """
    return dequantised(read_stored(bundle.weights_path, bundle.architecture))


def read_stored(path: Path, architecture: Architecture) -> Stored:
    """The tensors of a weights file as they stand there, in read-only views of it: copy what is used after loading.

    Raises:
        BundleError: see `read_tensors`.
    """
    stored: Stored = {}
    for name, tensor in read_tensors(path, architecture).items():
        stored[name] = np.frombuffer(tensor.contents, tensor.type).reshape(tensor.shape)
        stored[name].flags.writeable = False
    return stored


def read_positions(path: Path, architecture: Architecture) -> dict[str, FloatArray]:
    """The learned positions of a weights file in float32, shape (positions, width).

    Raises:
        BundleError: see `read_tensors`.
    """
    tables = learned_positions(architecture)
    if not tables:
        return {}
    stored = read_stored(path, architecture)
    return dequantised({name: stored[name] for table in tables for name in (table, scale_name(table))})


def dequantised(stored: Stored) -> dict[str, FloatArray]:
    """Stored weights in float32 (ids in int64), without their scales."""
    return {
        name: array * stored[scale_name(name)][:, None] if array.ndim == 2 else array.copy()
        for name, array in stored.items()
        if not name.endswith(scale_name(""))
    }
