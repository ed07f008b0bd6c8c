"""From options to settings: what is given, what the model has for what is not, and what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pairs import DEFAULTS as TINY_DEFAULTS
from pairs import write_tiny_bundle
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, scripted_translator

from specmt.bundles.bundle import load_bundle
from specmt.choices import StrategyName
from specmt.commands.from_options import settings_of
from specmt.errors import UsageError
from specmt.settings import DecodingSettings

SPEC = replace(DecodingSettings.from_defaults(DEFAULTS), guards=False)
STRICT = SPEC.strict()
AR = replace(SPEC, strategy="ar")
BEAM = replace(AR, beam=3)


def beta_and_tau(
    model_is_strict: bool, strict: bool | None = None, beta: int | None = None, tau: float | None = None
) -> tuple[int, float]:
    """What the options come to with a model of beta 3 and tau 1."""
    translator = scripted_translator(ScriptedEngine(), replace(DEFAULTS, strict=model_is_strict))
    settings = settings_of(translator, StrategyName.spec, None, beta, tau, strict)
    assert settings.draft_length == DEFAULTS.draft_length and settings.strategy == "spec"
    return settings.beta, settings.tau


@pytest.mark.parametrize("model_is_strict", [True, False])
def test_strict_or_relaxed_is_as_asked_and_as_the_model_has_it_unasked(model_is_strict: bool) -> None:
    assert beta_and_tau(model_is_strict)[0] == (1 if model_is_strict else 3)
    assert beta_and_tau(model_is_strict, strict=True)[0] == 1
    assert beta_and_tau(model_is_strict, strict=False) == (3, 1.0)


@pytest.mark.parametrize("model_is_strict", [True, False])
def test_beta_or_tau_asks_for_relaxed_decoding(model_is_strict: bool) -> None:
    assert beta_and_tau(model_is_strict, beta=2) == (2, 1.0)
    assert beta_and_tau(model_is_strict, tau=0.5) == (3, 0.5)
    assert beta_and_tau(model_is_strict, beta=1)[0] == 1
    assert beta_and_tau(model_is_strict, beta=1, tau=0.5)[0] == 1
    assert beta_and_tau(model_is_strict, strict=False, beta=5, tau=2.0) == (5, 2.0)


@pytest.mark.parametrize("given", [{"beta": 2}, {"tau": 0.5}])
def test_strict_with_several_candidates_contradicts_itself(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="--strict accepts the verifier's best token only"):
        beta_and_tau(True, strict=True, **given)


def test_relaxed_with_one_candidate_contradicts_itself() -> None:
    with pytest.raises(UsageError, match="give --beta 2 or more"):
        beta_and_tau(True, strict=False, beta=1)
    translator = scripted_translator(ScriptedEngine(), replace(DEFAULTS, beta=1))
    for given in ({"tau": 2.0, "strict": None}, {"tau": None, "strict": False}):
        with pytest.raises(UsageError, match="give --beta 2 or more"):
            settings_of(translator, StrategyName.spec, None, None, given["tau"], given["strict"])


def test_a_pair_that_is_not_strict_says_so_in_a_format_of_its_own(tmp_path: Path) -> None:
    for strict, format_version in ((True, 1), (False, 2)):
        decoding = replace(TINY_DEFAULTS, strict=strict)
        write_tiny_bundle(tmp_path / "model", decoding=decoding)
        manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
        assert (manifest["format_version"], "strict" in manifest["decoding"]) == (format_version, not strict)
        assert load_bundle(tmp_path / "model").decoding == decoding


# -- what they may be


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"strategy": "guess"}, "--strategy: 'guess' is none of spec, replay, ar"),
        ({"beam": 2}, "--beam and --n-best need --strategy ar: speculation and replay keep one hypothesis a sentence"),
        (
            {"n_best": 2},
            "--beam and --n-best need --strategy ar: speculation and replay keep one hypothesis a sentence",
        ),
        ({"strategy": "ar", "n_best": 2}, "--n-best 2 needs --beam 2 or more"),
        ({"strategy": "ar", "beam": 3, "n_best": 5}, "--n-best 5 needs --beam 5 or more"),
        ({"draft_length": 9}, "--draft-length: this model drafts 1 to 8 tokens"),
        ({"draft_length": 0}, "--draft-length: this model drafts 1 to 8 tokens"),
    ],
)
def test_settings_that_contradict_one_another_are_usage_errors(changes: dict[str, object], expected: str) -> None:
    settings = replace(SPEC, **changes)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as caught:
        list(scripted_translator(ScriptedEngine()).translate(SENTENCES, settings, batch_size=4))
    assert str(caught.value) == expected
    with pytest.raises(UsageError):
        settings.checked(ScriptedEngine())


@pytest.mark.parametrize(
    "changes",
    [
        {"beta": 0},
        {"tau": -0.5},
        {"tau": float("nan")},
        {"tau": float("inf")},  # JSON could not say it
        {"tau": 1e39},  # no float32 could
        {"strategy": "ar", "beam": 1001},
        {"strategy": "ar", "beam": 0},
        {"strategy": "ar", "n_best": 0},
        {"length_penalty": float("nan")},
        {"length_penalty": 1000.0},
        {"length_penalty": -1000.0},
    ],
    ids=str,
)
def test_numbers_that_cannot_work_are_usage_errors(changes: dict[str, object]) -> None:
    """A negative tau would empty every candidate, the best one included, and emit `[BLANK]`."""
    with pytest.raises(UsageError):
        list(scripted_translator(ScriptedEngine()).translate(SENTENCES, replace(SPEC, **changes), batch_size=4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        SPEC,
        STRICT,
        AR,
        BEAM,
        replace(BEAM, n_best=2),
        replace(SPEC, draft_length=1),
        replace(SPEC, draft_length=8),
        replace(AR, draft_length=99),
        replace(AR, beam=5, n_best=5),
    ],
)
def test_settings_that_fit_are_given_back(settings: DecodingSettings) -> None:
    assert settings.checked(ScriptedEngine()) == settings


def test_the_defaults_are_the_models_and_strict_is_beta_1() -> None:
    expected = DecodingSettings("spec", 4, 3, 1.0, beam=1, length_penalty=1.0, n_best=1, trace=False, guards=False)
    assert expected == SPEC
    assert replace(expected, beta=1) == STRICT
