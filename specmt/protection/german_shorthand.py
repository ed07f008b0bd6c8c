"""German shorthand, spelt out so that a model translates it well: weekdays, how often, prices, letters for words.

Of what was tried, only such stands here that came out wrong as it is, and right when it is spelt out. What one word
says for one word (`inkl.`) is in `text.abbreviations`, which knows nothing of numbers.
"""

from __future__ import annotations

import re

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
_MONTH = r"(?:\d|Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)"
_BETWEEN = r"\s?[-–—/,+&]\s?|\s(?:bis|und|u\.|oder)\s"
_DAYS = re.compile(rf"(?<![\w.-]){_DAY}(?:(?:{_BETWEEN}){_DAY})+(?![\w-])")
"""Several: `Mo.-Fr.`, `Mo, Di und Do`."""
_DAY_OF_DATE = re.compile(rf"(?<![\w.-])({_DAY})(?=,?\s+(?:(?:den|der|dem)\s+)?\d{{1,2}}\.\s?{_MONTH})")
_DAY_WITH_TIME = re.compile(
    rf"(?<![\w.-])(?!So um\b)({_DAY})(?=:?\s+(?:(?:um|von|ab|bis)\s+)?"
    r"\d{1,2}(?:[.:]\d\d)?\s?(?:[Uu]hr\b|h\b|[-–]\s?\d|bis \d))"
)
_DAY_BEHIND = re.compile(
    r"(?<![\w-])((?i:am|jeden|bis|ab|nächsten|letzten|kommenden|diesen|vom)\s)((?:Mo|Di|Mi|Do|Fr|Sa|So)\.)"
)
_JOINTS = {"-": " bis ", "–": " bis ", "—": " bis ", "/": " und ", "+": " und ", "&": " und ", "u.": " und "}

_TIMES = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"]
_EACH = (
    r"(?:täglich|tgl\.|wöchentlich|monatlich|jährlich|(?:am|pro|jeden) Tag|(?:im|pro) (?:Monat|Jahr)"
    r"|(?:in der|pro|die) (?:Woche|Stunde|Minute))"
)
_HOW_OFTEN = re.compile(
    rf"(?<![\w.,:/x-])(1[0-2]|[1-9])(?:(?:\s?[x×]|-mal|\s[Mm]al)(?=\s{_EACH}(?!\w))|x(?=\s[a-zäöü]))(?!\w)"
)
_DAILY = re.compile(r"(?<=mal )tgl\.")
_NO_CENTS = re.compile(r"(?<=\d)[,.][-–—]+(?=\s?(?:€|EUR\b|[Ee]uros?\b|CHF\b|Fr\.))")
_LETTERS = {
    "i.d.R.": "in der Regel",
    "i.H.v.": "in Höhe von",
    "m.E.": "meiner Meinung nach",
    "m.M.n.": "meiner Meinung nach",
    "n.Chr.": "nach Christus",
    "u.U.": "möglicherweise",
    "z.T.": "zum Teil",
}
_FOR_WORDS = re.compile(
    rf"(?<![\w.])(?:{'|'.join('[.] ?'.join(one[:-1].split('.')) for one in _LETTERS)})\.(?!\w)",
    re.IGNORECASE,
)
_BY_LETTERS = {letters.lower(): words for letters, words in _LETTERS.items()}
_EXAMPLE = re.compile(r"(?<=\()z\. ?B\.(?=\s)")
"""Behind a parenthesis; elsewhere models know it."""


def spelt_out(text: str) -> str:
    """A German text with its shorthand spelt out; other text as it is."""
    text = _NO_CENTS.sub("", text)
    text = _DAILY.sub("täglich", _HOW_OFTEN.sub(lambda match: f"{_TIMES[int(match[1])]}mal", text))
    text = _DAYS.sub(lambda match: _several(match[0]) + _end(match), text)
    text = _DAY_OF_DATE.sub(lambda match: _named(match[1]), text)
    text = _DAY_WITH_TIME.sub(lambda match: _named(match[1]), text)
    text = _DAY_BEHIND.sub(lambda match: match[1] + _named(match[2]) + _end(match), text)
    text = _EXAMPLE.sub("zum Beispiel", text)
    return _FOR_WORDS.sub(lambda match: _words(match[0]) + _end(match), text)


def _named(day: str) -> str:
    return _WEEKDAYS[day.rstrip(".")]


def _several(days: str) -> str:
    """`Montag bis Freitag` for `Mo.-Fr.`, `Montag, Dienstag und Donnerstag` for `Mo, Di u. Do`."""
    parts = re.split(rf"({_BETWEEN})", days)
    return "".join(
        _named(part) if place % 2 == 0 else _JOINTS.get(part.strip(), part) for place, part in enumerate(parts)
    )


def _words(letters: str) -> str:
    words = _BY_LETTERS[letters.replace(" ", "").lower()]
    return words[0].upper() + words[1:] if letters[0].isupper() else words


def _end(match: re.Match[str]) -> str:
    """The full stop that ends a text, where that of an abbreviation did."""
    return "." if match[0].endswith(".") and match.end() == len(match.string.rstrip()) else ""
