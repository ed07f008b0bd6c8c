"""Limits reached on purpose: very long lines, memory, disks and streams. What was said, and what was kept.

Run as `python scripts/hard_limits.py` on Linux, as root where disks are to be full (a tmpfs is mounted; left out
otherwise). Prints a row of a table for each, with seconds, memory at most and the exit code; exit code 1 if one ended
otherwise than it should: by a traceback, a second line, or without the lines before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
SENTENCE = "Ein Mann mit einem roten Hut spielt Gitarre auf der Straße. "
FIRST = "Ein Hund schläft.\n"
MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Limit:
    """A command that meets a limit, and how it should end."""

    name: str
    stdin: bytes
    options: tuple[str, ...] = ()
    codes: tuple[int, ...] = (0,)
    says: str = ""
    """Part of the one line on stderr; none is said where this is empty."""
    lines: int | None = None
    """Lines of output; None: those that were read before the limit, at least one."""
    shell: str = ""
    """Put before the command, as `ulimit -v 1000000;`."""
    seconds: float | None = None
    """After which SIGTERM is sent; None: never."""
    waits: bool = False
    """Whether the lines behind the first are sent when its translation is there."""


def long_line(unit: str, megabytes: int) -> bytes:
    """A line before, and one of so many bytes."""
    data = unit.encode()
    return FIRST.encode() + data * (megabytes * MEGABYTE // len(data)) + b"\n"


def limits(patience: float) -> Iterator[Limit]:
    """All that need no disk of their own."""
    yield Limit("a line of 1 MB of text", long_line(SENTENCE, 1), lines=2)
    yield Limit(
        f"a line of 10 MB of text, SIGTERM after {patience:.0f} s",
        long_line(SENTENCE, 10),
        codes=(0, 143),
        seconds=patience,
    )
    yield Limit("the same with `--no-split`", long_line(SENTENCE, 10), ("--no-split",), (1,), "line 2: ", 1)
    yield Limit("a line of 1 MB without a blank", long_line("Straße", 1), lines=2)
    yield Limit("a line of 1 MB of dots", long_line(".", 1), lines=2)
    yield Limit("a line of 10 MB of NUL", long_line("\0", 10), lines=2)
    yield Limit(
        "memory of 1 GB, `--batch-size 100000`",
        FIRST.encode() + 20_000 * SENTENCE.strip().encode().join((b"", b"\n")),
        ("--batch-size", "100000"),
        (1,),
        "not enough memory: lower --batch-size",
        shell="ulimit -v 1000000;",
        waits=True,
    )
    yield Limit(
        "`/dev/full`", FIRST.encode(), codes=(1,), says="no space left on device", lines=0, shell="exec >/dev/full;"
    )
    yield Limit("standard output closed", FIRST.encode(), codes=(1,), says="is closed", lines=0, shell="exec >&-;")
    yield Limit("standard input closed", b"", codes=(1,), says="is closed", lines=0, shell="exec <&-;")


def disks(folder: Path) -> Iterator[Limit]:
    """What needs a disk that is full, or cannot be written."""
    text = 2000 * (SENTENCE + "\n").encode()
    target = folder / "out.en"
    written = ("-o", str(target))
    yield Limit("a full disk", text, written, (1,), "no space left on device", 0)
    yield Limit(
        "a full disk, `--append-resume`", text, (*written, "--append-resume"), (1,), "no space left on device", 0
    )
    subprocess.run(["mount", "-o", "remount,size=4m", str(folder)], check=True)
    yield Limit("the same, when there is room", text, (*written, "--append-resume"), lines=0)
    found = target.read_bytes().count(b"\n")
    if found != 2000:
        sys.exit(f"{found} lines of 2000 after the disk had room again")
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield Limit("a read-only directory", text, ("-o", str(folder / "x.en")), (1,), "read-only file system", 0)


@contextmanager
def small_disk() -> Iterator[Path | None]:
    """A file system of 32 KB, or None where it may not be mounted."""
    with tempfile.TemporaryDirectory() as name:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", name], check=False, stderr=subprocess.DEVNULL
        )
        if mounted.returncode:
            yield None
            return
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", name], check=True)


def row(limit: Limit, engine: str) -> bool:
    """Print what came of it; whether that is as it should be."""
    program = [sys.executable, "-m", "specmt", "translate", "-q", "--engine", engine, *limit.options]
    command = ["bash", "-c", f'{limit.shell} exec "$@"', "specmt", *program]
    start = time.perf_counter()
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as written, tempfile.TemporaryFile() as said:
        source.write(limit.stdin)
        source.seek(0)
        stdin = subprocess.PIPE if limit.waits else source
        run = subprocess.Popen(command, stdin=stdin, stdout=written, stderr=said, cwd=ROOT)
        if limit.waits:
            send(limit.stdin, run, written)
        timer = threading.Timer(limit.seconds or 0, run.terminate)
        if limit.seconds:
            timer.start()
        _, status, usage = os.wait4(run.pid, 0)  # tells how much memory it had
        timer.cancel()
        run.returncode = code = os.waitstatus_to_exitcode(status)
        seconds, megabytes = time.perf_counter() - start, usage.ru_maxrss // 1024
        done, text = content(written), content(said)
    lines = done.count(b"\n")
    expected = lines == limit.lines if limit.lines is not None else lines >= 1
    fine = code in limit.codes and expected and limit.says.encode() in text and text.count(b"\n") == bool(limit.says)
    found = f"`{text.decode().strip()}`; " if text else ""
    mark = "" if fine else " **WRONG**"
    what = f"{found}exit code {code}, {seconds:.0f} s, {megabytes} MB, {lines} lines written{mark}"
    print(f"| {limit.name} | {what} |", flush=True)
    return fine


def send(data: bytes, run: subprocess.Popen[bytes], written: IO[bytes]) -> None:
    """Send the first line, wait until its translation is written, send the rest."""
    assert run.stdin is not None
    end = data.index(b"\n") + 1
    run.stdin.write(data[:end])
    run.stdin.flush()
    while not os.fstat(written.fileno()).st_size:
        time.sleep(0.01)
    with suppress(BrokenPipeError), run.stdin as stdin:
        stdin.write(data[end:])


def content(stream: IO[bytes]) -> bytes:
    """All that was written."""
    stream.seek(0)
    return stream.read()


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--patience", type=float, default=150, help="seconds for the line of 10 MB")
    options = parser.parse_args()
    print("| limit | what happens |\n|---|---|")
    fine = [row(limit, options.engine) for limit in limits(options.patience)]
    with small_disk() as folder:
        if folder:
            fine += [row(limit, options.engine) for limit in disks(folder)]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
