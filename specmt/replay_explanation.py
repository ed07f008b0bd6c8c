"""The decoding of one sentence by `replay`: decoded ahead, replayed, compared, accepted or recomputed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from specmt.decoding.hypotheses import Iteration, ReplayCounts
from specmt.explanation import Title, last_pieces, nothing_to_decode, pieces
from specmt.settings import DecodingSettings
from specmt.text.characters import printable
from specmt.text.vocabulary import AnyVocabulary
from specmt.translation import Translation


@dataclass(frozen=True)
class Replayed:
    """A replay, in pieces.

    `generated`: the tokens decoded ahead that it compared; `replayed`: the verifier's at the same places; `verdicts`:
    for each `accepted`, `replaced` by the verifier's, or `recomputed`: forgotten behind that, to be decoded again.
    `first_position`: of the window that the pass had (target tokens, from 0); it may begin before the prefix ends.
    """

    prefix: tuple[str, ...]
    first_position: int
    generated: tuple[str, ...]
    replayed: tuple[str, ...]
    verdicts: tuple[str, ...]
    output: tuple[str, ...]


@dataclass(frozen=True)
class ReplayExplanation:
    """A translation by `replay` and how it came about."""

    source: str
    translation: str
    replay_window: int
    replay_group: int
    counts: ReplayCounts
    iterations: tuple[Replayed, ...]

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return asdict(self)


def explain(translation: Translation, settings: DecodingSettings, vocabulary: AnyVocabulary) -> ReplayExplanation:
    """Lay a translation open.

    Args:
        translation: made with `settings`, whose strategy is `replay` and whose `trace` is on.
    """
    return ReplayExplanation(
        translation.source,
        translation.text,
        settings.replay_window,
        settings.replay_group,
        translation.replay or ReplayCounts(),
        tuple(_replays(translation.iterations, settings.replay_window, vocabulary)),
    )


def _replays(iterations: Sequence[Iteration], window: int, vocabulary: AnyVocabulary) -> Iterator[Replayed]:
    prefix: tuple[str, ...] = ()
    for iteration in iterations:
        if not iteration.draft:
            raise ValueError("the translation was not decoded by replay with its trace kept")
        output = prefix + pieces(iteration.emitted, vocabulary)
        behind = len(iteration.draft) - iteration.accepted - 1
        yield Replayed(
            prefix,
            len(prefix) // window * window,
            pieces(iteration.draft, vocabulary),
            pieces((column[0][0] for column in iteration.candidates), vocabulary),
            ("accepted",) * iteration.accepted + (("replaced",) + ("recomputed",) * behind if behind >= 0 else ()),
            output,
        )
        prefix = output


_STYLES = {"accepted": "green", "replaced": "bold yellow", "recomputed": "dim"}
_MARKS = {"accepted": "✓", "replaced": "✗", "recomputed": "·"}


def render(explanation: ReplayExplanation) -> RenderableType:
    """The whole decoding, a line a token."""
    counts = explanation.counts
    parts: list[RenderableType] = [
        Text.assemble(("Source       ", "dim"), printable(explanation.source)),
        Text.assemble(("Translation  ", "dim"), (explanation.translation, "bold")),
        Text(
            f"{counts.replays} replays of {explanation.replay_group} × {explanation.replay_window}, "
            f"{counts.mismatches} mismatches, {counts.recomputed} tokens recomputed",
            "dim",
        ),
        Text("✓ accepted, ✗ replaced by the replay's, · forgotten and decoded again", "dim"),
    ]
    if not explanation.iterations:
        parts.append(Text(nothing_to_decode(explanation.source), "dim"))
    for number, replayed in enumerate(explanation.iterations, start=1):
        parts += [Text(), _title(number, replayed, explanation.replay_window), _table(replayed)]
        parts.append(Text.assemble(("output  ", "dim"), last_pieces(replayed.output)))
    return Group(*parts)


def _title(number: int, replayed: Replayed, window: int) -> Title:
    last = replayed.first_position + window - 1
    accepted = replayed.verdicts.count("accepted")
    title = f"Replay {number}: positions {replayed.first_position} to {last}, {accepted} of {len(replayed.verdicts)}"
    return Title(f"{title} accepted")


def _table(replayed: Replayed) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("position", "generate", "replay", "compare", "emit"):
        table.add_column(column, justify="right" if column == "position" else "left")
    columns = zip(replayed.generated, replayed.replayed, replayed.verdicts, strict=True)
    for position, (generated, own, verdict) in enumerate(columns, start=len(replayed.prefix)):
        emitted = own if verdict != "recomputed" else ""
        cells = (generated, own, f"{_MARKS[verdict]} {verdict}", emitted)
        table.add_row(str(position), *(Text(cell, _STYLES[verdict]) for cell in cells))
    return table
