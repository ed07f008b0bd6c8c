"""The engine for CPUs without specmt's own: ONNX Runtime over the graphs of `onnx_export`, in 8-bit integers.

A call costs as much as the arithmetic of a small model, so there are few, and each is prepared once: a `Call` binds
buffers to a graph's inputs and outputs, and from then on a pass is writing small integers into the buffers and running
the graph. Caches are bound as input and as output, so that the graph writes new keys and values into them in place.

Arrays are position-major, (positions, batch, ...), because then a batch of one is contiguous whatever its length.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS
from specmt.bundles.positions import position_table
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.bundles.weights import read_positions
from specmt.engines.base import LATTICE_WIDTH, Candidates, Lattice, Size, Speculation, rounded_up
from specmt.engines.onnx_calls import Call, LoadedGraph, cache_names, memory_names
from specmt.text.vocabulary import PAD_ID

LARGEST_SCORE = 80.0
"""Attention scores above count as this: its exponential, and the sum of many, are 32-bit floats."""
_CAPACITY_STEP = 32
"""Target positions by which caches grow."""
_SOURCE_STEP = 16
"""Source positions by which the sizes of fixed shapes grow."""


@dataclass
class OnnxRows:
    """Caches of a batch, keys and values of each layer in turn: verifier's layers, then the drafter's."""

    memory: FloatArray
    """Of the source, shape (2 * layers, source length, batch, heads, head width)."""
    source_limits: FloatArray
    """`LARGEST_SCORE` where a source token may be attended, -inf at padding; shape (batch, 1, 1, source length)."""
    caches: FloatArray
    """Of the target, uncommitted positions included; shape (2 * layers, capacity, batch, heads, head width)."""
    lengths: IntArray
    calls: dict[tuple[str, int, int], Call] = field(default_factory=dict)
    """Prepared calls by graph, window (tokens) and beta; they hold the caches' addresses."""

    @property
    def capacity(self) -> int:
        """Positions that the caches hold."""
        return len(self.caches[0])


class _Tables:
    """Constants that grow with the longest sentence seen: embeddings of positions, and the limits of causal masks."""

    def __init__(self, width: int, learned: FloatArray | None) -> None:
        self._width = width
        self._learned = learned
        self._growing = threading.Lock()
        self._positions = position_table(1, width, learned)
        self._limits = np.zeros((0, 0), dtype=np.float32)
        self.numbers = np.arange(len(self._positions))
        """0, 1, 2, ...: as many as `positions` has given out."""

    def positions(self, count: int) -> FloatArray:
        """Embeddings of at least `count` positions, shape (positions, width)."""
        if len(self._positions) < count:
            with self._growing:  # to what no other thread makes shorter
                count = max(128, 2 * count, len(self._positions))
                table = position_table(count, self._width, self._learned)
                self.numbers = np.arange(len(table))  # first: another thread must not find fewer
                self._positions = table
        return self._positions

    def limits(self, capacity: int) -> FloatArray:
        """What a query at each position may score at each key, shape (capacity, capacity)."""
        limits = self._limits
        if len(limits) < capacity:
            visible = np.tri(capacity, dtype=np.bool_)
            limits = np.where(visible, np.float32(LARGEST_SCORE), np.float32(-np.inf))
            self._limits = limits
        return limits[:capacity, :capacity]


class OnnxEngine:
    """Runs a bundle's graphs. A row's results are the same to the bit alone, in any batch and in any window."""

    name = "onnx-cpu-int8"
    speculated_rows: int | None = None
    """Any."""
    strict_draft_length: int | None = None
    """As many as the model says."""

    def __init__(self, architecture: Architecture, folder: Path) -> None:
        """Graphs are loaded when they are first used.

        Args:
            folder: where the graphs and the weights stand.

        Raises:
            BundleError: learned positions that do not fit the architecture.
        """
        self.architecture = architecture
        self._folder = folder
        self._graphs: dict[str, LoadedGraph] = {}
        self._loading = threading.Lock()
        self._groups = threading.local()
        learned = read_positions(folder / WEIGHTS, architecture)
        self._source_tables, self._tables = (
            _Tables(architecture.width, learned.get(f"{name}.weight")) for name in (SOURCE_POSITIONS, TARGET_POSITIONS)
        )
        self._layers = architecture.decoder_layers + architecture.drafter_layers
        self._head_shape = (architecture.heads, architecture.width // architecture.heads)

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""
        return self.architecture.draft_length

    def encode(self, sources: Sequence[Sequence[int]]) -> OnnxRows:
        """See `Engine.encode`."""
        longest, batch = max(map(len, sources)), len(sources)
        ids = np.full((batch, longest), PAD_ID, dtype=np.int64)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = source
        limits = np.where(ids == PAD_ID, np.float32(-np.inf), np.float32(LARGEST_SCORE))[:, None, None, :]
        memory = np.empty((2 * self._layers, longest, batch, *self._head_shape), dtype=np.float32)
        call = Call(self._graph("encode"))
        call.bind("source_ids", ids.T.ravel())
        call.bind("positions", np.repeat(self._source_tables.positions(longest)[:longest], batch, axis=0))
        heads = self.architecture.heads_of_encoder
        call.bind("source_shape", np.array([longest, batch, heads, self.architecture.width // heads]))
        self._bind_source(call, memory.reshape(2 * self._layers, longest * batch, -1), limits)
        call.run(*(name for layer in range(self._layers) for name in memory_names(layer)))
        caches = np.zeros((2 * self._layers, _CAPACITY_STEP, batch, *self._head_shape), dtype=np.float32)
        return OnnxRows(memory, limits, caches, np.zeros(batch, dtype=np.int64))

    def verify(self, rows: OnnxRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        window = token_ids.shape[1]
        call = self._window_call("verify", rows, window, beta)
        call["token_ids"][:] = token_ids.T.ravel()
        call.run("candidate_ids", "log_probs")
        return _candidates(call, len(token_ids))

    def draft(self, rows: OnnxRows, last_ids: IntArray, draft_length: int) -> Lattice:
        """See `Engine.draft`."""
        call = self._window_call("draft", rows, draft_length + 1, beta=0)
        call["last_ids"][:] = last_ids
        call.run("ids", "scores", "transitions")
        shape = (draft_length, len(last_ids), *call["transitions"].shape[1:])
        ids, scores = (call[name].swapaxes(0, 1).copy() for name in ("ids", "scores"))
        return Lattice(ids, scores, call["transitions"].reshape(shape).swapaxes(0, 1).copy())

    def draft_and_verify(self, rows: OnnxRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `base.Fused`."""
        call = self._window_call("speculate", rows, draft_length + 1, beta)
        call["last_ids"][:] = last_ids
        call.run("draft", "candidate_ids", "log_probs")
        draft = call["draft"].reshape(draft_length, len(last_ids)).T.copy()
        return Speculation(draft, _candidates(call, len(last_ids)))

    def commit(self, rows: OnnxRows, counts: IntArray) -> None:
        """See `Engine.commit`."""
        rows.lengths = rows.lengths + counts

    def select(self, rows: OnnxRows, indices: Sequence[int] | IntArray) -> OnnxRows:
        """See `Engine.select`."""
        indices = np.asarray(indices)
        chosen = self.reorder(rows, indices)
        return replace(chosen, memory=rows.memory.take(indices, axis=2), source_limits=rows.source_limits[indices])

    def reorder(self, rows: OnnxRows, indices: IntArray) -> OnnxRows:
        """See `Engine.reorder`."""
        return replace(rows, caches=rows.caches.take(indices, axis=2), lengths=rows.lengths[indices], calls={})

    def join(self, rows: OnnxRows, others: OnnxRows) -> OnnxRows:
        """See `Engine.join`."""
        parts = (rows, others)
        source_length = max(part.memory.shape[1] for part in parts)
        capacity = max(part.capacity for part in parts)
        limits = [_grown(part.source_limits, 3, source_length, -np.inf) for part in parts]
        return OnnxRows(
            np.concatenate([_grown(part.memory, 1, source_length) for part in parts], axis=2),
            np.concatenate(limits),
            np.concatenate([_grown(part.caches, 1, capacity) for part in parts], axis=2),
            np.concatenate([part.lengths for part in parts]),
        )

    # -- fixed shapes: not needed for a row's results, but the same passes as in an engine that does need them

    @property
    def row_exact(self) -> bool:
        """Yes: see `docs/engines.md`."""
        return True

    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> OnnxRows:
        """See `Engine.encode_fixed`; no padding and no neighbour changes a bit, so this is `encode`."""
        return self.encode(sources)

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        """See `Engine.size`."""
        return Size(rounded_up(source_tokens, _SOURCE_STEP), rounded_up(target_tokens, _CAPACITY_STEP))

    def gather(self, rows: OnnxRows, indices: IntArray, lengths: IntArray, size: Size) -> OnnxRows:
        """See `Engine.gather`. Groups of one size share arrays and prepared calls; what is hidden stays as it was."""
        group = self._group(len(indices), size)
        group.lengths = lengths
        group.source_limits.fill(-np.inf)
        source = min(size.source, rows.memory.shape[1])
        read = min(int(lengths.max()), rows.capacity)
        for place, row in enumerate(indices.tolist()):
            group.source_limits[place, ..., :source] = rows.source_limits[row, ..., :source]
            group.memory[:, :source, place] = rows.memory[:, :source, row]
            group.caches[:, :read, place] = rows.caches[:, :read, row]
        return group

    def _group(self, count: int, size: Size) -> OnnxRows:
        """Arrays for `count` rows of `size`; of this thread, as a group must not be overwritten while it is in use."""
        groups: dict[tuple[int, Size], OnnxRows] = self._groups.__dict__.setdefault("by_shape", {})
        if (count, size) not in groups:
            memory, caches = (
                np.zeros((2 * self._layers, positions, count, *self._head_shape), dtype=np.float32)
                for positions in size
            )
            limits = np.empty((count, 1, 1, size.source), dtype=np.float32)
            groups[count, size] = OnnxRows(memory, limits, caches, np.zeros(count, dtype=np.int64))
        return groups[count, size]

    def scatter(self, rows: OnnxRows, indices: IntArray, group: OnnxRows, counts: IntArray) -> None:
        """See `Engine.scatter`."""
        ends = group.lengths[: len(indices)] + counts
        self._reserve(rows, int(ends.max()))
        for place, (row, end) in enumerate(zip(indices.tolist(), ends.tolist(), strict=True)):
            start = int(group.lengths[place])
            rows.caches[:, start:end, row] = group.caches[:, start:end, place]

    def keep(self, rows: OnnxRows, lengths: IntArray) -> None:
        """See `Engine.keep`."""
        rows.lengths = lengths

    # -- calls

    def _graph(self, name: str) -> LoadedGraph:
        with self._loading:
            if name not in self._graphs:
                self._graphs[name] = LoadedGraph.load(self._folder / f"{name}.onnx")
            return self._graphs[name]

    def _bind_source(self, call: Call, memory: FloatArray, limits: FloatArray) -> None:
        """Bind keys, values and mask of the source; `memory` has one array for each of both and each layer."""
        call.bind("source_limits", limits)
        call.bind("source_ones", np.ones((limits.shape[3], 1), dtype=np.float32))
        call.bind_layers(memory, memory_names)

    def _window_call(self, graph: str, rows: OnnxRows, window: int, beta: int) -> Call:
        """A call that reads `window` tokens per row, with everything in place but the tokens."""
        self._reserve(rows, int(rows.lengths.max()) + window)
        key = (graph, window, beta)
        if key not in rows.calls:
            rows.calls[key] = self._prepared(graph, rows, window, beta)
        call = rows.calls[key]
        positions, limits = self._tables.positions(rows.capacity), self._tables.limits(rows.capacity)
        if len(rows.lengths) == 1:
            # The same as below in half the time, which counts where a pass takes half a millisecond.
            places = slice(int(rows.lengths[0]), int(rows.lengths[0]) + window)
            call["positions"][:] = positions[places]
            call["target_limits"][0, 0] = limits[places]
            call["places"][:, 0, 0] = self._tables.numbers[places]
        else:
            targets = rows.lengths + np.arange(window)[:, None]
            positions.take(targets.ravel(), axis=0, out=call["positions"], mode="clip")
            limits.take(targets.T.ravel(), axis=0, out=call["target_limits"].reshape(-1, rows.capacity), mode="clip")
            call["places"][:, :, 0] = targets
        return call

    def _reserve(self, rows: OnnxRows, positions: int) -> None:
        if positions > rows.capacity:
            rows.caches = _grown(rows.caches, 1, rounded_up(positions, _CAPACITY_STEP))
            rows.calls.clear()

    def _prepared(self, graph: str, rows: OnnxRows, window: int, beta: int) -> Call:
        call = Call(self._graph(graph))
        batch, lines = len(rows.lengths), window * len(rows.lengths)
        candidates = min(beta, self.architecture.target_tokens)
        call.bind("positions", np.empty((lines, self.architecture.width), dtype=np.float32))
        call.bind("target_shape", np.array([window, batch, *self._head_shape]))
        places = np.zeros((window, batch, 2), dtype=np.int64)
        places[:, :, 1] = np.arange(batch)
        call.bind("places", places)
        call.bind("target_limits", np.empty((batch, 1, window, rows.capacity), dtype=np.float32))
        call.bind("target_ones", np.ones((rows.capacity, 1), dtype=np.float32))
        self._bind_source(call, rows.memory, rows.source_limits)
        call.bind_layers(rows.caches, cache_names)
        self._bind_drafter(call, window - 1, batch)
        call.bind("token_ids", np.empty(lines, dtype=np.int64))
        call.bind("beta", np.array([candidates]))
        call.bind("candidate_ids", np.empty((lines, candidates), dtype=np.int64))
        call.bind("log_probs", np.empty((lines, candidates), dtype=np.float32))
        return call

    def _bind_drafter(self, call: Call, slots: int, batch: int) -> None:
        width = min(LATTICE_WIDTH, self.architecture.draft_tokens)
        call.bind("last_ids", np.empty(batch, dtype=np.int64))
        call.bind("slots", np.repeat(np.arange(slots), batch))
        call.bind("batch", np.array([batch]))
        call.bind("lattice_shape", np.array([slots, batch, width]))
        call.bind("draft", np.empty(slots * batch, dtype=np.int64))
        call.bind("ids", np.empty((slots, batch, width), dtype=np.int64))
        call.bind("scores", np.empty((slots, batch, width), dtype=np.float32))
        call.bind("transitions", np.empty((slots * batch, width, width), dtype=np.float32))


def _candidates(call: Call, batch: int) -> Candidates:
    ids, log_probs = call["candidate_ids"], call["log_probs"]
    shape = (-1, batch, ids.shape[1])
    return Candidates(ids.reshape(shape).swapaxes(0, 1).copy(), log_probs.reshape(shape).swapaxes(0, 1).copy())


def _grown(array: FloatArray, axis: int, size: int, filling: float = 0) -> FloatArray:
    """`array` with `filling` appended along `axis` up to `size`."""
    if array.shape[axis] == size:
        return array
    shape = list(array.shape)
    shape[axis] = size - array.shape[axis]
    return np.concatenate([array, np.full(shape, filling, dtype=np.float32)], axis=axis)
