"""Numbers that a translation has in another spelling, written as in the source: `3.5` for `3,5`, `2-1` for `2:1`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from specmt.protection.ordinals import ENDING

_SPELLINGS = [
    str.maketrans(this, that) for this, that in ((",.", ".,"), (".", ","), (":", "-"), (":", "."), (".", ":"))
]
_WHOLE = re.compile(r"\d{1,3}(?:[.'’]\d{3})+")
"""A number of thousands, which may be written without separators."""


def as_written(numbers: Iterable[str], text: str) -> str:
    """An English text that has those numbers of a source that have separators as they are there.

    An ordinal's ending behind one of them (`24.12th`) is left out.
    """
    numbers = set(numbers)
    by_spelling = {
        spelling: number
        for number in sorted(numbers)
        if not number.isalnum()
        for spelling in (number, *_other_spellings(number))
        if spelling == number or spelling not in numbers
    }
    if not by_spelling:
        return text
    longest_first = "|".join(map(re.escape, sorted(by_spelling, key=len, reverse=True)))
    pattern = rf"(?<![\w.,:’'])(?<!\d-)({longest_first})(?:{ENDING}(?!\w)|(?!\w|[.,:’'-]\d))"
    return re.sub(pattern, lambda match: by_spelling[match[1]], text)


def digits(text: str) -> Counter[str]:
    """How often each run of digits stands in a text."""
    return Counter(re.findall(r"\d+", text))


def surplus(source: str, translation: str) -> set[str]:
    """What digits of a source stand in its translation more often than there."""
    given = digits(source)
    return {run for run, count in digits(translation).items() if 0 < given[run] < count}


def _other_spellings(number: str) -> set[str]:
    spelt = {number.translate(table) for table in _SPELLINGS}
    if _WHOLE.fullmatch(number):
        spelt |= {re.sub(r"\D", between, number) for between in ("", ",")}
    return spelt - {number}
