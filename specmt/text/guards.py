"""Guards against runaway output: what a translation may repeat, and what is told of a line that is not as usual.

They look at nothing but the source's tokens and the verified target tokens, one by one, so they stop `ar` and strict
`spec` at the same token. What they did stands in `Translation.warnings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

MAX_PERIOD = 8
"""Tokens of the longest phrase whose repetition is noticed."""
ALLOWED_REPEATS = 4
"""Times that a phrase may stand in a row, whatever the source."""
MIN_RUN = 8
"""Tokens that a run of repeats has at least before it is left out: `ha ha ha ha` is no runaway."""
END_RUN = 24
"""Tokens of a run of repeats that ends a translation; from shorter ones, models recover."""


class LineWarning(StrEnum):
    """What happened to a line beyond plain decoding; the values stand in JSONL."""

    REPETITION = "repetition"
    """The translation repeated itself; the repeats were left out, and it was ended if they were many."""
    LENGTH_LIMIT = "length_limit"
    """The translation was cut at the most tokens that a source of its length may have."""
    COPIED = "copied"
    """No word in a sentence is known to the model, as in other scripts: it stands as it was."""
    UNKNOWN_COPIED = "unknown_copied"
    """Letters that the model does not know were taken from the source."""
    EMPTY = "empty"
    """The model said nothing: the source stands as it was."""
    REPLACED = "replaced"
    """Bytes of the source that are no text were replaced before it was translated."""
    UNKNOWN_DROPPED = "unknown_dropped"
    """The translation had an unknown symbol more than the source: it was left out."""
    UNKNOWN_LOST = "unknown_lost"
    """The translation had an unknown symbol less than the source: one of these is not in it."""


@dataclass
class RepeatCounter:
    """How often phrases of up to `MAX_PERIOD` tokens stand in a row at the end of a growing sequence."""

    ids: list[int] = field(default_factory=list)
    matches: list[int] = field(default_factory=lambda: [0] * (MAX_PERIOD + 1))
    """By period: how many tokens at the end equal the one a period before."""
    repeating: bool = False
    """Whether any does."""

    def append(self, id_: int) -> None:
        """Add a token."""
        ids, matches = self.ids, self.matches
        is_new = id_ not in ids[-MAX_PERIOD:]
        ids.append(id_)
        if is_new:  # the usual case, and cheap
            if self.repeating:
                self.matches, self.repeating = [0] * (MAX_PERIOD + 1), False
            return
        self.repeating = True
        for period in range(1, min(MAX_PERIOD, len(ids) - 1) + 1):
            matches[period] = matches[period] + 1 if id_ == ids[-1 - period] else 0

    def runaway(self, allowed: int, tokens: int) -> int | None:
        """The tokens of a phrase that stands more than `allowed` times in a row at the end, in a run of `tokens`."""
        if not self.repeating:
            return None
        for period, matches in enumerate(self.matches):
            if period and matches >= _needed(period, allowed, tokens):
                return period
        return None

    @property
    def longest(self) -> int:
        """The most whole repeats at the end, over all periods; at least 1."""
        return 1 + max(matches // period for period, matches in enumerate(self.matches) if period)


def _needed(period: int, allowed: int, tokens: int) -> int:
    """Tokens at the end that equal the one a period before, where a phrase stands too often in a run of `tokens`."""
    return max(allowed * period, tokens - period, 1)


def runaway_length(ids: Sequence[int], begin: int, allowed: int) -> int | None:
    """The length at which growing ids ran away, of those beyond `begin`; None where they did not.

    They do when they end with a phrase more than `allowed` times in a row, in a run of `END_RUN` tokens.
    """
    if len(ids) < END_RUN or len(set(ids[-END_RUN : begin + 1])) > MAX_PERIOD:
        return None  # the usual case: a run that ends beyond `begin` holds all of these, and no more than a phrase has
    for length in range(max(begin + 1, END_RUN), len(ids) + 1):
        for period in range(1, MAX_PERIOD + 1):
            matches = _needed(period, allowed, END_RUN)
            first = length - matches
            if first >= period and ids[first:length] == ids[first - period : length - period]:
                return length
    return None


def allowed_repeats(source_repeats: int) -> int:
    """How often a phrase may stand in a row in a translation: as often as one does in the source, or a few times."""
    return max(source_repeats, ALLOWED_REPEATS)


def repeats(source_ids: Sequence[int]) -> int:
    """How often a phrase stands in a row, at most."""
    if len(set(source_ids)) == len(source_ids):
        return 1
    counter, most = RepeatCounter(), 1
    for id_ in source_ids:
        counter.append(id_)
        if counter.repeating:
            most = max(most, counter.longest)
    return most


def without_repeats(ids: Sequence[int], source_repeats: int) -> list[int] | None:
    """Target ids with each phrase that runs away standing once, or as often as one does in such a source.

    None where none runs away.
    """
    allowed = allowed_repeats(source_repeats)
    if len(ids) - len(set(ids)) < allowed:  # the usual case: nothing stands more often than that
        return None
    times = source_repeats if source_repeats > ALLOWED_REPEATS else 1
    counter, kept, place, found = RepeatCounter(), list[int](), 0, False
    while place < len(ids):
        counter.append(ids[place])
        kept.append(ids[place])
        place += 1
        if (period := counter.runaway(allowed, MIN_RUN)) is not None:
            found = True
            del kept[len(kept) - counter.matches[period] + period * (times - 1) :]
            while place < len(ids) and ids[place] == ids[place - period]:
                place += 1
            counter = RepeatCounter()
    return kept if found else None
