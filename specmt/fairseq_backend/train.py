"""`fairseq-train` as a module of ours: `python -m specmt.fairseq_backend.train [fairseq's arguments]`.

One subprocess a run, since two runs in one process share fairseq's global state. fairseq's own script would load
our extensions too late for the shims.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

import torch

from specmt.fairseq_backend import compat, verifier  # noqa: F401  (before fairseq)

from fairseq_cli.train import cli_main  # isort: skip


def _stop(signal_number: int, frame: FrameType | None) -> None:
    sys.exit(128 + signal_number)


def main() -> None:
    """Train as the arguments say, on the number of threads that `OMP_NUM_THREADS` gives."""
    signal.signal(signal.SIGTERM, _stop)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cli_main()


if __name__ == "__main__":
    main()
