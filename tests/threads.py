"""What tests of threads share: an interruption in the middle of something, and threads that have to end."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Iterator, Set
from contextlib import contextmanager


@contextmanager
def interrupted() -> Iterator[None]:
    """Ctrl-C after 0.1 seconds, one that wakes nobody; never after the block, where it would end all tests."""
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def left_running(before: Set[threading.Thread]) -> set[threading.Thread]:
    """The threads, other than those of `before`, that do not end, though each has ten seconds for it."""
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    return set(threading.enumerate()) - before
