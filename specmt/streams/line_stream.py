"""Lines from a stream, read in a thread: what has arrived is translated while more is on its way."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from select import select
from typing import Generic, Protocol, TypeVar

from specmt.errors import InputError, SpecmtError, reason
from specmt.workers import WAKING_SECONDS

_CHUNK = 1 << 16
"""Bytes asked for at a time."""
_READ_AHEAD = 1 << 22
"""Bytes that may wait in memory, one line more or less."""
_LONGEST_LINE = 1 << 26
"""Bytes. A longer one is no text, and would fill the memory."""
_BESIDE_LINE = 64
"""Bytes that a line takes in memory beside its own, about."""

T = TypeVar("T")


class ByteStream(Protocol):
    """What lines are read from: best an unbuffered file, whose reads can be left behind when the program ends."""

    def read(self, size: int, /) -> bytes | None:
        """At most `size` bytes, as soon as there are any; none at the end. None: does not block, and has none yet."""

    def fileno(self) -> int:
        """What to wait for then."""


class LineStream(Generic[T]):
    """Parsed lines of a stream, in order, for one or several threads that take them."""

    def __init__(self, stream: ByteStream, name: str, parse: Callable[[bytes, int], T]) -> None:
        """Start reading; an error calls the stream `name`.

        Args:
            parse: a line with its end, and its number from 1, to what is to be given out; may raise a `SpecmtError`.
        """
        self._stream = stream
        self.name = name
        self._parse = parse
        self.lock = threading.RLock()
        """Held by whoever takes. Entered by itself: a signal inside `Condition.__enter__` would leave it locked."""
        self.changed = threading.Condition(self.lock)
        """Notified whenever lines or the end arrive."""
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._taken = 0
        self._complete = False
        self._error: SpecmtError | None = None
        threading.Thread(target=self._read, daemon=True).start()

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Have input errors of the block, which know the line, name the stream as well."""
        try:
            yield
        except InputError as error:
            raise InputError(f"{self.name}: {error}") from None

    def _read(self) -> None:
        """Hand on each line as soon as its end is there."""
        failure: SpecmtError | None = None
        try:
            for line in _lines(self._stream):
                with self.lock:
                    self.changed.wait_for(lambda: self._waiting_bytes < _READ_AHEAD or self._complete)
                    if self._complete:
                        return
                    self._waiting.append(line)
                    self._waiting_bytes += len(line) + _BESIDE_LINE
                    self.changed.notify_all()
        except (OSError, ValueError) as error:
            why = reason(error) if isinstance(error, OSError) else error
            failure = InputError(f"{self.name}: cannot be read: {why}")
        except MemoryError:
            failure = InputError(f"{self.name}: a line does not fit into memory")
        with self.lock:
            self._error = self._error or failure
            self._complete = True
            self.changed.notify_all()

    @property
    def ended(self) -> bool:
        """Whether there will be no more lines than were taken; to be asked with `lock` held."""
        return self._complete and not self._waiting

    def take(self, limit: int) -> list[T]:
        """At most `limit` lines of those that have arrived; to be called with `lock` held.

        A line that cannot be parsed ends the stream: those before it are given out, and `check` raises its error.
        """
        lines: list[T] = []
        while self._waiting and len(lines) < limit:
            line = self._next_line()
            try:
                lines.append(self._parse(line, self._taken))
            except SpecmtError as error:
                self.end(error)
        if lines:
            self.changed.notify_all()  # there is room to read on; takers that get nothing do not wake one another
        return lines

    def _next_line(self) -> bytes:
        line = self._waiting.popleft()
        self._waiting_bytes -= len(line) + _BESIDE_LINE
        self._taken += 1
        return line

    def end(self, error: SpecmtError | None = None) -> None:
        """Take no more lines; to be called with `lock` held. The thread that reads ends at its next line.

        `error` is of a line that was taken, so it lies before what could not be read or parsed behind that line.
        """
        self._error = error or self._error
        self._complete = True
        self._waiting.clear()
        self.changed.notify_all()

    def skip(self, count: int, seen: Callable[[bytes], None] | None = None) -> int:
        """Wait for the first `count` lines and drop them unparsed, shown to `seen`; how many there were."""
        skipped = 0
        while skipped < count:
            with self.lock:
                while not self.changed.wait_for(lambda: self._waiting or self._complete, WAKING_SECONDS):
                    pass
                if not self._waiting:
                    return skipped
                line = self._next_line()
                skipped += 1
                if seen:
                    seen(line)
                self.changed.notify_all()
        return skipped

    def check(self) -> None:
        """Raise what ended the stream before its end.

        Raises:
            SpecmtError: it cannot be read, or a line cannot be parsed (named).
        """
        if self._error is not None:
            raise self._error


def _lines(stream: ByteStream) -> Iterator[bytes]:
    """Lines with their ends; the last may have none."""
    begun: list[bytes] = []
    size, number = 0, 1
    while data := _next_bytes(stream):
        first, *rest = data.split(b"\n")
        begun.append(first)
        size += len(first)
        if size > _LONGEST_LINE:
            raise ValueError(f"line {number} has more than {_LONGEST_LINE >> 20} MiB")
        for part in rest:
            yield b"".join(begun) + b"\n"
            begun = [part]
            size, number = len(part), number + 1
    last = b"".join(begun)
    if last:
        yield last


def _next_bytes(stream: ByteStream) -> bytes:
    while (data := stream.read(_CHUNK)) is None:
        select([stream], [], [])
    return data
