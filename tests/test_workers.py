"""Several workers on one queue: nothing is lost, nothing is done twice, and an error of one reaches the caller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest
from threads import interrupted, left_running

from specmt.workers import Result, run_in_parallel, run_in_threads


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_result_of_every_worker_comes_out_once(workers: int) -> None:
    numbers, lock = iter(range(200)), threading.Lock()

    def work() -> Iterator[int]:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            yield number

    assert sorted(run_in_parallel(work, workers)) == list(range(200))


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_in_a_worker_is_raised_where_the_results_are_read(workers: int) -> None:
    def work() -> Iterator[int]:
        yield 1
        raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        list(run_in_parallel(work, workers))


def test_workers_end_when_the_caller_stops_asking() -> None:
    before = set(threading.enumerate())

    def work() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    results = run_in_parallel(work, 3)
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert not left_running(before)


@pytest.mark.timeout(60)
def test_a_signal_that_does_not_wake_the_caller_is_heeded_all_the_same() -> None:
    """As one that arrives just before the caller goes to sleep: its handler is due, and nothing interrupts the wait."""
    released = threading.Event()

    def work() -> Iterator[int]:
        released.wait()
        yield 1

    results: queue.SimpleQueue[Result[int]] = queue.SimpleQueue()
    with pytest.raises(KeyboardInterrupt), interrupted():
        list(run_in_threads(work, 1, results, stop=released.set))
