"""Training on a GPU, as far as a machine without one can show it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from pairs import write_tiny_bundle

from specmt.bundles.bundle import WEIGHTS
from specmt.errors import ConfigError, TrainingError
from specmt.fairseq_backend import checkpoints, driver
from specmt.fairseq_backend.compat import batch_by_size
from specmt.fairseq_backend.loss import forward_pass, places
from specmt.training import pair_training, pipeline
from specmt.training.config import RuntimeConfig, load_config

TINY = Path(__file__).parent.parent / "configs" / "tiny-smoke.yaml"


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.usefixtures("a_gpu")
@pytest.mark.parametrize(("device", "used"), [("auto", True), ("cuda", True), ("cpu", False)])
def test_a_gpu_is_used_unless_the_cpu_is_asked_for(device: Literal["auto", "cpu", "cuda"], used: bool) -> None:
    assert driver.on_gpu(RuntimeConfig(device=device)) is used


def test_without_a_gpu_the_cpu_trains_unless_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not driver.on_gpu(RuntimeConfig())
    with pytest.raises(TrainingError, match=r"^runtime\.device: cuda: torch finds no GPU$"):
        driver.on_gpu(RuntimeConfig(device="cuda"))


def test_a_gpu_that_is_not_there_is_missed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = load_config(TINY, ["runtime.device=cuda", f"output={tmp_path / 'run'}"])
    with pytest.raises(TrainingError, match="torch finds no GPU"):
        pair_training.pipeline(config, pipeline.Reporter(print, lambda *_: None)).run()
    assert not (tmp_path / "run").exists()


def test_another_device_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"tiny-smoke\.yaml: runtime\.device: .*'cpu' or 'cuda', found 'tpu'$"):
        load_config(TINY, ["runtime.device=tpu"])


def arguments(device: str) -> list[str]:
    config = load_config(TINY, [f"runtime.device={device}", "runtime.threads=1"])
    assert config.verifier
    return driver.verifier_arguments(config, config.verifier, config.verifier, Path("b"), Path("c"), None)


@pytest.mark.usefixtures("a_gpu")
def test_one_gpu_gets_its_batches_from_processes_of_their_own() -> None:
    on_gpu, on_cpu = arguments("cuda"), arguments("cpu")
    assert "--cpu" in on_cpu
    assert "--cpu" not in on_gpu
    assert on_gpu[on_gpu.index("--distributed-world-size") + 1] == "1"
    assert [found[found.index("--num-workers") + 1] for found in (on_gpu, on_cpu)] == ["1", "0"]


@pytest.mark.parametrize(
    ("gpu", "bf16", "loaded"),
    [
        (True, True, (("cuda", "bf16"), {})),
        (True, False, (("cuda", "fp32"), {})),
        (False, True, ((), {"threads": 1})),
    ],
)
def test_what_translates_for_training_is_where_training_is(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    gpu: bool,
    bf16: bool,
    loaded: tuple[tuple[str, ...], dict[str, int]],
) -> None:
    calls = []
    monkeypatch.setattr(driver, "on_gpu", lambda runtime: gpu)
    monkeypatch.setattr(pipeline, "load_translator", lambda *given, **named: calls.append((given, named)))
    from specmt.training.pair_training import pipeline as pipeline_of

    run = pipeline_of(load_config(TINY, [f"runtime.bf16={bf16}", "runtime.threads=1"]), pipeline.Reporter(print, print))
    run.load_verifier(tmp_path)
    assert calls == [((tmp_path, *loaded[0]), loaded[1])]


@pytest.mark.parametrize(
    ("standing", "gpu", "written"),
    [
        ("nothing", True, ["for a GPU"]),
        ("nothing", False, ["for a CPU"]),
        ("without ranges", True, []),
        ("without ranges", False, ["for a CPU"]),
        ("with ranges", True, []),
        ("with ranges", False, []),
        ("damaged", True, ["for a GPU"]),
        ("damaged", False, ["for a CPU"]),
    ],
)
def test_a_verifier_that_a_gpu_wrote_is_written_anew_for_a_cpu_and_so_is_a_damaged_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, standing: str, gpu: bool, written: list[str]
) -> None:
    path, found = tmp_path / "verifier", []

    def write(path: Path, weights: object, architecture: object, decoding: object, for_cpu: bool) -> None:
        found.append("for a CPU" if for_cpu else "for a GPU")

    if standing != "nothing":
        write_tiny_bundle(path, ranges=standing == "with ranges")
    if standing == "damaged":
        (path / WEIGHTS).write_bytes(b"half")
    monkeypatch.setattr(driver, "on_gpu", lambda runtime: gpu)
    for name in ("load", "bundle_weights", "verifier_architecture"):
        monkeypatch.setattr(checkpoints, name, lambda *_: {"model": {}})
    run = pair_training.PairPipeline(load_config(TINY, []), pipeline.Reporter(print, print))
    monkeypatch.setattr(run, "_write_bundle", write)
    monkeypatch.setattr(run, "load_verifier", lambda bundle: bundle)
    assert run._load_verifier(tmp_path / "verifier.pt", path) == path
    assert found == written


def test_a_refinement_that_was_begun_keeps_what_it_learns_from_whatever_engine_is_there_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = load_config(TINY, [f"output={tmp_path}", "refinement.blend=1"])
    run, done = pair_training.PairPipeline(config, pipeline.Reporter(print, print)), []
    run.folder("refine").mkdir()

    def translate(stage: str, *_: object) -> None:
        done.append("translated")
        if len(done) == 1:
            raise TrainingError("stopped while it translates")

    def train(stage: str, *_: object) -> None:
        done.append("trained")
        if len(done) == 3:
            raise TrainingError("stopped while it trains")

    monkeypatch.setattr(run, "_write_distilled", translate)
    monkeypatch.setattr(run, "_train_verifier_further", train)
    for _ in range(2):
        with pytest.raises(TrainingError, match="stopped"):
            run._refine()
    run._refine()
    assert done == ["translated", "translated", "trained", "trained"]


@pytest.mark.parametrize("gpu", [True, False])
def test_what_a_translator_held_on_a_gpu_is_given_back(monkeypatch: pytest.MonkeyPatch, gpu: bool) -> None:
    emptied: list[bool] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    driver.free_memory(RuntimeConfig())
    assert emptied == [True] * gpu


def test_a_trainer_ends_whatever_still_runs_in_it() -> None:
    code = (
        "import threading, time; from specmt.fairseq_backend import train\n"
        "train.cli_main = threading.Thread(target=time.sleep, args=(600,)).start\n"
        "train.main()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as trainer:
        assert trainer.wait(120) == 0


@pytest.mark.parametrize("max_tokens", [-1, 40, 200])
@pytest.mark.parametrize("max_sentences", [-1, 7])
@pytest.mark.parametrize("multiple", [1, 8])
def test_batches_are_those_of_fairseqs_extension(max_tokens: int, max_sentences: int, multiple: int) -> None:
    from fairseq.data.data_utils_fast import batch_by_size_vec

    generator = np.random.default_rng(1)
    sizes = generator.integers(1, 40, 500)
    indices = generator.permutation(500)
    wanted = batch_by_size_vec(indices, sizes, max_tokens, max_sentences, multiple)
    found = batch_by_size(indices, sizes, max_tokens, max_sentences, multiple)
    assert [batch.tolist() for batch in found] == [list(batch) for batch in wanted]


def test_no_sentences_no_batches() -> None:
    assert batch_by_size(np.zeros(0, np.int64), np.zeros(0, np.int64), 40, -1, 8) == []


def test_places_are_in_order() -> None:
    wanted = torch.rand(7, 9) < 0.4
    assert places(wanted, int(wanted.sum())).tolist() == wanted.flatten().nonzero()[:, 0].tolist()


def test_in_autocast_products_are_bfloat16() -> None:
    matrix = torch.rand(4, 4)
    with forward_pass(matrix.device, bf16=True):
        assert (matrix @ matrix).dtype == torch.bfloat16
    with forward_pass(matrix.device, bf16=False):
        assert (matrix @ matrix).dtype == torch.float32
