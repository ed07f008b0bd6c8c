"""`fairseq-train` as a module of ours: `python -m specmt.fairseq_backend.train [fairseq's arguments]`.

One subprocess a run, since two runs in one process share fairseq's global state. fairseq's own script would load
our extensions too late for the shims.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

import torch

from specmt.fairseq_backend import compat, drafter, verifier  # noqa: F401  (before fairseq; register extensions)

from fairseq.file_io import PathManager  # isort: skip
from fairseq_cli.train import cli_main  # isort: skip


def _stop(signal_number: int, frame: FrameType | None) -> None:
    sys.exit(128 + signal_number)


def _end_with_parent() -> None:
    """End when the parent is killed, which closes standard input: else a second run would find an orphan at work."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # unbuffered: a read that still waits at the end holds no lock
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _copy_atomically(source: str, target: str, overwrite: bool = False) -> bool:
    """As fairseq copies `checkpoint_last.pt` in place: killed half-way, it could not resume."""
    shutil.copyfile(source, f"{target}.part")
    Path(f"{target}.part").replace(target)
    return True


def main() -> None:
    """Train as the arguments say, on the number of threads that `OMP_NUM_THREADS` gives."""
    signal.signal(signal.SIGTERM, _stop)
    _end_with_parent()
    PathManager.copy = staticmethod(_copy_atomically)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cli_main()


if __name__ == "__main__":
    main()
