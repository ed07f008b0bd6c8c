"""German shorthand, spelt out so that a model translates it well: weekdays, how often, prices, letters for words.

Of what was tried, only such stands here that came out wrong as it is, and right when it is spelt out. What one word
says for one word (`inkl.`) is in `text.abbreviations`, which knows nothing of numbers.
"""

from __future__ import annotations

import re
from functools import partial

_WEEKDAYS = {
    "Mo": "Montag",
    "Di": "Dienstag",
    "Mi": "Mittwoch",
    "Do": "Donnerstag",
    "Fr": "Freitag",
    "Sa": "Samstag",
    "So": "Sonntag",
}
_DAY = rf"(?:{'|'.join(_WEEKDAYS)})\b\.?"
_MONTH = r"(?:(?:0?[1-9]|1[0-2])\.|Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)"
_BETWEEN = r"\s?[-–—/,+&]\s?|\s(?:bis|und|u\.|oder)\s"
_DAYS = re.compile(rf"(?<![\w.=#/-]){_DAY}(?:(?:{_BETWEEN}){_DAY})+(?![\w/-])")
"""Several: `Mo.-Fr.`, `Mo, Di und Do`."""
_DAY_OF_DATE = re.compile(rf"(?<![\w.-])(?!Fr\.\s+\d)({_DAY})(?=,?\s+(?:(?:den|der|dem)\s+)?\d{{1,2}}\.\s?{_MONTH})")
"""`Fr. 2.10` is a price in Switzerland."""
_TIME = r"\d{1,2}(?:[.:]\d\d)?"
_UNTIL = rf"\s?(?:[-–]|bis)\s?{_TIME}"
_LEAD = r":?\s+(?:(?:um|von|ab|bis)\s+)?"
_DAY_WITH_TIME = re.compile(
    rf"(?<![\w.-])(?!So um\b)({_DAY})(?={_LEAD}{_TIME}(?:{_UNTIL})?\s?[Uu]hr\b)"
    rf"|(?<![\w.-])((?:Mo|Di|Mi|Do|Sa)\b\.?|Fr\b(?!\.))(?={_LEAD}{_TIME}(?:\s?h\b|{_UNTIL}))"
)
"""`So 7-8 Leute` are about so many."""
_DAY_BEHIND = re.compile(
    r"(?<![\w-])((?i:am|jeden|bis|ab|nächsten|letzten|kommenden|diesen|vom)\s)"
    r"((?:Mo|Di|Mi|Do|Fr(?!\.\s+[\dA-ZÄÖÜ])|Sa|So)\.)"
)
"""`Fr. Schmidt` is a woman."""
_JOINTS = {"-": " bis ", "–": " bis ", "—": " bis ", "/": " und ", "+": " und ", "&": " und ", "u.": " und "}
_COMMA = re.compile(r" und (?=.* und )")
"""What parts the first of more than two."""

_TIMES = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
_EACH = (
    r"(?:täglich|tgl\.|wöchentlich|monatlich|jährlich|(?:am|pro|jeden) Tag|(?:im|pro) (?:Monat|Jahr)"
    r"|(?:in der|pro|die) (?:Woche|Stunde|Minute))"
)
_DONE = (
    r"(?:an|aus|nach)?(?:ge\w+(?:t|en)|versucht|bestellt|bezahlt|probiert|dort|hier|da|hintereinander|nacheinander)\b"
)
"""What stands behind how often something was done; elsewhere `2x` may be a number of things, or in an equation."""
_HOW_OFTEN = re.compile(
    rf"(?<![\w.,:/x-])(1[0-2]|[1-9])(?:(?:\s?[x×]|-mal|\s[Mm]al)(?=\s{_EACH}(?!\w))|x(?=\s{_DONE}))(?!\w)"
)
_DAILY = re.compile(r"(?<=mal )tgl\.")
_NO_CENTS = re.compile(r"(?<=\d)[,.][-–—]+(?=\s?(?:€|EUR\b|[Ee]uros?\b|CHF\b|Fr\.))")
_LETTERS = {
    "i.d.R.": "in der Regel",
    "i.H.v.": "in Höhe von",
    "m.E.": "meiner Meinung nach",
    "m.M.n.": "meiner Meinung nach",
    "n.Chr.": "AD",
    "u.U.": "möglicherweise",
    "z.T.": "zum Teil",
}
_LETTERS_APART = "|".join("[.] ?".join(letters[:-1].split(".")) for letters in _LETTERS)
_INITIAL = "(?:I[.] ?d|I[.] ?H|M[.] ?E|M[.] ?M|U[.] ?U|Z[.] ?T)"
_FOR_WORDS = re.compile(rf"(?<![\w.])(?:{_LETTERS_APART}|(?={_INITIAL})(?i:{_LETTERS_APART})(?=\.\s[a-zäöü]))\.(?!\w)")
"""With a capital, what a name follows may be initials."""
_BY_LETTERS = {letters.lower(): words for letters, words in _LETTERS.items()}
_EXAMPLE = re.compile(r"(?<=\()z\. ?B\.(?=\s(?!\S*\d))")
"""Behind a parenthesis, before words; elsewhere models know it."""


def spelt_out(text: str, ends_line: bool = True) -> str:
    """A German text with its shorthand spelt out; other text as it is.

    Args:
        ends_line: whether nothing stands behind it: then the full stop at its end is the sentence's as well.
    """
    end = partial(_end, ends_line)
    text = _NO_CENTS.sub("", text)
    text = _DAILY.sub("täglich", _HOW_OFTEN.sub(lambda match: f"{_TIMES[int(match[1])]}mal", text))
    text = _DAYS.sub(lambda match: _several(match) + end(match), text)
    text = _DAY_OF_DATE.sub(lambda match: _named(match[1]), text)
    text = _DAY_WITH_TIME.sub(lambda match: _named(match[0]), text)
    text = _DAY_BEHIND.sub(lambda match: match[1] + _named(match[2]) + end(match), text)
    text = _EXAMPLE.sub("zum Beispiel", text)
    return _FOR_WORDS.sub(lambda match: _words(match[0]) + end(match), text)


def _named(day: str) -> str:
    return _WEEKDAYS[day.rstrip(".")]


def _several(match: re.Match[str]) -> str:
    """`Montag bis Freitag` for `Mo.-Fr.`, `Montag, Dienstag und Donnerstag` for `Mo, Di u. Do`."""
    parts = re.split(rf"({_BETWEEN})", match[0])
    if len({_named(day) for day in parts[::2]}) < len(parts[::2]):
        return match[0].removesuffix(".")  # `So & So`
    named = (_named(part) if place % 2 == 0 else _JOINTS.get(part.strip(), part) for place, part in enumerate(parts))
    return _COMMA.sub(", ", "".join(named))


def _words(letters: str) -> str:
    words = _BY_LETTERS[letters.replace(" ", "").lower()]
    return words[0].upper() + words[1:] if letters[0].isupper() else words


def _end(ends_line: bool, match: re.Match[str]) -> str:
    """The full stop that ends a line, where that of an abbreviation did."""
    return "." if ends_line and match[0].endswith(".") and match.end() == len(match.string.rstrip()) else ""
