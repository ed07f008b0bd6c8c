"""Corpora on their way into training: what is dropped, shared, too small; runs that go on from others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from specmt.bundles.bundle import TOKENIZER
from specmt.errors import InputError, TrainingError
from specmt.fairseq_backend.driver import VerifierStage, verifier_arguments
from specmt.text.vocabulary import UNK_ID, Vocabulary
from specmt.training.config import Config, CorpusConfig, SampleConfig, load_config
from specmt.training.distillation import Decoding
from specmt.training.earlier import Earlier
from specmt.training.pair_training import PairPipeline
from specmt.training.pipeline import Reporter
from specmt.training.training_data import shards_of

GERMAN = "der Hund die Katze das Haus sieht findet sucht heute morgen gern nicht viele große Vögel"
ENGLISH = "the dog a cat one house sees finds seeks today tomorrow gladly never many large birds"


def sentence(words: str, number: int) -> str:
    """Four words, others for each number."""
    return " ".join(words.split()[number * 77 >> shift & 15] for shift in (0, 4, 8, 12))


def write_corpus(path: Path, first: int, count: int) -> None:
    numbers = range(first, first + count)
    path.write_text("".join(f"{sentence(GERMAN, n)}\t{sentence(ENGLISH, n)}\n" for n in numbers), encoding="utf-8")


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """A configuration over `train.tsv` and `valid.tsv`, with overrides."""
    write_corpus(tmp_path / "train.tsv", 0, 200)
    write_corpus(tmp_path / "valid.tsv", 1000, 20)
    (tmp_path / "own.yaml").write_text(
        f"name: own\noutput: {tmp_path}/run\n"
        f"data: {{source_language: de, target_language: en, folder: {tmp_path}, "
        "train: [{path: train.tsv}], valid: [{path: valid.tsv}]}\n"
        "tokenizer: {vocabulary_size: 48}\n"
        "verifier: {optimizer: {max_updates: 1}}\ndrafter: {optimizer: {max_updates: 1}}\n",
        encoding="utf-8",
    )
    return lambda *overrides: load_config(tmp_path / "own.yaml", list(overrides))


def run(config: Config, *stages: str) -> list[str]:
    """What a pipeline announces while it completes some stages."""
    lines: list[str] = []
    pipeline = PairPipeline(config, Reporter(lines.append, lambda *_: None))
    for stage in stages:
        assert pipeline.run(stage) == Path(config.output) / stage
    return lines


def test_what_is_left_of_a_corpus_is_told(configured: Callable[..., Config], tmp_path: Path) -> None:
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as stream:
        stream.write("der Hund\t\n" + f"{'Hund ' * 90}\tdog\n")
    told = run(configured(), "tokenizer", "binarise")
    assert "binarise: train.tsv, 200 of 202 pairs are fit for training" in told
    assert "binarise: valid.tsv, 20 of 20 pairs are fit for training" in told
    assert not any("stand in data.train too" in line for line in told)


def test_validation_pairs_that_are_trained_on_are_told(configured: Callable[..., Config]) -> None:
    own = "data.valid=[{path: train.tsv, skip: 150, limit: 30}]"
    told = run(configured(own, "data.train=[{path: train.tsv, limit: 160}]"), "tokenizer", "binarise")
    assert next(line for line in told if "stand in data.train too" in line).startswith("binarise: ")


def test_skip_parts_one_file_into_training_and_validation(configured: Callable[..., Config]) -> None:
    pipeline = PairPipeline(configured(), Reporter(print, lambda *_: None))
    every = pipeline.data.read(CorpusConfig(path="train.tsv"))
    assert pipeline.data.read(CorpusConfig(path="train.tsv", skip=30)) == every[30:]
    assert pipeline.data.read(CorpusConfig(path="train.tsv", skip=30, limit=20)) == every[30:50]
    assert pipeline.data.read(CorpusConfig(path="train.tsv", skip=30, limit=20), limit=5) == every[30:35]


def test_the_verifier_translates_for_its_drafter_as_configured(configured: Callable[..., Config]) -> None:
    searched = "distillation={batch_size: 7, beam: 4, length_penalty: 0.6, nearest_reference: true}"
    decodings = [
        PairPipeline(config, Reporter(print, lambda *_: None)).distillation
        for config in (configured("distillation={}"), configured(searched))
    ]
    assert decodings == [Decoding(200), Decoding(7, beam=4, length_penalty=0.6, nearest_reference=True)]


def test_a_skip_that_leaves_nothing_is_told(configured: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(configured("data.train=[{path: train.tsv, skip: 200}]"), "tokenizer")
    assert str(caught.value) == f"{tmp_path}/train.tsv: skip: 200 leaves nothing of 200 pairs"


@pytest.mark.parametrize("text", ["", "\t\n", "Hund\t\n\tdog\n"])
def test_validation_without_text_is_told_before_anything_is_made(
    configured: Callable[..., Config], tmp_path: Path, text: str
) -> None:
    (tmp_path / "valid.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"^data\.valid: no text in its files$"):
        run(configured(), "tokenizer")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("split", "name"), [("valid", "valid.tsv"), ("train", "train.tsv")])
def test_a_split_of_which_nothing_is_left_is_named(
    configured: Callable[..., Config], tmp_path: Path, split: str, name: str
) -> None:
    config = configured()
    run(config, "tokenizer")
    (tmp_path / name).write_text("Hund\t\n" * 3, encoding="utf-8")
    with pytest.raises(TrainingError, match=f"data.{split}: no pair is left of it"):
        PairPipeline(config, Reporter(lambda _: None, lambda *_: None)).data.binarise(
            Vocabulary((tmp_path / "run" / "tokenizer" / TOKENIZER).read_bytes()), tmp_path / "run"
        )


@pytest.mark.parametrize(
    ("size", "message"),
    [(4000, r"4000: the text is enough for \d+$"), (16, r"16: the text's characters alone take \d+; raise it")],
)
def test_a_vocabulary_that_the_text_does_not_fit_is_told_what_fits(
    configured: Callable[..., Config], size: int, message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        run(configured(f"tokenizer.vocabulary_size={size}"), "tokenizer")


def test_files_without_text_are_told_apart_from_a_vocabulary_that_is_too_large(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    (tmp_path / "train.tsv").write_text("", encoding="utf-8")
    with pytest.raises(TrainingError, match="no text"):
        run(configured(), "tokenizer")


def test_a_finished_bundles_place_is_looked_at_before_anything_is_trained(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    (tmp_path / "run" / "bundle").mkdir(parents=True)
    (tmp_path / "run" / "bundle" / "thesis.txt").touch()
    with pytest.raises(InputError, match="is no model directory"):
        run(configured(), "tokenizer")


def test_nothing_is_done_anew_for_another_spelling_of_the_same_corpora(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    run(configured(), "tokenizer", "binarise")
    (tmp_path / "elsewhere").symlink_to(tmp_path)
    told = run(configured(f"data.folder={tmp_path}/elsewhere"), "tokenizer", "binarise")
    assert told == ["tokenizer: up to date", "binarise: up to date"]
    told = run(configured("data.valid=[{path: valid.tsv, limit: 5}]"), "tokenizer", "binarise")
    assert told[0] == "tokenizer: up to date"
    assert told[1].startswith("binarise: inputs have changed")


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("tokenizer.vocabulary_size=56", "tokenizer"),
        ("data.train=[{path: train.tsv, limit: 150}]", "tokenizer"),
        ("data.train=[{path: train.tsv, skip: 50}]", "tokenizer"),
        ("data.train=[{path: train.tsv, swapped: true}]", "tokenizer"),
        ("data.train=[{path: train.tsv, repeat: 2}]", "binarise"),
        ("data.max_tokens=90", "binarise"),
        ("data.max_length_ratio=3", "binarise"),
        ("data.valid=[{path: valid.tsv, limit: 10}]", "binarise"),
        ("verifier.dropout=0.2", "verifier"),
        ("runtime.seed=2", "verifier"),
        ("runtime.bf16=true", "verifier"),
        ("refinement.beam=3", "refine"),
        ("refinement.optimizer.replicas=2", "refine"),
        ("distillation.batch_size=9", "distil"),
        ("distillation.sample={train.tsv: {limit: 9}}", "distil"),
        ("drafter.dropout=0.2", "drafter"),
        ("export.beta=2", "export"),
        ("name=other", "export"),
        ("runtime.threads=1", None),
    ],
)
def test_a_change_redoes_what_the_documents_say(
    configured: Callable[..., Config], change: str, first: str | None
) -> None:
    def fingerprints(*overrides: str) -> dict[str, str]:
        config = configured("refinement={optimizer: {max_updates: 1}}", *overrides)
        stages = PairPipeline(config, Reporter(print, lambda *_: None)).stages
        return {stage.name: stage.fingerprint() for stage in stages}

    before, after = fingerprints(), fingerprints(change)
    names = list(before)
    redone = names[names.index(first) :] if first else []
    assert [name for name in names if before[name] != after[name]] == redone


def test_a_stage_that_waits_for_one_whose_corpus_has_changed_says_so(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    run(configured(), "tokenizer")
    with (tmp_path / "train.tsv").open("a", encoding="utf-8") as stream:
        stream.write("der Hund\tthe dog\n")
    with pytest.raises(TrainingError, match=r"binarise needs .* tokenizer, .* or what it read has changed since"):
        run(configured(), "binarise")


def test_translations_of_different_corpora_never_have_one_name() -> None:
    entries = [
        *(CorpusConfig(path="a/b"), CorpusConfig(path="a_b"), CorpusConfig(path="a%2Fb")),
        *(CorpusConfig(path="a_b", skip=1), CorpusConfig(path="a_b", limit=1), CorpusConfig(path="a_b", swapped=True)),
        *(CorpusConfig(path="я" * 60), CorpusConfig(path="я" * 61)),
    ]
    samples = [SampleConfig(), SampleConfig(limit=1)]
    names = [shards_of(entry, sample) for entry in entries for sample in samples]
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)
    assert max(map(len, names)) <= 255


# -- going on from another run


@pytest.fixture
def any_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run before has trained none: these tests are of its tokenizer and its counts."""
    monkeypatch.setattr(Earlier, "check", lambda self, wanted: None)


@pytest.mark.usefixtures("any_verifier")
def test_tokens_of_the_run_before_can_still_be_said(configured: Callable[..., Config], tmp_path: Path) -> None:
    run(configured(), "tokenizer", "binarise")
    before = json.loads((tmp_path / "run" / "binarise" / "target_counts.json").read_text())
    write_corpus(tmp_path / "few.tsv", 5, 2)
    overrides = (f"start_from={tmp_path}/run", f"output={tmp_path}/next", "data.train=[{path: few.tsv}]")
    run(configured(*overrides), "tokenizer", "binarise")
    after = json.loads((tmp_path / "next" / "binarise" / "target_counts.json").read_text())
    assert sum(before) < sum(after) < 1.1 * sum(before)
    assert all(own >= earlier for own, earlier in zip(after, before, strict=True))
    assert before[UNK_ID] == 0 and sum(count > 0 for count in before) > 10


@pytest.mark.usefixtures("any_verifier")
def test_characters_that_the_run_before_did_not_know_are_added(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    run(configured(), "tokenizer", "binarise")
    before = json.loads((tmp_path / "run" / "binarise" / "target_counts.json").read_text())
    decomposed = "fünf A\u0308pfel\tfive Ä € Ä\n"
    (tmp_path / "new.tsv").write_text("fünf Äpfel\tfive Ä € Ä\n" * 2 + decomposed)
    overrides = [f"start_from={tmp_path}/run", f"output={tmp_path}/next", "data.train=[{path: new.tsv}]"]
    overrides += ["tokenizer.required_characters=Ä€", f"tokenizer.vocabulary_size={len(before) + 8}"]
    told = run(configured(*overrides), "tokenizer", "binarise")
    rare = next(line for line in told if "few sources" in line)
    assert "data.train: Ä (3), € (0). Those hardly learned" in rare
    after = json.loads((tmp_path / "next" / "binarise" / "target_counts.json").read_text())
    assert after[len(before) :] == [6, 3, *[0] * 6]
    assert after[UNK_ID] == 0


@pytest.mark.usefixtures("any_verifier")
def test_another_vocabulary_than_the_run_befores_is_refused(configured: Callable[..., Config], tmp_path: Path) -> None:
    run(configured(), "tokenizer")
    overrides = (f"start_from={tmp_path}/run", f"output={tmp_path}/next", "tokenizer.vocabulary_size=128")
    with pytest.raises(TrainingError, match=r"tokenizer.vocabulary_size: .* has 48 pieces"):
        run(configured(*overrides), "tokenizer")


def test_what_a_run_cannot_go_on_from_is_named(configured: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=f"start_from: {tmp_path}/none is neither a bundle nor the folder of a"):
        run(configured(f"start_from={tmp_path}/none"), "tokenizer")


@pytest.mark.parametrize("name", ["tokenizer/tokenizer.model", "binarise/target_counts.json", "verifier/verifier.pt"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 and no more"])
def test_a_damaged_file_of_the_run_before_is_named(
    configured: Callable[..., Config], tmp_path: Path, name: str, content: bytes
) -> None:
    run(configured(), "tokenizer", "binarise")
    (tmp_path / "run" / "verifier").mkdir()
    (tmp_path / "run" / "verifier" / "verifier.pt").touch()
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(TrainingError, match=f"start_from: {tmp_path}/run/{name}: damaged: ."):
        run(configured(f"start_from={tmp_path}/run", f"output={tmp_path}/next"), "tokenizer")


def test_a_refinement_has_a_label_smoothing_of_its_own(configured: Callable[..., Config], tmp_path: Path) -> None:
    config = configured("refinement={optimizer: {max_updates: 1}}", "verifier.label_smoothing=0.2")

    def smoothing(stage: VerifierStage | None) -> str:
        assert stage is not None and config.verifier is not None
        arguments = verifier_arguments(config, config.verifier, stage, tmp_path, tmp_path, None)
        return arguments[arguments.index("--label-smoothing") + 1]

    assert (smoothing(config.verifier), smoothing(config.refinement)) == ("0.2", "0.0")
