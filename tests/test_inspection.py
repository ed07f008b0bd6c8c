"""`info` and `doctor`: what they say of a bundle and of an installation, and their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import DEFAULTS, TINY, random_weights, write_tiny_bundle
from typer.testing import CliRunner

from specmt import BUNDLED_MODEL, diagnosis
from specmt.bundles.bundle import GRAPHS, RANGES, load_bundle
from specmt.bundles.inspection import as_text, describe
from specmt.bundles.tensors import expected_shapes
from specmt.cli import app
from specmt.engines import native_library
from specmt.engines.native_library import LEVELS
from specmt.errors import BundleError, UsageError
from specmt.loading import engine_for, load_translator
from specmt.text.vocabulary import MASK_ID


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_tiny_bundle(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_info_says_what_the_manifest_says_and_adds_sizes(bundle: Path) -> None:
    described = describe(bundle)
    manifest = json.loads((bundle / "manifest.json").read_text())
    for name in ("source_language", "target_language", "scores", "training", "format_version"):
        assert described[name] == manifest[name]
    assert described["architecture"].items() >= manifest["architecture"].items()
    assert described["weight_bits"] == 8
    assert described["decoding"] == {**manifest["decoding"], "strict": True}
    sizes = {file.name: file.stat().st_size for file in bundle.iterdir()}
    assert {name: file["bytes"] for name, file in described["files"].items()} == sizes
    assert described["bytes"] == sum(sizes.values())
    assert (described["strategies"], described["engines"]) == (["spec", "replay", "ar"], ["torch"])
    assert described["files"]["model.safetensors"]["sha256"] == manifest["files"]["model.safetensors"]


def test_info_for_a_person_is_a_line_a_fact(bundle: Path) -> None:
    text = as_text(describe(bundle))
    for fact in ("de → en", "all digests match", "1 + 1 layers of width 16, pre-norm", "bleu 1.50", "draft_length 3"):
        assert fact in text


def test_info_names_learned_positions_for_they_bound_every_line(tmp_path: Path) -> None:
    write_tiny_bundle(tmp_path / "model", architecture=replace(TINY, source_positions=9, target_positions=7))
    assert "positions learned: 9 source, 7 target" in as_text(describe(tmp_path / "model"))


def test_info_of_a_model_without_a_drafter_names_what_it_decodes_with(tmp_path: Path) -> None:
    """The sizes of no drafter, as a converted model has them."""
    lone = replace(TINY, drafter_layers=0, draft_length=0, bigram_rank=0)
    verifier = {name: part for name, part in random_weights(TINY).items() if name in expected_shapes(lone)}
    write_tiny_bundle(tmp_path / "model", verifier, lone, replace(DEFAULTS, draft_length=1))
    described = describe(tmp_path / "model")
    assert described["strategies"] == ["replay", "ar"]
    assert "none: decodes with ar or replay\n" in as_text(described)


def test_info_of_the_bundled_model_in_both_forms() -> None:
    text = CliRunner().invoke(app, ["info"])
    assert text.exit_code == 0 and "engines" in text.output and "native, onnx, torch" in text.output
    found = json.loads(CliRunner().invoke(app, ["info", "--format", "json"]).output)
    assert found["path"] == str(BUNDLED_MODEL) and found["digests"] == "match"


def test_info_of_an_altered_bundle_is_one_line(bundle: Path) -> None:
    (bundle / "tokenizer.model").write_bytes(b"x")
    done = CliRunner().invoke(app, ["info", str(bundle)])
    assert isinstance(done.exception, BundleError) and "SHA-256 differs" in str(done.exception)


def test_doctor_translates_and_says_which_engine_and_why() -> None:
    done = CliRunner().invoke(app, ["doctor", "--format", "json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    engine = "native" if native_library.is_fast() else "onnx"
    assert found["ok"] is True and found["engine"] == engine
    assert found["self_test"]["engine"] == f"{engine}-cpu-int8"
    assert set(found["self_test"]["sentence_ms"]) == {"ar", "spec-strict", "spec"}
    assert all(0 < value < 60_000 for value in found["self_test"]["sentence_ms"].values())
    assert found["packages"]["onnxruntime"] and set(found["cpu_features"]) == set(diagnosis.CPU_FEATURES)


@pytest.mark.parametrize(
    ("levels", "engine"),
    [
        (LEVELS, "native"),
        (("any", "avx512"), "native"),
        (LEVELS[:3], "native"),
        (LEVELS[:2], "native"),
        (("any",), "onnx"),
    ],
)
def test_the_native_engine_is_taken_where_it_is_fast(
    levels: tuple[str, ...], engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "runnable", lambda: levels)
    whole = load_bundle(BUNDLED_MODEL)
    assert engine_for(whole)[0] == engine
    assert engine_for(replace(whole, files={name: "" for name in whole.files if name not in GRAPHS}))[0] == "native"
    assert engine_for(replace(whole, files={name: "" for name in whole.files if name != RANGES}))[0] == "onnx"
    assert engine_for(whole, precision="bf16")[0] == "torch"


@pytest.mark.parametrize("wrong", [{"engine": "tensor"}, {"precision": "fp8"}, {"threads": 0}], ids=str)
def test_what_there_is_not_cannot_be_loaded(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=str(*wrong.values())):
        load_translator(BUNDLED_MODEL, **wrong)


def test_doctor_for_a_person_ends_with_its_verdict() -> None:
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert "self-test: passed" in done.output and done.output.endswith("all is well\n")


def test_doctor_takes_torch_where_there_are_no_graphs(bundle: Path) -> None:
    found = diagnosis.diagnose(bundle)
    assert found.engine == "torch"
    assert found.reason == (
        "the model has neither ranges (native engine) nor graphs (onnx engine); "
        f"`specmt export {bundle} --calibration TEXT` writes ranges and graphs"
    )
    assert found.self_test.engine in {"torch-cpu-fp32", "none"}


@pytest.mark.parametrize("language", ["de", "ru"])
def test_doctor_tests_a_model_with_its_own_words(language: str, tmp_path: Path) -> None:
    """Guards would copy German sentences that a model for another language does not know: nothing would be decoded."""
    write_tiny_bundle(tmp_path / "model", source_language=language)
    translator = load_translator(tmp_path / "model")
    sentences = diagnosis._sentences(translator)
    assert (sentences == diagnosis._GERMAN) == (language == "de")
    if language != "de":
        known = {translator.vocabulary.source_piece(id_) for id_ in range(MASK_ID + 1, TINY.vocabulary_size)}
        assert all(word in {piece.strip("▁") for piece in known} for line in sentences for word in line.split())
    test = diagnosis.diagnose(tmp_path / "model").self_test
    assert test.ok, test.problem
    assert set(test.sentence_ms) == {"ar", "spec-strict", "spec"}


def test_a_self_test_that_decodes_nothing_fails(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "_sentences", lambda translator: [" "])
    test = diagnosis.diagnose(bundle).self_test
    assert (test.ok, test.problem) == (False, "a sentence was not decoded: no pass ran")


@pytest.mark.parametrize("broken", ["missing", "altered"])
def test_doctor_fails_where_translation_fails(broken: str, bundle: Path) -> None:
    if broken == "altered":
        (bundle / "model.safetensors").write_bytes(b"junk")
    done = CliRunner().invoke(app, ["doctor", "-m", str(bundle if broken == "altered" else bundle / "none")])
    assert done.exit_code == 1
    assert "self-test: FAILED: " in done.output and done.output.endswith("something is broken\n")


def test_doctor_names_a_required_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "package_version", lambda name: None if name == "safetensors" else "1")
    found = diagnosis.diagnose(BUNDLED_MODEL)
    assert found.problems == ("safetensors is not installed: pip install safetensors",)
    assert not found.ok


@pytest.mark.parametrize("package", ["numpy", "sentencepiece", "sentencex", "safetensors"])
def test_doctor_runs_without_what_it_looks_for(package: str) -> None:
    hidden = f"import sys; sys.modules[{package!r}] = None; sys.argv = ['specmt', 'doctor']"
    code = f"{hidden}; from specmt.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"problem: {package} cannot be imported: import of {package} halted" in done.stdout
    assert "something is broken" in done.stdout


def test_cpu_features_are_unknown_where_the_system_does_not_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError

    monkeypatch.setattr(Path, "read_text", refuse)
    assert set(diagnosis._cpu_features().values()) == {None}
