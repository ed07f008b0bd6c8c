"""An engine whose fast path is wrong: what is computed outside of a group of fixed shape cannot be relied on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from specmt.arrays import FloatArray, IntArray
from specmt.engines.base import AnyEngine, Candidates, Lattice, Rows, Run, Size
from specmt.engines.torch_rows import TorchRows
from specmt.text.vocabulary import EOS_ID


class FaultyEngine:
    """Perturbs the log-probabilities of every pass that is not one over a group, and the caches of the torch engine.

    `noise`: standard deviation, nats. `always_wrong`: the best token is never the first candidate.
    """

    def __init__(self, engine: AnyEngine, noise: float = 0.0, always_wrong: bool = False, seed: int = 0) -> None:
        self.engine = engine
        self.noise, self.always_wrong = noise, always_wrong
        self.random = np.random.default_rng(seed)
        self.passes: list[tuple[int, ...]] = []
        """Shape of the token ids of each pass over a group."""
        self.starts: list[int] = []
        """First position of each row of those passes."""
        self._group: Rows | None = None

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def max_draft_length(self) -> int:
        return self.engine.max_draft_length

    @property
    def row_exact(self) -> bool:
        return False

    @property
    def speculated_rows(self) -> None:
        return None

    @property
    def strict_draft_length(self) -> None:
        return None

    def encode(self, sources: Sequence[Sequence[int]]) -> Rows:
        return self.engine.encode(sources)

    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> Rows:
        return self.engine.encode_fixed(sources, group)

    def draft(self, rows: Rows, last_ids: IntArray, draft_length: int) -> Lattice:
        return self.engine.draft(rows, last_ids, draft_length)

    def verify(self, rows: Rows, token_ids: IntArray, beta: int) -> Candidates:
        if rows is self._group:
            self.passes.append(token_ids.shape)
            self.starts += rows.lengths.tolist()
            return self.engine.verify(rows, token_ids, beta)
        candidates = self.engine.verify(rows, token_ids, beta + 7)
        if isinstance(rows, TorchRows) and self.noise:
            self._perturb_caches(rows, token_ids.shape[1])
        scores = candidates.log_probs + self.random.normal(0, self.noise, candidates.log_probs.shape)
        order = (-scores).argsort(axis=2, kind="stable")
        order = order[:, :, 1:] if self.always_wrong else order
        log_probs: FloatArray = np.take_along_axis(scores, order, axis=2)[:, :, :beta].astype(np.float32)
        return Candidates(np.take_along_axis(candidates.ids, order, axis=2)[:, :, :beta], log_probs)

    @torch.inference_mode()
    def _perturb_caches(self, rows: TorchRows, count: int) -> None:
        for row, length in enumerate(rows.lengths.tolist()):
            for cache in rows.caches:
                for entries in (cache.keys, cache.values):
                    entries[row, :, length : length + count] += self.random.normal(0, self.noise)

    def commit(self, rows: Rows, counts: IntArray) -> None:
        self.engine.commit(rows, counts)

    def select(self, rows: Rows, indices: IntArray) -> Rows:
        return self.engine.select(rows, indices)

    def reorder(self, rows: Rows, indices: IntArray) -> Rows:
        return self.engine.reorder(rows, indices)

    def join(self, rows: Rows, others: Rows) -> Rows:
        return self.engine.join(rows, others)

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        return self.engine.size(source_tokens, target_tokens)

    def gather(self, rows: Rows, indices: IntArray, lengths: IntArray, size: Size) -> Rows:
        self._group = self.engine.gather(rows, indices, lengths, size)
        return self._group

    def scatter(self, rows: Rows, indices: IntArray, group: Rows, counts: IntArray) -> None:
        self.engine.scatter(rows, indices, group, counts)

    def keep(self, rows: Rows, lengths: IntArray) -> None:
        self.engine.keep(rows, lengths)


class FaultyIteratingEngine(FaultyEngine):
    """The same, of an engine that iterates on its own: plain steps only."""

    def iterate(
        self,
        rows: Rows,
        last_ids: Sequence[int],
        room: Sequence[int],
        draft_length: int,
        beta: int,
        tau: float,
        ends: int = 1,
        scored: bool = True,
    ) -> Run:
        run = Run([[] for _ in room], [[] for _ in room], [[] for _ in room])
        going = begun = sum(places > 0 for places in room)
        while going and begun - going < ends:
            last = [ids[-1] if ids else first for ids, first in zip(run.ids, last_ids, strict=True)]
            open_ = [len(ids) < most and EOS_ID not in ids for ids, most in zip(run.ids, room, strict=True)]
            candidates = self.verify(rows, np.array(last)[:, None], 1)
            self.commit(rows, np.array(open_, dtype=np.int64))
            for row in np.flatnonzero(open_).tolist():
                run.accepted[row].append(0)
                run.ids[row].append(int(candidates.ids[row, 0, 0]))
                run.log_probs[row].append(float(candidates.log_probs[row, 0, 0]))
                going -= run.ids[row][-1] == EOS_ID or len(run.ids[row]) == room[row]
        return run
