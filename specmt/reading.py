"""How lines become the segments that a model reads: split where sentences end, and spelt as is ordinary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

from specmt.errors import InputError, UsageError
from specmt.settings import DecodingSettings
from specmt.streams.inputs import InputLine
from specmt.text.ordinary import Ordinary
from specmt.text.segmentation import Segment, Segmenter, Splitting, whole
from specmt.text.vocabulary import AnyVocabulary, Vocabulary

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_FEWEST_WORDS = 3
"""Of a line that counts as one without capitals."""
_TAG = re.compile(r"<[^<>]*>")
_NO_WORD = re.compile(r"[/@\\<>{}=$%&_]|[^\W\d_][.:]\w")
"""What is in addresses, placeholders, and names of files: they have capitals, or none, in any text."""
_OPTION = re.compile(r"--?\w")
"""What a line begins a word with that is a command."""


class Spelling:
    """What of lines in a language has other ids than it is written with."""

    def __init__(self, language: str, vocabulary: Vocabulary) -> None:
        """`language`: ISO 639-1."""
        self._language, self._vocabulary = language, vocabulary
        self.usual = Ordinary(language, vocabulary)

    def of(self, line: str) -> Ordinary:
        """How a line and its parts are spelt."""
        return self._without_capitals if self._language == "de" and has_no_capitals(line) else self.usual

    @cached_property
    def _without_capitals(self) -> Ordinary:
        from specmt.text.nouns import Nouns  # whose patterns take longer to make than a sentence takes to be translated

        return Ordinary(self._language, self._vocabulary, Nouns(self._vocabulary))


class Reader:
    """Makes lines, or parts of one, segments, as some settings say."""

    def __init__(
        self,
        vocabulary: AnyVocabulary,
        splitting: Splitting | None,
        spelling: Spelling | None,
        settings: DecodingSettings,
        largest: int | None = None,
        part_of: int | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            splitting: how lines are split; without it each is one segment.
            spelling: how they are spelt; without it, as they are.
            largest: source tokens that the model has positions for; None: any number.
            part_of: the index of the line of which they are parts, if they are, for errors.

        Raises:
            UsageError: longer segments are asked for than the model has positions for.
        """
        asked = settings.max_source_tokens
        if largest is not None and asked is not None and asked > largest:
            raise UsageError(f"--max-source-tokens {asked}: this model has positions for at most {largest}")
        self._vocabulary, self._splitting = vocabulary, splitting if settings.split else None
        self._spelling = spelling if settings.guards else None
        self._asked, self._largest, self._part_of = asked, largest, part_of
        self._most = asked or (splitting.max_source_tokens if splitting else largest)

    def segments(self, index: int, line: InputLine) -> Sequence[Segment]:
        """The segments of the line with an index.

        Raises:
            InputError: it is not to be split, and too long.
        """
        ordinary = self._spelling.of(line.line or line.text) if self._spelling else None
        segmenter = self._segmenter(ordinary)
        segments = segmenter.split(line.text) if segmenter else whole(line.text, self._vocabulary.encode)
        spelt = ordinary.segments(segments) if ordinary else segments
        return spelt if segmenter else self._fitting(index, spelt)

    @property
    def segmenter(self) -> Segmenter | None:
        """What splits texts that are spelt as usual; None where they are translated as they are."""
        return self._segmenter(self._spelling.usual if self._spelling else None)

    def _segmenter(self, ordinary: Ordinary | None) -> Segmenter | None:
        if self._splitting is None:
            return None
        most, language = self._asked or self._splitting.max_source_tokens, self._splitting.language
        return Segmenter(language, (ordinary or self._vocabulary).encode, most)

    def _fitting(self, index: int, segments: Sequence[Segment]) -> Sequence[Segment]:
        if self._most is None or not segments or len(segments[0].ids) <= self._most:
            return segments
        advice = "shorten the line, leave out --no-split, or raise --max-source-tokens"
        if self._most == self._largest:
            advice = "this model has positions for no more; shorten the line, or let it be split"
        place = (index if self._part_of is None else self._part_of) + 1
        raise InputError(f"line {place}: {len(segments[0].ids)} tokens, at most {self._most} fit: {advice}")


@lru_cache(maxsize=4)  # a line that is translated in pieces is asked for with each
def has_no_capitals(line: str) -> bool:
    """Whether a line of some words of two letters or more has no capital letter, but for addresses and the like."""
    plain = _TAG.sub(" ", line) if "<" in line else line
    words = 0
    for token in re.finditer(r"\S+", plain):
        if _NO_WORD.search(token[0]):
            continue
        if _OPTION.match(token[0]):
            return False
        for word in _WORD.findall(token[0]):
            if word != word.lower():
                return False
            words += sum(map(str.isalpha, word)) > 1
    return words >= _FEWEST_WORDS
