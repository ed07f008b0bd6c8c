"""Beam search with the verifier alone, as fairseq does it: what speculation is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from specmt.decoding import Hypothesis, Iteration, Request, length_normalised
from specmt.engines.base import AnyEngine, FloatArray, IntArray, step
from specmt.vocabulary import EOS_ID

_Number = TypeVar("_Number", np.int64, np.float32, np.float64)


class _Level(NamedTuple):
    """Prefixes of the same length. Arrays of shape (sentences, beam), but for `rows`."""

    rows: IntArray
    """Where the sentences stood among those of the level before, shape (sentences,)."""
    parents: IntArray
    """Which of the sentence's prefixes there each one continues."""
    ids: IntArray
    """Their last tokens."""
    log_probs: FloatArray
    """Nats, of these tokens alone."""
    totals: FloatArray
    """Nats, of the whole prefixes."""

    def of(self, rows: IntArray, chosen: NDArray[np.bool_], count: int) -> _Level:
        """The sentences in `rows`, with the `count` prefixes that are chosen of each."""

        def taken(values: NDArray[_Number]) -> NDArray[_Number]:
            return values[rows][chosen].reshape(len(rows), count)

        return _Level(rows, taken(self.parents), taken(self.ids), taken(self.log_probs), taken(self.totals))


class _Search:
    """Sentences that entered together: of each `beam` live prefixes, all equally long, and what has ended."""

    def __init__(self, requests: Sequence[Request], beam: int) -> None:
        self.live = list(range(len(requests)))
        """Those that go on."""
        self.ended: list[list[Hypothesis]] = [[] for _ in requests]
        self._requests = requests
        self._beam = beam
        totals = np.full((len(requests), beam), -np.inf)
        totals[:, 0] = 0.0  # all prefixes are alike at first: only one may live
        nothing = np.zeros(totals.shape, dtype=np.int64)
        self._levels = [
            _Level(np.arange(len(requests)), nothing, np.full_like(nothing, EOS_ID), nothing.astype(np.float32), totals)
        ]

    @property
    def last_ids(self) -> IntArray:
        """The last token of each live prefix, shape (live sentences · beam,)."""
        return self._levels[-1].ids.ravel()

    def advance(self, ids: IntArray, log_probs: FloatArray) -> tuple[IntArray, IntArray]:
        """Extend all live prefixes by candidates.

        Args:
            ids: shape (live sentences · beam, width), width >= 2; `log_probs` alike, nats.

        Returns:
            Which of the live sentences go on, and which prefix each of theirs continues, shape (sentences, beam).
        """
        beam = self._beam
        best = self._best(ids, log_probs)
        at_limit = np.array([self._requests[number].max_tokens <= len(self._levels) for number in self.live])
        ends = (best.ids == EOS_ID) | at_limit[:, None]
        # Only an end that is itself among the best counts.
        self._end(best, *np.nonzero(ends[:, :beam] & np.isfinite(best.totals[:, :beam])))
        full = np.array([len(self.ended[number]) == beam for number in self.live])
        staying = np.flatnonzero(~(at_limit | full))
        going = ~ends[staying]
        self._levels.append(best.of(staying, going & (going.cumsum(axis=1) <= beam), beam))
        self.live = [self.live[row] for row in staying.tolist()]
        return staying, self._levels[-1].parents

    def _best(self, ids: IntArray, log_probs: FloatArray) -> _Level:
        """The 2 · beam best continuations of each sentence, best first."""
        sentences = len(self.live)
        totals = (self._levels[-1].totals.reshape(-1, 1) + log_probs).reshape(sentences, -1)
        order = np.argsort(-totals, axis=1, kind="stable")[:, : 2 * self._beam]

        def ordered(values: NDArray[_Number]) -> NDArray[_Number]:
            return np.take_along_axis(values.reshape(sentences, -1), order, axis=1)

        return _Level(np.arange(sentences), order // ids.shape[1], *(ordered(ids), ordered(log_probs), ordered(totals)))

    def _end(self, best: _Level, rows: IntArray, places: IntArray) -> None:
        """Take continuations as hypotheses: of the sentences in `rows` those at `places`."""
        levels = [*self._levels[1:], best]
        found = []
        at_rows, at_places = rows, places
        for level in reversed(levels):
            at = (at_rows, at_places)
            found.append((level.ids[at], level.log_probs[at]))
            at_rows, at_places = level.rows[at_rows], level.parents[at]
        ids, log_probs = (np.array(values[::-1]).T.tolist() for values in zip(*found, strict=True))
        for place, row in enumerate(rows.tolist()):
            request, ended = self._requests[self.live[row]], self.ended[self.live[row]]
            if len(ended) < self._beam:
                total = float(best.totals[row, places[place]])
                iterations = [Iteration(0, 0, (id_,)) for id_ in ids[place]]
                ended.append(Hypothesis(request, ids[place], total, iterations, log_probs[place]))


def beam_search(
    engine: AnyEngine, requests: Sequence[Request], beam: int, length_penalty: float
) -> list[list[Hypothesis]]:
    """For each request, its (at most `beam`) best hypotheses, best first."""
    search = _Search(requests, beam)
    rows = engine.encode([request.source_ids for request in requests])
    rows = engine.select(rows, np.repeat(np.arange(len(requests)), beam))
    while search.live:
        candidates = step(engine, rows, search.last_ids, beta=2 * beam)
        staying, parents = search.advance(candidates.ids[:, 0], candidates.log_probs[:, 0])
        if 0 < len(staying) < len(candidates.ids) // beam:
            rows = engine.select(rows, (staying[:, None] * beam + np.arange(beam)).ravel())
        if len(staying):
            rows = engine.reorder(rows, (np.arange(len(staying))[:, None] * beam + parents).ravel())

    def score(hypothesis: Hypothesis) -> float:
        return length_normalised(hypothesis.log_prob, len(hypothesis.ids), length_penalty)

    return [sorted(ended, key=score, reverse=True) for ended in search.ended]
