"""`specmt explain`: how a sentence is decoded."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from specmt import BUNDLED_MODEL
from specmt.choices import ReportFormat, StrategyName
from specmt.cli_options import (
    BetaOption,
    DeviceOption,
    DraftLengthOption,
    EngineOption,
    ModelOption,
    OneThreadOption,
    PrecisionOption,
    ReplayGroupOption,
    ReplayWindowOption,
    StrictOption,
    TauOption,
)
from specmt.commands.from_options import load, settings_of, with_replay
from specmt.engines.names import EngineName, Precision
from specmt.errors import UsageError

if TYPE_CHECKING:
    from specmt.explanation import Explanation
    from specmt.replay_explanation import ReplayExplanation
    from specmt.translator import Translator

MOST_TOKENS = 1_000
"""Source tokens, of some 400 words. Each iteration is shown with all that came before it: more would be megabytes."""


class ExplainedStrategy(StrEnum):
    """What `explain` can lay open."""

    spec = "spec"
    replay = "replay"


def explain(
    sentence: Annotated[str, typer.Argument(help="The sentence.")],
    model: ModelOption = BUNDLED_MODEL,
    strategy: Annotated[
        ExplainedStrategy, typer.Option(help="Draft and verify, or decode and replay.")
    ] = ExplainedStrategy.spec,
    replay_window: ReplayWindowOption = None,
    replay_group: ReplayGroupOption = None,
    draft_length: DraftLengthOption = None,
    beta: BetaOption = None,
    tau: TauOption = None,
    strict: StrictOption = None,
    threads: OneThreadOption = 1,
    engine: EngineOption = EngineName.auto,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = Precision.fp32,
    output_format: Annotated[
        ReportFormat, typer.Option("--format", help="A picture, or JSON for programs.")
    ] = ReportFormat.text,
) -> None:
    """Show how a sentence is decoded, iteration by iteration: draft, candidates, what is accepted.

    It is taken as it is: not split (1,000 tokens at most), nothing of it protected, no guards, so that unknown
    characters come out as ⁇, and capitals are not read as small letters.
    """
    from rich.console import Console

    from specmt import explanation, replay_explanation

    sentence = _as_text(sentence)
    translator = load(model, engine, device, precision, threads)
    settings = settings_of(translator, StrategyName(strategy.value), draft_length, beta, tau, strict)
    settings = replace(settings, trace=True, split=False, max_source_tokens=_most(translator), guards=False)
    settings = with_replay(settings, replay_window, replay_group)
    _check_length(sentence, translator)
    (translation,) = translator.translate([sentence], settings, batch_size=1)
    explained: Explanation | ReplayExplanation
    if strategy is ExplainedStrategy.replay:
        explained = replay_explanation.explain(translation, settings, translator.vocabulary)
        picture = replay_explanation.render(explained)
    else:
        explained = explanation.explain(translation, settings, translator.vocabulary)
        picture = explanation.render(explained)
    if output_format is ReportFormat.json:
        typer.echo(json.dumps(explained.to_json(), ensure_ascii=False, indent=2))
    else:
        console = Console()
        console.width = max(console.width, explanation.NARROWEST)
        console.print(picture)


def _as_text(sentence: str) -> str:
    """The argument, also where it is UTF-8 and the locale is not: Python then hands bytes over as halves of characters.

    Raises:
        UsageError: it is no UTF-8.
    """
    from specmt.streams.inputs import is_text

    if is_text(sentence):
        return sentence
    try:
        return os.fsencode(sentence).decode()
    except UnicodeError:
        raise UsageError("the sentence is not UTF-8") from None


def _most(translator: Translator) -> int:
    return min(MOST_TOKENS, translator.limits.source or MOST_TOKENS)


def _check_length(sentence: str, translator: Translator) -> None:
    """Refuse what would take minutes.

    Raises:
        UsageError: too many tokens.
    """
    found, most = len(translator.vocabulary.encode(sentence)), _most(translator)
    if found > most:
        raise UsageError(f"the sentence has {found} tokens, at most {most} fit: explain its parts one by one")
