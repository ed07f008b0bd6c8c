"""Sentences in capitals, of which models have hardly seen any: as they are ordinarily written, and back.

Of each word's spellings the vocabulary knows which is the most common, so this needs no data of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from specmt.segmentation import Segment
from specmt.vocabulary import Vocabulary

_WORD = re.compile(r"[^\W\d_]+")
_MARGIN = 1.0
"""Nats by which a word within a sentence must be more common with a capital: at a beginning all words have one."""
_RARE = 3
"""Pieces from which on a German word counts as a noun: few other words are rare."""


class Ordinary:
    """Has sentences in capitals encoded as they are ordinarily written."""

    def __init__(self, language: str, vocabulary: Vocabulary) -> None:
        """Of sentences in `language` (ISO 639-1)."""
        self._is_german = language == "de"
        self._vocabulary = vocabulary
        self._spelling: Callable[[str, bool], str] = lru_cache(maxsize=10_000)(self._best)

    def segments(self, segments: Sequence[Segment]) -> Sequence[Segment]:
        """The segments, of which those in capitals have other ids, and say what these spell."""
        return [self._segment(segment) if _in_capitals(segment.text) else segment for segment in segments]

    def text(self, capitals: str) -> str:
        """A sentence in capitals as it is ordinarily written."""
        begins = [match.start() for match in _WORD.finditer(capitals)][:1]
        return _WORD.sub(lambda match: self._spelling(match[0], match.start() in begins), capitals)

    def _segment(self, segment: Segment) -> Segment:
        words = _WORD.findall(segment.text)
        if len(words) == 1 and self._is_name(words[0]):
            return segment
        text = self.text(segment.text)
        return replace(segment, ids=self._vocabulary.encode(text), ordinary=text)

    def _is_name(self, word: str) -> bool:
        """Whether a word that stands alone may be a name that is written so: its pieces are many for its length."""
        pieces = len(self._vocabulary.encode(self._spelling(word, True)))
        return pieces > 1 and len(word) <= 2 * pieces

    def _best(self, word: str, begins: bool) -> str:
        if _has_small_letters(word):
            return word
        forms = [word.lower()]
        if self._is_german:
            forms.append(forms[0].replace("ss", "ß"))
        form = max(forms, key=lambda form: max(self._commonness(form), self._commonness(form.capitalize())))
        small, capitalised = self._commonness(form), self._commonness(form.capitalize())
        if self._commonness(word) > max(small, capitalised):
            return word
        pieces = [len(self._vocabulary.encode(way)) for way in (form, form.capitalize())]
        is_noun = self._is_german and min(pieces) >= _RARE
        return form.capitalize() if begins or is_noun or capitalised > small + _MARGIN else form

    def _commonness(self, word: str) -> float:
        """The word's log-probability, nats."""
        return sum(map(self._vocabulary.log_probability, self._vocabulary.encode(word)))


def in_capitals_too(text: str, source: str) -> str:
    """A translation in capitals, as its source is; words that have small letters there keep them."""
    kept = set(filter(_has_small_letters, _WORD.findall(source)))
    return _WORD.sub(lambda match: match[0] if match[0] in kept else match[0].upper(), text)


def _in_capitals(text: str) -> bool:
    """Whether a sentence is in capitals, but for a few words."""
    words = [word for word in _WORD.findall(text) if len(word) > 1]
    capital = sum(all(map(str.isupper, word.replace("ß", ""))) for word in words)
    return capital > 0 and 4 * capital >= 3 * len(words)


def _has_small_letters(word: str) -> bool:
    return any(map(str.islower, word.replace("ß", "")))
