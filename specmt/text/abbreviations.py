"""German abbreviations that models know less well than the word: written out before they are encoded.

Of those that were tried, only such stand here that came out wrong as they are, and right as a word. One word becomes
one word, so that alignments need to know nothing of it.
"""

from __future__ import annotations

import re

from specmt.text.sentences import BEGINNINGS

_MEASURES = {
    "Std.": ("Stunden", "Stunde"),
    "Min.": ("Minuten", "Minute"),
    "Sek.": ("Sekunden", "Sekunde"),
    "Tsd.": ("Tausend", "Tausend"),
    "Pers.": ("Personen", "Person"),
}
"""What stands behind a number, and behind 1."""
_SPOONS = {"EL": "Esslöffel", "TL": "Teelöffel", "l": "Liter"}
"""What stands behind any number."""
_WORDS = {
    "bspw.": "beispielsweise",
    "bzgl.": "bezüglich",
    "ehem.": "ehemalige",
    "einschl.": "einschließlich",
    "evtl.": "eventuell",
    "gesetzl.": "gesetzliche",
    "inkl.": "inklusive",
    "insb.": "insbesondere",
    "insbes.": "insbesondere",
    "insg.": "insgesamt",
    "jährl.": "jährlich",
    "mind.": "mindestens",
    "städt.": "städtische",
    "sog.": "sogenannte",
    "stellv.": "stellvertretende",
    "tägl.": "täglich",
    "versch.": "verschiedene",
    "zzgl.": "zuzüglich",
}
"""With a capital as well. Of adjectives the ending is one of several, which changes no translation."""
_SMALL_WORDS = {"gem.": "gemäß", "lt.": "laut", "od.": "oder", "wg.": "wegen", "zw.": "zwischen"}
"""Only in small letters: with a capital they are something else (`Gem.`: Gemeinde, `Lt.`: Leutnant)."""
_IN_FULL = {
    **_SMALL_WORDS,
    **_WORDS,
    **{abbreviation.capitalize(): word.capitalize() for abbreviation, word in _WORDS.items()},
}
_END = r"(?<=\.)[\W_]*$"
"""Where the full stop is the sentence's as well."""
_WORTH_A_LOOK = re.compile(r"[\d½¼¾]|[^\W\d_]\.(?!\s*$)")
"""What stands in sentences with abbreviations within, and in few others: the patterns below take long to be made."""
_MEASURE = (
    rf"(?P<one>(?<![\d.,/:–-])(?<![\d.,/:–-]\s)1)?(?<=[\d½¼¾])(?P<blank>\s?)"
    rf"(?P<short>(?i:{'|'.join(map(re.escape, _MEASURES))}))(?![\w-])"
    rf"(?P<end>{_END}|(?<=\.)(?=\s+(?:{BEGINNINGS}|(?:Max|Min)\.)))?"
)
_SPOON = r"(?<=[\d½¼¾])(\s?)(EL|TL|l)(?=\W*$|\s?[,;=]|\s(?:[a-zäöüß]+e[nrs]?\s)?[A-ZÄÖÜ])"
"""Before what is measured by it: elsewhere they are other things."""
_WORD = rf"(?<![\w.-])(?P<short>{'|'.join(map(re.escape, _IN_FULL))})(?![\w-]|\s*[)!?])(?P<end>{_END})?"


def written_out(sentence: str) -> str:
    """A German sentence whose abbreviations are words; a full stop that ends it stays."""
    if not _WORTH_A_LOOK.search(sentence):
        return sentence
    sentence = re.sub(_SPOON, lambda match: match[1] + _SPOONS[match[2]], sentence)
    return re.sub(_WORD, _word, re.sub(_MEASURE, _measure, sentence))


def _measure(match: re.Match[str]) -> str:
    several, single = _MEASURES[match["short"].capitalize()]
    one = match["one"] or ""
    return one + match["blank"] + (single if one else several) + _end(match)


def _word(match: re.Match[str]) -> str:
    return _IN_FULL[match["short"]] + _end(match)


def _end(match: re.Match[str]) -> str:
    return "" if match["end"] is None else "." + match["end"]
