"""What `specmt tune` found: what it is kept by, and where it is used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scripted import DEFAULTS, ScriptedEngine, scripted_translator

from specmt import tuned
from specmt.engines.native_library import BUILD_VARIABLE
from specmt.errors import InputError
from specmt.settings import BATCH_SIZE, DecodingSettings
from specmt.tuned import Tuned

pytestmark = pytest.mark.usefixtures("own_cache")

KEY = tuned.Key("a model", "onnx-cpu-int8", "a processor", cores=2)


def test_without_tuning_strict_speculates_as_the_engine_says() -> None:
    relaxed = DecodingSettings.from_defaults(DEFAULTS)
    strict = relaxed.strict()
    translator = scripted_translator(ScriptedEngine(speculated_rows=1, strict_draft_length=strict.draft_length - 1))
    expected = replace(strict, draft_length=strict.draft_length - 1, speculated_rows=1)
    assert tuned.fastest(strict, translator) == expected
    assert tuned.fastest(replace(strict, draft_length=1), translator).draft_length == 1, "the model's is shorter"
    assert tuned.fastest(relaxed, translator) == relaxed, "plain steps would be another text"
    tuned.store(tuned.Key.here(translator), Tuned(2, 8))
    assert tuned.fastest(strict, translator) == replace(strict, draft_length=2, speculated_rows=8)


@pytest.mark.parametrize("strict", [True, False])
def test_without_settings_it_is_decoded_as_the_manifest_says_and_as_fast_as_is_known(strict: bool) -> None:
    translator = scripted_translator(ScriptedEngine())
    translator.defaults = replace(DEFAULTS, strict=strict)
    tuned.store(tuned.Key.here(translator), Tuned(2, 8))
    settings = tuned.default_settings(translator)
    assert (settings.beta, settings.draft_length) == ((1, 2) if strict else (DEFAULTS.beta, DEFAULTS.draft_length))
    lines = ["ein hund", "", "zwei hunde"]
    assert list(translator.translate(lines)) == list(translator.translate(lines, settings, BATCH_SIZE))


@pytest.mark.parametrize("row_exact", [True, False])
def test_where_the_shape_of_a_pass_decides_its_bits_no_clock_decides_the_shape(row_exact: bool) -> None:
    strict = DecodingSettings.from_defaults(DEFAULTS).strict()
    translator = scripted_translator(ScriptedEngine(row_exact=row_exact))
    tuned.store(tuned.Key.here(translator), Tuned(2, 8))
    found = replace(strict, draft_length=2, speculated_rows=8)
    assert tuned.fastest(strict, translator) == found
    assert tuned.fastest(strict, translator, reproducible=True) == (found if row_exact else strict)


def test_without_a_drafter_it_is_decoded_by_plain_steps() -> None:
    assert tuned.default_settings(scripted_translator(ScriptedEngine(max_draft_length=0))).strategy == "ar"


def test_a_draft_length_is_kept_by_model_engine_processor_and_cores() -> None:
    tuned.store(KEY, Tuned(5, 8))
    assert tuned.stored(KEY, longest=10) == Tuned(5, 8)
    for changed in ({"model": "b"}, {"engine": "torch-cpu-fp32"}, {"cpu": "c"}, {"cores": 1}):
        assert tuned.stored(replace(KEY, **changed), longest=10) is None
    tuned.store(KEY, Tuned(7, 0))
    assert tuned.stored(KEY, longest=10) == Tuned(7, 0)
    assert tuned.stored(KEY, longest=6) is None, "more than the model drafts"


def test_what_was_found_with_another_build_is_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BUILD_VARIABLE, raising=False)
    translator = scripted_translator(ScriptedEngine(name="native-cpu-int8"))
    tuned.store(tuned.Key.here(translator), Tuned(5, 8))
    monkeypatch.setenv(BUILD_VARIABLE, "any")
    assert tuned.stored(tuned.Key.here(translator), longest=10) is None


def test_what_was_found_on_other_hardware_is_kept_apart() -> None:
    translator = scripted_translator(ScriptedEngine(name="torch-cuda-bf16"))
    translator.engine.hardware = "a GPU"
    tuned.store(tuned.Key.here(translator), Tuned(5, 8))
    translator.engine.hardware = "another GPU"
    assert tuned.stored(tuned.Key.here(translator), longest=10) is None


@pytest.mark.parametrize(
    "damaged",
    ["", "{", "[]", '{"format_version": 2, "draft_length": 5, "rows": 1}', None],
)
def test_what_cannot_be_read_counts_as_not_there(damaged: str | None) -> None:
    path = tuned.store(KEY, Tuned(5, 8))
    kept = json.loads(path.read_text())
    path.write_text(damaged if damaged is not None else json.dumps({**kept, "draft_length": True}))
    assert tuned.stored(KEY, longest=10) is None


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specmt").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(InputError, match="cannot be written"):
        tuned.store(KEY, Tuned(5, 8))


def test_who_has_no_home_can_translate_but_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(tuned, "user_cache_path", nowhere)
    assert tuned.stored(KEY, longest=10) is None
    with pytest.raises(InputError, match="no home directory is known"):
        tuned.store(KEY, Tuned(5, 8))
