"""Local SGD: trainings beside each other, their weights averaged. The trainers are scripted, a model is one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import pytest
import torch

from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, replicas
from specmt.fairseq_backend.driver import Progress
from specmt.training.config import OptimizerConfig, RuntimeConfig

OPTIMIZER = OptimizerConfig(max_updates=5, checkpoint_updates=2, average_checkpoints=2, replicas=3)
INITIAL = 10.0


@dataclass
class Trainers:
    """What the trainers did, and which of them fails."""

    runs: list[tuple[str, str, int]] = field(default_factory=list)
    """Of each: folder's name, seed, last update."""
    logs: list[str] = field(default_factory=list)
    reached: dict[str, float] = field(default_factory=dict)
    """The weight at which each was last."""
    began: dict[str, float] = field(default_factory=dict)
    """The weight at which each was first."""
    threads: set[int] = field(default_factory=set)
    validating: set[str] = field(default_factory=set)
    failing: tuple[str, int] = ("", 0)
    """Whose, and the last update of its round."""


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> Trainers:
    """Trainers that add their seed to the weight with every update, and count updates as their optimizer's state.

    Without weights to begin with they draw some by the seed for that.
    """
    said = Trainers()

    class Scripted:
        def __init__(self, arguments: list[str], threads: int, log: Path) -> None:
            last = dict(pairwise(arguments))  # the last of a name counts
            self.folder, self.seed, self.until = Path(last["--save-dir"]), last["--seed"], int(last["--max-update"])
            self.initial = INITIAL * int(last.get("--initial-seed", self.seed))
            said.threads.add(threads)
            said.logs.append(log.name)
            if "--disable-validation" not in arguments:
                said.validating.add(self.folder.name)

        def __enter__(self) -> Scripted:
            return self

        def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
            pass

        def follow(self, report: Callable[[Progress], None]) -> None:
            if (self.folder.name, self.until) == said.failing:
                raise TrainingError("fairseq ended")
            said.runs.append((self.folder.name, self.seed, self.until))
            self.folder.mkdir(parents=True, exist_ok=True)
            path, reached = self.folder / checkpoints.LAST, checkpoints.last_update(self.folder)
            weight = checkpoints.load(path)["model"]["w"] if reached else torch.tensor([self.initial])
            said.began.setdefault(self.folder.name, float(weight))
            state = {
                "model": {"w": weight + int(self.seed) * (self.until - reached)},
                "optimizer_history": [{"num_updates": self.until}],
                "last_optimizer_state": self.until,
            }
            checkpoints.save(state, path)
            said.reached[self.folder.name] = float(state["model"]["w"])
            report(Progress(self.until, float(self.seed), None, None))

    monkeypatch.setattr(replicas, "Trainer", Scripted)
    return said


def train(folder: Path, optimizer: OptimizerConfig = OPTIMIZER) -> list[Progress]:
    """Train at seeds from 1 on with four cores; what was reported."""
    folder.mkdir(exist_ok=True)
    reported: list[Progress] = []
    arguments = ["data", "--save-dir", "single", "--seed", "1", "--max-update", "5"]
    runtime = RuntimeConfig(threads=4, seed=1)
    replicas.train(arguments, optimizer, runtime, folder, folder / "stage.log", reported.append)
    return reported


def weight(path: Path) -> float:
    """The checkpoint's only number."""
    return float(checkpoints.load(path)["model"]["w"])


def test_weights_are_averaged_at_every_checkpoint_and_training_goes_on_from_there(
    tmp_path: Path, trainers: Trainers
) -> None:
    train(tmp_path)
    rounds = [(f"replica{i}", str(1 + i), until) for until in (2, 4, 5) for i in range(3)]
    assert sorted(trainers.runs, key=lambda run: (run[2], run[0])) == rounds
    assert checkpoints.last_update(tmp_path) == 5
    # The mean of 1, 2 and 3 an update. Without going on from the averages it would be the same, so look at a replica.
    assert weight(tmp_path / checkpoints.LAST) == INITIAL + 5 * 2
    assert trainers.reached["replica2"] == INITIAL + 4 * 2 + 3


def test_all_begin_with_the_same_weights(tmp_path: Path, trainers: Trainers) -> None:
    train(tmp_path)
    assert trainers.began == {f"replica{i}": INITIAL for i in range(3)}


def test_as_many_averages_are_kept_as_the_stage_averages_and_none_has_an_optimizers_state(
    tmp_path: Path, trainers: Trainers
) -> None:
    train(tmp_path)
    assert sorted(checkpoints.numbered(tmp_path)) == [4, 5]
    assert checkpoints.last_checkpoints(tmp_path, 2) == [tmp_path / f"checkpoint_1_{update}.pt" for update in (4, 5)]
    assert "last_optimizer_state" not in checkpoints.load(tmp_path / checkpoints.LAST)
    assert not list(tmp_path.glob("replica*"))


def test_only_the_first_validates_and_is_reported_and_each_has_a_log_and_a_share_of_the_cores(
    tmp_path: Path, trainers: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specmt.training.config.usable_cores", lambda: 4)
    assert {progress.loss for progress in train(tmp_path, replace(OPTIMIZER, replicas=2))} == {1.0}
    assert trainers.validating == {"replica0"}
    assert set(trainers.logs) == {"stage.log", "stage1.log"}
    assert trainers.threads == {2}


@pytest.mark.parametrize("failing", ["replica0", "replica1", "replica2"])
def test_a_run_that_was_stopped_ends_with_the_same_weights(tmp_path: Path, trainers: Trainers, failing: str) -> None:
    train(tmp_path / "whole")
    trainers.failing = (failing, 4)
    with pytest.raises(TrainingError):
        train(tmp_path / "stopped")
    trainers.failing, done = ("", 0), len(trainers.runs)
    train(tmp_path / "stopped")
    assert [run[0] for run in trainers.runs[done:] if run[2] == 4] == [failing]  # the others had done that round
    assert weight(tmp_path / "stopped" / checkpoints.LAST) == weight(tmp_path / "whole" / checkpoints.LAST)


def test_a_run_stopped_between_an_average_and_its_last_file_averages_again(
    tmp_path: Path, trainers: Trainers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("shutil.copyfile", killed)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path)
    assert sorted(checkpoints.numbered(tmp_path)) == [2]
    assert checkpoints.last_update(tmp_path) == 0
    done = len(trainers.runs)
    train(tmp_path)
    assert [until for _, _, until in trainers.runs[done:]] == [4] * 3 + [5] * 3
    assert weight(tmp_path / checkpoints.LAST) == INITIAL + 5 * 2
