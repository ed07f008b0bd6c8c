"""Clock times: what German writes as `18 Uhr` may be `6 p.m.` in English, but never `18 a.m.`.

`7 Uhr abends` is `7 p.m.`: words beside a time say which half of the day it is in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"\d{1,2}(?:[.:]\d\d)?"
DAY = r"(?:Mon|Diens|Donners|Frei|Sams|Sonn)tag|Mittwoch|Sonnabend"
_PARTS = {
    "afternoon": "nachmittags?",
    "evening": "abends?",
    "forenoon": "vormittags?|morgens|früh",
    "noon": "mittags?",
    "night": "nachts",
}
_PART = (
    rf"(?<![\w-])(?:(?i:{DAY})?(?:{'|'.join(f'(?P<{name}>(?i:{words}))' for name, words in _PARTS.items())})"
    rf"|(?P<morning>(?i:(?:heute|gestern|am|diesen|jeden)(?: frühen)?) Morgen|(?:{DAY})morgen|in der Früh)"
    r"|(?P<small_hours>(?i:heute|gestern|in der|jede|diese) Nacht))(?![\w-])"
)
"""The parts of a day. `Sonnabend`, `Mitternacht` and `morgen` are none."""
_LATER = {"afternoon": range(1, 9), "evening": range(4, 12), "noon": range(1, 4)}
"""The hours that are later than noon, by the part of the day."""
_BEHIND = re.compile(
    rf"(?:\s?(?:-|–|bis|und)\s?{NUMBER})?(?:\s?(?P<hour>-?(?:[Uu]hr|UHR)\b))?"
    rf"(?:\s+(?:(?i:am|heute|gestern|morgen|{DAY})\s+)?(?:(?:frühen|späten)\s+)?{_PART})?"
)
"""What stands behind the number of hours, or of the first of two."""
_PART_ANYWHERE = re.compile(_PART)
_THEN = re.compile(
    r"(?![^.,;:!?\d]*\b(?:und|oder|bis)\b)[^.,;:!?\d]{0,40}\b(?i:um|gegen|ab|nach|vor|von|zwischen)\s+"
    r"(?:(?:Punkt|genau|etwa|circa|kurz)\s+)?"
)
"""What stands between a part of the day and a time in it."""
_AT = re.compile(r"\b(?i:ab|gegen|um)\s+$")
_UNTIL = re.compile(r"\s+(?:noch\s+)?bis\s+")
_SINCE = re.compile(r"\b(?i:ab|seit|vo[mn])\s+(?:\w+\s+)?$")
"""What stands before a part of the day in which no time after `bis` is."""
_RANGE_BEFORE = re.compile(rf"({NUMBER})(?:\s?(?i:uhr))?\s?(?:-|–|bis|und)\s?$")
LONGEST_BEHIND, LONGEST_BEFORE = 45, 80
"""Characters around a number that say whether it is a time, and in which part of the day."""
_TIME = re.compile(r"(\d{1,2})(?:[.:](\d\d))?")
TO = r"\s?(?:to|and|until|-|–)\s?"
_HALF = r"[apAP]\.?\s?[mM]\b"


@dataclass(frozen=True)
class Time:
    """A time of day in a German line."""

    number: str
    """As it stands there."""
    hour: int
    """Of 24; of the two that it may be, the earlier."""
    is_certain: bool
    """Whether it is known which, from the number or from what stands beside it."""

    @property
    def half(self) -> str:
        """Of the day: `a` or `p`."""
        return "p" if self.hour >= 12 else "a"

    @property
    def is_of_24(self) -> bool:
        """Whether its number is none of the twelve-hour clock."""
        return not is_of_12(self.number)

    def is_said(self, text: str) -> bool:
        """Whether it stands in an English text in another way, as `2:30 p.m.` or `14:30` for `14.30`."""
        hour, minutes = dial(self.number)
        if hour == 12 and not minutes and re.search(r"\bnoon\b" if self.half == "p" else r"\bmidnight\b", text):
            return True
        past = rf"[.:]{minutes}" if minutes else r"(?:[.:]00)?"
        # Where only other words tell the half, `clock.set_right` sees to it.
        half = _HALF if self.is_certain and not self.is_of_24 else rf"(?i:{self.half})\.?\s?[mM]\b"
        by_twelve = rf"{hour}{past}(?:{TO}{NUMBER}\s?{_HALF}|\s?{half})"
        with_colon = re.escape(self.number.replace(".", ":"))
        alternatives = rf"{by_twelve}|{with_colon}(?!\d|[.,:]\d)" if "." in self.number else by_twelve
        return re.search(rf"(?<![\d.,:])(?:{alternatives})", text) is not None


def time_of(number: str, before: str, behind: str) -> Time | None:
    """The time of day that a number is, given what stands before and behind it; None if it is none."""
    match = _TIME.fullmatch(number)
    if match is None or int(match[1]) > 24 or int(match[2] or 0) > 59:
        return None
    hour, follows = int(match[1]), _BEHIND.match(behind)
    assert follows, "it may be empty"
    part = _part_of(follows) or _part_before(before, hour)
    if not (part or follows["hour"] or (":" in number and _AT.search(before))):
        return None
    placed = _placed(hour, part)
    if placed is None and match[2] and follows["hour"]:
        placed = hour  # as `9.30 Uhr`: who writes the minutes in digits counts 24 hours
    return Time(number, hour if placed is None else placed, placed is not None)


def _part_of(match: re.Match[str]) -> str:
    """The part of the day that a match names, if any."""
    return next((name for name, words in match.groupdict().items() if words and name != "hour"), "")


def _part_before(before: str, hour: int) -> str:
    """The part of the day that is named before a time, or before the first of two if that is the earlier."""
    if first := _RANGE_BEFORE.search(before):
        before = before[: first.start()] if hour_of(first[1]) < hour else ""
    part = ""
    for match in _PART_ANYWHERE.finditer(before):
        until = _UNTIL.fullmatch(before, match.end()) and not _SINCE.search(before[: match.start()])
        part = _part_of(match) if until or _THEN.fullmatch(before, match.end()) else ""
    return part


def _placed(hour: int, part: str) -> int | None:
    """The hour of 24 that a number is in a part of the day; None if it may be two."""
    if hour > 12 or not hour:
        return hour % 24
    if hour == 12:
        return 0 if part in {"evening", "night", "small_hours"} else 12
    if part in {"night", "small_hours"}:
        return hour if hour <= 6 else hour + 12
    if part in {"forenoon", "morning"}:
        return hour
    return hour + 12 if hour in _LATER.get(part, ()) else None


def is_of_12(number: str) -> bool:
    """Whether an hour, perhaps with minutes, is one of the twelve-hour clock."""
    return 0 < hour_of(number) <= 12


def hour_of(number: str) -> int:
    """The hour of a time such as `14.30`."""
    time = _TIME.fullmatch(number)
    assert time
    return int(time[1])


def dial(number: str) -> tuple[int, str]:
    """What a dial shows: an hour of twelve, and minutes; of a full hour none."""
    time = _TIME.fullmatch(number)
    assert time
    return (int(time[1]) - 1) % 12 + 1, (time[2] or "").replace("00", "")
