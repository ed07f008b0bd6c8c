"""A drafter for the verifier of a bundle, trained through the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from commands import ROOT, SMOKE, kill_at, one_line, specmt, tried

from specmt.bundles.bundle import TOKENIZER, load_bundle, write_bundle
from specmt.bundles.weights import read_stored
from specmt.exporting import copy_files
from specmt.training.config import load_config
from specmt.training.drafter_training import DrafterPipeline
from specmt.training.pipeline import Reporter


@pytest.fixture(scope="session")
def converted(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained verifier as a model of fairseq's: a bundle with another kind of vocabulary and no drafter."""
    path, binarised = tmp_path_factory.mktemp("converted") / "bundle", run_folder / "binarise"
    specmt(
        *("convert", run_folder / "verifier" / "verifier.pt", path, "--bpe", "sentencepiece"),
        *("--codes", run_folder / "tokenizer" / TOKENIZER, "--calibration", SMOKE / "valid.de"),
        *("--source-dict", binarised / "dict.de.txt", "--target-dict", binarised / "dict.en.txt"),
    )
    return path


def alone(output: Path, start: Path, *settings: str) -> list[str]:
    overrides = [f"--set={setting}" for setting in (f"output={output}", f"start_from={start}", *settings)]
    return ["train", "--config", "configs/tiny-drafter.yaml", *overrides]


def test_a_converted_verifier_gets_a_drafter_and_stays_as_it_is(converted: Path, tmp_path: Path) -> None:
    corpora = tmp_path / "corpora"
    corpora.mkdir()
    for split in ("train", "valid"):
        for language, ending in (("de", "src"), ("en", "trg")):
            (corpora / f"{split}.{ending}").symlink_to(SMOKE.resolve() / f"{split}.{language}")
    endings = (f"data.folder={corpora}", "data.source_language=src", "data.target_language=trg")
    finished = specmt(*alone(tmp_path / "run", converted, *endings))
    assert f"drafter: anew, no such in {converted}" in finished.stderr.decode()
    bundle = tmp_path / "run" / "bundle"
    assert finished.stdout.decode() == f"{bundle}\n"
    before, after = load_bundle(converted), load_bundle(bundle)
    old, new = (read_stored(one.weights_path, one.architecture) for one in (before, after))
    assert all(np.array_equal(new[name], array) for name, array in old.items())
    assert after.vocabulary().encode("Die Frau liest.") == before.vocabulary().encode("Die Frau liest.")
    assert after.max_source_tokens == before.max_source_tokens
    assert (after.source_language, after.target_language) == ("de", "en"), "whatever the corpora's files are called"
    assert after.training["drafter"]["verifier_of"] == before.digest
    assert "drafter trained as  tiny-drafter\n" in specmt("info", bundle).stdout.decode()
    scores = after.scores["validation"]
    assert scores["spec-strict"]["mean_emitted_tokens"] > 2 and scores["spec-strict"]["bleu"] > 60
    source = (SMOKE / "test.de").read_bytes()
    for engine in ("native", "onnx", "torch"):
        translate = ("translate", "-m", bundle, "--engine", engine)
        greedy = specmt(*translate, "--strategy", "ar", stdin=source).stdout
        for batch_size, draft_length in ((1, 6), (7, 1), (32, 3)):
            strict = ("--strict", "--batch-size", batch_size, "--draft-length", draft_length)
            assert specmt(*translate, *strict, stdin=source).stdout == greedy


def test_a_drafter_alone_goes_on_where_it_was_killed_and_from_an_earlier_one(converted: Path, tmp_path: Path) -> None:
    short = ("drafter.optimizer.max_updates=40", "drafter.optimizer.checkpoint_updates=20")
    short += ("distillation.sample={train: {limit: 200}}",)
    for stage in ("distil", "drafter", "export", "evaluate"):
        kill_at(f"{stage}: begins", alone(tmp_path / "run", converted, *short))
    assert "evaluate: done" in specmt(*alone(tmp_path / "run", converted, *short)).stderr.decode()
    first = tmp_path / "run" / "bundle"
    again = specmt(
        *alone(tmp_path / "more", first, *short, "distillation.beam=3", "export.weight_bits=4")
    ).stderr.decode()
    assert f"drafter: goes on from {first}" in again
    recorded = load_bundle(tmp_path / "more" / "bundle").training["drafter"]["config"]
    assert recorded["start_from"] == str(first) and recorded["distillation"]["beam"] == 3


def test_what_a_bundle_says_of_its_verifier_is_what_a_drafter_alone_depends_on(converted: Path, tmp_path: Path) -> None:
    def fingerprints(activation: str = "relu", length_penalty: float = 1.0) -> list[str]:
        bundle, start = load_bundle(converted), tmp_path / "start"
        write_bundle(
            start,
            languages=("de", "en"),
            architecture=replace(bundle.architecture, activation=activation),
            decoding=replace(bundle.decoding, length_penalty=length_penalty),
            write_files=lambda folder: copy_files(bundle, folder, bundle.files),
            training=bundle.training,
            scores={},
        )
        overrides = [f"output={tmp_path / 'run'}", f"start_from={start}"]
        config = load_config(ROOT / "configs" / "tiny-drafter.yaml", overrides)
        return [stage.fingerprint() for stage in DrafterPipeline(config, Reporter(print, lambda *_: None)).stages]

    as_it_was = fingerprints()
    assert fingerprints() == as_it_was
    assert fingerprints(activation="gelu")[0] != as_it_was[0]
    other = fingerprints(length_penalty=0.5)
    assert other[:2] == as_it_was[:2] and other[2] != as_it_was[2]


def test_a_drafter_for_the_other_direction_is_refused(converted: Path, tmp_path: Path) -> None:
    reversed_ = ("data.source_language=en", "data.target_language=de")
    done = tried(*alone(tmp_path / "run", converted, *reversed_))
    assert one_line(done) == (
        f"specmt: start_from: {converted} translates de to en: exchange data.source_language and data.target_language"
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("drafter.layers=3", "drafter.layers: {} has 2, from which they start"),
        ("drafter.vocabulary_size=4000", "drafter.vocabulary_size: must be less than the 400 of {}"),
        ("start_from=data", "data: no manifest.json; not a model directory"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(setting: str, message: str, converted: Path, tmp_path: Path) -> None:
    done = tried(*alone(tmp_path / "run", converted, setting))
    assert one_line(done) == f"specmt: {message.format(converted)}"
    assert not (tmp_path / "run").exists()
