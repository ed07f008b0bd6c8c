"""Clock times: what German writes as `18 Uhr` may be `6 p.m.` in English, but never `18 a.m.`.

`7 Uhr abends` is `7 p.m.`: words beside a time say which half of the day it is in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
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
_TO = r"\s?(?:to|and|until|-|–)\s?"
_HALF = r"[apAP]\.?\s?[mM]\b"
_WITH_HALF = re.compile(rf"(?<![\d.,:])({NUMBER})(\s?)([apAP])(?=\.?\s?[mM]\b)")
"""A time with the first letter of `a.m.` or `p.m.`."""
_RANGE = re.compile(rf"(?<![\d.,:])({NUMBER})(?={_TO}({NUMBER})\s?([apAP])(\.?\s?[mM])\b)")
"""The first of two times, of which the second has `a.m.` or `p.m.`."""
_O_CLOCK = re.compile(rf"(?<![\d.,:])({NUMBER})(?:[ -]o['’]| )clock\b")
_UNFINISHED = re.compile(r"(?<=\d)(\s?[apAP]\.[mM])(?:(?![\w.])|\.\.(?!\.))")
"""Without the last full stop, as what a tag closes has none, or with that of the sentence besides."""


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
        return not _is_of_12(self.number)

    def is_said(self, text: str) -> bool:
        """Whether it stands in an English text in another way, as `2:30 p.m.` or `14:30` for `14.30`."""
        hour, minutes = _dial(self.number)
        if hour == 12 and not minutes and re.search(r"\bnoon\b" if self.half == "p" else r"\bmidnight\b", text):
            return True
        past = rf"[.:]{minutes}" if minutes else r"(?:[.:]00)?"
        # Where only other words tell the half, `set_right` sees to it.
        half = _HALF if self.is_certain and not self.is_of_24 else rf"(?i:{self.half})\.?\s?[mM]\b"
        by_twelve = rf"{hour}{past}(?:{_TO}{NUMBER}\s?{_HALF}|\s?{half})"
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
        before = before[: first.start()] if _hour(first[1]) < hour else ""
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


def set_right(times: Sequence[Time], text: str) -> str:
    """An English text in which a line's times that have `a.m.` or `p.m.` are of the right half of the day."""
    clock = _Clock(times)
    text = clock.with_halves(text)
    text = _RANGE.sub(clock.first_of_two, text)
    return _UNFINISHED.sub(r"\1.", _O_CLOCK.sub(clock.of_the_clock, text))


class _Clock:
    """A line's times by what a dial shows of them."""

    def __init__(self, times: Sequence[Time]) -> None:
        self._times: dict[tuple[int, str], list[Time]] = {}
        for time in times:
            self._times.setdefault(_dial(time.number), []).append(time)
        self._alike = {dial: same[0] for dial, same in self._times.items() if len({time.half for time in same}) == 1}
        """Of those that look alike, if they are of the same half of the day, the first."""
        self._of_24 = {_hour(time.number): time for time in times if time.is_of_24}
        """Those that no dial shows as the line does; if there are any, the others are of 24 hours too."""

    def with_halves(self, text: str) -> str:
        """A text whose times that have halves have the right ones; those that look alike are taken in their order."""
        places: dict[tuple[int, str], list[int]] = {}
        matches = list(_WITH_HALF.finditer(text))
        for place, match in enumerate(matches):
            if _is_of_12(match[1]) or _hour(match[1]) in self._of_24:
                places.setdefault(_dial(match[1]), []).append(place)
        right: dict[int, str] = {}
        for dial, alike in places.items():
            right |= zip(alike, self._halves(dial, [(matches[one][1], matches[one][3]) for one in alike]), strict=True)
        said, end = [], 0
        for place, half in sorted(right.items()):
            match = matches[place]
            said += [text[end : match.start()], _by_twelve(match[1]), match[2], half]
            end = match.end()
        return "".join([*said, text[end:]])

    def _halves(self, dial: tuple[int, str], found: Sequence[tuple[str, str]]) -> list[str]:
        """The right halves of times of a translation that look alike on a dial, given their numbers and halves."""
        wanted = [self._half(time) for time in self._times.get(dial, [])]
        given = [letter.lower() if _is_of_12(number) else self._of_24[_hour(number)].half for number, letter in found]
        if len(set(wanted)) == 1:
            given = [wanted[0] or half for half in given]
        elif len(wanted) == len(given) and sorted(filter(None, wanted)) != sorted(given):
            given = [right or half for right, half in zip(wanted, given, strict=True)]
        return [_like(letter, half) for (_, letter), half in zip(found, given, strict=True)]

    def first_of_two(self, match: re.Match[str]) -> str:
        """The first of two times, of which the second has a half, with its own if that is another."""
        time, second = self._only(match[1]), self._only(match[2])
        if time is None or not (self._half(time) or (second and self._half(second))):
            return match[0]
        number = _by_twelve(match[1])
        if time.half == match[3].lower():
            return number
        return f"{number} {_like(match[3], time.half)}{match[4]}{'.' if '.' in match[4] else ''}"

    def of_the_clock(self, match: re.Match[str]) -> str:
        """What has `o'clock` or `clock` behind it that is no full hour of the twelve-hour clock."""
        time = self._only(match[1])
        if time is None:
            return match[0]
        if not _is_of_12(match[1]):
            return f"{_by_twelve(match[1])} {time.half}.m."
        return _by_twelve(match[1]) if _dial(match[1])[1] else match[0]

    def _only(self, number: str) -> Time | None:
        """The line's time that one of its translation is; None if it has none, or several of other halves."""
        if not _is_of_12(number):
            return self._of_24.get(_hour(number))
        return self._alike.get(_dial(number))

    def _half(self, time: Time) -> str | None:
        return time.half if time.is_certain or self._of_24 else None


def _is_of_12(number: str) -> bool:
    return 0 < _hour(number) <= 12


def _hour(number: str) -> int:
    time = _TIME.fullmatch(number)
    assert time
    return int(time[1])


def _dial(number: str) -> tuple[int, str]:
    """What a dial shows: an hour of twelve, and minutes; of a full hour none."""
    time = _TIME.fullmatch(number)
    assert time
    return (int(time[1]) - 1) % 12 + 1, (time[2] or "").replace("00", "")


def _by_twelve(number: str) -> str:
    """A time by the twelve-hour clock, as English writes it."""
    return re.sub(r"^\d+", str(_dial(number)[0]), number).replace(".", ":")


def _like(letter: str, half: str) -> str:
    return half.upper() if letter.isupper() else half
