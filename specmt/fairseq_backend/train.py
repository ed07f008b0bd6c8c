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
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from specmt.fairseq_backend import checkpoints, compat, drafter, verifier  # noqa: F401  (before fairseq; register)

from fairseq import checkpoint_utils  # isort: skip
from fairseq.file_io import PathManager  # isort: skip
from fairseq.optim import adam  # isort: skip
from fairseq.tasks import FairseqTask  # isort: skip
from fairseq_cli.train import cli_main  # isort: skip


def _stop(signal_number: int, frame: FrameType | None) -> None:
    _end(128 + signal_number)


def _end(status: int) -> NoReturn:
    """Without what an interpreter does at its end: processes that read batches for a GPU hold that up for a minute."""
    sys.stdout.flush()
    os._exit(status)


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


_fairseqs_save = checkpoint_utils.save_checkpoint


def _save_at_interval(settings: Any, trainer: Any, epochs: Any, loss: float | None) -> None:
    """As fairseq saves; also where an interval ends with an epoch, which fairseq keeps under no number of updates."""
    _fairseqs_save(settings, trainer, epochs, loss)
    folder, update = Path(settings.save_dir), trainer.get_num_updates()
    kept = checkpoints.numbered(folder)
    if update % settings.save_interval_updates or update in kept:
        return
    _copy_atomically(str(folder / checkpoints.LAST), str(folder / f"checkpoint_{epochs.epoch}_{update}.pt"))
    for superfluous in sorted(kept)[: max(len(kept) + 1 - settings.keep_interval_updates, 0)]:
        kept[superfluous].unlink()


_fairseqs_build = FairseqTask.build_model


def _begin_alike() -> None:
    """Heed `--initial-seed`: the seed of the first weights, where `--seed`, of the order of the data, is another."""
    if "--initial-seed" not in sys.argv:
        return
    place = sys.argv.index("--initial-seed")
    seed = int(sys.argv[place + 1])
    del sys.argv[place : place + 2]  # fairseq does not know it

    def build(task: FairseqTask, settings: Any, from_checkpoint: bool = False) -> Any:
        torch.manual_seed(seed)
        return _fairseqs_build(task, settings, from_checkpoint)

    FairseqTask.build_model = build


def main() -> None:
    """Train as the arguments say, on the number of threads that `OMP_NUM_THREADS` gives; ends the process."""
    signal.signal(signal.SIGTERM, _stop)
    _end_with_parent()
    PathManager.copy = staticmethod(_copy_atomically)
    checkpoint_utils.save_checkpoint = _save_at_interval
    _begin_alike()
    if "--cpu" not in sys.argv:
        adam.Adam = partial(torch.optim.AdamW, fused=True)  # fairseq's own has a kernel for each term of each tensor
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    cli_main()
    _end(0)


if __name__ == "__main__":
    main()
