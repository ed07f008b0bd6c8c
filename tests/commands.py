"""The command line as a process, as a person runs it in the clone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "data" / "smoke"


def specmt(*arguments: object, stdin: bytes = b"", check: bool = True) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "specmt", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, check=False)
    if check:
        assert done.returncode == 0, done.stderr.decode()
    return done


def one_line(done: subprocess.CompletedProcess[bytes]) -> str:
    """The only line on stderr, of a command that printed nothing else."""
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def kill_at(moment: str, arguments: list[str]) -> None:
    """Run until a line with `moment` is told, then kill −9."""
    command = [sys.executable, "-m", "specmt", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT, text=True) as run:
        assert run.stderr is not None
        if not any(moment in line for line in run.stderr):
            pytest.fail(f"never told: {moment}")
        run.send_signal(signal.SIGKILL)
