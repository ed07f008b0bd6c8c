"""Ordinals: what German writes as `2. Weltkrieg` may be `Second World War` or `World War II` in English."""

from __future__ import annotations

import re

ENDING = "(?:st|nd|rd|th)"
"""Of an English ordinal in figures."""
_BEHIND = re.compile(r"\.[ \u00a0][^\W\d_]")
"""What stands behind the number: a full stop, and a word."""
_WORDS = (
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth"
    " sixteenth seventeenth eighteenth nineteenth twentieth"
)
_ROMAN = "I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX"
_SPELT = {str(number): both for number, both in enumerate(zip(_WORDS.split(), _ROMAN.split(), strict=True), 1)}


def is_ordinal(number: str, behind: str) -> bool:
    """Whether a number is an ordinal that English may spell out, given what stands behind it."""
    return number in _SPELT and _BEHIND.match(behind) is not None


def is_said(number: str, text: str) -> bool:
    """Whether an ordinal stands in an English text as a word, or as the Roman number of a war."""
    word, roman = _SPELT[number]
    return re.search(rf"\b(?i:{word})\b|\bWar {roman}\b", text) is not None


def with_ending(ordinal: str) -> str:
    """An ordinal in figures, as `2nd`."""
    few = {"1": "st", "2": "nd", "3": "rd"}.get(ordinal[-1], "th")
    return ordinal + ("th" if ordinal[-2:-1] == "1" else few)
