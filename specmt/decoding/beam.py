"""Beam search with the verifier alone, as fairseq does it: what speculation is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specmt.arrays import FloatArray, IntArray
from specmt.decoding.hypotheses import Hypothesis, Iteration, Request, length_normalised
from specmt.decoding.loops import Waiting
from specmt.engines.base import AnyEngine, step
from specmt.text.vocabulary import EOS_ID


class _Level(NamedTuple):
    """Prefixes of the same length, `beam` of each sentence one behind the other; or what could continue them."""

    parents: IntArray
    """Which of the level before each one continues."""
    ids: IntArray
    """Their last tokens."""
    log_probs: FloatArray
    """Nats, of these tokens alone."""
    totals: FloatArray
    """Nats, of the whole prefixes."""

    def at(self, places: IntArray) -> _Level:
        """Those at flat places."""
        return _Level(
            self.parents.take(places), self.ids.take(places), self.log_probs.take(places), self.totals.take(places)
        )


class _Search:
    """Sentences that entered together: of each `beam` live prefixes, all equally long, and what has ended."""

    def __init__(self, requests: Sequence[Request], beam: int) -> None:
        self.live = list(range(len(requests)))
        """Those that go on."""
        self.ended: list[list[Hypothesis]] = [[] for _ in requests]
        self._requests = requests
        self._beam = beam
        totals = np.full(len(requests) * beam, -np.inf)
        totals[::beam] = 0.0  # all prefixes are alike at first: only one may live
        nothing = np.zeros(len(totals), dtype=np.int64)
        self._levels = [_Level(nothing, nothing + EOS_ID, nothing.astype(np.float32), totals)]

    @property
    def parents(self) -> IntArray:
        """Which of the prefixes before the last step each live one continues, shape (live sentences · beam,)."""
        return self._levels[-1].parents

    @property
    def last_ids(self) -> IntArray:
        """The last token of each live prefix, shape (live sentences · beam,)."""
        return self._levels[-1].ids

    def advance(self, ids: IntArray, log_probs: FloatArray) -> IntArray:
        """Extend all live prefixes by candidates.

        Args:
            ids: shape (live sentences · beam, width), width >= 2; `log_probs` alike, nats.

        Returns:
            Which of the live sentences go on.
        """
        best = self._best(ids, log_probs)
        at_limit = np.array([self._requests[number].max_tokens <= len(self._levels) for number in self.live])
        ends = (best.ids == EOS_ID) | at_limit[:, None]
        if ends[:, : self._beam].any():
            self._end(best, ends)
        full = [len(self.ended[number]) == self._beam for number in self.live]
        staying = np.flatnonzero(~(at_limit | full))
        going_on = ends[staying].argsort(axis=1, kind="stable")[:, : self._beam]  # the best come first
        self._levels.append(best.at((going_on + (staying * ends.shape[1])[:, None]).ravel()))
        self.live = [self.live[place] for place in staying.tolist()]
        return staying

    def _best(self, ids: IntArray, log_probs: FloatArray) -> _Level:
        """The 2 · beam best continuations of each sentence, best first, shape (live sentences, 2 · beam)."""
        totals = self._levels[-1].totals[:, None] + log_probs
        by_sentence = totals.reshape(len(self.live), -1)
        order = (-by_sentence).argsort(axis=1, kind="stable")[:, : 2 * self._beam]
        order += np.arange(0, totals.size, by_sentence.shape[1])[:, None]
        return _Level(order // ids.shape[1], ids.take(order), log_probs.take(order), totals.take(order))

    def _end(self, best: _Level, ends: NDArray[np.bool_]) -> None:
        """Take as hypotheses the ends that are themselves among the `beam` best; the others are dropped."""
        rows, places = np.nonzero(ends[:, : self._beam] & np.isfinite(best.totals[:, : self._beam]))
        at, found = rows * ends.shape[1] + places, []
        totals = best.totals.take(at).tolist()
        for level in [best, *self._levels[:0:-1]]:
            found.append((level.ids.take(at), level.log_probs.take(at)))
            at = level.parents.take(at)
        ids, log_probs = (np.array(values[::-1]).T.tolist() for values in zip(*found, strict=True))
        for row, *hypothesis in zip(rows.tolist(), ids, log_probs, totals, strict=True):
            self._add(self.live[row], *hypothesis)

    def _add(self, number: int, ids: list[int], log_probs: list[float], total: float) -> None:
        if len(self.ended[number]) < self._beam:
            iterations = [Iteration(0, 0, (id_,)) for id_ in ids]
            self.ended[number].append(Hypothesis(self._requests[number], ids, total, iterations, log_probs))


def beam_decode(
    engine: AnyEngine, waiting: Waiting, batch_size: int, beam: int, length_penalty: float
) -> Iterator[list[Hypothesis]]:
    """`beam_search` of all that waits, so many requests at a time: a batch is finished before the next begins."""
    while batch := waiting.take(batch_size, wait=True):
        yield from beam_search(engine, batch, beam, length_penalty)


def beam_search(
    engine: AnyEngine, requests: Sequence[Request], beam: int, length_penalty: float
) -> Iterator[list[Hypothesis]]:
    """For each request, as its search ends, its (at most `beam`) best hypotheses, best first."""

    def score(hypothesis: Hypothesis) -> float:
        return length_normalised(hypothesis.log_prob, len(hypothesis.ids), length_penalty)

    search = _Search(requests, beam)
    rows = engine.encode([request.source_ids for request in requests])
    rows = engine.select(rows, np.repeat(np.arange(len(requests)), beam))
    while search.live:
        candidates = step(engine, rows, search.last_ids, beta=2 * beam)
        going = search.live
        staying = search.advance(candidates.ids[:, 0], candidates.log_probs[:, 0])
        for number in sorted(set(going).difference(search.live)):
            yield sorted(search.ended[number], key=score, reverse=True)
        if not search.live:
            return
        parents = search.parents
        if len(parents) < len(candidates.ids):
            rows = engine.select(rows, (staying[:, None] * beam + np.arange(beam)).ravel())
            parents = parents - np.repeat(staying - np.arange(len(staying)), beam) * beam
        rows = engine.reorder(rows, parents)
