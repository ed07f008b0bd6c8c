"""The engine for CPUs that specmt brings itself: 8-bit integers, compiled from `specmt/native` when it is installed.

A row is an object of the library with caches of its own, so that rows enter, leave and move between batches without a
copy, and nothing is ever padded: a row's results are the same bits alone and in any batch or window.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmt.architecture import Architecture
from specmt.bundle import RANGES, WEIGHTS
from specmt.engines.base import LATTICE_WIDTH, Candidates, FloatArray, IntArray, Lattice, Size, Speculation
from specmt.errors import BundleError, EngineError
from specmt.weights import Stored, ids_name, read_stored, scale_name

LIBRARIES = tuple(Path(__file__).parent.parent / "native" / f"specmt-{level}.so" for level in ("any", "avx2", "avx512"))
"""The same code for processors of each level, the slowest first."""
_NO_MEMORY = 1
_SIZES = (
    "vocabulary_size",
    "width",
    "heads",
    "feed_forward_width",
    "encoder_layers",
    "decoder_layers",
    "drafter_layers",
    "draft_length",
    "bigram_rank",
    "target_vocabulary_size",
    "draft_vocabulary_size",
    "source_vocabulary_size",
    "tied_output",
    "encoder_heads",
    "encoder_feed_forward_width",
    "encoder_pre_norm",
    "decoder_pre_norm",
    "encoder_final_norm",
    "decoder_final_norm",
    "scaled_embeddings",
)
"""What the library wants to know of an architecture, in its order; last comes whether the activation is gelu."""


def is_built() -> bool:
    """Whether the library was compiled at installation."""
    return all(path.exists() for path in LIBRARIES)


@cache
def _library() -> ctypes.CDLL:
    """The fastest build that this processor can run."""
    try:
        level = ctypes.CDLL(str(LIBRARIES[0])).specmt_processor_level()
        library = ctypes.CDLL(str(LIBRARIES[level]))
    except OSError as error:
        raise EngineError(f"the native engine is not built here: {error}") from None
    library.specmt_error.restype = ctypes.c_char_p
    library.specmt_tensors_new.restype = ctypes.c_void_p
    for name in ("tensors_delete", "network_delete", "row_delete"):
        function = getattr(library, f"specmt_{name}")
        function.argtypes, function.restype = [ctypes.c_void_p], None
    pointer, integer, real, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_char_p
    for name, types in {
        "tensors_matrix": [pointer, text, pointer, pointer, integer, integer],
        "tensors_vector": [pointer, text, pointer],
        "tensors_ids": [pointer, text, pointer],
        "tensors_range": [pointer, text, real, real],
        "network_new": [pointer, pointer, pointer],
        "row_copy": [pointer, pointer],
        "encode": [pointer, pointer, pointer, integer, pointer],
        "verify": [pointer, pointer, pointer, integer, pointer, integer, integer, pointer, pointer],
        "draft": [pointer, pointer, pointer, integer, pointer, integer, integer, pointer, pointer, pointer],
        "speculate": [pointer, pointer, pointer, integer, pointer, *3 * [integer], pointer, pointer, pointer],
    }.items():
        getattr(library, f"specmt_{name}").argtypes = types
    return library


def _check(result: int) -> None:
    if result == _NO_MEMORY:
        raise MemoryError
    if result:
        raise EngineError(f"native engine: {_library().specmt_error().decode()}")


def _address(array: NDArray[Any]) -> int:
    """Where an array begins that has no gaps."""
    assert array.flags.c_contiguous
    address: int = array.ctypes.data
    return address


class _Row:
    """A row of the library, freed with this object."""

    __slots__ = ("_delete", "handle")

    def __init__(self, handle: int) -> None:
        self.handle = handle
        self._delete = _library().specmt_row_delete

    def copy(self) -> _Row:
        """A row of the same source with the same caches."""
        copied = ctypes.c_void_p()
        _check(_library().specmt_row_copy(self.handle, ctypes.byref(copied)))
        assert copied.value
        return _Row(copied.value)

    def __del__(self) -> None:
        self._delete(self.handle)


@dataclass
class NativeRows:
    """Rows of the library, and how many tokens of each are committed."""

    rows: list[_Row]
    lengths: IntArray

    def __post_init__(self) -> None:
        """Put the handles where the library reads them."""
        self.handles = (ctypes.c_void_p * len(self.rows))(*[row.handle for row in self.rows])


class NativeEngine:
    """Runs a bundle's weights in the compiled library."""

    name = "native-cpu-int8"

    def __init__(self, architecture: Architecture, folder: Path) -> None:
        """Load a bundle's weights and the ranges of its activations.

        Raises:
            BundleError: files that do not fit the architecture.
            EngineError: the library was not compiled at installation.
        """
        self.architecture = architecture
        self._library = _library()
        self._stored = read_stored(folder / WEIGHTS, architecture)  # the library reads embeddings from here
        self._network = ctypes.c_void_p()
        tensors = self._library.specmt_tensors_new()
        if not tensors:
            raise MemoryError
        try:
            self._hand_over(tensors, self._stored, read_ranges(folder / RANGES))
            sizes = [int(getattr(architecture, name)) for name in _SIZES] + [architecture.activation == "gelu"]
            shape = np.array(sizes, dtype=np.int64)
            _check(self._library.specmt_network_new(_address(shape), tensors, ctypes.byref(self._network)))
        except EngineError:
            raise BundleError(
                f"{folder / RANGES}: does not fit the weights; `specmt export {folder}` writes it"
            ) from None
        finally:
            self._library.specmt_tensors_delete(tensors)

    def _hand_over(self, tensors: int, stored: Stored, ranges: dict[str, tuple[float, float]]) -> None:
        library = self._library
        for name, array in stored.items():
            key, address = name.encode(), _address(array)
            if array.ndim == 2:
                scales = _address(stored[scale_name(name)])
                _check(library.specmt_tensors_matrix(tensors, key, address, scales, *array.shape))
            elif name.endswith(ids_name("")):
                _check(library.specmt_tensors_ids(tensors, key, address))
            else:
                _check(library.specmt_tensors_vector(tensors, key, address))
        for name, (low, high) in ranges.items():
            _check(library.specmt_tensors_range(tensors, name.encode(), low, high))

    def __del__(self) -> None:
        """Free the library's copy of the weights."""
        if getattr(self, "_network", None):
            self._library.specmt_network_delete(self._network)

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""
        return self.architecture.draft_length

    def encode(self, sources: Sequence[Sequence[int]]) -> NativeRows:
        """See `Engine.encode`."""
        ids = np.array([id_ for source in sources for id_ in source], dtype=np.int64)
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        handles = (ctypes.c_void_p * len(sources))()
        _check(self._library.specmt_encode(self._network, _address(ids), _address(lengths), len(sources), handles))
        return NativeRows([_Row(handle) for handle in handles], np.zeros(len(sources), dtype=np.int64))

    def verify(self, rows: NativeRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        batch, window = token_ids.shape
        tokens = np.ascontiguousarray(token_ids, dtype=np.int64)
        candidates = self._empty_candidates(batch, window, beta)
        _check(
            self._library.specmt_verify(
                *self._places(rows), _address(tokens), window, candidates.ids.shape[2], *_addresses(candidates)
            )
        )
        return candidates

    def draft(self, rows: NativeRows, last_ids: IntArray, draft_length: int) -> Lattice:
        """See `Engine.draft`."""
        width = self._lattice_width
        shape = (len(last_ids), draft_length, width)
        ids, scores = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        transitions: FloatArray = np.empty((*shape, width), dtype=np.float32)
        outputs = (_address(array) for array in (ids, scores, transitions))
        last_ids = np.ascontiguousarray(last_ids)
        _check(
            self._library.specmt_draft(*self._places(rows), _address(last_ids), draft_length, width, *outputs),
        )
        return Lattice(ids, scores, transitions)

    def draft_and_verify(self, rows: NativeRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `base.Fused`."""
        draft = np.empty((len(last_ids), draft_length), dtype=np.int64)
        candidates = self._empty_candidates(len(last_ids), draft_length + 1, beta)
        _check(
            self._library.specmt_speculate(
                *self._places(rows),
                _address(last_ids),
                draft_length,
                self._lattice_width,
                candidates.ids.shape[2],
                _address(draft),
                *_addresses(candidates),
            )
        )
        return Speculation(draft, candidates)

    @property
    def _lattice_width(self) -> int:
        return min(LATTICE_WIDTH, self.architecture.draft_vocabulary_size or self.architecture.vocabulary_size)

    def _places(self, rows: NativeRows) -> tuple[Any, ...]:
        return self._network, rows.handles, _address(rows.lengths), len(rows.rows)

    def _empty_candidates(self, batch: int, positions: int, beta: int) -> Candidates:
        most = self.architecture.target_vocabulary_size or self.architecture.vocabulary_size
        shape = (batch, positions, min(beta, most))
        return Candidates(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32))

    def commit(self, rows: NativeRows, counts: IntArray) -> None:
        """See `Engine.commit`."""
        rows.lengths = rows.lengths + counts

    def select(self, rows: NativeRows, indices: IntArray) -> NativeRows:
        """See `Engine.select`. The rows themselves, and copies where an index repeats: `rows` must not be used on."""
        seen: set[int] = set()
        chosen = []
        for index in indices.tolist():
            chosen.append(rows.rows[index].copy() if index in seen else rows.rows[index])
            seen.add(index)
        return NativeRows(chosen, rows.lengths[indices])

    def reorder(self, rows: NativeRows, indices: IntArray) -> NativeRows:
        """See `Engine.reorder`."""
        return self.select(rows, indices)

    def join(self, rows: NativeRows, others: NativeRows) -> NativeRows:
        """See `Engine.join`."""
        return NativeRows(rows.rows + others.rows, np.concatenate([rows.lengths, others.lengths]))

    # -- fixed shapes: not needed for a row's results, as no shape changes a bit

    @property
    def row_exact(self) -> bool:
        """Yes: see `docs/engines.md`."""
        return True

    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> NativeRows:
        """See `Engine.encode_fixed`."""
        return self.encode(sources)

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        """See `Engine.size`; all rows are of one size, as nothing is padded."""
        return Size(0, 0)

    def gather(self, rows: NativeRows, indices: IntArray, lengths: IntArray, size: Size) -> NativeRows:
        """See `Engine.gather`. The rows themselves: what a pass writes behind their lengths is theirs to overwrite."""
        group = self.select(rows, indices)
        group.lengths = lengths
        return group

    def scatter(self, rows: NativeRows, indices: IntArray, group: NativeRows, counts: IntArray) -> None:
        """See `Engine.scatter`; the group's rows are the rows."""

    def keep(self, rows: NativeRows, lengths: IntArray) -> None:
        """See `Engine.keep`."""
        rows.lengths = lengths


def _addresses(candidates: Candidates) -> tuple[int, int]:
    return _address(candidates.ids), _address(candidates.log_probs)


def read_ranges(path: Path) -> dict[str, tuple[float, float]]:
    """What range each product of matrices reads, as export wrote it.

    Raises:
        BundleError: not such a file.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8")).items()
        return {str(name): (float(low), float(high)) for name, (low, high) in entries}
    except (OSError, ValueError, TypeError, AttributeError):
        raise BundleError(f"{path}: missing or damaged; `specmt export {path.parent}` writes it") from None
