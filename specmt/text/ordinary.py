"""Sentences and words as they are ordinarily written, where capitals or abbreviations make them unusual to models.

Of each word's spellings the vocabulary knows which is the most common, so this needs no data of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from specmt.text.abbreviations import written_out
from specmt.text.capitals import LETTERS, STRESSED, has_small_letters, in_capitals, label_of
from specmt.text.segmentation import Segment
from specmt.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from specmt.text.nouns import Nouns

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_SHORT = re.compile(
    r"(?<![\w-])(?:AUF|BEI|DAS|DEN|DER|DIE|DIR|DU|FÜR|GAR|HAT|ICH|IHM|IHN|IHR|IST|JA|MAL|MIR|NEIN|NEU|NIE|NUN|NUR|SIE|UND"
    r"|UNS|VON|VOR|WAS|WEM|WEN|WIE|WIR|ZU)(?![\w-])"
)
"""German words that are stressed so, too short for the above, or more common with a capital; not `MIT`, `WER`, `ALS`,
`BIS`, `AB`, `WO`, `ES`, `EIN`, which are names of something, or what stands on a switch.
"""
_ASKED = re.compile(r"\W*[^\W\d_]+en\s+")
"""What stands before the one who is spoken to, where that is `Sie`."""
_LONGEST_NAME = 6
"""Letters of a name that is written in capitals (`UNESCO`) and would be damaged otherwise, at most."""
_NUMERAL = re.compile(r"[IVX]{2,}")
_MARGIN = 1.0
"""Nats by which a word within a sentence must be more common with a capital: at a beginning all words have one."""
_RARE = 3
"""Pieces from which on a German word counts as a noun: few other words are rare."""


class Ordinary:
    """Has what capitals make unusual encoded as it is ordinarily written.

    That is sentences in capitals, words in others that are stressed so, and lines without any. German abbreviations
    are written out as well.
    """

    def __init__(self, language: str, vocabulary: Vocabulary, nouns: Nouns | None = None) -> None:
        """Of sentences in `language` (ISO 639-1); with `nouns`, of those of a line without capitals."""
        self._is_german = language == "de"
        self._vocabulary = vocabulary
        self._nouns = nouns
        self._spelling: Callable[[str, bool], str] = lru_cache(maxsize=10_000)(self._best)
        self.text: Callable[[str], str] = lru_cache(maxsize=1_000)(self._text)
        """A sentence as it is ordinarily written; those are kept that were just measured to be split."""

    def encode(self, sentence: str) -> list[int]:
        """As the vocabulary does, of the sentence as it is ordinarily written."""
        return self._vocabulary.encode(self.text(sentence))

    def segments(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments, of which those with other spellings have other ids, and say what these spell."""
        return [self._segment(segment) for segment in segments]

    def _text(self, sentence: str) -> str:
        given = unicodedata.normalize("NFC", sentence)
        composed = written_out(given) if self._is_german else given
        if self._nouns:
            return self._nouns.with_capitals(composed)
        if not in_capitals(composed):
            label = label_of(composed)
            spelt = self._text(label) if label else ""
            unstressed = spelt + STRESSED.sub(self._unstressed, composed[len(label) :])
            if self._is_german:
                unstressed = _SHORT.sub(_small, unstressed)
            return sentence if unstressed == given else unstressed
        words = list(_WORD.finditer(composed))
        if len(words) == 1 and self._is_name(words[0][0]):
            return sentence
        begin = words[0].start()
        return _WORD.sub(lambda match: self._spelling(match[0], match.start() == begin), composed)

    def _segment(self, segment: Segment) -> Segment:
        text = self.text(segment.text)
        if text == segment.text:
            return segment
        return replace(segment, ids=self._vocabulary.encode(text), ordinary=text)

    def _unstressed(self, match: re.Match[str]) -> str:
        """A word in capitals in small letters if it is a common word, which has no capital, and no abbreviation."""
        word = match[0]
        if not word.isupper():
            return word
        ordinary = self._spelling(word, False)
        if not ordinary.islower() or len(self._vocabulary.encode(ordinary)) > 1:
            return word
        return _small(match)

    def _is_name(self, word: str) -> bool:
        """Whether a word that stands alone may be a name that is written so: its pieces are many for its length."""
        pieces = min(len(self._vocabulary.encode(self._spelling(word, begins))) for begins in (False, True))
        return pieces > 1 and len(word) <= min(2 * pieces, _LONGEST_NAME)

    def _best(self, word: str, begins: bool) -> str:
        if has_small_letters(word) or _NUMERAL.fullmatch(word):
            return word
        commonness = self._vocabulary.commonness
        forms = [word.lower()]
        if self._is_german:
            forms.append(forms[0].replace("ss", "ß"))
        form = max(forms, key=lambda form: max(commonness(form), commonness(form.capitalize())))
        small, capitalised = commonness(form), commonness(form.capitalize())
        if commonness(word) > max(small, capitalised):
            return word
        pieces = [len(self._vocabulary.encode(way)) for way in (form, form.capitalize())]
        is_noun = self._is_german and min(pieces) >= _RARE and LETTERS.fullmatch(word)
        return form.capitalize() if begins or is_noun or capitalised > small + _MARGIN else form


def _small(match: re.Match[str]) -> str:
    """A word in small letters, but for the first of a sentence, and `Rufen SIE an`."""
    before = match.string[: match.start()]
    is_polite = match[0] == "SIE" and _ASKED.fullmatch(before)
    return match[0].capitalize() if is_polite or not LETTERS.search(before) else match[0].lower()
