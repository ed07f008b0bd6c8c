"""From options to a translator and its settings, for the commands that translate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmt.choices import StrategyName
from specmt.engines.names import EngineName, Precision
from specmt.errors import UsageError

if TYPE_CHECKING:
    from specmt.settings import DecodingSettings
    from specmt.translator import Translator


def load(model: Path, engine: EngineName, device: str, precision: Precision, threads: int) -> Translator:
    """See `load_translator`."""
    from specmt.loading import load_translator

    return load_translator(model, device, precision.value, threads, engine.value)


def drafts_asked(strict: bool | None, *given: float | None) -> bool:
    """Whether something was given that is for drafts alone."""
    return strict is False or any(value is not None for value in given)


def settings_of(
    translator: Translator,
    strategy: StrategyName,
    draft_length: int | None,
    beta: int | None,
    tau: float | None,
    strict: bool | None,
    beam: int = 1,
    length_penalty: float | None = None,
    n_best: int = 1,
) -> DecodingSettings:
    """What was given, and the model's defaults for what was not (None). A beta or tau asks for relaxed decoding.

    Raises:
        UsageError: settings that contradict one another or that the engine cannot do.
    """
    from specmt.settings import DecodingSettings

    if strict and ((beta or 1) > 1 or tau is not None):
        raise UsageError("--strict accepts the verifier's best token only: leave out --beta and --tau")
    if strategy is not StrategyName.spec and drafts_asked(strict, draft_length, beta, tau):
        raise UsageError("--relaxed, --draft-length, --beta and --tau need --strategy spec: nothing else drafts")
    settings = DecodingSettings.from_defaults(translator.defaults)
    if strict is not None or beta is not None or tau is not None:
        settings = DecodingSettings.relaxed(translator.defaults)
        settings = settings.strict() if strict else settings
    given: dict[str, Any] = {
        "draft_length": draft_length,
        "beta": beta,
        "tau": tau,
        "length_penalty": length_penalty,
    }
    settings = replace(settings, **{key: value for key, value in given.items() if value is not None})
    if settings.beta == 1 and (strict is False or (beta is None and tau is not None)):
        raise UsageError("relaxed decoding needs candidates to choose from: give --beta 2 or more")
    return replace(settings, strategy=strategy.value, beam=beam, n_best=n_best).checked(translator.engine)


def with_replay(
    settings: DecodingSettings, window: int | None, group: int | None, reproducible: bool = False, by_line: bool = False
) -> DecodingSettings:
    """`settings` with what was given of `--replay-window`, `--replay-group` and `--reproducible`.

    Args:
        by_line: whether lines can ask to be reproducible, each for itself.

    Raises:
        UsageError: a window or group, and nothing that is decoded reproducibly.
    """
    if (window or group) and not (settings.strategy == "replay" or reproducible or by_line):
        raise UsageError("--replay-window and --replay-group need --strategy replay, or translate's --reproducible")
    return replace(
        settings,
        replay_window=window or settings.replay_window,
        replay_group=group or settings.replay_group,
        reproducible=reproducible,
    )
