"""Several cores on one stream: each worker keeps its own rows in flight, all take from one queue.

Threads inside one small matrix product lose more to waiting than they win; an engine whose calls release the
interpreter's lock does better with a worker a core.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class _Done:
    """A worker has nothing left to do."""


def run_in_parallel(work: Callable[[], Iterator[T]], workers: int) -> Iterator[T]:
    """What `workers` runs of `work` yield, as it comes; an exception of any of them is raised here.

    With one worker nothing is started. When the caller stops asking, the workers stop at their next result.
    """
    if workers == 1:
        yield from work()
        return
    results: queue.Queue[T | Exception | _Done] = queue.Queue()
    stopping = threading.Event()

    def run() -> None:
        try:
            for result in work():
                results.put(result)
                if stopping.is_set():
                    return
        except Exception as error:
            results.put(error)
        finally:
            results.put(_Done())

    threads = [threading.Thread(target=run, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    running = workers
    try:
        while running:
            result = results.get()
            if isinstance(result, _Done):
                running -= 1
            elif isinstance(result, Exception):
                raise result
            else:
                yield result
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
