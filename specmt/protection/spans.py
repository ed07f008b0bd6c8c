"""The parts of a line that are protected, and how they are looked for in a translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from specmt.protection import ordinals
from specmt.translation import Translation

if TYPE_CHECKING:
    from specmt.protection.times import Time

FRACTION = r"[\u00bc-\u00be\u2150-\u215e]"
"""A fraction in one character."""
_POSITIONAL = re.compile(r"%[-+#0]*\d*(?:\.\d+)?[a-zA-Z@]+(?:%%)?|\{\s?(?:[!:][^{}]*)?\}")
"""Placeholders that are told from others by their order alone."""
_NUMBER_BEGINS = re.compile(rf"(?<!\d)(?<!\d[.,:/])(?=\[?\d|{FRACTION})")
_NUMBER_GOES_ON = re.compile(r"\d|[.,:/]\d")
_IN_NUMBERS = frozenset(".,:/")
_WORD_GOES_ON = re.compile(r"\w")
"""Behind a number that ends in another character than a digit."""


@dataclass(frozen=True)
class Span:
    """A part of a line: how it stands there, how it must stand in the translation, and what it is."""

    text: str
    target: str
    kind: str
    """One of `finding.KINDS`, `term`, or `element`."""

    @property
    def is_soft(self) -> bool:
        """Whether it may stay in the text: it comes out right more often than not."""
        return self.kind in {"code", "number", "term"}

    @property
    def is_positional(self) -> bool:
        """Whether it must keep its place among others such as `%s` and `{}`."""
        return False

    def is_said(self, text: str) -> bool:
        """Whether it stands in a text in another way than as its target."""
        return False

    def taken_from(self, text: str, count: int) -> tuple[str, int]:
        """`text` with blanks for it, the first `count` times that it stands there, and how often that was."""
        left, taken, end = list[str](), 0, 0
        while taken < count and (begin := self._found(text, end)) >= 0:
            left += [text[end:begin], " "]
            end, taken = begin + len(self.target), taken + 1
        return "".join([*left, text[end:]]), taken

    def _found(self, text: str, begin: int) -> int:
        """Where it stands in a text, from a place on; -1 where it does not. A pattern would take far longer to make."""
        if self.kind not in {"code", "term"}:
            return text.find(self.target, begin)
        first, rest = self.target[0], self.target[1:]
        firsts = {first, first.upper()} if self.kind == "term" and first.islower() else {first}
        while (place := text.find(rest, begin + 1)) > 0:
            if text[place - 1] in firsts and _is_whole(text, place - 1, place + len(rest), self.kind == "term"):
                return place - 1
            begin = place
        return -1


@dataclass(frozen=True)
class Number(Span):
    """A number, which may be a time of day or an ordinal."""

    kind: str = "number"
    time: Time | None = None
    """The time of day that it is, which may stand by the twelve-hour clock."""
    is_ordinal: bool = False
    """Whether it may be spelt out."""

    def is_said(self, text: str) -> bool:
        """See `Span`: by the twelve-hour clock, or spelt out."""
        if self.time:
            return self.time.is_said(text)
        return self.is_ordinal and ordinals.is_said(self.text, text)

    def taken_from(self, text: str, count: int) -> tuple[str, int]:
        """See `Span`."""
        text, taken = _numbers_taken_from(text, {self.target: count})
        return text, taken[self.target]


@dataclass(frozen=True)
class Placeholder(Span):
    """What a program puts something in place of, such as `%d`."""

    kind: str = "placeholder"
    is_count: bool = False
    """Whether it seems to stand for a number."""

    @property
    def is_positional(self) -> bool:
        """See `Span`: whether it has no name or number."""
        return _POSITIONAL.fullmatch(self.text) is not None


@dataclass(frozen=True)
class Mark(Span):
    """One of two that belong together, as a tag and its end do."""

    kind: str = "tag"
    pair: int = 0
    """Which both have."""
    opens: bool = False


@dataclass(frozen=True)
class Element(Span):
    """An opening tag, the closing one, and what is between them, which was translated by itself."""

    made: Translation = field(compare=False)
    """The translation that is the target, with its alternatives."""
    holds_positional: bool
    is_count: bool = False
    """Whether its text is a number, or stands for one."""
    content: str = ""
    """What is between the tags, if it is text alone or one span."""
    translated: str = ""
    """Its translation by itself."""
    around: tuple[str, str] | None = None
    """Of one with text alone: what stands before and behind it, tags and blanks."""

    @property
    def is_positional(self) -> bool:
        """See `Span`: whether something in it is."""
        return self.holds_positional

    @property
    def sentence_end(self) -> str:
        """The mark with which its content ends a sentence, if it does."""
        return self.content[-1:] if self.content.endswith((".", "!", "?")) else ""


def _is_whole(text: str, begin: int, end: int, is_term: bool) -> bool:
    """Whether what stands in a text is a whole word; a term that begins or ends with a digit, a whole number."""
    before, behind = text[max(begin - 2, 0) : begin], text[end : end + 2]
    if _WORD_GOES_ON.match(before[-1:]) or _WORD_GOES_ON.match(behind):
        return False
    if not is_term:
        return True
    goes_on_before = text[begin].isdecimal() and before[-1:] in _IN_NUMBERS and before[:1].isdecimal()
    goes_on_behind = text[end - 1].isdecimal() and behind[:1] in _IN_NUMBERS and behind[1:].isdecimal()
    return not (goes_on_before or goes_on_behind)


Parts = list["str | Span"]
"""A line as text and spans in turn."""


def source(part: str | Span) -> str:
    """A part as it stands in its line."""
    return part.text if isinstance(part, Span) else part


def target(part: str | Span) -> str:
    """A part as it must stand in the translation, where it is a span."""
    return part.target if isinstance(part, Span) else part


def taken(text: str, places: Iterable[tuple[int, int]]) -> bytearray:
    """For each character of a text, whether it is in one of the places, given by their ends."""
    inside = bytearray(len(text))
    for begin, end in places:
        inside[begin:end] = b"\1" * (end - begin)
    return inside


def covered(text: str, parts: Iterable[str]) -> bytearray:
    """For each character of a text, whether it is in one of the parts, wherever these stand."""
    places = []
    for part in set(parts):
        begin = text.find(part)
        while begin >= 0:
            places.append((begin, begin + len(part)))
            begin = text.find(part, begin + len(part))
    return taken(text, places)


def lacking(text: str, wanted: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """The spans of `wanted`, which are of `spans`, that stand in `text` less often than among `spans`.

    A time of day may stand by the twelve-hour clock, an ordinal be spelt out. What is part of an address, a tag or a
    placeholder, of a longer number or a longer term, does not count. Of spans with the same target, such as two words
    that one term translates, all are lacking if one is.
    """
    # What is found is taken out of the text, so the whole is looked for before its parts: addresses, tags and
    # placeholders before numbers and terms, but for those that a term holds; then the longest.
    held = "\n".join({span.target for span in spans if span.kind == "term"})
    by_target: dict[tuple[bool, int, bool, str], list[Span]] = {}
    for span in spans:
        may_be_part = span.is_soft or span.target in held
        by_target.setdefault((may_be_part, -len(span.target), span.is_soft, span.target), []).append(span)
    lost: set[Span] = set()
    whole = text
    for _, alike in groupby(sorted(by_target.items()), key=lambda item: item[0][:3]):
        groups = [same for _, same in alike]
        counts = {same[0].target: len(same) for same in groups if isinstance(same[0], Number)}
        text, numbers = _numbers_taken_from(text, counts)
        for same in groups:
            found = numbers[same[0].target]
            if not isinstance(same[0], Number):
                text, found = same[0].taken_from(text, len(same))
            if found < len(same):
                unsaid = [span for span in same if not span.is_said(whole)]
                lost.update(unsaid if found < len(unsaid) else ())
    return [span for span in dict.fromkeys(wanted) if span in lost]


def _numbers_taken_from(text: str, counts: Mapping[str, int]) -> tuple[str, Counter[str]]:
    """`Span.taken_from` of numbers, all as long as one another, in one pass: a line may have thousands of them.

    A part of a longer number is none.

    Args:
        counts: by number, how often it is taken at most.
    """
    taken = Counter[str]()
    if not counts:
        return text, taken
    length, end = len(next(iter(counts))), 0
    left: list[str] = []
    for match in _NUMBER_BEGINS.finditer(text):
        begin = match.start()
        number = text[begin : begin + length]
        goes_on = _NUMBER_GOES_ON if number[-1].isdecimal() else _WORD_GOES_ON
        if begin < end or taken[number] >= counts.get(number, 0) or goes_on.match(text, begin + length):
            continue
        taken[number] += 1
        left += [text[end:begin], " "]
        end = begin + length
    return "".join([*left, text[end:]]), taken
