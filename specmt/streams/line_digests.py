"""What was read of an input that cannot be read twice: a later run sees whether it is given the same."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import TypeVar

BYTES = 8
"""Of a digest."""

T = TypeVar("T")


class LineDigests:
    """A digest for each line that was read, of it and all before it, kept in a file once its translation is written."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self._last = b""
        self._unwritten: deque[bytes] = deque()
        self._stream: FileIO | None = None

    def noting(self, parse: Callable[[bytes, int], T]) -> Callable[[bytes, int], T]:
        """A parser of lines, which are given to it in order, that takes note of them."""

        def noted(line: bytes, number: int) -> T:
            self.add(line)
            self._unwritten.append(self._last)
            return parse(line, number)

        return noted

    def add(self, line: bytes) -> None:
        """Read a line; its end does not count: the last may have had none."""
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        self._last = hashlib.blake2b(self._last + text, digest_size=BYTES).digest()

    @contextmanager
    def kept(self, path: Path, finished: int) -> Iterator[None]:
        """Write them to a file, behind those of `finished` lines; what is behind these is cut off."""
        with FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "rb+") as stream:
            stream.truncate(min(finished * BYTES, stream.seek(0, os.SEEK_END)))
            stream.seek(0, os.SEEK_END)
            self._stream = stream
            try:
                yield
            finally:
                self._stream = None

    def write_next(self) -> None:
        """Keep the digest of the next line; to be called before its translation is written."""
        assert self._stream, "within `kept`"
        self._stream.write(self._unwritten.popleft())

    def as_before(self, finished: int) -> bool:
        """Whether the lines that were read so far, `finished` of them, are those of the earlier run."""
        assert self._stream, "within `kept`"
        if not finished:
            return True
        return os.pread(self._stream.fileno(), BYTES, (finished - 1) * BYTES) == self._last
