"""What a line became: its text, what the text was made of, and how sure the verifier was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from specmt.decoding.hypotheses import Iteration, ReplayCounts
from specmt.text.guards import LineWarning

if TYPE_CHECKING:
    from specmt.alignment import Pairs


@dataclass(frozen=True)
class Alternative:
    """One translation of an n-best list, with its length-normalised log-probability."""

    text: str
    score: float
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    """Nats, one per token."""
    alignment: Pairs = ()
    """Source and target words, see `Aligner`; found when asked for."""


def distinct(alternatives: Iterable[Alternative]) -> list[Alternative]:
    """Those whose texts none before has: what differed may have become the same."""
    by_text: dict[str, Alternative] = {}
    for one in alternatives:
        by_text.setdefault(one.text, one)
    return list(by_text.values())


@dataclass(frozen=True)
class Translation:
    """One line's translation. A blank line has no tokens, no iterations and an empty text.

    A line of several segments has their tokens and iterations one after the other, each with its end-of-sentence.
    """

    index: int
    source: str
    text: str
    score: float
    """Log-probability (nats) over length (tokens) to the power of the length penalty; for several segments the mean
    of theirs, weighted by source tokens."""
    ids: tuple[int, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    n_best: tuple[Alternative, ...] = ()
    """All alternatives asked for, the best (this translation) first; empty when one was asked for."""
    source_ids: tuple[int, ...] = ()
    """Of all segments, without end-of-sentence."""
    token_log_probs: tuple[float, ...] = ()
    """Nats, one an id."""
    segments: int = 1
    """Parts that the line was decoded in."""
    decoded: int = 0
    """Of these parts, those that were not copied."""
    warnings: tuple[LineWarning, ...] = ()
    alignment: Pairs = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What came with the line and passes through."""
    unplaced: tuple[str, ...] = ()
    """What should have come out unchanged, or terms, that the text does not have; see `protection`."""
    replay: ReplayCounts | None = None
    """What was replayed; None where nothing is."""

    @property
    def as_alternative(self) -> Alternative:
        """As one of an n-best list."""
        return Alternative(self.text, self.score, self.ids, self.token_log_probs, self.alignment)

    def with_alternative(self, one: Alternative) -> Translation:
        """The translation, which says one of its n-best list."""
        return replace(
            self,
            text=one.text,
            score=one.score,
            ids=one.ids,
            token_log_probs=one.token_log_probs,
            alignment=one.alignment,
        )
