"""Capitals in which whole sentences and single words stand: where they do, and the same in the translation."""

from __future__ import annotations

import re

from specmt.text.abbreviations import written_out
from specmt.text.segmentation import Segment
from specmt.text.sentences import CARRIER_NAMES

LETTERS = re.compile(r"[^\W\d_]+")
STRESSED = re.compile(r"(?<![\w-])[^\W\d_]{4,}(?![\w-])")
"""What may be a word that is stressed; shorter ones (`WHO`, `ICE`) are abbreviations as often."""
_ABBREVIATED = 4
"""Letters of an abbreviation, at most."""
_LABEL = re.compile(r"([\W\d]{0,9}[^\W\d_]{3,40}[^:.!?]{0,40}):\s+(?=\S)")
"""What stands before a colon, and may be in capitals where the rest is not: `ACHTUNG: …`."""


def with_capitals_of(segment: Segment, text: str) -> str:
    """The translation of a segment that was encoded as it is ordinarily written, with what capitals it must have.

    That of a sentence in capitals is in capitals too, but for names that are not, and so is that of a label. Of other
    sentences, words that come out as they were encoded come out as they stood.
    """
    if not segment.ordinary:
        return text
    if in_capitals(written_out(segment.text)):
        return _raised(text, segment.text)
    end = max(text.find(":"), 0) if label_of(segment.text) else 0
    stressed = {word.lower(): word for word in STRESSED.findall(segment.text) if word.isupper()}
    rest = STRESSED.sub(lambda match: stressed.get(match[0], match[0]), text[end:])
    return _raised(text[:end], segment.text) + rest


def without_capital(source: str, text: str) -> str:
    """A translation in lower case at its beginning, where its source is so; `I`, `IP` and the like stay."""
    is_word = text[1:2].islower() or text.startswith("A ")
    return text[0].lower() + text[1:] if source[0].islower() and is_word else text


def _raised(text: str, source: str) -> str:
    """A text in capitals, but for names that are not in its source."""
    kept = {word for word in LETTERS.findall(source) if has_small_letters(word) and not word.islower()}
    return LETTERS.sub(lambda match: match[0] if match[0] in kept else match[0].upper(), text)


def label_of(text: str) -> str:
    """The label in capitals that a sentence in small letters begins with, without its colon; empty: none."""
    label = _LABEL.match(text)
    return label[1] if label and in_capitals(label[1]) else ""


def in_capitals(text: str) -> bool:
    """Whether a sentence is in capitals, but for a few words; abbreviations alone (`ARD und ZDF`) do not make one."""
    words = [word for word in LETTERS.findall(text) if len(word) > 1 and word not in CARRIER_NAMES]
    capital = [word for word in words if all(map(str.isupper, word.replace("ß", "")))]
    if len(capital) < len(words) and max(map(len, capital), default=0) <= _ABBREVIATED:
        return False
    return len(capital) > 0 and 4 * len(capital) >= 3 * len(words)


def has_small_letters(word: str) -> bool:
    """Whether a word is not in capitals; `ß` may be the capital."""
    return any(map(str.islower, word.replace("ß", "")))
