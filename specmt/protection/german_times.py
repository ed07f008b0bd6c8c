"""German times of day, written so that a model translates them well into English: `halb acht` as `7:30`.

Models have hardly learnt that `halb acht` is half an hour before eight; `17 Uhr 30` is two numbers to them, and of
`achtzehn Uhr` they make `eight o'clock`. What they know, such as `Viertel nach acht`, stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from specmt.protection.times import DAY, NUMBER

_UP_TO_12 = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
_FROM_13 = (
    "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn zwanzig einundzwanzig zweiundzwanzig dreiundzwanzig"
    " vierundzwanzig"
)
_FIVES = (
    "fünf zehn fünfzehn zwanzig fünfundzwanzig dreißig fünfunddreißig vierzig fünfundvierzig fünfzig fünfundfünfzig"
)
_HOURS = {word: hour for hour, word in enumerate(f"null {_UP_TO_12} {_FROM_13}".split())} | {"ein": 1}
_PAST = {word: 5 * count for count, word in enumerate(_FIVES.split(), 1)}


def _any(words: Iterable[str]) -> str:
    return "|".join(words)


_HOUR = rf"(?P<hour>(?i:{_any(_UP_TO_12.split())})|1[0-2]|[1-9])(?![\w-]|[.,:]\d)"
_PART = r"(?:abends|früh|mittags|morgens|nachmittags|nachts|vormittags|am|in der)\b"
_OF_THE_DIAL = (
    rf"{_HOUR}(?!\s+(?:\w+tel|Dutzend|Euro|Jahren?|Kilo|Liter|Meter|Prozent|Stunden?)\b)"
    rf"(?:\s+(?i:uhr)\b(?!\s+{_PART}))?"
)
_LEAD = (
    r"(?:^\W*|(?<![\w-])(?i:ab|bis|für|gegen|nach|seit|um|von|vor|zwischen|ist|es|sei|wars?|wird|erst|etwa|fast|genau|circa"
    rf"|punkt|schon|spätestens|und|auf|gestern|heute|morgen|abends?|früh|morgens|nachmittags?|{DAY})\s+)"
)
"""What stands before a time, so that `halb` and `viertel` are parts of it."""
_HALF = re.compile(
    rf"(?:(?P<lead>{_LEAD})|(?<![\w-])(?P<count>(?i:fünf|zehn)|5|10)\s+(?:Minuten\s+)?(?P<side>vor|nach)\s+)"
    rf"(?i:halb)\s+{_OF_THE_DIAL}"
)
_QUARTER = re.compile(rf"(?P<lead>{_LEAD})(?P<three>(?i:drei)\s?)?(?i:viertel)\s+{_OF_THE_DIAL}")

_NO_MORE = (
    r"(?![\w%-]|[.,:/]\d|\s?%|\s(?:[a-zäöüß]+e[nrms]?\s)?[A-ZÄÖÜ]"
    r"|\. (?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez))"
)
"""Not `um 18 Uhr 30 Leute`, nor `um 18 Uhr 30. Mai`."""
_HOUR_AND_MINUTES = re.compile(rf"(?<![\w.,:/])(2[0-4]|[01]?\d) ?(?i:uhr) ([0-5]\d){_NO_MORE}")
_HOUR_AND_WORD = re.compile(rf"(?<![\w.,:/-])(?i:({_any(_HOURS)}|2[0-4]|[01]?\d) ?(?i:uhr) ({_any(_PAST)})){_NO_MORE}")
_WORDS = re.compile(
    rf"(?<![\w-])(?i:(?:(?P<first>{_any(_HOURS)})(?P<to> bis | und ))?"
    rf"(?P<last>{_any(_FROM_13.split())}|null|(?:sieben|acht|neun|zehn|elf)(?= Uhr nachts)))(?= (?i:uhr)\b)"
)
"""Hours after noon, and at night, which models say of the morning."""
_GLUED = re.compile(rf"(?<![\w.,:/])({NUMBER})(?i:uhr)\b(?!-)")
_HOURS_BY_H = re.compile(r"(?<!\w)(?P<lead>(?i:ab|beginn|gegen|um):? )(2[0-4]|[01]?\d) ?h([0-5]\d)?(?!\w)")
_RANGE = re.compile(rf"(?<!\w)([vV]on )({NUMBER})\s?[-–—]\s?({NUMBER} (?i:uhr)\b)")


def written_plainly(text: str, begins_line: bool = True) -> str:
    """A text with its times as models know them; other text as it is. `begins_line`: whether nothing is before it."""
    text = _HALF.sub(lambda match: _half(match) if begins_line or _is_led(match) else match[0], text)
    text = _QUARTER.sub(lambda match: _quarter(match) if begins_line or _is_led(match) else match[0], text)
    text = _HOUR_AND_WORD.sub(_minutes, text)
    text = _WORDS.sub(_digits, text)
    text = _HOURS_BY_H.sub(lambda match: f"{match['lead']}{match[2]}{f'.{match[3]}' if match[3] else ''} Uhr", text)
    text = _GLUED.sub(r"\1 Uhr", text)
    text = _HOUR_AND_MINUTES.sub(r"\1.\2 Uhr", text)
    return _RANGE.sub(r"\1\2 bis \3", text)


def _is_led(match: re.Match[str]) -> bool:
    """Whether a time has something before it that says that it is one."""
    return match["lead"] is None or any(map(str.isalpha, match["lead"]))


def _half(match: re.Match[str]) -> str:
    """`7:30` for `halb acht`, `7:35` for `fünf nach halb acht`."""
    minutes = 0
    if match["count"]:
        minutes = _number(match["count"]) * (1 if match["side"] == "vor" else -1)
    return (match["lead"] or "") + _before(match["hour"], 30 + minutes)


def _quarter(match: re.Match[str]) -> str:
    """`7:15` for `viertel acht`, `7:45` for `dreiviertel acht`."""
    return match["lead"] + _before(match["hour"], 15 if match["three"] else 45)


def _minutes(match: re.Match[str]) -> str:
    """`8:30` for `acht Uhr dreißig`, which may be in the evening; `20.30 Uhr` for `zwanzig Uhr dreißig`."""
    hour, past = _number(match[1]), f"{_PAST[match[2].lower()]:02d}"
    return f"{hour}:{past}" if match[1].isalpha() and 0 < hour <= 12 else f"{hour}.{past} Uhr"


def _digits(match: re.Match[str]) -> str:
    """`18` for `achtzehn`, `9 bis 18` for `neun bis achtzehn`."""
    first = f"{_number(match['first'])}{match['to']}" if match["first"] else ""
    return f"{first}{_number(match['last'])}"


def _before(hour: str, minutes: int) -> str:
    """So many minutes before a full hour."""
    return f"{(_number(hour) - 2) % 12 + 1}:{60 - minutes:02d}"


def _number(hour: str) -> int:
    return int(hour) if hour.isdecimal() else _HOURS[hour.lower()]
