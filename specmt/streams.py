"""Lines from a stream as they come: a person typing gets each at once, a pipe gets full chunks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import BinaryIO

from specmt.corpus import decode_line
from specmt.errors import InputError

_READ_AHEAD = 65536
"""Lines that may wait in memory."""


class LineStream:
    """Reads lines in a thread, so that what has arrived is translated while more is on its way."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        """Start reading; an error calls the stream `name`."""
        self._stream = stream
        self._name = name
        self._lines: queue.Queue[bytes | OSError | None] = queue.Queue(_READ_AHEAD)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for line in self._stream:
                self._lines.put(line)
        except OSError as error:
            self._lines.put(error)
        self._lines.put(None)

    def chunks(self, limit: int) -> Iterator[list[str]]:
        """Chunks of at most `limit` lines: waits for the first line, then takes what is there.

        Raises:
            InputError: the stream cannot be read, or a line is not UTF-8 (named, after those before it were given out).
        """
        number = 0
        while (line := self._lines.get()) is not None:
            chunk: list[str] = []
            while line is not None:
                number += 1
                try:
                    chunk.append(self._text(line, number))
                except Exception:
                    if chunk:
                        yield chunk
                    raise
                if len(chunk) == limit:
                    break
                try:
                    line = self._lines.get_nowait()
                except queue.Empty:
                    break
            yield chunk
            if line is None:
                return

    def _text(self, line: bytes | OSError, number: int) -> str:
        if isinstance(line, OSError):
            raise InputError(f"{self._name}: cannot be read: {line.strerror or line}") from None
        return decode_line(line, self._name, number)
