"""Times of day in an English translation: of the right half of the day, by the twelve-hour clock."""

from __future__ import annotations

import re
from collections.abc import Sequence

from specmt.protection.times import NUMBER, TO, Time, dial, hour_of, is_of_12

_WITH_HALF = re.compile(rf"(?<![\d.,:])({NUMBER})(\s?)([apAP])(?=\.?\s?[mM]\b)")
"""A time with the first letter of `a.m.` or `p.m.`."""
_RANGE = re.compile(rf"(?<![\d.,:])({NUMBER})(?={TO}({NUMBER})\s?([apAP])(\.?\s?[mM])\b)")
"""The first of two times, of which the second has `a.m.` or `p.m.`."""
_O_CLOCK = re.compile(rf"(?<![\d.,:])({NUMBER})(?:[ -]o['’]| )clock\b")
_UNFINISHED = re.compile(r"(?<=\d)(\s?[apAP]\.[mM])(?:(?![\w.])|\.\.(?!\.))")
"""Without the last full stop, as what a tag closes has none, or with that of the sentence besides."""


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
            self._times.setdefault(dial(time.number), []).append(time)
        self._alike = {shown: same[0] for shown, same in self._times.items() if len({time.half for time in same}) == 1}
        """Of those that look alike, if they are of the same half of the day, the first."""
        self._of_24 = {hour_of(time.number): time for time in times if time.is_of_24}
        """Those that no dial shows as the line does; if there are any, the others are of 24 hours too."""

    def with_halves(self, text: str) -> str:
        """A text whose times that have halves have the right ones; those that look alike are taken in their order."""
        places: dict[tuple[int, str], list[int]] = {}
        matches = list(_WITH_HALF.finditer(text))
        for place, match in enumerate(matches):
            if is_of_12(match[1]) or hour_of(match[1]) in self._of_24:
                places.setdefault(dial(match[1]), []).append(place)
        right: dict[int, str] = {}
        for shown, alike in places.items():
            right |= zip(alike, self._halves(shown, [(matches[one][1], matches[one][3]) for one in alike]), strict=True)
        said, end = [], 0
        for place, half in sorted(right.items()):
            match = matches[place]
            said += [text[end : match.start()], _by_twelve(match[1]), match[2], half]
            end = match.end()
        return "".join([*said, text[end:]])

    def _halves(self, shown: tuple[int, str], found: Sequence[tuple[str, str]]) -> list[str]:
        """The right halves of times of a translation that look alike on a dial, given their numbers and halves."""
        wanted = [self._half(time) for time in self._times.get(shown, [])]
        given = [letter.lower() if is_of_12(number) else self._of_24[hour_of(number)].half for number, letter in found]
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
        if not is_of_12(match[1]):
            return f"{_by_twelve(match[1])} {time.half}.m."
        return _by_twelve(match[1]) if dial(match[1])[1] else match[0]

    def _only(self, number: str) -> Time | None:
        """The line's time that one of its translation is; None if it has none, or several of other halves."""
        if not is_of_12(number):
            return self._of_24.get(hour_of(number))
        return self._alike.get(dial(number))

    def _half(self, time: Time) -> str | None:
        return time.half if time.is_certain or self._of_24 else None


def _by_twelve(number: str) -> str:
    """A time by the twelve-hour clock, as English writes it."""
    return re.sub(r"^\d+", str(dial(number)[0]), number).replace(".", ":")


def _like(letter: str, half: str) -> str:
    return half.upper() if letter.isupper() else half
