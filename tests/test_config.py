"""The training configuration: what is accepted, and which key is named when something is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from specmt.errors import ConfigError
from specmt.training.config import CorpusConfig, load_config
from specmt.training.plain_yaml import parse_yaml

SHIPPED = sorted((Path(__file__).parent.parent / "configs").glob("*.yaml"))

SMALLEST = """\
name: smallest
output: runs/smallest
data:
  source_language: de
  target_language: en
  train: [{path: train}]
  valid: [{path: valid}]
verifier:
  optimizer: {max_updates: 10}
drafter:
  optimizer: {max_updates: 10}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "own.yaml"
    path.write_text(SMALLEST, encoding="utf-8")
    return path


def message(path: Path, *overrides: str) -> str:
    """The error that loading gives, without the file's folder."""
    with pytest.raises(ConfigError) as caught:
        load_config(path, list(overrides))
    text = str(caught.value)
    assert "\n" not in text
    return text.removeprefix(f"{path.parent}/")


# -- what loads


def test_the_smallest_file_takes_every_default(path: Path) -> None:
    config = load_config(path, [])
    assert (config.name, config.output) == ("smallest", "runs/smallest")
    assert config.data.train == [CorpusConfig(path="train", repeat=1, limit=0)]
    assert (config.verifier.optimizer.max_updates, config.verifier.optimizer.warmup_updates) == (10, 500)
    assert (config.verifier.width, config.verifier.heads) == (256, 4)
    assert config.tokenizer.vocabulary_size == 8000
    assert (config.export.draft_length, config.export.beta, config.export.tau) == (8, 3, 1.0)
    assert (config.runtime.threads, config.runtime.bf16, config.runtime.seed) == (2, False, 1)


@pytest.mark.parametrize("shipped", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_configuration_loads_under_its_own_name(shipped: Path) -> None:
    config = load_config(shipped, [])
    assert config.name == shipped.stem
    assert config.output == f"runs/{shipped.stem}"


def test_there_are_shipped_configurations() -> None:
    assert {path.name for path in SHIPPED} >= {"first-de-en.yaml", "multi30k-de-en.yaml", "tiny-smoke.yaml"}


@pytest.mark.parametrize("number", ["1e-3", "0.001", "1.0e-3"])
def test_a_learning_rate_may_be_written_in_any_way(path: Path, number: str) -> None:
    """YAML takes 1e-3, without a point, for text."""
    assert load_config(path, [f"verifier.optimizer.learning_rate={number}"]).verifier.optimizer.learning_rate == 0.001


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("start_from=''", "verifier: is missing, and so is start_from, whose verifier would be taken"),
        (
            "tokenizer.vocabulary_size=4000",
            "tokenizer: there is no verifier to train, and that of start_from has its own",
        ),
        ("refinement={optimizer: {max_updates: 1}}", "refinement: there is no verifier to train"),
        (
            "distillation.sample={train: {references: true}}",
            "distillation.sample: train: references: a drafter alone learns from translations only",
        ),
        (
            "distillation={beam: 5, nearest_reference: true}",
            "distillation.nearest_reference: a drafter alone is trained on sources, without references",
        ),
    ],
)
def test_a_drafter_alone_needs_a_verifier_and_no_settings_of_one(path: Path, override: str, expected: str) -> None:
    values = yaml.safe_load(SMALLEST)
    del values["verifier"]
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert load_config(path, ["start_from=bundle"]).verifier is None
    assert message(path, "start_from=bundle", override) == f"own.yaml: {expected}"


def test_loading_changes_nothing_of_the_file(path: Path) -> None:
    load_config(path, ["name=other"])
    assert path.read_text(encoding="utf-8") == SMALLEST


def test_a_loaded_configuration_cannot_be_changed(path: Path) -> None:
    config = load_config(path, [])
    with pytest.raises(AttributeError):
        config.name = "other"  # type: ignore[misc]


# -- what is refused


@pytest.mark.parametrize(
    "key",
    [
        "verifer",
        "verifier.layerz",
        "verifier.optimizer.lr",
        "data.languages",
        "tokenizer.size",
        "export.gamma",
        "runtime.gpu",
        "distillation.beams",
        "drafter.k",
    ],
)
def test_an_unknown_key_is_refused_by_name(path: Path, key: str) -> None:
    assert message(path, f"{key}=1") == f"own.yaml: unknown key {key}"


def test_a_section_that_is_misspelt_is_unknown_rather_than_missing(path: Path) -> None:
    path.write_text(SMALLEST.replace("drafter:", "drafer:"), encoding="utf-8")
    assert message(path) == "own.yaml: unknown key drafer"


def test_an_unknown_key_of_a_corpus_is_named_with_the_corpus_place(path: Path) -> None:
    assert message(path, "data.train=[{path: a}, {path: b, weight: 2}]") == "own.yaml: unknown key data.train.1.weight"


@pytest.mark.parametrize("section", ["distillation", "refinement"])
def test_a_sample_of_a_corpus_that_is_not_there_is_refused(path: Path, section: str) -> None:
    settings = f"{section}={{sample: {{other: {{limit: 5}}}}, optimizer: {{max_updates: 1}}}}"
    if section == "distillation":
        settings = settings.replace(", optimizer: {max_updates: 1}", "")
    assert message(path, settings) == f"own.yaml: {section}.sample: other is not in data.train"
    assert load_config(path, [settings.replace("other", "train")])


@pytest.mark.parametrize(
    "key", ["name", "output", "data", "drafter", "data.train", "data.source_language", "verifier.optimizer"]
)
def test_a_missing_key_is_named(path: Path, key: str) -> None:
    values = yaml.safe_load(SMALLEST)
    *sections, name = key.split(".")
    section = values
    for part in sections:
        section = section[part]
    del section[name]
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    assert message(path) == f"own.yaml: missing key {key}"


@pytest.mark.parametrize(
    ("override", "key", "found"),
    [
        ("verifier.heads=many", "verifier.heads", "'many'"),
        ("verifier.heads=1.5", "verifier.heads", "1.5"),
        ("verifier.heads=", "verifier.heads", "nothing"),
        ("verifier.heads=[4]", "verifier.heads", "[4]"),
        ("verifier.heads=0", "verifier.heads", "0"),
        ("verifier.heads='4'", "verifier.heads", "'4'"),
        ("verifier.heads=true", "verifier.heads", "True"),
        ("verifier.feed_forward_width=40000", "verifier.feed_forward_width", "40000"),
        ("runtime.bf16='yes'", "runtime.bf16", "'yes'"),
        ("runtime.bf16=1", "runtime.bf16", "1"),
        ("export.tau=2000000", "export.tau", "2000000"),
        ("distillation.beam=1001", "distillation.beam", "1001"),
        ("verifier.dropout=1.5", "verifier.dropout", "1.5"),
        ("verifier.dropout=-0.1", "verifier.dropout", "-0.1"),
        ("verifier.dropout=.nan", "verifier.dropout", "nan"),
        ("verifier.optimizer.max_updates=0", "verifier.optimizer.max_updates", "0"),
        ("verifier.optimizer.learning_rate=fast", "verifier.optimizer.learning_rate", "'fast'"),
        ("drafter.optimizer.warmup_updates=-1", "drafter.optimizer.warmup_updates", "-1"),
        ("tokenizer.vocabulary_size=8001", "tokenizer.vocabulary_size", "8001"),
        ("tokenizer.vocabulary_size=8", "tokenizer.vocabulary_size", "8"),
        ("data.max_length_ratio=0.5", "data.max_length_ratio", "0.5"),
        ("data.max_tokens=2000", "data.max_tokens", "2000"),
        ("drafter.draft_length=1100", "drafter.draft_length", "1100"),
        ("verifier.optimizer.learning_rate=-0.001", "verifier.optimizer.learning_rate", "-0.001"),
        ("export.tau=-1", "export.tau", "-1"),
        ("export.tau=.inf", "export.tau", "inf"),
        ("verifier.width=65", "verifier.width", "65"),
        ("verifier.optimizer.learning_rate=.inf", "verifier.optimizer.learning_rate", "inf"),
        ("tokenizer.character_coverage=0.5", "tokenizer.character_coverage", "0.5"),
        ("runtime.seed=4294967296", "runtime.seed", "4294967296"),
        ("data.source_language=pt/br", "data.source_language", "'pt/br'"),
        ("data.source_language=-x", "data.source_language", "'-x'"),
        ("name=''", "name", "''"),
        ("export.beta=0", "export.beta", "0"),
        ("runtime.bf16=maybe", "runtime.bf16", "'maybe'"),
        ("runtime.threads=0", "runtime.threads", "0"),
        ("name=[a]", "name", "['a']"),
        ("data.train=[]", "data.train", "[]"),
        ("data.train=text", "data.train", "'text'"),
        ("data.train=[{path: a, repeat: 0}]", "data.train.0.repeat", "0"),
        ("data=7", "data", "7"),
        ("tokenizer=", "tokenizer", "nothing"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(path: Path, override: str, key: str, found: str) -> None:
    text = message(path, override)
    assert text.startswith(f"own.yaml: {key}: ")
    assert text.endswith(f", found {found}")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["verifier.width=250"], "own.yaml: verifier.width: must be a multiple of verifier.heads"),
        (
            ["export.draft_length=12", "drafter.draft_length=11"],
            "own.yaml: export.draft_length: must not exceed drafter.draft_length",
        ),
        (["data.target_language=de"], "own.yaml: data.target_language: must not be the source language: "),
        (["output=a:b"], "own.yaml: output: fairseq cannot work in a folder with : or $ in its name"),
        (["output=~/runs"], "own.yaml: output: ~ stands for no folder here"),
        (["output="], "own.yaml: output: "),
        (["output=-runs"], "own.yaml: output: ~ stands for no folder here"),
        (["start_from=./runs/../runs/smallest"], "own.yaml: start_from: must not be output, or in it: "),
        (["start_from=runs/smallest/bundle"], "own.yaml: start_from: must not be output, or in it: "),
        (['tokenizer.required_characters="Ł\\n"'], "own.yaml: tokenizer.required_characters: no text has control "),
        (["drafter.layers=2", "verifier.decoder_layers=1"], "own.yaml: drafter.layers: must not exceed "),
        (['output="a\\0b"'], "own.yaml: a path has a NUL"),
        (['start_from="a\\0b"'], "own.yaml: a path has a NUL"),
        (['data.train=[{path: "a\\0b"}]'], "own.yaml: a path has a NUL"),
        (["drafter.vocabulary_size=8000"], "own.yaml: drafter.vocabulary_size: must be less than "),
        (
            ["distillation.nearest_reference=true"],
            "own.yaml: distillation.nearest_reference: must choose among several: ",
        ),
        (["drafter.optimizer.batch_tokens=100"], "own.yaml: drafter.optimizer.batch_tokens: must be more than "),
        (["drafter.optimizer={max_updates: 9, patience: 1, replicas: 2}"], "own.yaml: drafter.optimizer.patience: "),
    ],
)
def test_values_that_contradict_one_another_are_refused(path: Path, overrides: list[str], expected: str) -> None:
    assert message(path, *overrides).startswith(expected)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", "own.yaml: expected sections such as `data:`, found nothing", id="empty"),
        pytest.param(b"text\n", "own.yaml: expected sections such as `data:`, found str", id="text"),
        pytest.param(b"- a\n", "own.yaml: expected sections such as `data:`, found list", id="a list"),
        pytest.param(b"a: [\n", "own.yaml: not YAML: ", id="open"),
        pytest.param(b"a: b: c\n", "own.yaml: not YAML: ", id="nested colon"),
        pytest.param(b"a: !!python/object:os.system {}\n", "own.yaml: not YAML: ", id="a tag that runs code"),
        pytest.param(b"name: 2026-13-45\n", "own.yaml: not YAML: ", id="a date that is none"),
        pytest.param(b"name: \xff\n", "own.yaml: cannot be read: ", id="not UTF-8"),
        pytest.param(b"a: " + b"[" * 20_000, "own.yaml: not YAML: it is nested too deeply", id="deep"),
        pytest.param(b"\x00", "own.yaml: not YAML: ", id="NUL"),
        pytest.param(b"1: 2\n", "own.yaml: ", id="a number as a key"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(path: Path, content: bytes, expected: str) -> None:
    path.write_bytes(content)
    assert message(path).startswith(expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("drafter:", "name: other\ndrafter:", "line 10: the key name stands in line 1 already"),
        ("  target_language: en", "  source_language: en", "line 5: the key source_language stands in line 4 already"),
        ("[{path: train}]", "[{path: train, path: other}]", "line 6: the key path stands in line 6 already"),
    ],
)
def test_a_key_that_stands_twice_is_named_with_its_line(path: Path, old: str, new: str, expected: str) -> None:
    path.write_text(SMALLEST.replace(old, new), encoding="utf-8")
    assert message(path) == f"own.yaml: {expected}"


def test_a_key_may_stand_in_two_sections_and_beside_a_merged_one(path: Path) -> None:
    merged = SMALLEST.replace("drafter:\n", "drafter:\n  <<: &shared {dropout: 0.5, layers: 2}\n  layers: 3\n")
    path.write_text(merged, encoding="utf-8")
    assert (load_config(path, []).drafter.layers, load_config(path, []).drafter.dropout) == (3, 0.5)


def test_what_was_merged_into_may_be_merged_on() -> None:
    deep = "base: &base {updates: 1}\na:\n  b:\n    c: &own {<<: *base, updates: 5}\ntop: {<<: *own, rate: 2}\n"
    values = parse_yaml(deep)
    assert (values["a"]["b"]["c"], values["top"]) == ({"updates": 5}, {"updates": 5, "rate": 2})


@pytest.mark.parametrize(
    ("written", "found"), [("no", "False"), ("12", "12"), ("1.5", "1.5"), ("2026-01-31", "datetime.date(2026, 1, 31)")]
)
def test_text_that_yaml_takes_for_something_else_is_to_be_quoted(path: Path, written: str, found: str) -> None:
    text = message(path, f"data.source_language={written}")
    assert text.startswith("own.yaml: data.source_language: ")
    assert text.endswith(f', found {found}; for YAML this is no text unless it is quoted, as in "no"')
    assert load_config(path, [f'data.source_language="{written}"']).data.source_language == written


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert message(tmp_path / "none.yaml") == "none.yaml: no such file"


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").mkdir()
    assert message(tmp_path / "own.yaml").startswith("own.yaml: cannot be read: ")


# -- overrides


@pytest.mark.parametrize(
    ("override", "section", "field", "value"),
    [
        ("verifier.dropout=0.25", "verifier", "dropout", 0.25),
        ("tokenizer.vocabulary_size=96", "tokenizer", "vocabulary_size", 96),
        ("runtime.bf16=true", "runtime", "bf16", True),
        ("data.folder=/data/a=b", "data", "folder", "/data/a=b"),
        ("data.train=[{path: x, repeat: 2}]", "data", "train", [CorpusConfig(path="x", repeat=2)]),
    ],
)
def test_an_override_takes_the_place_of_the_files_value(
    path: Path, override: str, section: str, field: str, value: object
) -> None:
    assert getattr(getattr(load_config(path, [override]), section), field) == value


def test_the_last_override_of_a_key_holds(path: Path) -> None:
    assert load_config(path, ["name=one", "name=two"]).name == "two"


def test_an_override_leaves_the_rest_of_its_section(path: Path) -> None:
    config = load_config(path, ["verifier.optimizer.batch_tokens=512", "verifier.width=64"])
    assert (config.verifier.optimizer.max_updates, config.verifier.optimizer.batch_tokens) == (10, 512)
    assert (config.verifier.width, config.verifier.encoder_layers) == (64, 6)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("verifier.dropout", "--set verifier.dropout: expected key=value"),
        ("", "--set : expected key=value"),
        ("name.first=x", "--set name.first=x: name is not a section"),
        (
            "data.train.0.repeat=2",
            "--set data.train.0.repeat=2: train is a list, which is set as a whole, as in data.train=[…]",
        ),
        (
            "data.train=[{path: a, path: b}]",
            "--set data.train=[{path: a, path: b}]: the key path stands there twice",
        ),
        ("verifier.dropout=[", "--set verifier.dropout=[: the value is not YAML"),
        ("name=2026-13-45", "--set name=2026-13-45: the value is not YAML"),
    ],
)
def test_an_override_that_cannot_be_applied_is_named(path: Path, override: str, expected: str) -> None:
    assert message(path, override) == expected
