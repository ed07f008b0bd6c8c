"""What languages are called: by two letters or three, with a country or without."""

from __future__ import annotations

import re

_TWO_LETTERS = {
    "ara": "ar",
    "ces": "cs",
    "chi": "zh",
    "cze": "cs",
    "dan": "da",
    "deu": "de",
    "dut": "nl",
    "ell": "el",
    "eng": "en",
    "fin": "fi",
    "fra": "fr",
    "fre": "fr",
    "ger": "de",
    "gre": "el",
    "heb": "he",
    "hin": "hi",
    "hun": "hu",
    "ita": "it",
    "jpn": "ja",
    "kor": "ko",
    "nld": "nl",
    "nor": "no",
    "pol": "pl",
    "por": "pt",
    "ron": "ro",
    "rum": "ro",
    "rus": "ru",
    "spa": "es",
    "swe": "sv",
    "tur": "tr",
    "ukr": "uk",
    "zho": "zh",
}
"""ISO 639-1 of languages that are often called by three letters."""


def usual_code(language: str) -> str:
    """A language as ISO 639-1 calls it, if it does: `de` for `de_DE`, `DE` and `deu`."""
    code = re.split(r"[-_.]", language.lower())[0]
    return _TWO_LETTERS.get(code, code)
