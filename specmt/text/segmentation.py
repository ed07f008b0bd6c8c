"""A line as segments that the model can translate: at sentence ends, failing that at clauses, words, tokens.

Nothing is lost: the texts of a line's segments and what stands between them are the line. Whether a line is split
depends on nothing but the line, so every strategy, batch and run decodes the same segments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from specmt.text.marks import cells
from specmt.text.sentences import sentences_of

_BLOCK = 100_000
"""Characters that are searched for sentence ends at a time: lines without end stay cheap."""
_CLAUSES = (re.compile(r"[;:–—…]\s+|[。；：]"), re.compile(r",\s+|[、，]"), re.compile(r"\s+"))
"""Where a sentence may be cut, the best places first: after a match."""
_LONGEST_PIECE = 8
"""Characters of a token, about: longer stretches are searched for a cut in parts."""
_FRONT = re.compile(r"(?:[\u200b-\u200f\ufeff]*\s)*")
"""White space that a sentence begins with, behind characters without width, which tokenizers drop."""


@dataclass(frozen=True)
class Splitting:
    """What splitting needs to know of a pair: the source language (ISO 639-1), and the tokens it was trained on."""

    language: str
    max_source_tokens: int


@dataclass(frozen=True)
class Segment:
    """A part of a line, decoded as one sentence. `glue` stood between it and the next one."""

    text: str
    ids: Sequence[int]
    """Without end-of-sentence."""
    glue: str = ""
    ordinary: str = ""
    """What the ids spell where that is not the text, because of its capitals or abbreviations; see `capitals`."""


class Segmenter:
    """Splits lines for a model that was trained on single sentences of at most `max_tokens` tokens."""

    def __init__(self, language: str, encode: Callable[[str], list[int]], max_tokens: int) -> None:
        """Split lines in `language` (ISO 639-1).

        Args:
            encode: text to ids.
            max_tokens: that a segment may have, at least 1; end-of-sentence not counted.
        """
        self._language = language
        self._encode = encode
        self.max_tokens = max_tokens

    def split(self, line: str) -> list[Segment]:
        """The segments of a line that have tokens; none for a blank line. Line feeds inside end a segment."""
        segments: list[Segment] = []
        for text in self._sentences(line):
            for part, ids in self._fitting(text):
                stripped = part.strip()
                before, _, behind = part.partition(stripped) if stripped else (part, "", "")
                if segments and before:
                    segments[-1] = replace(segments[-1], glue=_glue(segments[-1].glue + before))
                if ids:
                    segments.append(Segment(stripped, ids, glue=_glue(behind)))
                elif segments:
                    segments[-1] = replace(segments[-1], glue=_glue(segments[-1].glue + behind))
        return segments

    def _sentences(self, line: str) -> Iterator[str]:
        """Sentences with the white space behind them, which together are the line."""
        for paragraph in re.findall(r"[^\n]*\n|[^\n]+", line):
            for block in _blocks(paragraph):
                for cell in cells(block):
                    yield from _ended(sentences_of(self._language, cell))

    def _fitting(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Parts of a sentence that fit into the model, which together are the sentence, and their ids."""
        longest = _LONGEST_PIECE * self.max_tokens
        while len(ids := self._encode(text[:longest].strip())) > self.max_tokens or len(text) > longest:
            cut = self._cut(text[:longest], len(ids))
            yield text[:cut], self._encode(text[:cut].strip())
            text = text[cut:]
        yield text, ids

    def _cut(self, text: str, tokens: int) -> int:
        """Characters up to the best place for a cut; parts are about equally long, and none is longer than allowed."""
        parts = -(-tokens // self.max_tokens)
        fits = self._prefix(text, self.max_tokens)
        wanted = min(fits, len(text) // max(parts, 1)) if parts > 1 else fits
        for pattern in _CLAUSES:
            places = [match.end() for match in pattern.finditer(text, 0, fits) if 0 < match.end() <= fits]
            near = [place for place in places if place >= wanted // 2 and text[:place].strip()]
            if near:
                return min(near, key=lambda place: (abs(place - wanted), place))
        return fits

    def _prefix(self, text: str, tokens: int) -> int:
        """The most characters, at least one, that make at most so many tokens."""
        low, high = 1, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if len(self._encode(text[:middle].strip())) <= tokens:
                low = middle
            else:
                high = middle - 1
        return low


def _ended(sentences: Sequence[str]) -> Iterator[str]:
    """Sentences with the white space before the next one, so that it stays between their translations."""
    begin = 0
    for sentence, following in zip_longest(sentences, sentences[1:], fillvalue=""):
        front = len(following) - len(_FRONT.sub("", following, count=1))
        yield sentence[begin:] + following[:front]
        begin = front


def whole(line: str, encode: Callable[[str], list[int]]) -> list[Segment]:
    """A line as the one segment that it is; none for a blank line."""
    ids = encode(line)
    return [Segment(line, ids)] if ids else []


def _glue(between: str) -> str:
    """What stands between two translations for what stood between the sources: line feeds, tabs, a blank or none."""
    return "\n" * between.count("\n") or "\t" * between.count("\t") or (" " if between else "")


def _blocks(text: str) -> Iterator[str]:
    """Parts of a very long line, cut at white space where there is some."""
    while len(text) > _BLOCK:
        blank = re.compile(r"\s").search(text, _BLOCK // 2, _BLOCK)
        cut = blank.end() if blank else _BLOCK
        yield text[:cut]
        text = text[cut:]
    yield text
