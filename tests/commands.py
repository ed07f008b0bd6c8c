"""The command line as a process, as a person runs it in the clone."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "data" / "smoke"


TIMEOUT = 600
"""Seconds."""
COMMAND = [sys.executable, "-m", "specmt"]
SAMPLE = (ROOT / "data" / "sample.de").read_bytes()


def tried(*arguments: object, stdin: bytes = b"", limit: str = "") -> subprocess.CompletedProcess[bytes]:
    """The command, however it ends. `limit`: what a shell does before it runs it."""
    command = [*COMMAND, *map(str, arguments)]
    if limit:
        command = ["bash", "-c", f'{limit}; exec "$@"', "specmt", *command]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, check=False, timeout=TIMEOUT)


def specmt(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command, which succeeds."""
    done = tried(*arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    return done


def failed(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    """The one line on stderr of a command that failed with `code`."""
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, len(lines)) == (code, 1), done.stderr.decode()
    assert lines[0].startswith("specmt: ")
    return lines[0]


@contextmanager
def running(*arguments: object, limit: str = "true") -> Iterator[subprocess.Popen[bytes]]:
    """A translation of what is written to it, killed at the end if it still runs."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    def heed() -> None:
        """A shell's background job ignores Ctrl-C, one of nohup SIGHUP, and so do their children if not told better."""
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    command = ["bash", "-c", f'{limit}; exec "$@"', "specmt", *COMMAND, "translate", *map(str, arguments)]
    settings: Any = {"cwd": ROOT, "bufsize": 0, "preexec_fn": heed, **pipes}
    with subprocess.Popen(command, **settings) as run:
        try:
            yield run
        finally:
            run.kill()


def wait_until(happened: Callable[[], bool], seconds: float = 60) -> None:
    """Look again and again; a failure if nothing has happened by then."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"nothing has happened for {seconds} seconds"
        time.sleep(0.01)


def one_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """The only line on stderr, of a command that printed nothing else."""
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def kill_at(moment: str, arguments: list[str]) -> None:
    """Run until a line with `moment` is told, then kill −9."""
    command = [*COMMAND, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT, text=True) as run:
        assert run.stderr is not None
        if not any(moment in line for line in run.stderr):
            pytest.fail(f"never told: {moment}")
        run.send_signal(signal.SIGKILL)
