"""Local SGD (Stich 2019, arXiv 1805.09767): trainings beside each other, whose weights are averaged at checkpoints.

On a CPU a training of a small model gains little from a second core; a second training beside it reads nearly as much
again. They begin with the same weights: an average of networks that are unrelated is no network.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path

from specmt.fairseq_backend import checkpoints
from specmt.fairseq_backend.driver import NEVER, Progress, Trainer
from specmt.files import atomic_path
from specmt.training.config import OptimizerConfig, RuntimeConfig


def train(
    arguments: list[str],
    optimizer: OptimizerConfig,
    runtime: RuntimeConfig,
    folder: Path,
    log: Path,
    report: Callable[[Progress], None],
) -> None:
    """Train `optimizer.replicas` of a model to the last update. A killed run goes on from the last average.

    Args:
        arguments: fairseq's, for a single training.
        folder: where the averages go, as a single training's checkpoints would. Replica `i` keeps its own, with its
            optimizer's state, in `replica<i>`, until the last average is written.
        log: of the first replica, whose progress is reported; the others' have their number in the name.

    Raises:
        TrainingError: one of the trainings failed; the others are stopped.
    """
    own = [folder / f"replica{i}" for i in range(optimizer.replicas)]
    threads = max(1, runtime.cores // optimizer.replicas)
    while (reached := checkpoints.last_update(folder)) < optimizer.max_updates:
        until = min(reached + optimizer.checkpoint_updates, optimizer.max_updates)
        with ThreadPoolExecutor(len(own)) as pool, ExitStack() as running:
            following = []
            for i, replica in enumerate(own):
                at = checkpoints.last_update(replica)
                if at == until:  # before the run was killed
                    continue
                if at:
                    _set_weights(replica / checkpoints.LAST, folder / checkpoints.LAST)
                differing = [
                    *("--seed", str(runtime.seed + i), "--initial-seed", str(runtime.seed)),
                    *("--save-dir", str(replica), "--max-update", str(until)),
                    *("--save-interval-updates", NEVER, "--validate-interval-updates", NEVER),
                    *(["--disable-validation"] if i else []),
                ]
                trainer = Trainer([*arguments, *differing], threads, log.with_stem(f"{log.stem}{i or ''}"))
                following.append(pool.submit(running.enter_context(trainer).follow, _silent if i else report))
            for followed in as_completed(following):
                followed.result()
        _write_average(own, folder, until, optimizer.average_checkpoints)
    for replica in own:
        shutil.rmtree(replica, ignore_errors=True)


def _silent(progress: Progress) -> None:
    pass


def _set_weights(replica: Path, average: Path) -> None:
    """Give a replica the averaged weights; the state of its optimizer stays."""
    checkpoints.save({**checkpoints.load(replica), "model": checkpoints.load(average)["model"]}, replica)


def _write_average(replicas: list[Path], folder: Path, update: int, keep: int) -> None:
    """Write the average of all replicas' last checkpoints; of those at earlier updates, `keep - 1` stay."""
    path = folder / f"checkpoint_1_{update}.pt"
    checkpoints.write_average([replica / checkpoints.LAST for replica in replicas], path)
    with atomic_path(folder / checkpoints.LAST) as temporary:
        shutil.copyfile(path, temporary)
    kept = checkpoints.numbered(folder)
    for superfluous in sorted(kept)[:-keep]:
        kept[superfluous].unlink()
