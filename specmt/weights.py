"""Weights of a pair as safetensors: names, shapes, and the 8-bit integers in which matrices are stored.

Every matrix is int8 with one float32 scale per row (`NAME_scale`): an output channel of a projection, a token or a
position of an embedding table. Vectors are float32, or int64 where they hold token ids (`NAME.ids`). Every engine runs
these very numbers. Nothing here needs torch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from specmt.architecture import Architecture
from specmt.bundle import Bundle
from specmt.engines.base import FloatArray
from specmt.errors import BundleError
from specmt.positions import SOURCE_POSITIONS, TARGET_POSITIONS

VERIFIER_OUTPUT, DRAFTER_OUTPUT = "output", "drafter.output"
"""Output matrices that are not the embedding matrix: its rows for the tokens that a network can say, or others."""

Stored = dict[str, NDArray[Any]]
"""Tensors of a weights file by name: int8 matrices, float32 scales and vectors, int64 token ids."""
_TYPES = {"I8": np.int8, "F32": np.float32, "I64": np.int64}
"""What safetensors calls them."""
LARGEST = 127
"""Stored integers reach from -127 to 127: symmetric, so that no zero point is needed."""


def scale_name(name: str) -> str:
    """Where the scales of a matrix stand, shape (rows,)."""
    return f"{name}_scale"


def ids_name(output: str) -> str:
    """Where the token ids of an output matrix's rows stand, ascending."""
    return f"{output}.ids"


def expected_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor of a bundle and its shape.

    `embeddings` serve target, output and source, unless those have their own; attention and feed-forward names are
    fairseq's own.
    """
    width = architecture.width
    shapes: dict[str, tuple[int, ...]] = {"embeddings.weight": (architecture.vocabulary_size, width)}
    if architecture.source_vocabulary_size:
        shapes["source_embeddings.weight"] = (architecture.source_vocabulary_size, width)
    shapes |= _learned_positions(architecture)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def attention(
        layer: str, kind: str, projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "out_proj")
    ) -> None:
        for projection in projections:
            linear(f"{layer}.{kind}.{projection}", width, width)

    def layer(name: str, inner: int, reads_source: bool) -> None:
        attention(name, "self_attn")
        norm(f"{name}.self_attn_layer_norm")
        if reads_source:
            attention(name, "encoder_attn")
            norm(f"{name}.encoder_attn_layer_norm")
        linear(f"{name}.fc1", inner, width)
        linear(f"{name}.fc2", width, inner)
        norm(f"{name}.final_layer_norm")

    stacks = (
        (
            "verifier.encoder",
            architecture.encoder_layers,
            architecture.feed_forward_width_of_encoder,
            architecture.encoder_final_norm,
        ),
        (
            "verifier.decoder",
            architecture.decoder_layers,
            architecture.feed_forward_width,
            architecture.decoder_final_norm,
        ),
        ("drafter", architecture.drafter_layers, architecture.feed_forward_width, architecture.drafter_layers > 0),
    )
    for stack, layers, inner, _ in stacks:
        for index in range(layers):
            layer(f"{stack}.layers.{index}", inner, reads_source=stack != "verifier.encoder")
            attention(f"{stack}.layers.{index}", "prefix_attn", ("k_proj", "v_proj") if stack == "drafter" else ())
    for stack in (stack for stack, *_, final_norm in stacks if final_norm):
        norm(f"{stack}.layer_norm")
    return shapes | _drafters_own(architecture) | _outputs(architecture)


def _learned_positions(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Tables of positions where they are no sinusoids; the first row is the first token's."""
    sides = {SOURCE_POSITIONS: architecture.source_positions, TARGET_POSITIONS: architecture.target_positions}
    return {f"{table}.weight": (rows, architecture.width) for table, rows in sides.items() if rows}


def _drafters_own(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """What a drafter has beside its layers: the embeddings of its slots and the bigram term."""
    if not architecture.drafter_layers:
        return {}
    rank, vocabulary_size = architecture.bigram_rank, architecture.vocabulary_size
    return {
        "drafter.slots.weight": (architecture.draft_length, architecture.width),
        "drafter.bigram_gate.weight": (rank, architecture.width),
        "drafter.bigram_left.weight": (vocabulary_size, rank),
        "drafter.bigram_right.weight": (architecture.draft_vocabulary_size or vocabulary_size, rank),
    }


def _outputs(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Output matrices that are not the embedding matrix, and the tokens that their rows stand for."""
    shapes: dict[str, tuple[int, ...]] = {}
    sizes = {VERIFIER_OUTPUT: architecture.target_vocabulary_size, DRAFTER_OUTPUT: architecture.draft_vocabulary_size}
    for output, size in sizes.items():
        if size:
            shapes[f"{output}.weight"], shapes[ids_name(output)] = (size, architecture.width), (size,)
    if not architecture.tied_output:
        rows = architecture.target_vocabulary_size or architecture.vocabulary_size
        shapes[f"{VERIFIER_OUTPUT}.weight"] = (rows, architecture.width)
    return shapes


def quantise(matrix: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """The nearest integers to a matrix and the scale of each row: matrix is about integers * scales[:, None]."""
    largest = np.abs(matrix).max(axis=1)
    scales = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return np.rint(matrix / scales[:, None]).astype(np.int8), scales


def save_weights(weights: Mapping[str, ArrayLike], path: Path) -> None:
    """Store weights (float32; ids int64), matrices as 8-bit integers.

    Raises:
        BundleError: a weight is no number.
    """
    stored: Stored = {}
    for name, weight in weights.items():
        array = np.asarray(weight, dtype=_vector_type(name))
        if not np.isfinite(array).all():
            raise BundleError(f"{path}: {name} is not finite: training has diverged")
        if array.ndim == 2:
            stored[name], stored[scale_name(name)] = quantise(array)
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
    """The tensors of a weights file as they stand there, in views of the file: copy what is used after loading.

    Raises:
        BundleError: not safetensors, or tensors that do not fit the architecture.
    """
    try:
        stored = _mapped(path)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path}: {error}") from None
    found = {name: (array.shape, array.dtype) for name, array in stored.items()}
    _check(path, found, _expected_tensors(expected_shapes(architecture)))
    for name, array in stored.items():
        if name.endswith(ids_name("")) and not _are_ids(array, architecture.vocabulary_size):
            raise BundleError(f"{path}: {name}: not ascending ids below {architecture.vocabulary_size}")
    return stored


def _mapped(path: Path) -> Stored:
    """Read-only views of a file's tensors."""
    with safe_open(path, "numpy"):  # checks the header
        pass
    contents = np.memmap(path, np.uint8, "r").view(np.ndarray)
    begin = 8 + int.from_bytes(contents[:8].tobytes(), "little")
    header = json.loads(contents[8:begin].tobytes())
    stored: Stored = {}
    for name in header.keys() - {"__metadata__"}:
        type_, shape, (first, end) = (header[name][key] for key in ("dtype", "shape", "data_offsets"))
        if type_ not in _TYPES:
            raise BundleError(f"{path}: {name}: of type {type_}; weights are {', '.join(_TYPES)}")
        array = contents[begin + first : begin + end].view(_TYPES[type_]).reshape(shape)
        stored[name] = array if array.flags.aligned else array.copy()
    return stored


def _are_ids(array: NDArray[np.int64], vocabulary_size: int) -> bool:
    return bool((np.diff(array) > 0).all() and array[0] >= 0 and array[-1] < vocabulary_size)


def read_positions(path: Path, architecture: Architecture) -> dict[str, FloatArray]:
    """The learned positions of a weights file in float32, shape (positions, width); nothing else of it is read.

    Raises:
        BundleError: see `read_stored`.
    """
    expected = _expected_tensors(_learned_positions(architecture))
    if not expected:
        return {}
    try:
        with safe_open(path, "numpy") as file:
            stored: Stored = {name: file.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path}: {error}") from None
    _check(path, {name: (array.shape, array.dtype) for name, array in stored.items()}, expected)
    return dequantised(stored)


def dequantised(stored: Stored) -> dict[str, FloatArray]:
    """Stored weights in float32 (ids in int64), without their scales."""
    return {
        name: array * stored[scale_name(name)][:, None] if array.ndim == 2 else array.copy()
        for name, array in stored.items()
        if not name.endswith(scale_name(""))
    }


_Tensors = dict[str, tuple[tuple[int, ...], np.dtype[Any]]]


def _expected_tensors(shapes: Mapping[str, tuple[int, ...]]) -> _Tensors:
    tensors: _Tensors = {}
    for name, shape in shapes.items():
        tensors[name] = (shape, np.dtype(np.int8) if len(shape) == 2 else _vector_type(name))
        if len(shape) == 2:
            tensors[scale_name(name)] = (shape[:1], np.dtype(np.float32))
    return tensors


def _vector_type(name: str) -> np.dtype[Any]:
    return np.dtype(np.int64 if name.endswith(ids_name("")) else np.float32)


def _check(path: Path, found: _Tensors, expected: _Tensors) -> None:
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            what = f"found {_described(found.get(name))}, expected {_described(expected.get(name))}"
            raise BundleError(f"{path}: {name}: {what}")


def _described(tensor: tuple[tuple[int, ...], np.dtype[Any]] | None) -> str:
    return f"{tensor[1]} {list(tensor[0])}" if tensor else "none"
