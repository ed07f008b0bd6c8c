"""Beam search with the verifier alone, as fairseq does it: what speculation is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specmt.decoding import Hypothesis, Iteration, Request, length_normalised
from specmt.engines.base import AnyEngine, FloatArray, IntArray, step
from specmt.vocabulary import EOS_ID


@dataclass
class _Search:
    """One sentence's beam: `beam` live prefixes and the hypotheses that have ended."""

    request: Request
    beam: int
    length_penalty: float

    def __post_init__(self) -> None:
        self.prefixes: list[list[int]] = [[] for _ in range(self.beam)]
        # All prefixes are alike at first: only one may live.
        self.log_probs = np.full(self.beam, -np.inf, dtype=np.float64)
        self.log_probs[0] = 0.0
        self.token_log_probs: list[list[float]] = [[] for _ in range(self.beam)]
        self.ended: list[Hypothesis] = []
        self.done = False

    def advance(self, ids: IntArray, log_probs: FloatArray) -> IntArray:
        """Extend by candidates of shape (beam, width), width >= 2; the prefix each new one continues, shape (beam,)."""
        totals = self.log_probs[:, None] + log_probs
        order = np.argsort(-totals, axis=None, kind="stable")[: 2 * self.beam]
        at_limit = len(self.prefixes[0]) + 1 >= self.request.max_tokens
        live: list[tuple[int, int, float, float]] = []
        for place, flat in enumerate(order.tolist()):
            parent, column = divmod(flat, ids.shape[1])
            token, total = int(ids[parent, column]), float(totals[parent, column])
            log_prob = float(log_probs[parent, column])
            if token == EOS_ID or at_limit:
                # Only an end that is itself among the best counts.
                if place < self.beam and np.isfinite(total) and len(self.ended) < self.beam:
                    self._end([*self.prefixes[parent], token], total, [*self.token_log_probs[parent], log_prob])
            elif len(live) < self.beam:
                live.append((parent, token, total, log_prob))
        self.done = at_limit or len(self.ended) == self.beam
        if self.done:
            return np.arange(self.beam)
        self.prefixes = [[*self.prefixes[parent], token] for parent, token, _, _ in live]
        self.token_log_probs = [[*self.token_log_probs[parent], log_prob] for parent, _, _, log_prob in live]
        self.log_probs = np.array([total for _, _, total, _ in live])
        return np.array([parent for parent, _, _, _ in live])

    def _end(self, ids: list[int], log_prob: float, token_log_probs: list[float]) -> None:
        iterations = [Iteration(0, 0, (id_,)) for id_ in ids]
        self.ended.append(Hypothesis(self.request, ids, log_prob, iterations, token_log_probs))

    def best(self) -> list[Hypothesis]:
        """Ended hypotheses, best first."""
        return sorted(
            self.ended, key=lambda ended: -length_normalised(ended.log_prob, len(ended.ids), self.length_penalty)
        )


def beam_search(
    engine: AnyEngine, requests: Sequence[Request], beam: int, length_penalty: float
) -> list[list[Hypothesis]]:
    """For each request, its (at most `beam`) best hypotheses, best first."""
    searches = [_Search(request, beam, length_penalty) for request in requests]
    live = searches
    rows = engine.encode([request.source_ids for request in requests])
    rows = engine.select(rows, np.repeat(np.arange(len(live)), beam))
    while live:
        last_ids = [prefix[-1] if prefix else EOS_ID for search in live for prefix in search.prefixes]
        candidates = step(engine, rows, np.array(last_ids, dtype=np.int64), beta=2 * beam)
        parents = []
        for first in range(0, len(last_ids), beam):
            span = slice(first, first + beam)
            search = live[first // beam]
            parents.append(first + search.advance(candidates.ids[span, 0], candidates.log_probs[span, 0]))
        rows = engine.reorder(rows, np.concatenate(parents))
        staying = np.flatnonzero([not search.done for search in live])
        if len(staying) < len(live):
            live = [live[place] for place in staying]
            if live:
                rows = engine.select(rows, (staying[:, None] * beam + np.arange(beam)).ravel())
    return [search.best() for search in searches]
