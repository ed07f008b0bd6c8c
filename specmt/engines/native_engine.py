"""The engine for CPUs that specmt brings itself: 8-bit integers, compiled from `specmt/native` when it is installed.

A row is an object of the library with caches of its own, so that rows enter, leave and move between batches without a
copy, and nothing is ever padded: a row's results are the same bits alone and in any batch or window.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import chain
from pathlib import Path
from typing import Any

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.architecture import ACTIVATIONS, Architecture
from specmt.bundles.bundle import RANGES, WEIGHTS
from specmt.bundles.tensors import Tensor, ids_name, read_tensors, scale_name
from specmt.engines.base import LATTICE_WIDTH, Candidates, Lattice, Run, Size, Speculation
from specmt.engines.native_library import SIZES, WAITING_FOR_WEIGHTS, address, build, check, library
from specmt.errors import BundleError, EngineError
from specmt.text.vocabulary import EOS_ID

_LARGEST = 1e30
"""That an activation is believed to be."""
_ITERATIONS = 32
"""Iterations of a call, at most: then Python has its turn, and rows that ended leave."""
_READ_LATER = (
    "embeddings.",
    "source_embeddings.",
    "output.",
    *(f"drafter.{name}" for name in ("slots.", "bigram_left.", "bigram_right.", "output.ids")),
)
"""How the tensors begin that the library reads where they are (`Tensors` in `network.h`); it packs the others."""
_MOST_HANDS = 4
"""Threads that work for one caller, at most: it is not known what more of them would gain."""
_ENCODED_TOKENS = 4096
"""Source tokens that are encoded in one pass, unless a sentence has more: the memory that it needs is kept."""


class _Row:
    """A row of the library, freed with this object."""

    __slots__ = ("_functions", "handle")

    def __init__(self, functions: ctypes.CDLL, handle: int) -> None:
        self._functions = functions
        self.handle = handle

    def copy(self) -> _Row:
        """A row of the same source with the same caches."""
        copied = ctypes.c_void_p()
        check(self._functions, self._functions.specmt_row_copy(self.handle, ctypes.byref(copied)))
        assert copied.value
        return _Row(self._functions, copied.value)

    def __del__(self) -> None:
        if getattr(self, "handle", None):  # a signal may have come before it was there
            self._functions.specmt_row_delete(self.handle)


class NativeRows:
    """Rows of the library, and how many tokens of each are committed."""

    def __init__(self, rows: list[_Row], counts: Iterable[int]) -> None:
        """Put the handles where the library reads them."""
        self.rows = rows
        self.counts = list(counts)
        self.handles = (ctypes.c_void_p * len(rows))(*[row.handle for row in rows])

    @property
    def lengths(self) -> IntArray:
        """See `Rows.lengths`."""
        import numpy as np

        return np.array(self.counts, dtype=np.int64)


class NativeEngine:
    """Runs a bundle's weights in the compiled library."""

    name = "native-cpu-int8"

    def __init__(self, architecture: Architecture, folder: Path, level: str = "", threads: int = 1) -> None:
        """Load a bundle's weights and the ranges of its activations.

        Args:
            threads: at most so many, up to four, work for a caller while it is the only one.
            level: of `native_library.LEVELS`, which processors' build runs; the fastest one that can, if left out.

        Raises:
            BundleError: files that do not fit the architecture.
            EngineError: the library was not compiled at installation.
        """
        self.architecture = architecture
        self._build = build(level)
        self._library = library(self._build)
        stored = read_tensors(folder / WEIGHTS, architecture)
        self._read_later = {name: tensor.copy() for name, tensor in stored.items() if name.startswith(_READ_LATER)}
        self._network = ctypes.c_void_p()
        tensors = self._library.specmt_tensors_new()
        if not tensors:
            raise MemoryError
        try:
            self._hand_over(tensors, stored | self._read_later, read_ranges(folder / RANGES))
            sizes = [int(getattr(architecture, name)) for name in SIZES] + [ACTIVATIONS.index(architecture.activation)]
            hands = min(threads, _MOST_HANDS)
            self._check(self._library.specmt_network_new(_integers(sizes), tensors, hands, ctypes.byref(self._network)))
        except EngineError as error:
            raise BundleError(
                f"{folder / RANGES}: does not fit the weights ({error}); `specmt export {folder}` writes it"
            ) from None
        finally:
            self._library.specmt_tensors_delete(tensors)

    def _hand_over(self, tensors: int, stored: dict[str, Tensor], ranges: dict[str, tuple[float, float]]) -> None:
        functions = self._library
        for name, tensor in stored.items():
            key, begin = name.encode(), tensor.address
            if len(tensor.shape) == 2:
                scales = stored[scale_name(name)].address
                self._check(functions.specmt_tensors_matrix(tensors, key, begin, scales, *tensor.shape))
            elif name.endswith(ids_name("")):
                self._check(functions.specmt_tensors_ids(tensors, key, begin))
            else:
                self._check(functions.specmt_tensors_vector(tensors, key, begin))
        for name in ranges.keys() & stored.keys():
            self._check(functions.specmt_tensors_range(tensors, name.encode(), *ranges[name]))

    def __del__(self) -> None:
        """Free the library's copy of the weights."""
        if getattr(self, "_network", None):
            self._library.specmt_network_delete(self._network)

    def _check(self, result: int) -> None:
        check(self._library, result)

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""
        return self.architecture.draft_length

    @property
    def speculated_rows(self) -> int:
        """One where products are fast: a step waits for its weights, and a draft costs little more. Else none."""
        return int(self._build in WAITING_FOR_WEIGHTS)

    @property
    def strict_draft_length(self) -> int:
        """Three: with small models the fastest, or nearly so, whatever the text (docs/sweep.md); with AMX four."""
        return 4 if self._build == "amx" else 3

    def encode(self, sources: Sequence[Sequence[int]]) -> NativeRows:
        """See `Engine.encode`."""
        rows = [row for part in _parts(sources, _ENCODED_TOKENS) for row in self._encode(part)]
        return NativeRows(rows, [0] * len(rows))

    def _encode(self, sources: Sequence[Sequence[int]]) -> list[_Row]:
        ids, lengths = _integers([*chain(*sources)]), _integers([len(source) for source in sources])
        handles = (ctypes.c_void_p * len(sources))()
        self._check(self._library.specmt_encode(self._network, ids, lengths, len(sources), handles))
        return [_Row(self._library, handle) for handle in handles if handle]

    def verify(self, rows: NativeRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        batch, window = token_ids.shape
        tokens = _ids(token_ids, rows)
        candidates = self._empty_candidates(batch, window, beta)
        self._check(
            self._library.specmt_verify(
                *self._places(rows), address(tokens), window, candidates.ids.shape[2], *_addresses(candidates)
            )
        )
        return candidates

    def attention(self, source_ids: Sequence[int], token_ids: Sequence[int], layer: int) -> FloatArray:
        """See `base.Attending`."""
        import numpy as np

        (row,) = self._encode([source_ids])
        weights = np.empty((len(token_ids), len(source_ids)), dtype=np.float32)
        ids = _integers(token_ids)
        self._check(self._library.specmt_attention(self._network, row.handle, ids, len(ids), layer, address(weights)))
        return weights

    def draft(self, rows: NativeRows, last_ids: IntArray, draft_length: int) -> Lattice:
        """See `Engine.draft`."""
        import numpy as np

        width = self._lattice_width
        shape = (len(last_ids), draft_length, width)
        ids, scores = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32)
        transitions: FloatArray = np.empty((*shape, width), dtype=np.float32)
        outputs = (address(array) for array in (ids, scores, transitions))
        last_ids = _ids(last_ids, rows)
        self._check(
            self._library.specmt_draft(*self._places(rows), address(last_ids), draft_length, width, *outputs),
        )
        return Lattice(ids, scores, transitions)

    def draft_and_verify(self, rows: NativeRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `base.Fused`."""
        import numpy as np

        last_ids = _ids(last_ids, rows)
        draft = np.empty((len(last_ids), draft_length), dtype=np.int64)
        candidates = self._empty_candidates(len(last_ids), draft_length + 1, beta)
        self._check(
            self._library.specmt_speculate(
                *self._places(rows),
                address(last_ids),
                draft_length,
                self._lattice_width,
                candidates.ids.shape[2],
                address(draft),
                *_addresses(candidates),
            )
        )
        return Speculation(draft, candidates)

    def iterate(
        self,
        rows: NativeRows,
        last_ids: Sequence[int],
        room: Sequence[int],
        draft_length: int,
        beta: int,
        tau: float,
        ends: int = 1,
        scored: bool = True,
    ) -> Run:
        """See `base.Iterating`."""
        count, places = len(rows.rows), _ITERATIONS * (draft_length + 1)
        for given in (last_ids, room):
            _check_length(given, rows)
        lengths, taken = _integers(rows.counts), (ctypes.c_int64 * count)()
        accepted, ids = (ctypes.c_int64 * (count * _ITERATIONS))(), (ctypes.c_int64 * (count * places))()
        log_probs = (ctypes.c_float * (count * places))()
        self._check(
            self._library.specmt_iterate(
                self._network,
                rows.handles,
                lengths,
                count,
                _integers(last_ids),
                _integers(room),
                draft_length,
                self._lattice_width,
                min(beta, self._most_candidates),
                tau,
                scored,
                EOS_ID,
                _ITERATIONS,
                ends,
                taken,
                accepted,
                ids,
                log_probs,
            )
        )
        emitted = [after - before for before, after in zip(rows.counts, lengths, strict=True)]
        rows.counts = list(lengths)
        by_row = [_heads(array, emitted, places) for array in (ids, log_probs)]
        return Run(_heads(accepted, taken, _ITERATIONS), *by_row)

    @property
    def _most_candidates(self) -> int:
        return self.architecture.target_tokens

    @property
    def _lattice_width(self) -> int:
        return min(LATTICE_WIDTH, self.architecture.draft_tokens)

    def _places(self, rows: NativeRows) -> tuple[Any, ...]:
        return self._network, rows.handles, _integers(rows.counts), len(rows.rows)

    def _empty_candidates(self, batch: int, positions: int, beta: int) -> Candidates:
        import numpy as np

        shape = (batch, positions, min(beta, self._most_candidates))
        return Candidates(np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.float32))

    def commit(self, rows: NativeRows, counts: IntArray) -> None:
        """See `Engine.commit`."""
        rows.counts = (rows.lengths + counts).tolist()

    def select(self, rows: NativeRows, indices: Sequence[int] | IntArray) -> NativeRows:
        """See `Engine.select`. The rows themselves, and copies where an index repeats."""
        seen: set[int] = set()
        chosen, counts = [], []
        for index in indices:
            chosen.append(rows.rows[index].copy() if index in seen else rows.rows[index])
            counts.append(rows.counts[index])
            seen.add(index)
        return NativeRows(chosen, counts)

    def reorder(self, rows: NativeRows, indices: IntArray) -> NativeRows:
        """See `Engine.reorder`. Rows that are not taken become copies of those that are taken more than once."""
        indices, places = _ids(indices, rows), (ctypes.c_int64 * len(rows.rows))()
        self._check(self._library.specmt_reorder(*self._places(rows), address(indices), places))
        return NativeRows([rows.rows[place] for place in places], [rows.counts[index] for index in indices])

    def join(self, rows: NativeRows, others: NativeRows) -> NativeRows:
        """See `Engine.join`."""
        return NativeRows(rows.rows + others.rows, rows.counts + others.counts)

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
        group.counts = lengths.tolist()
        return group

    def scatter(self, rows: NativeRows, indices: IntArray, group: NativeRows, counts: IntArray) -> None:
        """See `Engine.scatter`; the group's rows are the rows."""

    def keep(self, rows: NativeRows, lengths: IntArray) -> None:
        """See `Engine.keep`."""
        rows.counts = lengths.tolist()


def _integers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(values))(*map(int, values))


def _heads(values: Any, counts: Iterable[int], places: int) -> list[list[Any]]:  # noqa: ANN401 - an array of ctypes
    """Of each row's `places` values, the first `counts`."""
    return [values[row * places : row * places + count] for row, count in enumerate(counts)]


def _ids(array: IntArray, rows: NativeRows) -> IntArray:
    """An array of integers with an entry a row, as the library reads it.

    Raises:
        ValueError: it has another length.
    """
    import numpy as np

    _check_length(array, rows)
    return np.ascontiguousarray(array, dtype=np.int64)


def _check_length(entries: Sized, rows: NativeRows) -> None:
    if len(entries) != len(rows.rows):
        raise ValueError(f"{len(entries)} entries for {len(rows.rows)} rows")


def _parts(sources: Sequence[Sequence[int]], tokens: int) -> Iterator[Sequence[Sequence[int]]]:
    """The sources in parts of at most so many tokens, or of one source."""
    begin, total = 0, 0
    for place, source in enumerate(sources):
        if place > begin and total + len(source) > tokens:
            yield sources[begin:place]
            begin, total = place, 0
        total += len(source)
    yield sources[begin:]


def _addresses(candidates: Candidates) -> tuple[int, int]:
    return address(candidates.ids), address(candidates.log_probs)


def read_ranges(path: Path) -> dict[str, tuple[float, float]]:
    """What range each product of matrices reads, as export wrote it.

    Raises:
        BundleError: not such a file.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8")).items()
        ranges = {str(name): (float(low), float(high)) for name, (low, high) in entries}
        if not all(-_LARGEST <= low <= high <= _LARGEST for low, high in ranges.values()):
            raise ValueError
        return ranges
    except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        raise BundleError(f"{path}: missing or damaged; `specmt export {path.parent}` writes it") from None
