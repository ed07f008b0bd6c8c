"""Many lines through one `specmt translate`: memory and throughput must stay flat.

Run as `python scripts/soak.py`. The lines of the test sets are written to the process again and again; its resident
memory is read from /proc (Linux) every hundred lines. What counts is the median of each tenth: single readings rise and
fall with the batch that is under way.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from benchmarking import ROOT, stat_seconds

SOURCES = ("multi30k.test2016.de", "tatoeba.test.de")
EVERY = 100
"""Lines between two readings."""


def main() -> None:
    """Print a line for each tenth, then the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=10_000, help="lines that do not count")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    chosen = parser.parse_args()
    if chosen.lines < chosen.warm_up + 10:
        parser.error(f"--lines must be at least 10 more than --warm-up ({chosen.warm_up}): a tenth has a line")
    sources = [line for name in SOURCES for line in (ROOT / "data/corpora" / name).read_bytes().splitlines(True)]
    options = ["--threads", str(chosen.threads), "--engine", chosen.engine]
    command = [sys.executable, "-m", "specmt", "translate", "-q", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as run:
        assert run.stdin is not None and run.stdout is not None
        threading.Thread(target=feed, args=(run.stdin, sources, chosen.lines), daemon=True).start()
        tenths = measure(run, chosen.warm_up, (chosen.lines - chosen.warm_up) // 10)
        if run.wait():
            sys.exit(f"exit code {run.returncode}")
    medians, peaks, speeds = ([getattr(one, name) for one in tenths] for name in ("median", "peak", "speed"))
    for name, values in (("median", medians), ("peak", peaks)):
        growth = (100 * (value - values[0]) / values[0] for value in (min(values), max(values)))
        later = " to ".join(f"{one:+.1f} %" for one in growth)
        print(f"memory, {name} of the first tenth {values[0]:.1f} MB; of the others {later}")
    print(f"lines a CPU second: {min(speeds):.0f} to {max(speeds):.0f}")


@dataclass(frozen=True)
class Tenth:
    """Resident memory (MB) and lines per second of the process's own processor time."""

    median: float
    peak: float
    speed: float


def feed(stream: object, sources: list[bytes], lines: int) -> None:
    """Write so many lines."""
    with stream as target:  # type: ignore[attr-defined]
        for _, line in zip(range(lines), cycle(sources), strict=False):
            target.write(line)


def measure(run: subprocess.Popen[bytes], warm_up: int, lines: int) -> list[Tenth]:
    """Read the output; a result for every `lines` lines after the warm-up."""
    assert run.stdout is not None
    tenths: list[Tenth] = []
    memory: list[float] = []
    start, before = time.perf_counter(), 0.0
    for number, _ in enumerate(run.stdout, start=1):
        if number % EVERY == 0:
            memory.append(usage(run.pid)[1])
        if number < warm_up or (number - warm_up) % lines:
            continue
        seconds = usage(run.pid)[0]
        if number > warm_up:
            tenths.append(Tenth(statistics.median(memory), max(memory), lines / max(seconds - before, 0.01)))
            last, clock = tenths[-1], time.perf_counter() - start
            found = f"median {last.median:.1f} MB, at most {last.peak:.1f} MB, {last.speed:.0f} lines a CPU second"
            print(f"{number} lines, {clock:.0f} s: {found}", flush=True)
        memory, before = [], seconds
    return tenths


def usage(pid: int) -> tuple[float, float]:
    """Processor seconds and resident megabytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return stat_seconds(Path(f"/proc/{pid}/stat").read_text()), int(resident.split()[1]) / 1024


if __name__ == "__main__":
    main()
