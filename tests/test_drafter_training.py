"""What fairseq trains: the drafter is the one that the engine runs, the loss is cross-entropy, checkpoints average."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import ROOT
from pairs import fairseq_verifier, random_weights
from rich.console import Console
from torch.nn import functional
from torch_pair import drafted

from specmt.bundles.architecture import Architecture
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, drafter, driver
from specmt.fairseq_backend.frozen import FrozenTransformer
from specmt.fairseq_backend.loss import CHUNK_POSITIONS, linear_cross_entropy
from specmt.files import write_json
from specmt.text.vocabulary import EOS_ID, PAD_ID
from specmt.training import pipeline, progress
from specmt.training.config import OptimizerConfig, load_config
from specmt.training.pair_training import PairPipeline
from specmt.training.pipeline import Reporter

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

PAIR = Architecture(
    vocabulary_size=48,
    width=16,
    heads=2,
    feed_forward_width=24,
    encoder_layers=1,
    decoder_layers=2,
    drafter_layers=2,
    draft_length=4,
    bigram_rank=6,
    draft_vocabulary_size=32,
)
SOURCES = [[7, 9, 11, 30, EOS_ID], [20, EOS_ID]]
TARGETS = [[12, 13, 14, 15, 16, EOS_ID], [40, 41, EOS_ID]]


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    return random_weights(PAIR, seed=3, projections=0.3)


@pytest.fixture(scope="module")
def model(weights: dict[str, torch.Tensor], tmp_path_factory: pytest.TempPathFactory) -> drafter.DrafterModel:
    verifier, _ = fairseq_verifier(PAIR, weights)
    output_ids = tmp_path_factory.mktemp("drafter") / "output_ids.json"
    write_json(output_ids, weights["drafter.output.ids"].tolist())
    settings = drafter.DrafterModelConfig(
        layers=PAIR.drafter_layers,
        draft_length=PAIR.draft_length,
        bigram_rank=PAIR.bigram_rank,
        output_ids=str(output_ids),
    )
    built = drafter.DrafterModel(settings, FrozenTransformer(verifier)).eval()
    state = {name.removeprefix("drafter."): w for name, w in weights.items() if name.startswith("drafter.")}
    state.pop("output.weight")  # rows of the embedding matrix
    built.load_state_dict(state)
    return built


def sample() -> dict[str, object]:
    """A padded batch as fairseq makes it: sources padded on the left, targets on the right."""
    longest, longest_target = max(map(len, SOURCES)), max(map(len, TARGETS))
    inputs = {
        "src_tokens": torch.tensor([[PAD_ID] * (longest - len(ids)) + ids for ids in SOURCES]),
        "src_lengths": torch.tensor([len(ids) for ids in SOURCES]),
        "prev_output_tokens": torch.tensor(
            [[EOS_ID, *ids[:-1], *[PAD_ID] * (longest_target - len(ids))] for ids in TARGETS]
        ),
    }
    target = torch.tensor([ids + [PAD_ID] * (longest_target - len(ids)) for ids in TARGETS])
    return {"net_input": inputs, "target": target}


@torch.inference_mode()
def test_the_trained_drafter_is_the_one_the_engine_runs(
    weights: dict[str, torch.Tensor], model: drafter.DrafterModel
) -> None:
    starts = torch.tensor([[0, 2, 5], [0, 1, 2]])
    windows = model.windows(sample(), starts, PAD_ID)
    states = model(windows)
    engine = TorchEngine(PAIR, weights)
    for row, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        read = np.array([[EOS_ID, *target[:-1]]])
        for window, start in enumerate(starts[row].tolist()):
            lattice = drafted(engine, source, read, start, PAIR.draft_length)
            expected = states[row, window] @ model.verifier.output.T
            found = torch.from_numpy(lattice.ids[0]).long()
            places = model.output.places[found]
            assert (places >= 0).all()
            np.testing.assert_allclose(lattice.scores[0], expected.gather(1, found), atol=1e-4)
            gate = model.bigram_gate(states[row, window])
            left = torch.cat([torch.tensor(read[:, start])[:, None].expand(1, found.size(1)), found[:-1]])
            bigram = (model.bigram_left(left) * gate[:, None]) @ model.bigram_right(places).transpose(1, 2)
            np.testing.assert_allclose(lattice.transitions[0], bigram, atol=1e-4)


def test_a_window_at_the_end_of_the_longest_target_has_positions(model: drafter.DrafterModel) -> None:
    assert len(model.positions) >= 1024 + len(model.slots.weight)


def test_windows_hold_what_follows_and_nothing_after_the_end(model: drafter.DrafterModel) -> None:
    windows = model.windows(sample(), torch.tensor([[1, 4], [0, 2]]), PAD_ID)
    assert windows.last_ids.tolist() == [[12, 15], [EOS_ID, 41]]
    assert windows.gold.tolist() == [
        [[13, 14, 15, 16], [16, EOS_ID, PAD_ID, PAD_ID]],
        [[40, 41, EOS_ID, PAD_ID], [EOS_ID, PAD_ID, PAD_ID, PAD_ID]],
    ]


@torch.inference_mode()
def test_a_window_sees_neither_later_states_nor_other_windows(model: drafter.DrafterModel) -> None:
    together = model(model.windows(sample(), torch.tensor([[1, 3], [0, 1]]), PAD_ID))
    alone = model(model.windows(sample(), torch.tensor([[1], [0]]), PAD_ID))
    torch.testing.assert_close(together[:, :1], alone)
    changed = sample()
    changed["net_input"]["prev_output_tokens"][0, 3:] = 22  # type: ignore[index]
    torch.testing.assert_close(model(model.windows(changed, torch.tensor([[1], [0]]), PAD_ID)), alone)


@torch.inference_mode()
def test_a_revealed_token_is_seen_by_the_other_slots(model: drafter.DrafterModel) -> None:
    windows = model.windows(sample(), torch.tensor([[0], [0]]), PAD_ID)
    revealed = torch.zeros_like(windows.gold, dtype=torch.bool)
    torch.testing.assert_close(model(windows, revealed), model(windows))
    revealed[0, 0, 1] = True
    difference = (model(windows, revealed) - model(windows)).abs().amax(dim=3)
    assert (difference[0, 0] > 1e-4).all()
    assert (difference[1] == 0).all()


def test_the_glancing_share_falls_in_a_line(model: drafter.DrafterModel) -> None:
    model.cfg.glancing_start, model.cfg.glancing_end, model.cfg.glancing_updates = 0.5, 0.3, 10
    shares = []
    for update in (0, 5, 10, 20):
        model.set_num_updates(update)
        shares.append(model.glancing_share)
    assert shares == pytest.approx([0.5, 0.4, 0.3, 0.3])


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("positions", [3, CHUNK_POSITIONS + 7])
def test_the_chunked_loss_and_its_gradients_are_torchs(positions: int, label_smoothing: float) -> None:
    torch.manual_seed(0)
    features, weight = torch.randn(positions, 8, requires_grad=True), torch.randn(20, 8, requires_grad=True)
    target = torch.randint(20, (positions,))
    expected = functional.cross_entropy(features @ weight.T, target, label_smoothing=label_smoothing, reduction="sum")
    expected_gradients = torch.autograd.grad(expected, [features, weight])
    found = linear_cross_entropy(features, weight, target, label_smoothing)
    torch.testing.assert_close(found, expected)
    for one, other in zip(torch.autograd.grad(found, [features, weight]), expected_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_last_checkpoints_are_chosen_by_update_and_averaged(tmp_path: Path) -> None:
    def save(update: int, name: str) -> None:
        state = {
            "model": {"w": torch.full((2,), float(update)), "version": torch.tensor(3)},
            "optimizer_history": [{"num_updates": 900}, {"num_updates": update}],
            "last_optimizer_state": {},
        }
        torch.save(state, tmp_path / name)

    for epoch, update in ((1, 900), (2, 1000), (2, 1100)):
        save(update, f"checkpoint_{epoch}_{update}.pt")
    save(1150, "checkpoint_last.pt")
    found = [path.name for path in checkpoints.last_checkpoints(tmp_path, 2)]
    assert found == ["checkpoint_2_1100.pt", "checkpoint_last.pt"], "training ended between two intervals"
    save(1100, "checkpoint_last.pt")
    assert checkpoints.last_update(tmp_path) == 1100
    chosen = checkpoints.last_checkpoints(tmp_path, 2)
    assert [path.name for path in chosen] == ["checkpoint_2_1000.pt", "checkpoint_2_1100.pt"]
    checkpoints.write_average(chosen, tmp_path / "average.pt")
    averaged = checkpoints.load(tmp_path / "average.pt")
    assert averaged["model"]["w"].tolist() == [1050.0, 1050.0]
    assert "last_optimizer_state" not in averaged
    checkpoints.write_average(chosen, tmp_path / "average.pt", [0.25, 0.75])
    assert checkpoints.load(tmp_path / "average.pt")["model"]["w"].tolist() == [1075.0, 1075.0]
    chosen[0].write_text("x")
    with pytest.raises(TrainingError, match=r"checkpoint_2_1000\.pt: damaged \(.*--restart"):
        checkpoints.write_average(chosen, tmp_path / "average.pt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TrainingError, match="no checkpoint"):
        checkpoints.last_checkpoints(tmp_path / "empty", 2)
    assert checkpoints.last_update(tmp_path / "empty") == 0
    (tmp_path / "checkpoint_last.pt").write_text("x")
    with pytest.raises(TrainingError, match=r"checkpoint_last\.pt: damaged \(.*--restart"):
        checkpoints.last_update(tmp_path)


def test_a_training_that_patience_ended_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, output, runs = tmp_path / "verifier" / "checkpoints", tmp_path / "verifier" / "verifier.pt", []

    def checkpoint(update: int) -> dict[str, object]:
        return {"model": {"w": torch.full((2,), float(update))}, "optimizer_history": [{"num_updates": update}]}

    def ends_early(*_: object) -> None:
        runs.append(checkpoints.last_update(folder))
        checkpoints.save(checkpoint(runs[-1] + 4), folder / checkpoints.LAST)

    folder.mkdir(parents=True)
    monkeypatch.setattr(driver, "run", ends_early)
    config = load_config(ROOT / "configs" / "tiny-smoke.yaml", [f"output={tmp_path}"])
    pipeline = PairPipeline(config, Reporter(print, lambda *_: None))
    for optimizer, begun in (
        (OptimizerConfig(max_updates=20, patience=2), [0]),
        (OptimizerConfig(max_updates=20, patience=2), [0]),
        (OptimizerConfig(max_updates=4), [0]),
    ):
        pipeline.train("verifier", [], optimizer, output)
        assert (runs, checkpoints.load(output)["model"]["w"].tolist()) == (begun, [4.0, 4.0])
        output.unlink()  # as if it had never been written
    checkpoints.save(checkpoint(2), folder / checkpoints.LAST)  # an earlier one in the place of a damaged one
    pipeline.train("verifier", [], OptimizerConfig(max_updates=20, patience=2), output)
    assert (runs, checkpoints.load(output)["model"]["w"].tolist()) == ([0, 2], [6.0, 6.0])


@pytest.mark.parametrize("line", ["drafter: begins", "what stood there is now out/r[/v]/[bold]12", "x" * 200])
def test_a_line_on_a_terminal_is_as_it_was_announced(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=80, color_system="standard")
    )
    with progress.training_reporter() as reporter:
        reporter.announce(line)
    assert f"{line}\n" in screen.getvalue()


def test_progress_is_read_from_fairseqs_log_and_nothing_else() -> None:
    training = '2026-01-01 | INFO | train_inner | {"num_updates": "25", "loss": "8.5", "wps": "900.1"}'
    validation = '2026-01-01 | INFO | valid | {"valid_loss": "4.25", "valid_num_updates": "50"}'
    assert list(driver.parse_progress(training)) == [driver.Progress(25, 8.5, None, 900.1)]
    assert list(driver.parse_progress(validation)) == [driver.Progress(50, 4.25, 4.25, None)]
    for other in ("Namespace(a={1: 2})", "", '{"train_loss": "3", "train_num_updates": "50"}', "{broken"):
        assert list(driver.parse_progress(other)) == []


def test_a_failed_training_run_is_one_error_that_names_its_log(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"status [1-9].*run\.log"):
        driver.run(["--no-such-option"], 1, tmp_path / "run.log", lambda progress: None)
    assert "RuntimeError" in (tmp_path / "run.log").read_text()


def test_of_a_failed_training_run_the_first_exception_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "Traceback (most recent call last):\\n  File x\\n"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '{trace}ValueError: the cause\\n\\n{trace}StopIteration\\n'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(TrainingError, match=r"status 1: ValueError: the cause \(log: "):
        driver.run([], 1, tmp_path / "run.log", lambda progress: None)


def test_a_checkpoint_that_cannot_be_written_is_said_to_be_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    what = "RuntimeError: [enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"
    python.write_text(f"#!/bin/sh\necho 'Traceback (most recent call last):'\necho '{what}'\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(TrainingError, match=r"^fairseq could not write a checkpoint: is there room .* \(log: "):
        driver.run([], 1, tmp_path / "run.log", lambda progress: None)


@pytest.mark.parametrize("keep", [1, 2, 3, 9])
def test_a_checkpoint_is_kept_where_an_interval_ends_with_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: int
) -> None:
    from specmt.fairseq_backend import train

    settings = SimpleNamespace(save_dir=str(tmp_path), save_interval_updates=2, keep_interval_updates=keep)
    updates = 0

    def fairseqs(settings: object, trainer: object, epochs: object, loss: object) -> None:
        """At the end of an epoch fairseq writes no other."""
        (tmp_path / "checkpoint_last.pt").write_text(str(updates))

    monkeypatch.setattr(train, "_fairseqs_save", fairseqs)
    for epoch, updates in ((1, 2), (2, 5), (2, 6), (3, 7), (4, 8)):
        trainer = SimpleNamespace(get_num_updates=lambda: updates)  # noqa: B023
        train._save_at_interval(settings, trainer, SimpleNamespace(epoch=epoch), None)
    kept = {update: path.read_text() for update, path in checkpoints.numbered(tmp_path).items()}
    assert kept == {update: str(update) for update in (2, 6, 8)[-keep:]}


def test_the_first_weights_have_a_seed_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from specmt.fairseq_backend import train

    from fairseq import models, tasks  # isort: skip

    def first_weights(*options: str) -> list[float]:
        monkeypatch.setattr(sys, "argv", ["train", "data", *options, "--seed", "2"])
        with monkeypatch.context() as patch:
            patch.setattr(tasks.FairseqTask, "build_model", train._fairseqs_build)
            patch.setattr(models, "build_model", lambda settings, task, from_checkpoint: torch.rand(3).tolist())
            train._begin_alike()
            assert sys.argv == ["train", "data", "--seed", "2"]
            torch.manual_seed(2)
            built: list[float] = tasks.FairseqTask(None).build_model(SimpleNamespace())
        return built

    of_seed = {seed: torch.rand(3, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 2)}
    assert (first_weights("--initial-seed", "1"), first_weights()) == (of_seed[1], of_seed[2])


def test_a_trainer_ends_when_the_run_that_started_it_is_gone() -> None:
    code = "import time; from specmt.fairseq_backend import train; "
    code += "train.cli_main = lambda: time.sleep(600); train.main()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as trainer:
        assert trainer.stdin is not None
        trainer.stdin.close()  # as a killed run does
        assert trainer.wait(timeout=60) == 1


def test_positions_are_numbered_as_fairseq_numbers_them() -> None:
    from specmt.engines.torch_layers import position_table

    from fairseq.modules import SinusoidalPositionalEmbedding  # isort: skip

    expected = SinusoidalPositionalEmbedding.get_embedding(PAD_ID + 1 + 30, 16, PAD_ID)[PAD_ID + 1 :]
    torch.testing.assert_close(position_table(30, 16), expected)
    assert math.isclose(float(position_table(1, 16)[0, 0]), math.sin(2.0), abs_tol=1e-6)


@pytest.mark.parametrize(
    ("overrides", "flags", "expected"),
    [
        ([], {"avx2"}, []),
        (["runtime.bf16=true"], {"avx2"}, ["runtime.bf16: this processor has no bfloat16"]),
        (["runtime.bf16=true"], {"amx_bf16"}, []),
        (["runtime.bf16=true"], None, []),
        (["drafter.optimizer.max_updates=20"], {"avx2"}, ["drafter: training ends before the learning rate"]),
    ],
)
def test_settings_that_can_hardly_be_meant_are_told(
    overrides: list[str], flags: set[str] | None, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(pipeline, "cpu_flags", lambda: flags)
    monkeypatch.setattr(PairPipeline, "_complete", lambda *_: None)
    config = load_config(
        ROOT / "configs" / "tiny-smoke.yaml", [f"output={tmp_path}/run", "runtime.device=cpu", *overrides]
    )
    PairPipeline(config, Reporter(told.append, lambda *_: None)).run()
    assert len(told) == len(expected) and all(map(str.startswith, told, expected))
