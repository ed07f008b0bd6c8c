"""The decoding loops. Rows in flight: finished ones leave and waiting ones enter between iterations.

`ar` emits one token per row and iteration; `spec` emits one to draft_length + 1 (see `verification.py`). Both end a
row at its first end-of-sentence or at its length limit, so with beta = 1 they give the same tokens.

What needs numpy is imported where it is used: an engine that iterates on its own does without.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from specmt.arrays import IntArray
from specmt.decoding.hypotheses import NO_TRACE, Hypothesis, Request, Trace
from specmt.engines.base import AnyEngine, Candidates, Iterating, Rows, Speculation, step


class Flight:
    """Rows in flight: hypotheses and, in the same order, their caches in the engine."""

    def __init__(self, engine: AnyEngine, group: int = 1) -> None:
        """`group`: rows of a pass in which sources of reproducible requests are encoded."""
        self.engine = engine
        self.group = group
        self.hypotheses: list[Hypothesis] = []
        self.ends = 1
        """Rows that may end before any is taken out: until there is room for new ones, those that ended can wait."""
        self._rows: Rows | None = None
        self._exceeded = False

    @property
    def rows(self) -> Rows:
        """The engine's side of the rows."""
        assert self._rows is not None, "no row in flight"
        return self._rows

    @property
    def last_ids(self) -> IntArray:
        """The last token of each row, shape (batch,)."""
        import numpy as np

        return np.array([hypothesis.last_id for hypothesis in self.hypotheses], dtype=np.int64)

    def admit(self, requests: Sequence[Request]) -> None:
        """Encode sentences and add a row for each."""
        plain = [request for request in requests if not request.reproducible]
        reproducible = [request for request in requests if request.reproducible]
        if plain:
            self._enter(plain, self.engine.encode([request.source_ids for request in plain]))
        if reproducible:
            sources = [request.source_ids for request in reproducible]
            self._enter(reproducible, self.engine.encode_fixed(sources, self.group))

    def _enter(self, requests: Sequence[Request], entering: Rows) -> None:
        self._rows = self.engine.join(self._rows, entering) if self._rows is not None else entering
        self.hypotheses += [Hypothesis(request) for request in requests]

    def exceeds(self, rows: int) -> bool:
        """Whether more than `rows` rows are in flight, or have been since there was none.

        Once they took plain steps, nothing is drafted for them: an engine keeps what a drafter reads only if it drafts.
        """
        self._exceeded = self._exceeded or len(self.hypotheses) > rows
        return self._exceeded

    def iterate(self, draft_length: int, beta: int, tau: float, scored: bool) -> bool:
        """Let the engine run iterations on its own until `ends` rows have ended, if it can; whether it did."""
        iterate: Iterating[Rows] | None = getattr(self.engine, "iterate", None)
        if iterate is None:
            return False
        room = [hypothesis.request.max_tokens - len(hypothesis.ids) for hypothesis in self.hypotheses]
        last_ids = [hypothesis.last_id for hypothesis in self.hypotheses]
        ends = min(self.ends, len(self.hypotheses))
        run = iterate(self.rows, last_ids, room, draft_length, beta, tau, ends, scored)
        for hypothesis, accepted, ids, log_probs in zip(self.hypotheses, *run, strict=True):
            hypothesis.emit(draft_length, accepted, ids, log_probs)
        return True

    def land(self) -> list[Hypothesis]:
        """Take the finished rows out."""
        finished = [hypothesis.finished for hypothesis in self.hypotheses]
        if not any(finished):
            return []
        landed = [hypothesis for hypothesis, ended in zip(self.hypotheses, finished, strict=True) if ended]
        staying = [row for row, ended in enumerate(finished) if not ended]
        self.hypotheses = [self.hypotheses[row] for row in staying]
        self._rows = self.engine.select(self.rows, staying) if staying else None
        self._exceeded = self._exceeded and bool(staying)
        return landed


class Waiting(Protocol):
    """Where requests come from."""

    def take(self, count: int, wait: bool) -> Sequence[Request]:
        """At most `count` requests. With `wait`, none only when there will be no more; else what is there now."""


class RequestQueue:
    """Requests in memory, shortest first, handed out so that no batch exceeds its tokens; several threads may take."""

    def __init__(self, requests: Sequence[Request], batch_size: int, max_batch_tokens: int | None = None) -> None:
        self._requests = deque(sorted(requests, key=lambda request: len(request.source_ids)))
        self._batch_size = batch_size
        self._max_tokens = max_batch_tokens
        self._lock = threading.Lock()

    def take(self, count: int, wait: bool) -> list[Request]:
        """See `Waiting.take`. `count` places are free, so the others are in flight, with shorter sources."""
        taken: list[Request] = []
        in_flight = self._batch_size - count
        with self._lock:
            while self._requests and len(taken) < count:
                tokens = (in_flight + len(taken) + 1) * len(self._requests[0].source_ids)
                if self._max_tokens and tokens > self._max_tokens and in_flight + len(taken) > 0:
                    break
                taken.append(self._requests.popleft())
        return taken


class Strategy(Protocol):
    """One way to advance every row in flight by at least one token."""

    def advance(self, flight: Flight) -> None:
        """Run one iteration, or several if the engine can."""


@dataclass(frozen=True)
class Greedy:
    """`ar`: the verifier's most probable token, one per iteration.

    Unless they are to be `scored`, an engine that iterates on its own may leave log-probabilities out (NaN).
    """

    scored: bool = True

    def advance(self, flight: Flight) -> None:
        """Run one iteration, or several."""
        if flight.iterate(draft_length=0, beta=1, tau=0, scored=self.scored):
            return
        candidates = step(flight.engine, flight.rows, flight.last_ids, beta=1)
        best = zip(candidates.ids[:, 0, 0].tolist(), candidates.log_probs[:, 0, 0].tolist(), strict=True)
        for hypothesis, (id_, log_prob) in zip(flight.hypotheses, best, strict=True):
            hypothesis.emit(0, (0,), (id_,), (log_prob,))


@dataclass(frozen=True)
class Speculative:
    """`spec`: draft `draft_length` tokens in one pass, verify them in one pass, keep what the verifier accepts.

    `beta` candidates per position, those more than `tau` nats behind the best `[BLANK]`; beta = 1 is strict. Strict may
    have a number of rows, `most_rows`, beyond which it takes plain steps: the tokens are the same. `scored`: as of
    `Greedy`.
    """

    draft_length: int
    beta: int
    tau: float
    trace: bool = False
    most_rows: int | None = None
    scored: bool = True

    def advance(self, flight: Flight) -> None:
        """Run one iteration, or several: decoder input, draft, candidates, accept, recovered or bonus, next input."""
        if self.most_rows is not None and flight.exceeds(self.most_rows):
            Greedy(self.scored).advance(flight)
            return
        if not self.trace and flight.iterate(self.draft_length, self.beta, self.tau, self.scored):
            return
        from specmt.engines.drafting import draft_and_verify

        engine, rows, last_ids = flight.engine, flight.rows, flight.last_ids
        speculation = draft_and_verify(engine, rows, last_ids, self.draft_length, self.beta)
        engine.commit(rows, self.conclude(flight.hypotheses, speculation) + 1)

    def conclude(self, hypotheses: Sequence[Hypothesis], speculation: Speculation) -> IntArray:
        """Extend hypotheses by what the verifier accepts and its own token; accepted tokens, shape (batch,).

        Args:
            speculation: of at least as many rows; those that follow are left aside.
        """
        from specmt.decoding.verification import blank, check

        draft, candidates = speculation.draft, blank(speculation.candidates, self.tau)
        verdict = check(draft, candidates)
        emitted = zip(verdict.accepted.tolist(), verdict.emitted_ids.tolist(), verdict.log_probs.tolist(), strict=True)
        for row, (hypothesis, (accepted, ids, log_probs)) in enumerate(zip(hypotheses, emitted, strict=False)):
            trace = _table(draft, candidates, row) if self.trace else NO_TRACE
            hypothesis.emit(self.draft_length, (accepted,), ids[: accepted + 1], log_probs[: accepted + 1], trace)
        return verdict.accepted[: len(hypotheses)]


def _table(draft: IntArray, candidates: Candidates, row: int) -> Trace:
    columns = zip(candidates.ids[row].tolist(), candidates.log_probs[row].tolist(), strict=True)
    return tuple(draft[row].tolist()), tuple(tuple(zip(*column, strict=True)) for column in columns)


@dataclass(frozen=True)
class Plan:
    """How requests are decoded.

    `apart`: for reproducible requests that share no pass with others; None where `strategy` knows what they need.
    `group`: rows of a pass of fixed shape. Without `in_flight`, new rows enter when all others have left.
    """

    strategy: Strategy
    apart: Strategy | None = None
    group: int = 1
    in_flight: bool = True


def decode(engine: AnyEngine, waiting: Waiting, plan: Plan | Strategy, batch_size: int) -> Iterator[Hypothesis]:
    """Decode requests as they come, at most `batch_size` rows in flight; hypotheses come in the order they finish.

    New rows enter once a quarter of the places is free: encoding one sentence at a time would cost more than it wins.
    Until then, rows that have ended may wait. Where as many places are free, no request is waiting: they leave at once.
    """
    plan = plan if isinstance(plan, Plan) else Plan(plan)
    enough = -(-batch_size // 4)
    together, apart = Flight(engine, plan.group), Flight(engine, plan.group)
    flights = [(together, plan.strategy)] + ([(apart, plan.apart)] if plan.apart is not None else [])
    while True:
        free = batch_size - sum(len(flight.hypotheses) for flight, _ in flights)
        if free >= enough and (plan.in_flight or free == batch_size):
            requests = waiting.take(free, wait=free == batch_size)
            free -= len(requests)
            apart.admit([request for request in requests if plan.apart is not None and request.reproducible])
            together.admit([request for request in requests if plan.apart is None or not request.reproducible])
        if not any(flight.hypotheses for flight, _ in flights):
            return
        for flight, strategy in flights:
            if flight.hypotheses:
                flight.ends = max(1, enough - free)
                strategy.advance(flight)
                yield from flight.land()
