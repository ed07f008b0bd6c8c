"""One sentence at a time on a GPU: passes of fixed shapes, recorded once as CUDA graphs and then replayed.

An eager pass over one row is bound by launching its hundreds of small kernels; a graph launches them at once. Its
arrays must stay where they are. So there are *seats*: arrays for one row, for sources up to a power of two. A seat has
its own recordings: of the encoder, of a draft with its check, and of a plain step or window. Whatever does not fit,
more than one row, fixed shapes, or a sentence that comes while its seat is taken, is computed as in `TorchEngine`.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.engines.base import Candidates, Speculation
from specmt.engines.drafting import in_two_passes
from specmt.engines.torch_engine import TorchEngine, candidates, padded
from specmt.engines.torch_networks import Networks, TensorLattice
from specmt.engines.torch_rows import Cache, TorchRows
from specmt.text.vocabulary import EOS_ID

_SHORTEST, _LONGEST = 16, 256
"""Source tokens of the smallest and of the largest seat."""
_MORE_TARGET = 64
"""Target positions of a seat beyond twice those of its source."""
_WARM_UPS = 2
"""Runs before a recording, in which libraries choose kernels and set up what they need."""


class GraphedTorchEngine(TorchEngine):
    """`TorchEngine` with recorded passes for a single row. On a CPU nothing is recorded: they run eagerly."""

    def __init__(
        self, architecture: Architecture, weights: Mapping[str, Tensor], device: str = "cuda", bf16: bool = False
    ) -> None:
        """Take a bundle's weights.

        Raises:
            EngineError: the device is not there.
        """
        super().__init__(architecture, weights, device, bf16)
        self._seats: dict[int, Seat] = {}
        self._lock = threading.Lock()

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]]) -> TorchRows:
        """See `Engine.encode`."""
        rows = self._seated(len(sources[0])) if len(sources) == 1 else None
        if rows is None:
            return super().encode(sources)
        self._seats[rows.source_mask.size(3)].encode(sources[0])
        return rows

    @torch.inference_mode()
    def verify(self, rows: TorchRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        seat = self._seat_of(rows, token_ids.shape[1])
        return seat.verify(rows, token_ids, beta) if seat else super().verify(rows, token_ids, beta)

    @torch.inference_mode()
    def draft_and_verify(self, rows: TorchRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `Fused`."""
        seat = self._seat_of(rows, draft_length + 1)
        if seat is None:
            return in_two_passes(self, rows, last_ids, draft_length, beta)
        rows.drafts = True
        return seat.draft_and_verify(rows, last_ids, draft_length, beta)

    def _seated(self, source_tokens: int) -> TorchRows | None:
        """A row in a free seat for so many tokens."""
        if source_tokens > _LONGEST:
            return None
        size = max(_SHORTEST, 1 << (source_tokens - 1).bit_length())
        with self._lock:
            if size not in self._seats:
                self._seats[size] = Seat(self._networks, size)
            return self._seats[size].take()

    def _seat_of(self, rows: TorchRows, count: int) -> Seat | None:
        """The seat in which `rows` sit, if it has room for `count` more tokens."""
        seat = self._seats.get(rows.source_mask.size(3))
        return seat if seat and seat.holds(rows) and int(rows.lengths[0]) + count <= rows.capacity else None


class _Sitting:
    """A seat is taken as long as it lives."""


class Seat:
    """Arrays for one row, and passes over them."""

    def __init__(self, networks: Networks, size: int) -> None:
        """`size`: source tokens for which there is room."""
        self._networks = networks
        self._size, self._capacity = size, 2 * size + _MORE_TARGET
        networks.position_rows(SOURCE_POSITIONS, size)
        networks.position_rows(TARGET_POSITIONS, 2 * self._capacity)
        some = networks.rows(*networks.encoder(self._padded([EOS_ID]).to(networks.device)))
        shape = (1, networks.architecture.heads, self._capacity, some.memory[0].keys.size(3))
        self._memory = [Cache(cache.keys.clone(), cache.values.clone()) for cache in some.memory]
        self._source_mask = some.source_mask.clone()
        self._caches = [Cache(*some.source_mask.new_zeros(2, *shape)) for _ in some.caches]
        self._passes: dict[tuple[str, int, int], Recorded] = {}
        self._sitting: weakref.ref[_Sitting] | None = None

    def take(self) -> TorchRows | None:
        """A row for these arrays, which `encode` fills; None where one lives."""
        if self._sitting is not None and self._sitting() is not None:
            return None
        sitting = _Sitting()
        self._sitting = weakref.ref(sitting)
        lengths = np.zeros(1, dtype=np.int64)
        return TorchRows(self._memory, self._source_mask, self._caches, lengths, sitting=sitting)

    def holds(self, rows: TorchRows) -> bool:
        """Whether the arrays are those of `rows`, and not copies."""
        return rows.caches is self._caches

    def encode(self, source: Sequence[int]) -> None:
        """Run the encoder over ids with end-of-sentence."""
        self._pass("encoder", 0, 0, self._encoder)(self._padded(source))

    def verify(self, rows: TorchRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""

        def verifier(given: Tensor) -> tuple[Tensor, ...]:
            return self._verifier(given[:1], given[None, 1:], beta, drafts)

        drafts = rows.drafts
        given = torch.from_numpy(np.concatenate([rows.lengths, token_ids[0]]))
        name = "verifier, for a drafter" if drafts else "verifier"
        return candidates(*self._pass(name, token_ids.shape[1], beta, verifier)(given))

    def draft_and_verify(self, rows: TorchRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `Fused`."""

        def both(given: Tensor) -> tuple[Tensor, ...]:
            length, last = given[:1], given[1:]
            draft = walk(self._drafter(length, last, draft_length))
            return draft, *self._verifier(length, torch.cat([last[:, None], draft], dim=1), beta, drafts=True)

        given = torch.from_numpy(np.concatenate([rows.lengths, last_ids]))
        draft, ids, log_probs = self._pass("drafter and verifier", draft_length, beta, both)(given)
        return Speculation(draft.cpu().numpy(), candidates(ids, log_probs))

    # -- passes over tensors

    def _encoder(self, ids: Tensor) -> tuple[Tensor, ...]:
        rows = self._networks.rows(*self._networks.encoder(ids))
        for cache, new in zip(self._memory, rows.memory, strict=True):
            cache.keys.copy_(new.keys)
            cache.values.copy_(new.values)
        self._source_mask.copy_(rows.source_mask)
        return ()

    def _verifier(self, length: Tensor, ids: Tensor, beta: int, drafts: bool) -> tuple[Tensor, Tensor]:
        positions = self._window(length, ids.size(1))
        hidden = self._range(self._capacity) > positions[:, :, None]
        rows = self._rows
        states = self._networks.decoder(rows, ids, positions, self._mask(hidden[:, None]), self._capacity)
        if drafts:
            self._networks.cache_prefix(rows, states, positions)
        return self._networks.best(states, beta)

    def _drafter(self, length: Tensor, last: Tensor, draft_length: int) -> TensorLattice:
        window = draft_length + 1
        keys = self._range(self._capacity + window)
        hidden = (keys >= length) & (keys < self._capacity)
        positions = self._window(length, window)
        return self._networks.drafter(self._rows, last, positions, self._mask(hidden[None, None, None]), self._capacity)

    # -- parts

    @property
    def _rows(self) -> TorchRows:
        return TorchRows(self._memory, self._source_mask, self._caches, np.zeros(1, dtype=np.int64))

    def _pass(self, name: str, tokens: int, beta: int, function: Callable[[Tensor], tuple[Tensor, ...]]) -> Recorded:
        key = (name, tokens, beta)
        if key not in self._passes:
            self._passes[key] = Recorded(function, self._networks)
        return self._passes[key]

    def _padded(self, source: Sequence[int]) -> Tensor:
        return padded([source], self._size)

    def _range(self, count: int) -> Tensor:
        return torch.arange(count, device=self._networks.device)

    def _window(self, length: Tensor, count: int) -> Tensor:
        """Positions of `count` tokens behind `length`, shape (1, count)."""
        return (length + self._range(count))[None]

    def _mask(self, hidden: Tensor) -> Tensor:
        mask = torch.zeros(hidden.shape, device=self._networks.device, dtype=self._networks.dtype)
        return mask.masked_fill_(hidden, -math.inf)


class Recorded:
    """A function of one array of ids, recorded with its first argument, whose shape all others have."""

    def __init__(self, function: Callable[[Tensor], tuple[Tensor, ...]], networks: Networks) -> None:
        self._function = function
        self._device = networks.device
        self._used = networks.tables()  # a graph reads where they lie, also when longer ones have taken their place
        self._graph: torch.cuda.CUDAGraph | None = None
        self._given: Tensor | None = None
        self._results: tuple[Tensor, ...] = ()

    def __call__(self, given: Tensor) -> tuple[Tensor, ...]:
        """The function's results, which stand until the next call."""
        if self._device.type != "cuda":
            return self._function(given)
        if self._given is None:
            self._given = given.to(self._device)
        else:
            self._given.copy_(given)
        if self._graph is None:
            self._graph = self._record(self._given)
        self._graph.replay()
        return self._results

    def _record(self, given: Tensor) -> torch.cuda.CUDAGraph:
        """Record the function; what it writes, it writes again at each replay."""
        beside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                self._function(given)
        torch.cuda.current_stream(self._device).wait_stream(beside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._results = self._function(given)
        return graph


def walk(lattice: TensorLattice) -> Tensor:
    """As `drafting.walk`, where the lattice lies: what follows each left neighbour at once, then from slot to slot."""
    best = (lattice.scores.float()[:, :, None] + lattice.transitions.float()).argmax(dim=3)
    places = [best[:, 0, :1]]
    for slot in range(1, best.size(1)):
        places.append(best[:, slot].gather(1, places[-1]))
    return lattice.ids.gather(2, torch.stack(places, dim=1)).squeeze(2)
