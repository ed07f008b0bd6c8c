"""Standard streams that may be closed, full or without a reader: each then says so in an error of this program's own.

Libraries that print have their own ways to end a program whose reader has gone; with these streams they never see it.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from specmt.errors import InputError, ReaderGoneError, reason

_NAME = "standard output"


class StandardOutput(io.TextIOWrapper):
    """Standard output. Writing raises `ReaderGoneError`, or `InputError` where a disk is full."""

    def write(self, text: str, /) -> int:
        """Write, at once or later."""
        with _named():
            return super().write(text)

    def flush(self) -> None:
        """Write what waits."""
        with _named():
            super().flush()


class StandardError(io.TextIOWrapper):
    """Standard error. What cannot be said there is left unsaid: a full disk under a log ends no work."""

    def write(self, text: str, /) -> int:
        """Write, at once or later."""
        with suppress(OSError):
            super().write(text)
        return len(text)

    def flush(self) -> None:
        """Write what waits."""
        with suppress(OSError):
            super().flush()


class ClosedOutput(io.TextIOBase):
    """In the place of a standard output that is closed: only who writes is told."""

    def write(self, text: str, /) -> int:
        """Refuse.

        Raises:
            InputError: always.
        """
        raise InputError(f"{_NAME}: is closed; redirect it")


@contextmanager
def _named() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None
    except OSError as error:
        raise InputError(f"{_NAME}: cannot be written: {reason(error)}") from None


def prepare() -> None:
    """Take over the standard streams, once, when the program starts.

    Their numbers are occupied where they were closed, or the next file that is opened would have them, and get what is
    meant for a terminal. A closed standard error swallows what is said.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    elif isinstance(sys.stderr, io.TextIOWrapper):
        encoding = sys.stderr.encoding
        sys.stderr = StandardError(sys.stderr.detach(), encoding, "backslashreplace", line_buffering=True)
    if sys.stdout is None:
        sys.stdout = ClosedOutput()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        lines = sys.stdout.line_buffering
        # UTF-8 whatever the locale; a file's name may have other bytes, and is said as it is.
        sys.stdout = StandardOutput(sys.stdout.detach(), "utf-8", "surrogateescape", line_buffering=lines)


def leave(status: int) -> NoReturn:
    """End the program, and drop what cannot be written any more without a word.

    What is left is memory to free, which takes an interpreter longer than a short sentence takes to translate.
    """
    with suppress(InputError, ReaderGoneError):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
