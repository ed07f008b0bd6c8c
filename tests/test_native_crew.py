"""Threads of the native engine that help a lone caller: the same bits, whoever computed them; and they end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmt import BUNDLED_MODEL
from specmt.bundles.bundle import load_bundle
from specmt.engines.native_engine import NativeEngine
from specmt.text.vocabulary import EOS_ID

SOURCES = [[*range(100 + 7 * row, 100 + 7 * row + length), EOS_ID] for row, length in enumerate((12, 3, 40))]
TASKS = Path("/proc/self/task")
SECONDS = 20
"""That something may take which happens at once on an idle machine."""


def engine_of(threads: int) -> NativeEngine:
    bundle = load_bundle(BUNDLED_MODEL)
    return NativeEngine(bundle.architecture, bundle.path, threads=threads)


def everything(engine: NativeEngine) -> list[Any]:
    """Results of each of the engine's calls."""
    rows = engine.encode(SOURCES)
    lattice = engine.draft(rows, np.full(3, EOS_ID), 5)
    candidates = engine.verify(rows, np.array([[EOS_ID, 9, 8, 7]] * 3), beta=4)
    engine.commit(rows, np.full(3, 4))
    run = engine.iterate(rows, [7, 32, 7], [30] * 3, 4, 2, 1.0, ends=3)
    arrays = lattice.ids, lattice.scores, lattice.transitions, candidates.ids, candidates.log_probs
    return [array.tolist() for array in arrays] + [run]


@pytest.mark.parametrize("threads", [2, 4])
def test_helpers_change_no_bit(threads: int) -> None:
    assert everything(engine_of(threads)) == everything(engine_of(1))


def test_callers_at_the_same_time_get_what_each_gets_alone() -> None:
    expected, engine = everything(engine_of(1)), engine_of(3)
    with ThreadPoolExecutor(3) as pool:
        found = [future.result() for future in [pool.submit(everything, engine) for _ in range(12)]]
    assert found == [expected] * 12


@pytest.mark.skipif(not TASKS.exists(), reason="looks at threads where Linux shows them")
def test_helpers_work_and_end_with_their_engine() -> None:
    before = tasks()
    engine = engine_of(3)
    helpers = tasks() - before
    assert len(helpers) == 2
    eventually(partial(have_helped, engine, helpers))
    del engine
    eventually(lambda: not helpers & tasks())


def have_helped(engine: NativeEngine, helpers: set[str]) -> bool:
    """Whether each was at it for longer than it looks out for work; there is some."""
    engine.encode(SOURCES)
    return min(map(seconds_of, helpers)) > 0.05


def tasks() -> set[str]:
    return {task.name for task in TASKS.iterdir()}


def seconds_of(task: str) -> float:
    """Of the processor, that a thread has had."""
    return int((TASKS / task / "schedstat").read_text().split()[0]) / 1e9


def eventually(happened: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_goes_on_without_helpers() -> None:
    program = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_native_crew import engine_of, everything
engine = engine_of(2)
expected = everything(engine)
child = os.fork()
if child:
    print(os.waitpid(child, 0)[1], flush=True)
print(everything(engine) == expected, flush=True)
"""
    # Python warns of forks beside threads from 3.12 on.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n0\nTrue\n", "")
