"""Which sentence is decoded next, for a stream whose lines are still arriving.

Sentences enter the rows in flight when there is room (`loops.decode`). Those that wait are sorted by length
within a window, longest first and shortest first in turn, so that neighbours in a batch are about equally long where
one window follows the other, and no sentence waits longer than for its window.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from specmt.decoding.hypotheses import Request
from specmt.errors import SpecmtError
from specmt.streams.line_stream import LineStream

T = TypeVar("T")


class _StoppedError(Exception):
    """Ends a worker that was not waited for: it must not decode any more."""


@dataclass
class Admission(Generic[T]):
    """Hands the requests of a stream's lines to workers; each takes through a `Gate` of its own.

    Lines are opened (`open_line`, with the line's index from 0) only when requests are wanted. A line may make any
    number of requests, none included.
    """

    lines: LineStream[T]
    open_line: Callable[[int, T], Sequence[Request]]
    window: int
    """Lines that are sorted by length together."""
    workers: int
    max_batch_tokens: int | None
    first: int = 0
    """Index of the next line."""
    _requests: deque[Request] = field(default_factory=deque)
    _longest_first: bool = False
    _opening: threading.Thread | None = None
    """The worker that opens lines; one at a time does."""
    _stopped: bool = False

    def __post_init__(self) -> None:
        self._opened = self._finished = self.first

    def finished(self, lines: int) -> None:
        """So many lines in all are done with: what the reader of the output leaves undone is not piled up."""
        with self.lines.lock:
            self._finished = lines
            self.lines.changed.notify_all()

    def stop(self) -> threading.Thread | None:
        """Hand out nothing more; the worker that is opening a line, which may take long: it does nothing after that."""
        with self.lines.lock:
            self._stopped = True
            self._requests.clear()
            self.lines.end()
            return self._opening

    def take(self, count: int, wait: bool, in_flight: Sequence[int]) -> list[Request]:
        """See `Waiting.take`; `in_flight`: source tokens of each of the taker's rows."""
        with self.lines.lock:
            while True:
                lines = self._lines_to_open()
                if lines:
                    self._open(lines)
                if taken := self._admissible(count, in_flight):
                    return taken
                if not wait or self._ended:
                    return []
                if not lines:  # else what would wake this worker may have come while it opened them
                    self.lines.changed.wait()

    @property
    def _ended(self) -> bool:
        """Whether there will be no more requests."""
        return self._stopped or (self.lines.ended and not self._requests and not self._opening)

    def _lines_to_open(self) -> list[T]:
        """Lines that have arrived, up to a window of them, unless too many are under way, or none are wanted."""
        if self._requests or self._opening:
            return []
        room = min(self.window, 4 * self.window - (self._opened - self._finished))
        return self.lines.take(max(room, 0))

    def _open(self, lines: Sequence[T]) -> None:
        """Make requests of lines, without the lock: while a long line is opened, others go on, and are stopped."""
        self._opening = threading.current_thread()
        self.lines.lock.release()
        try:
            requests, failure = self._requests_of(lines)
        finally:
            self.lines.lock.acquire()
            self._opening = None
            self.lines.changed.notify_all()
        if self._stopped:
            raise _StoppedError
        if failure:
            self.lines.end(failure)
        requests.sort(key=lambda request: len(request.source_ids), reverse=self._longest_first)
        if requests:
            self._longest_first = not self._longest_first
        self._requests.extend(requests)

    def _requests_of(self, lines: Sequence[T]) -> tuple[list[Request], SpecmtError | None]:
        """The requests of lines, up to the first that cannot be opened or the end of the run; and why it cannot."""
        requests: list[Request] = []
        for line in lines:
            if self._stopped:
                break
            try:
                requests += self.open_line(self._opened, line)
            except SpecmtError as error:
                return requests, error
            self._opened += 1
        return requests, None

    def _admissible(self, count: int, in_flight: Sequence[int]) -> list[Request]:
        """The next requests, as many as the budget of tokens allows; each worker gets its share of a few."""
        taken: list[Request] = []
        longest = max(in_flight, default=0)
        share = -(-len(self._requests) // self.workers)
        while self._requests and len(taken) < min(count, share):
            rows = len(in_flight) + len(taken)
            longest = max(longest, len(self._requests[0].source_ids))
            if self.max_batch_tokens and rows and (rows + 1) * longest > self.max_batch_tokens:
                break
            taken.append(self._requests.popleft())
        return taken


@dataclass
class Gate(Generic[T]):
    """One worker's `Waiting`: what it took and has not finished is in flight."""

    admission: Admission[T]
    _in_flight: dict[int, int] = field(default_factory=dict)
    """Source tokens by the request's index."""

    def take(self, count: int, wait: bool) -> list[Request]:
        """See `Waiting.take`."""
        taken = self.admission.take(count, wait, list(self._in_flight.values()))
        self._in_flight |= {request.index: len(request.source_ids) for request in taken}
        return taken

    def landed(self, request: Request) -> None:
        """The request is no longer in flight."""
        del self._in_flight[request.index]
