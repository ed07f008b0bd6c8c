"""The whole path through the command line on a real, tiny pair: train, translate, explain, eval; and bad input."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import ROOT, SMOKE, kill_at, one_line, specmt, tried
from numpy.typing import NDArray
from safetensors.numpy import load_file

from specmt.bundles.bundle import TOKENIZER, load_bundle
from specmt.bundles.weights import is_read_in_each_pass
from specmt.errors import TrainingError
from specmt.fairseq_backend.checkpoints import last_checkpoints, load, save
from specmt.fairseq_backend.drafter import DraftingConfig, DraftingTask
from specmt.fairseq_backend.frozen import load_frozen
from specmt.text.vocabulary import add_characters
from specmt.training.config import load_config
from specmt.training.earlier import Earlier

STAGES = ("tokenizer", "binarise", "verifier", "refine", "distil", "drafter", "export", "evaluate")


def train_arguments(output: Path, *settings: str) -> list[str]:
    overrides = [f"--set=output={output}", *(f"--set={setting}" for setting in settings)]
    return ["train", "--config", "configs/tiny-smoke.yaml", *overrides]


@pytest.fixture(scope="session")
def bundle(run_folder: Path) -> Path:
    return run_folder / "bundle"


@pytest.fixture(scope="session")
def evaluation(bundle: Path) -> dict[str, Any]:
    done = specmt(
        *("eval", "-m", bundle, "--source", SMOKE / "test.de", "--reference", SMOKE / "test.en"),
        *("--strategies", "ar,beam5,spec-strict,spec", "--repeats", 1, "--json"),
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_the_smoke_pair_has_learned_its_language(evaluation: dict[str, Any]) -> None:
    by_name = {result["strategy"]: result for result in evaluation["results"]}
    assert list(by_name) == ["ar", "beam5", "spec-strict", "spec"]
    assert min(result["bleu"] for result in by_name.values()) > 60
    assert by_name["spec-strict"]["identical_to_ar"] == 1.0
    assert by_name["spec-strict"]["bleu"] == by_name["ar"]["bleu"]
    assert by_name["spec-strict"]["mean_emitted_tokens"] > 2


def test_training_records_what_tune_goes_by(bundle: Path) -> None:
    recorded = json.loads((bundle / "manifest.json").read_text())["scores"]["validation"]["emission"]
    result = json.loads(specmt("tune", bundle, "--rounds", 1, "--format", "json").stdout)
    assert "when it was trained" in result["emission"]["source"]
    assert result["emission"]["by_draft_length"] == recorded["by_draft_length"]
    assert len(recorded["by_draft_length"]) == len(result["timings"])
    assert max(recorded["by_draft_length"]) > 2


def test_a_bundle_that_was_exported_anew_is_moved_aside_when_training_is_asked_for_again(
    run_folder: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / "run"))
    specmt("export", copy / "bundle", "--calibration", SMOKE / "test.de")
    exported = (copy / "bundle" / "ranges.json").read_bytes()
    assert exported != (run_folder / "bundle" / "ranges.json").read_bytes()
    done = specmt(*train_arguments(copy))
    assert b"bundle.old-1" in done.stderr
    assert (copy / "bundle.old-1" / "ranges.json").read_bytes() == exported
    assert (copy / "bundle" / "ranges.json").read_bytes() == (run_folder / "bundle" / "ranges.json").read_bytes()


def integers(bundle: Path) -> dict[str, NDArray[np.int8]]:
    """The matrices that may have 4 bits."""
    tensors = load_file(bundle / "model.safetensors")
    return {name: array for name, array in tensors.items() if array.dtype == np.int8 and is_read_in_each_pass(name)}


def test_a_pair_whose_weights_have_4_bits_translates_as_well(
    run_folder: Path, evaluation: dict[str, Any], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / "run"))
    done = specmt(*train_arguments(copy, "export.weight_bits=4"))
    assert b"drafter: up to date" in done.stderr and b"export: begins" in done.stderr
    trained, exported = copy / "bundle", copy / "exported"
    shutil.copytree(run_folder / "bundle", exported)
    specmt("export", exported, "--calibration", SMOKE / "valid.de", "--weight-bits", 4)
    manifest = json.loads((exported / "manifest.json").read_text())
    assert (manifest["training"]["weight_bits"], manifest["scores"]) == (4, {}), "scores are of the weights before"
    before = integers(run_folder / "bundle")
    assert max(array.max() for array in before.values()) == 127
    for bundle in (trained, exported):
        assert b"4 bits in what each pass reads" in specmt("info", bundle).stdout
        matrices = integers(bundle)
        assert matrices.keys() == before.keys()
        assert {(array.min(), array.max()) for array in matrices.values()} <= {(-8, 7), (-7, 7)}
        files = ("--source", SMOKE / "test.de", "--reference", SMOKE / "test.en", "--repeats", 1, "--json")
        scores = json.loads(specmt("eval", "-m", bundle, *files, "--strategies", "ar,spec-strict").stdout)["results"]
        assert scores[0]["bleu"] > evaluation["results"][0]["bleu"] - 3
        assert scores[1]["identical_to_ar"] == 1.0
        assert scores[1]["mean_emitted_tokens"] > 2


def test_a_damaged_bundle_is_made_again_when_training_is_asked_for_again(run_folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_folder, tmp_path / "run"))
    (copy / "bundle" / "model.safetensors").write_bytes(b"damaged")
    (copy / "export" / "bundle" / "ranges.json").unlink()
    done = specmt(*train_arguments(copy))
    assert b"drafter: up to date" in done.stderr
    for name in ("model.safetensors", "ranges.json"):
        assert (copy / "bundle" / name).read_bytes() == (run_folder / "bundle" / name).read_bytes()


def test_what_lies_beside_a_bundle_stays_when_it_is_exported(bundle: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    (copy / "notes").mkdir()
    (copy / "notes" / "README.md").write_text("mine")
    specmt("export", copy, "--calibration", SMOKE / "test.de")
    assert (copy / "notes" / "README.md").read_text() == "mine"


def test_a_corpus_that_is_not_there_is_named_before_anything_is_trained(tmp_path: Path) -> None:
    done = tried(*train_arguments(tmp_path / "run", "data.valid=[{path: vlaid.tsv}]"))
    assert done.stderr.count(b"\n") == 1 and b"vlaid.tsv: no such file" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("engine", ["native", "onnx", "torch"])
def test_strict_speculation_equals_greedy_byte_for_byte(bundle: Path, engine: str) -> None:
    translate = ("translate", "-m", bundle, "--engine", engine)
    source = (SMOKE / "test.de").read_bytes()
    greedy = specmt(*translate, "--strategy", "ar", "--batch-size", 1, stdin=source).stdout
    assert greedy.count(b"\n") == 200
    for batch_size in (7, 32):
        assert specmt(*translate, "--strategy", "ar", "--batch-size", batch_size, stdin=source).stdout == greedy
    for batch_size, draft_length in ((1, 6), (7, 1), (32, 3), (32, 6)):
        strict = ("--strict", "--batch-size", batch_size, "--draft-length", draft_length)
        assert specmt(*translate, *strict, stdin=source).stdout == greedy


def test_one_line_out_for_each_line_in_blank_for_blank(bundle: Path) -> None:
    sentences = (SMOKE / "test.de").read_text().splitlines()[:3]
    plain = specmt("translate", "-m", bundle, stdin="\n".join(sentences).encode()).stdout.decode().splitlines()
    mixed = f"\n{sentences[0]}\r\n   \n{sentences[1]}\n\n{sentences[2]}"
    translated = specmt("translate", "-m", bundle, stdin=mixed.encode()).stdout.decode()
    assert translated.split("\n") == ["", plain[0], "", plain[1], "", plain[2], ""]


def test_token_budget_changes_no_translation(bundle: Path) -> None:
    source = (SMOKE / "test.de").read_bytes()
    strict = ("translate", "-m", bundle, "--strict", "--draft-length", 4)
    unlimited = specmt(*strict, stdin=source).stdout
    assert specmt(*strict, "--max-batch-tokens", 20, stdin=source).stdout == unlimited


def test_files_give_what_streams_give(bundle: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    done = specmt("translate", "-m", bundle, "-i", SMOKE / "test.de", "-o", target)
    assert done.stdout == b""
    assert target.read_bytes() == specmt("translate", "-m", bundle, stdin=(SMOKE / "test.de").read_bytes()).stdout


def test_jsonl_tells_score_and_iterations(bundle: Path) -> None:
    sentence = (SMOKE / "test.de").read_text().splitlines()[0]
    done = specmt("translate", "-m", bundle, "--format", "jsonl", stdin=f"{sentence}\n\n".encode())
    full, empty = (json.loads(line) for line in done.stdout.splitlines())
    assert full["source"] == sentence
    assert full["translation"] == specmt("translate", "-m", bundle, stdin=sentence.encode()).stdout.decode().strip()
    assert full["iterations"] == len(full["emitted_tokens"]) and full["score"] < 0
    assert empty == {"source": "", "translation": "", "score": 0.0, "iterations": 0, "emitted_tokens": []}


def test_n_best_lists_the_beam_best_first(bundle: Path) -> None:
    source = "".join((SMOKE / "test.de").read_text().splitlines(keepends=True)[:2])
    beam = ("translate", "-m", bundle, "--strategy", "ar", "--beam", 4)
    best = specmt(*beam, stdin=source.encode()).stdout.decode().splitlines()
    lists = specmt(*beam, "--n-best", 3, stdin=source.encode()).stdout.decode().splitlines()
    assert len(lists) == 6
    assert [lists[0], lists[3]] == best
    record = json.loads(specmt(*beam, "--n-best", 3, "--format", "jsonl", stdin=source.encode()).stdout.splitlines()[0])
    assert [entry["translation"] for entry in record["n_best"]] == lists[:3]
    assert [entry["score"] for entry in record["n_best"]] == sorted(
        (e["score"] for e in record["n_best"]), reverse=True
    )


def test_explain_shows_the_candidate_table_with_blanks(bundle: Path) -> None:
    sentence = (SMOKE / "test.de").read_text().splitlines()[0]
    arguments = ("explain", sentence, "-m", bundle, "--beta", 3, "--tau", 0.5)
    assert "[BLANK]" in specmt(*arguments).stdout.decode()
    explained = json.loads(specmt(*arguments, "--format", "json").stdout)
    assert explained["source"] == sentence
    assert "[BLANK]" in json.dumps(explained) and "[MASK]" in json.dumps(explained)


def test_eval_takes_other_settings_than_the_models(bundle: Path) -> None:
    files = ("--source", SMOKE / "test.de", "--reference", SMOKE / "test.en")
    options = ("--draft-length", 2, "--beta", 4, "--tau", 0.5, "--strategies", "spec-strict,spec", "--repeats", 1)
    done = specmt("eval", "-m", bundle, *files, *options, "--json")
    _, strict, relaxed = json.loads(done.stdout)["results"]
    assert strict["settings"] == {"draft_length": 2, "beta": 1, "reproducible": False}
    assert relaxed["settings"] == {**strict["settings"], "beta": 4, "tau": 0.5}


def test_evaluation_object_has_what_it_promises(evaluation: dict[str, Any], bundle: Path, tmp_path: Path) -> None:
    assert set(evaluation) >= {"machine", "results"}
    ar = evaluation["results"][0]
    assert ar["speedup_vs_ar"] == 1.0 and ar["mean_emitted_tokens"] == 1.0 and ar["identical_to_ar"] == 1.0
    assert "tok:13a" in ar["bleu_signature"]
    assert list(ar["latency_ms"]) == ["mean", "p50", "p95", "p99"]
    for name in ("few.de", "few.en"):
        lines = (SMOKE / f"test{Path(name).suffix}").read_text().splitlines(keepends=True)[:10]
        (tmp_path / name).write_text("".join(lines))
    figure = tmp_path / "plot.svg"
    files = ("--source", tmp_path / "few.de", "--reference", tmp_path / "few.en")
    specmt("eval", "-m", bundle, *files, "--repeats", 1, "--plot", figure)
    assert figure.read_text().lstrip().startswith("<?xml")


def test_a_finished_run_is_skipped_and_a_changed_setting_redoes_only_what_follows(
    run_folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run_folder, copy)
    again = specmt(*train_arguments(copy)).stderr.decode()
    assert [line.split(" ", 2)[2] for line in again.splitlines()] == [f"{stage}: up to date" for stage in STAGES]
    shutil.rmtree(copy / "bundle")
    restored = specmt(*train_arguments(copy)).stderr.decode()
    assert "export: up to date" in restored and "evaluate: done" in restored
    assert (copy / "bundle" / "manifest.json").is_file()
    average = copy / "drafter" / "drafter.pt"
    weights = load(average)["model"]
    average.unlink()  # as if killed before it was written
    assert "drafter: done" in specmt(*train_arguments(copy)).stderr.decode()
    torch.testing.assert_close(load(average)["model"], weights, rtol=0, atol=0)
    changed = specmt(*train_arguments(copy, "export.beta=2")).stderr.decode()
    assert "drafter: up to date" in changed and "export: done" in changed
    assert json.loads((copy / "bundle" / "manifest.json").read_text())["decoding"]["beta"] == 2


def test_a_refinement_is_blended_with_what_was_before(run_folder: Path) -> None:
    refined = last_checkpoints(run_folder / "refine" / "checkpoints", 1)
    before, after, blended = (
        load(path)["model"]["decoder.embed_tokens.weight"]
        for path in (run_folder / "verifier" / "verifier.pt", *refined, run_folder / "refine" / "verifier.pt")
    )
    torch.testing.assert_close(blended, 0.25 * before + 0.75 * after)
    assert not torch.allclose(before, after, atol=1e-3)


def test_a_drafter_finds_the_dictionaries_of_a_run_that_was_moved(run_folder: Path, tmp_path: Path) -> None:
    verifier = load(run_folder / "refine" / "verifier.pt")
    verifier["cfg"]["task"]["data"] = str(tmp_path / "where it was trained")
    save(verifier, tmp_path / "verifier.pt")
    with pytest.raises(FileNotFoundError, match="where it was trained"):
        load_frozen(tmp_path / "verifier.pt")
    settings = DraftingConfig(data=str(run_folder / "distil"), verifier_checkpoint=str(tmp_path / "verifier.pt"))
    assert (
        DraftingTask(settings, None, None).load_verifier().width
        == load_bundle(run_folder / "bundle").architecture.width
    )


@pytest.mark.slow
def test_a_bundle_can_be_trained_further(bundle: Path, tmp_path: Path) -> None:
    """With so few updates, nothing but what the bundle had learned can translate."""
    few = [
        f"{part}.optimizer.{name}={value}"
        for part in ("verifier", "refinement", "drafter")
        for name, value in {"max_updates": 4, "warmup_updates": 1, "checkpoint_updates": 2}.items()
    ]
    more = ("tokenizer.required_characters=€", "tokenizer.vocabulary_size=408")
    more += ("refinement.optimizer.replicas=1", "refinement.sample={train: {references: true}}")
    more += ("distillation.sample={train: {limit: 200}}",)
    arguments = train_arguments(tmp_path / "run", f"start_from={bundle}", *few, *more)
    kill_at("verifier: begins", arguments)
    kill_at(f"drafter: goes on from {bundle}", arguments)
    assert f"drafter: goes on from {bundle}" in specmt(*arguments).stderr.decode()
    scores = json.loads((tmp_path / "run" / "evaluate" / "evaluation.json").read_text())
    by_name = {result["strategy"]: result for result in scores["results"]}
    assert by_name["ar"]["bleu"] > 60 and by_name["spec-strict"]["mean_emitted_tokens"] > 2
    known = [load_bundle(path).vocabulary().unknown_symbols("a€b") for path in (bundle, tmp_path / "run" / "bundle")]
    assert known == [["€"], []]
    given, refined = (tmp_path / "run" / stage / "train.de-en.en.bin" for stage in ("binarise", "refine"))
    assert given.read_bytes() == refined.read_bytes(), "references"
    other = ("data.source_language=en", "data.target_language=de")
    told = specmt(*train_arguments(tmp_path / "other", f"start_from={bundle}", *more, *other), "--stage=tokenizer")
    assert f"start_from: {bundle} translates de to en" in told.stderr.decode()
    shutil.copytree(bundle, tmp_path / "calibrated")
    specmt("export", tmp_path / "calibrated", "--calibration", SMOKE / "test.de")
    again = specmt(*arguments, f"--set=start_from={tmp_path / 'calibrated'}").stderr.decode()
    assert "drafter: up to date" in again, "another calibration changes no weight"


def test_a_run_is_gone_on_from_before_its_refinement_with_its_drafter(run_folder: Path, tmp_path: Path) -> None:
    earlier, config = Earlier(run_folder), load_config(ROOT / "configs" / "tiny-smoke.yaml", [])
    earlier.check(config.verifier)
    size = config.tokenizer.vocabulary_size
    assert earlier.verifier(tmp_path, size) == run_folder / "verifier" / "verifier.pt"
    assert earlier.drafter(tmp_path, config.drafter, size) == run_folder / "drafter" / "drafter.pt"
    assert earlier.drafter(tmp_path, replace(config.drafter, vocabulary_size=0), size) is None
    undrafted = Earlier(run_folder / "distil" / "verifier")
    undrafted.check(config.verifier)
    assert undrafted.drafter(tmp_path, config.drafter, size) is None
    grown = load(earlier.verifier(tmp_path, size + 8))["model"]["encoder.embed_tokens.weight"]
    assert len(grown) == size + 8
    with pytest.raises(TrainingError, match=r"verifier.heads: .* has 4"):
        earlier.check(replace(config.verifier, heads=2))
    with pytest.raises(TrainingError, match="is neither a bundle nor the folder of a finished run"):
        Earlier(run_folder / "verifier").check(config.verifier)
    mixed = tmp_path / "mixed"
    (mixed / "tokenizer").mkdir(parents=True)
    for stage in ("binarise", "verifier", "drafter"):
        (mixed / stage).symlink_to(run_folder / stage)
    model = (run_folder / "tokenizer" / TOKENIZER).read_bytes()
    (mixed / "tokenizer" / TOKENIZER).write_bytes(add_characters(model, "€"))
    assert Earlier(mixed).drafter(tmp_path, config.drafter, size + 8) is None
    with pytest.raises(TrainingError, match="a tokenizer and a verifier that were not made together"):
        Earlier(mixed).check(config.verifier)
    (mixed / "tokenizer" / TOKENIZER).write_bytes(model)
    with pytest.raises(TrainingError, match="tokenizer has changed since binarise: finish that run first"):
        Earlier(mixed).check(config.verifier)


@pytest.mark.slow
def test_a_run_killed_in_every_stage_ends_with_a_working_bundle(tmp_path: Path) -> None:
    output = tmp_path / "run"
    short = ("verifier.optimizer.max_updates=60", "verifier.optimizer.checkpoint_updates=20")
    short += ("drafter.optimizer.max_updates=40", "drafter.optimizer.checkpoint_updates=20")
    for stage in STAGES:
        # In the verifier's, after a checkpoint; in the others, as soon as they begin.
        moment = f"{stage}: update 40/" if stage == "verifier" else f"{stage}: begins"
        kill_at(moment, train_arguments(output, *short))
    finished = specmt(*train_arguments(output, *short)).stderr.decode()
    assert "verifier: up to date" in finished and "evaluate: done" in finished
    log = (output / "logs" / "verifier.log").read_text()
    assert "Loaded checkpoint" in log, "the verifier began anew instead of resuming"
    assert specmt("translate", "-m", output / "bundle", stdin=b"Die Frau liest.\n").stdout.count(b"\n") == 1


def test_bad_input_is_one_line_that_says_what_and_where(bundle: Path, tmp_path: Path) -> None:
    missing = tried("translate", "-m", bundle, "-i", tmp_path / "none.de")
    assert missing.returncode == 1 and "none.de: no such file" in one_line(missing)
    no_model = tried("translate", "-m", tmp_path / "none")
    assert no_model.returncode == 1 and "none: no such model directory" in one_line(no_model)
    uneven = tmp_path / "short.en"
    uneven.write_text("One line.\n")
    unequal = tried("eval", "-m", bundle, "--source", SMOKE / "test.de", "--reference", uneven)
    assert unequal.returncode == 1 and "200 lines" in one_line(unequal) and "has 1" in one_line(unequal)


def test_invalid_utf8_keeps_the_lines_before_it_and_names_the_line(bundle: Path, tmp_path: Path) -> None:
    good = (SMOKE / "test.de").read_bytes().splitlines(keepends=True)[0]
    done = tried("translate", "-m", bundle, stdin=good + b"M\xfctter\n")
    assert done.returncode == 1
    assert done.stdout == specmt("translate", "-m", bundle, stdin=good).stdout
    assert "line 2" in done.stderr.decode() and len(done.stderr.splitlines()) == 1
    source, target = tmp_path / "bad.de", tmp_path / "out.en"
    source.write_bytes(good + b"M\xfctter\n")
    assert tried("translate", "-m", bundle, "-i", source, "-o", target).returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.de"], "something half-written was left"


def test_a_bad_configuration_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    unknown = tried(*train_arguments(tmp_path, "verifier.layerz=3"))
    assert unknown.returncode == 1 and "unknown key verifier.layerz" in one_line(unknown)
    wrong = tried(*train_arguments(tmp_path, "verifier.heads=many"))
    assert wrong.returncode == 1 and "verifier.heads" in one_line(wrong) and "'many'" in one_line(wrong)


def test_a_flipped_byte_in_a_bundle_is_one_line(bundle: Path, tmp_path: Path) -> None:
    for name in ("model.safetensors", "tokenizer.model", "manifest.json"):
        copy = tmp_path / name
        shutil.copytree(bundle, copy)
        data = bytearray((copy / name).read_bytes())
        data[len(data) // 2] ^= 0xFF
        (copy / name).write_bytes(data)
        done = tried("translate", "-m", copy, stdin=b"Die Frau liest.\n")
        assert done.returncode == 1
        assert name in one_line(done)


def test_contradicting_options_are_usage_errors(bundle: Path) -> None:
    done = tried("translate", "-m", bundle, "--beam", 4)
    assert done.returncode == 2 and "--strategy ar" in one_line(done)
