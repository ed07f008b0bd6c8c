"""Progress of training: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from specmt.fairseq_backend import driver
from specmt.training.pipeline import Reporter


@contextmanager
def training_reporter() -> Iterator[Reporter]:
    """Reports on stderr while the block runs."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Reporter(_print_line, _print_progress)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[losses]}"), console=console) as bars:
        tasks: dict[str, TaskID] = {}

        def show(stage: str, updates: int, progress: driver.Progress) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=updates, losses="")
            bars.update(tasks[stage], completed=progress.update, losses=_losses(progress))

        # Lines hold paths, whose brackets are no markup and whose numbers need no colour.
        yield Reporter(partial(console.print, markup=False, highlight=False, soft_wrap=True), show)


def _losses(progress: driver.Progress) -> str:
    if progress.valid_loss is not None:
        return f"validation loss {progress.valid_loss:.3f} bits"
    return f"loss {progress.loss:.3f} bits"


def _print_line(line: str) -> None:
    print(f"{datetime.now():%Y-%m-%d %H:%M:%S} {line}", file=sys.stderr, flush=True)


def _print_progress(stage: str, updates: int, progress: driver.Progress) -> None:
    speed = f", {progress.tokens_per_second:.0f} tokens/s" if progress.tokens_per_second else ""
    _print_line(f"{stage}: update {progress.update}/{updates}, {_losses(progress)}{speed}")
