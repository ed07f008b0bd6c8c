"""The tensors of a pair's weights file: their names and shapes, and views of them in the file.

Every matrix is int8 with one float32 scale per row (`NAME_scale`): an output channel of a projection, a token or a
position of an embedding table. Vectors are float32, or int64 where they hold token ids (`NAME.ids`). Nothing here needs
numpy, which takes longer to import than a short translation; `bundles.weights` makes arrays of tensors.
"""

from __future__ import annotations

import ctypes
import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from operator import lt
from pathlib import Path

from specmt.bundles.architecture import Architecture
from specmt.errors import BundleError, reason
from specmt.text.characters import printable

VERIFIER_OUTPUT, DRAFTER_OUTPUT = "output", "drafter.output"
"""Output matrices that are not the embedding matrix: its rows for the tokens that a network can say, or others."""
SOURCE_POSITIONS, TARGET_POSITIONS = "source_positions", "target_positions"
"""The tables of positions of a bundle that has learned ones; the second serves the drafter too."""

LARGEST_WEIGHT = 1e6
"""No network has larger weights: with such, what the layers compute is soon no number."""
_USUAL = bytes(byte for byte in range(256) if byte & 0x7F < 0x49)
"""The most significant bytes, signs and parts of exponents, of 32-bit floats below 2^19."""
_TYPES = {"I8": ("int8", 1), "F32": ("float32", 4), "I64": ("int64", 8)}
"""What safetensors calls them, what numpy does, and their bytes."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory. `type`: as numpy calls it."""

    type: str
    shape: tuple[int, ...]
    contents: memoryview
    """Its bytes. They are writable, as ctypes wants them; in a view of a file that does not change the file."""
    offset: int
    """Where they stand in the file, in bytes from its beginning."""

    @property
    def address(self) -> int:
        """Where it begins in memory, as long as it lives."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.contents)) if self.contents else 0

    def copy(self) -> Tensor:
        """The same in memory of its own."""
        return replace(self, contents=memoryview(bytearray(self.contents)))

    def __str__(self) -> str:
        """Type and shape."""
        return f"{self.type} {list(self.shape)}"


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
    shapes |= learned_positions(architecture)

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


def learned_positions(architecture: Architecture) -> dict[str, tuple[int, ...]]:
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
        "drafter.bigram_right.weight": (architecture.draft_tokens, rank),
    }


def _outputs(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Output matrices that are not the embedding matrix, and the tokens that their rows stand for."""
    shapes: dict[str, tuple[int, ...]] = {}
    sizes = {VERIFIER_OUTPUT: architecture.target_vocabulary_size, DRAFTER_OUTPUT: architecture.draft_vocabulary_size}
    for output, size in sizes.items():
        if size:
            shapes[f"{output}.weight"], shapes[ids_name(output)] = (size, architecture.width), (size,)
    rows = architecture.target_tokens
    if not architecture.tied_output:
        shapes[f"{VERIFIER_OUTPUT}.weight"] = (rows, architecture.width)
    if architecture.output_bias:
        shapes[f"{VERIFIER_OUTPUT}.bias"] = (rows,)
    return shapes


def read_tensors(path: Path, architecture: Architecture) -> dict[str, Tensor]:
    """The tensors of a weights file, in views of the file: copy what is used after loading.

    Raises:
        BundleError: not safetensors, tensors that do not fit the architecture, or numbers that are none.
    """
    tensors = mapped_tensors(path)
    _check(path, {name: str(tensor) for name, tensor in tensors.items()}, expected_shapes(architecture))
    for name, tensor in tensors.items():
        if name.endswith(ids_name("")):
            ids = tensor.contents.cast("q").tolist()
            if not (all(map(lt, ids, ids[1:])) and ids[0] >= 0 and ids[-1] < architecture.vocabulary_size):
                raise BundleError(f"{path}: {name}: not ascending ids below {architecture.vocabulary_size}")
        elif tensor.type == "float32" and not _are_usual(tensor.contents):
            raise BundleError(f"{path}: {name}: not all are numbers of at most {LARGEST_WEIGHT:,.0f}")
    return tensors


def _are_usual(floats: memoryview) -> bool:
    """Whether 32-bit floats are numbers that a network can have; each is looked at only if one is 2^19 or more."""
    return not floats[3::4].tobytes().translate(None, _USUAL) or all(abs(x) <= LARGEST_WEIGHT for x in floats.cast("f"))


def _check(path: Path, found: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Compare what was found, types and shapes as `Tensor` writes them, with what is expected."""
    expected = {}
    for name, shape in shapes.items():
        expected[name] = f"{vector_type(name) if len(shape) == 1 else 'int8'} {list(shape)}"
        if len(shape) == 2:
            expected[scale_name(name)] = f"float32 {list(shape[:1])}"
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            what = f"found {found.get(name, 'none')}, expected {expected.get(name, 'none')}"
            raise BundleError(f"{path}: {printable(name)}: {what}")


def vector_type(name: str) -> str:
    """The element type of the vector of this name."""
    return "int64" if name.endswith(ids_name("")) else "float32"


def mapped_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a safetensors file, in a private view of it.

    Raises:
        BundleError: it is none, or has tensors of other types.
    """
    try:
        with path.open("rb") as file:
            contents = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
        begin = 8 + int.from_bytes(contents[:8], "little")
        if begin > len(contents):
            raise ValueError
        header = json.loads(bytes(contents[8:begin]).decode("utf-8"))
        header.pop("__metadata__", None)
        tensors, spans = {}, [(0, 0)]
        for name, entry in header.items():
            type_, shape, (first, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
            if type_ not in _TYPES:
                raise BundleError(f"{path}: {printable(name)}: of type {type_!r}; weights are {', '.join(_TYPES)}")
            called, size = _TYPES[type_]
            if min(first, *shape) < 0 or size * prod(shape) != end - first:
                raise ValueError
            spans.append((first, end))
            tensor = Tensor(called, shape, contents[begin + first : begin + end], begin + first)
            tensors[name] = tensor if (begin + first) % size == 0 else tensor.copy()
        spans.sort()
        if [first for first, _ in spans[1:]] + [len(contents) - begin] != [end for _, end in spans]:
            raise ValueError  # gaps, or tensors that share bytes, or more or fewer than there are
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {reason(error)}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise BundleError(f"{path}: not a safetensors file, or a damaged one") from None
    return tensors
