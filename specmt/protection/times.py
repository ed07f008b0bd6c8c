"""Clock times: what German writes as `18 Uhr` may be `6 p.m.` in English, but never `18 a.m.`."""

from __future__ import annotations

import re
from collections.abc import Collection

_IS_TIME = re.compile(r"\s?(?:(?:-|–|bis|und)\s?\d{1,2}(?:[.:]\d\d)?\s?)?Uhr\b(?!\s+(?:nachts|in der Nacht))")
"""What stands behind the number of hours, or of the first of two."""
_TIME = re.compile(r"(\d{1,2})(?:[.:](\d\d))?")
_WITH_HALF = re.compile(rf"(?<![\d.,:])({_TIME.pattern})\s?[ap]\.?\s?m\b")
"""A time with `a.m.` or `p.m.`, without the last full stop, which may be the sentence's."""


def is_time(number: str, behind: str) -> bool:
    """Whether a number is a time of day, given what stands behind it."""
    time = _TIME.fullmatch(number)
    return time is not None and int(time[1]) <= 24 and _IS_TIME.match(behind) is not None


def is_said(number: str, text: str) -> bool:
    """Whether a time, as `14.30`, stands in an English text by the twelve-hour clock, as `2:30 p.m.`."""
    hour, minutes = _parts(number)
    if hour % 12 == 0 and not minutes and re.search(r"\bnoon\b" if hour == 12 else r"\bmidnight\b", text):
        return True
    past = rf"[.:]{minutes}" if minutes else r"(?:[.:]00)?"
    half = rf"\s?{_half(hour)}\.?\s?m\b"
    return re.search(rf"(?<![\d.,:]){_twelve(hour)}{past}(?:\s?(?:to|and|-|–)\s?[\d.:]+)?{half}", text) is not None


def set_right(numbers: Collection[str], text: str) -> str:
    """An English text in which those times that have `a.m.` or `p.m.` are of the twelve-hour clock."""

    def by_twelve(match: re.Match[str]) -> str:
        hour, minutes = _parts(match[1]) if match[1] in numbers else (1, "")
        if 0 < hour < 12:
            return match[0]
        return f"{_twelve(hour)}{f':{minutes}' if minutes else ''} {_half(hour)}.m"

    return _WITH_HALF.sub(by_twelve, text)


def _parts(number: str) -> tuple[int, str]:
    """Hour and minutes; of a full hour no minutes."""
    time = _TIME.fullmatch(number)
    assert time
    return int(time[1]), (time[2] or "").replace("00", "")


def _twelve(hour: int) -> int:
    return (hour - 1) % 12 + 1


def _half(hour: int) -> str:
    return "p" if 12 <= hour < 24 else "a"
