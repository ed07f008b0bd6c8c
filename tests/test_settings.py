"""From options to settings: what is given, and what the model has for what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scripted import DEFAULTS, ScriptedEngine, scripted_translator

from specmt.cli_options import StrategyName
from specmt.commands.from_options import settings_of
from specmt.errors import UsageError


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
