"""Several cores on one stream: each worker keeps its own rows in flight, all take from one queue.

Threads inside one small matrix product lose more to waiting than they win where there are lines for all; an engine
whose calls release the interpreter's lock does better with a worker a core.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

T = TypeVar("T")

WAKING_SECONDS = 0.2
"""How long the main thread waits at a time: a signal that arrives just before it goes to sleep does not wake it."""


@dataclass(frozen=True)
class Result(Generic[T]):
    """What a worker yielded, or that it is done, perhaps with an error."""

    value: T | None
    done: bool = False
    error: BaseException | None = None


def run_in_parallel(work: Callable[[], Iterator[T]], workers: int) -> Iterator[T]:
    """What `workers` runs of `work` yield, as it comes; an exception of any of them is raised here.

    With one worker nothing is started. When the caller stops asking, the workers stop at their next result.
    """
    if workers == 1:
        yield from work()
        return
    yield from run_in_threads(work, workers, queue.SimpleQueue(), stop=lambda: None)


def run_in_threads(
    work: Callable[[], Iterator[T]],
    workers: int,
    results: queue.SimpleQueue[Result[T]],
    stop: Callable[[], threading.Thread | None],
) -> Iterator[T]:
    """As `run_in_parallel`, never in the caller's thread.

    Args:
        results: the caller may put results of its own into it, as `Result`.
        stop: called when no more results are wanted, so that no worker goes on waiting for something to do; the worker
            that it returns, if one, is left to end by itself.
    """
    stopping = threading.Event()

    def run() -> None:
        failure: BaseException | None = None
        try:
            for value in work():
                results.put(Result(value))
                if stopping.is_set():
                    return
        except BaseException as error:  # also what a library written in another language throws
            failure = error
        finally:
            results.put(Result(None, done=True, error=failure))

    threads = [threading.Thread(target=run, daemon=True) for _ in range(workers)]
    running = workers
    try:
        for thread in threads:
            thread.start()
        while running:
            result = _next(results)
            if result.error is not None:
                raise result.error
            if result.done:
                running -= 1
            else:
                yield cast(T, result.value)
    finally:
        stopping.set()
        left = stop()
        for thread in threads:
            if thread.ident is not None and thread is not left:  # it was started
                thread.join()


def _next(results: queue.SimpleQueue[T]) -> T:
    """Wait for a result, and heed signals meanwhile."""
    while True:
        with suppress(queue.Empty):
            return results.get(timeout=WAKING_SECONDS)
