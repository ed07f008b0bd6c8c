"""Many lines through one `specmt translate`: memory and throughput must stay flat.

Run as `python scripts/soak.py`. The lines of the test sets are written to the process again and again, its resident
memory is read from /proc (Linux) at every tenth of them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from itertools import cycle
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("multi30k.test2016.de", "tatoeba.test.de")


def main() -> None:
    """Print a line for each tenth, then the verdict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--warm-up", type=int, default=10_000, help="lines that do not count")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    chosen = parser.parse_args()
    sources = [line for name in SOURCES for line in (ROOT / "data/corpora" / name).read_bytes().splitlines(True)]
    options = ["--threads", str(chosen.threads), "--engine", chosen.engine]
    command = [sys.executable, "-m", "specmt", "translate", "-q", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as run:
        assert run.stdin is not None and run.stdout is not None
        threading.Thread(target=feed, args=(run.stdin, sources, chosen.lines), daemon=True).start()
        marks = measure(run, chosen.warm_up, (chosen.lines - chosen.warm_up) // 10)
        if run.wait():
            sys.exit(f"exit code {run.returncode}")
    memory = [megabytes for _, megabytes in marks]
    speeds = [speed for speed, _ in marks[1:]]
    growth = 100 * (max(memory) - memory[0]) / memory[0]
    print(f"memory after warm-up {memory[0]:.0f} MB, at most {max(memory):.0f} MB later: {growth:+.1f} %")
    print(f"lines a CPU second: {min(speeds):.0f} to {max(speeds):.0f}")


def feed(stream: object, sources: list[bytes], lines: int) -> None:
    """Write so many lines."""
    with stream as target:  # type: ignore[attr-defined]
        for _, line in zip(range(lines), cycle(sources), strict=False):
            target.write(line)


def measure(run: subprocess.Popen[bytes], first: int, every: int) -> list[tuple[float, float]]:
    """Lines a second of the process's own processor time, and resident megabytes, at each mark."""
    assert run.stdout is not None
    marks: list[tuple[float, float]] = []
    before = 0.0
    start = time.perf_counter()
    for number, _ in enumerate(run.stdout, start=1):
        if number >= first and (number - first) % every == 0:
            seconds, megabytes = usage(run.pid)
            speed = every / (seconds - before)
            before = seconds
            marks.append((speed, megabytes))
            clock = time.perf_counter() - start
            rate = "" if len(marks) == 1 else f", {speed:.0f} lines a CPU second"
            print(f"{number} lines, {clock:.0f} s, {megabytes:.1f} MB{rate}", flush=True)
    return marks


def usage(pid: int) -> tuple[float, float]:
    """Processor seconds and resident megabytes of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    status = Path(f"/proc/{pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return ticks / 100, int(resident.split()[1]) / 1024


if __name__ == "__main__":
    main()
