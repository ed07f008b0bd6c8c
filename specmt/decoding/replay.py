"""Reproducible decoding: what a row becomes depends on its source alone, not on what is decoded beside it.

Floating-point sums depend on shapes, and under dynamic batching shapes depend on the neighbours. `Replay` decodes ahead
that way and then lets the verifier read the same tokens again at a fixed shape; what the verifier says then counts
(decode, verify, roll back: "LLM-42", arXiv 2601.17768). `FixedSpeculative` drafts and verifies at a fixed shape only.

A pass at a fixed shape has exactly G rows, N positions, and arrays of a `Size` that follows from the row itself. Replay
windows begin at multiples of N, whatever was rolled back before: a token always stands at the same place of a window,
behind keys and values that were computed in the windows before. So the only thing about a pass that the neighbours
decide is the place in the group, and rows of one product do not depend on theirs, for the shapes that were looked at
(`docs/reproducibility.md`; in torch a width of 34 is one for which they do).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from specmt.arrays import IntArray
from specmt.decoding.hypotheses import NO_TRACE, Hypothesis
from specmt.decoding.loops import Flight, Speculative
from specmt.engines.base import Candidates, Iterating, Rows, Run, Size
from specmt.engines.drafting import draft_and_verify
from specmt.errors import EngineError
from specmt.text.vocabulary import EOS_ID


@dataclass(frozen=True)
class Replay:
    """Decode ahead under dynamic batching, replay at `group` rows × `window` positions, compare, accept or recompute.

    Rows whose request is not reproducible take the fast path's tokens as they are.
    """

    window: int
    group: int
    trace: bool = False

    def advance(self, flight: Flight) -> None:
        """Decode rows ahead, by a token or as far as the engine goes on its own, and run the replays that are due."""
        self._decode_ahead(flight)
        for members, size in self._due(flight):
            self._replay(flight, members, size)

    def _decode_ahead(self, flight: Flight) -> None:
        """The fast path: tokens for rows that have not ended; the others stand still."""
        room = [self._room(hypothesis) for hypothesis in flight.hypotheses]
        if not any(room):
            return
        iterate: Iterating[Rows] | None = getattr(flight.engine, "iterate", None)
        if iterate is None:
            ahead = _token_ahead(flight, [places > 0 for places in room])
        else:
            last_ids = [hypothesis.last_id for hypothesis in flight.hypotheses]
            ahead = iterate(flight.rows, last_ids, room, draft_length=0, beta=1, tau=0, ends=self._missing(flight))
        for hypothesis, ids, log_probs in zip(flight.hypotheses, ahead.ids, ahead.log_probs, strict=True):
            if hypothesis.request.reproducible:
                hypothesis.pending += ids
            else:
                hypothesis.emit(0, (), ids, log_probs)

    def _room(self, hypothesis: Hypothesis) -> int:
        """Tokens that a row may go ahead: to the end of a window, if it is replayed at all."""
        if hypothesis.ended:
            return 0
        tokens = len(hypothesis.ids) + len(hypothesis.pending)
        left = hypothesis.request.max_tokens - tokens
        return min(left, self.window - tokens % self.window) if hypothesis.request.reproducible else left

    def _missing(self, flight: Flight) -> int:
        """Rows that have to be ready for a replay until a group is full."""
        return max(1, self.group - sum(map(self._is_ready, flight.hypotheses)))

    # -- which rows are replayed

    def _start(self, hypothesis: Hypothesis) -> int:
        """The first position of the window that holds the first unverified token."""
        return len(hypothesis.ids) // self.window * self.window

    def _is_ready(self, hypothesis: Hypothesis) -> bool:
        pending = len(hypothesis.pending)
        fills = len(hypothesis.ids) % self.window + pending >= self.window
        return pending > 0 and (fills or hypothesis.ended)

    def _due(self, flight: Flight) -> Iterator[tuple[list[int], Size]]:
        """Groups of rows to replay: full ones, and others when a row has waited long or no other can join it.

        A row that waits for others goes on decoding ahead, if it has not ended: waiting costs little.
        """
        ready = [row for row, hypothesis in enumerate(flight.hypotheses) if self._is_ready(hypothesis)]
        if not ready:
            return
        all_ready = len(ready) == sum(hypothesis.request.reproducible for hypothesis in flight.hypotheses)
        ends = np.array([self._start(hypothesis) + self.window for hypothesis in flight.hypotheses])
        patience = self.window // 2
        for members, size in grouped(flight, ready, ends, self.group):
            waiting = [flight.hypotheses[row] for row in members]
            if len(members) == self.group or all_ready or any(row.waited >= patience for row in waiting):
                yield members, size
            else:
                for hypothesis in waiting:
                    hypothesis.waited += 1

    # -- a replay

    def _replay(self, flight: Flight, members: Sequence[int], size: Size) -> None:
        engine, rows = flight.engine, flight.rows
        hypotheses = [flight.hypotheses[row] for row in members]
        filled = filled_up(members, self.group)
        starts = np.array([self._start(flight.hypotheses[row]) for row in filled], dtype=np.int64)
        group = engine.gather(rows, filled, starts, size)
        inputs = [self._inputs(flight.hypotheses[row]) for row in filled]
        candidates = engine.verify(group, np.array(inputs, dtype=np.int64), beta=1)
        kept = []
        for place, hypothesis in enumerate(hypotheses):
            try:
                self._compare(hypothesis, candidates, place)
            except _NotReproducibleError:
                raise EngineError(
                    f"{engine.name}: on this machine a row's results depend on its place in a group: use a group of 1"
                ) from None
            kept.append(len(hypothesis.ids))
        indices = np.array(members, dtype=np.int64)
        engine.scatter(rows, indices, group, np.array(kept) - starts[: len(members)])
        lengths = rows.lengths.copy()
        lengths[indices] = [len(hypothesis.ids) + len(hypothesis.pending) for hypothesis in hypotheses]
        engine.keep(rows, lengths)

    def _inputs(self, hypothesis: Hypothesis) -> list[int]:
        """What stands before each token of the window, shape (window,); behind the last token, dummies."""
        start = self._start(hypothesis)
        known = [EOS_ID, *hypothesis.ids, *hypothesis.pending][start : start + self.window]
        return known + [EOS_ID] * (self.window - len(known))

    def _compare(self, hypothesis: Hypothesis, candidates: Candidates, place: int) -> None:
        """Accept pending tokens of the window while the replay says the same; then take the replay's own."""
        start, verified = self._start(hypothesis), len(hypothesis.ids)
        replayed = candidates.ids[place, :, 0].tolist()
        if replayed[: verified - start] != hypothesis.ids[start:]:
            raise _NotReproducibleError
        draft = hypothesis.pending[: start + self.window - verified]
        replayed = replayed[verified - start :][: len(draft)]
        accepted = next(
            (i for i, pair in enumerate(zip(draft, replayed, strict=True)) if pair[0] != pair[1]), len(draft)
        )
        emitted = replayed[: accepted + 1]
        log_probs = candidates.log_probs[place, verified - start :, 0].tolist()
        self._count(hypothesis, len(draft) - accepted, len(hypothesis.pending) - accepted - 1)
        ahead = hypothesis.pending[len(draft) :] if accepted == len(draft) else []
        hypothesis.pending = []
        trace = NO_TRACE
        if self.trace:
            trace = (tuple(draft), tuple(((id_, score),) for id_, score in zip(replayed, log_probs, strict=False)))
        hypothesis.emit(len(draft), (accepted,), emitted, log_probs[: len(emitted)], trace)
        if not hypothesis.ended:
            hypothesis.pending = ahead

    @staticmethod
    def _count(hypothesis: Hypothesis, unmatched: int, behind: int) -> None:
        counts = hypothesis.replay
        hypothesis.waited = 0
        counts.replays += 1
        if unmatched:
            counts.mismatches += 1
            counts.rollbacks += behind > 0
            counts.recomputed += behind


def _token_ahead(flight: Flight, going: Sequence[bool]) -> Run:
    """A plain step of all rows, of which those that are `going` keep the token."""
    candidates = flight.engine.verify(flight.rows, flight.last_ids[:, None], beta=1)
    flight.engine.commit(flight.rows, np.array(going, dtype=np.int64))
    ids, log_probs = candidates.ids[:, 0].tolist(), candidates.log_probs[:, 0].tolist()
    return Run(
        [],
        [one if goes else [] for one, goes in zip(ids, going, strict=True)],
        [one if goes else [] for one, goes in zip(log_probs, going, strict=True)],
    )


class _NotReproducibleError(Exception):
    """A replay of verified tokens gave others."""


@dataclass(frozen=True)
class FixedSpeculative:
    """`spec` in which drafts and verifications have `group` rows, and arrays of a size that follows from the row."""

    speculative: Speculative
    group: int

    def advance(self, flight: Flight) -> None:
        """Run one iteration of every row, `group` rows at a time."""
        engine, rows = flight.engine, flight.rows
        draft_length, beta = self.speculative.draft_length, self.speculative.beta
        lengths, last_ids = rows.lengths.copy(), flight.last_ids
        for members, size in grouped(flight, range(len(lengths)), lengths + draft_length + 1, self.group):
            filled = filled_up(members, self.group)
            group = engine.gather(rows, filled, rows.lengths[filled], size)
            speculation = draft_and_verify(engine, group, last_ids[filled], draft_length, beta)
            accepted = self.speculative.conclude([flight.hypotheses[row] for row in members], speculation)
            engine.scatter(rows, filled[: len(members)], group, accepted + 1)
            lengths[members] += accepted + 1
        engine.keep(rows, lengths)


def grouped(
    flight: Flight, chosen: Sequence[int], target_tokens: IntArray, group: int
) -> Iterator[tuple[list[int], Size]]:
    """The chosen rows in groups of at most `group`, and the size that all of a group have.

    Rows of an engine that is exact share a group whatever their sizes, which is then the largest.

    Args:
        target_tokens: for which each row of the flight needs room, shape (batch,).
    """
    engine = flight.engine
    by_size: dict[Size | None, list[tuple[int, Size]]] = {}
    for row in chosen:
        size = engine.size(len(flight.hypotheses[row].request.source_ids), int(target_tokens[row]))
        by_size.setdefault(None if engine.row_exact else size, []).append((row, size))
    for alike in by_size.values():
        for first in range(0, len(alike), group):
            members, sizes = zip(*alike[first : first + group], strict=True)
            yield list(members), Size(max(size.source for size in sizes), max(size.target for size in sizes))


def filled_up(members: Sequence[int], group: int) -> IntArray:
    """The rows and, as dummies, the first of them again and again, shape (group,)."""
    return np.array([*members, *[members[0]] * (group - len(members))], dtype=np.int64)
