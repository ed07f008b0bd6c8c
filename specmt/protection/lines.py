"""A line on its way: elements that become one span, and what is taken off its ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from specmt.protection.spans import Parts, Span, source, target

_OPENING = re.compile(r"<([A-Za-z][\w:-]*)(?:\s[^<>]*)?(?<!/)>")


@dataclass
class ProtectedLine:
    """A line on its way: its parts, and which of the soft spans did not come out by themselves."""

    index: int
    text: str
    parts: Parts
    prefix: str = ""
    suffix: str = ""
    missing: set[str] = field(default_factory=set)
    """Texts of numbers and terms that need carriers."""

    @property
    def spans(self) -> list[Span]:
        """The parts that are spans."""
        return [part for part in self.parts if isinstance(part, Span)]

    @property
    def soft_spans(self) -> list[Span]:
        """Numbers and terms."""
        return [span for span in self.spans if span.is_soft]

    @property
    def texts(self) -> list[str]:
        """The parts that are no spans."""
        return [part for part in self.parts if isinstance(part, str)]

    def elements(self) -> Iterator[tuple[int, int]]:
        """Places of outermost opening tags and the tags that close them, with text between."""
        first = 0
        while first < len(self.parts):
            last = _closing(self.parts, first)
            if last is not None:
                yield first, last
                first = last
            first += 1

    def cut_edges(self) -> None:
        """Take tags, elements and space off the line's ends: nothing that the model should see."""
        parts = self.parts
        while parts and _is_edge(parts[0]):
            self.prefix += target(parts.pop(0))
        while parts and _is_edge(parts[-1]):
            self.suffix = target(parts.pop()) + self.suffix
        if self.prefix and parts and isinstance(first := parts[0], str):
            self.prefix += _leading_space(first)
            parts[0] = first.lstrip()
        if self.suffix and parts and isinstance(last := parts[-1], str):
            self.suffix = _trailing_space(last) + self.suffix
            parts[-1] = last.rstrip()


def _closing(parts: Parts, first: int) -> int | None:
    """The place of the tag that closes the one at `first`; None where that opens nothing."""
    opening = parts[first]
    match = _OPENING.fullmatch(opening.text) if isinstance(opening, Span) and opening.kind == "tag" else None
    if not match:
        return None
    depth = 0
    for place in range(first, len(parts)):
        text = source(parts[place]) if isinstance(parts[place], Span) else ""
        again = _OPENING.fullmatch(text)
        depth += bool(again and again[1] == match[1])
        depth -= text.replace(" ", "") == f"</{match[1]}>"
        if depth == 0:
            return place if place > first + 1 else None
    return None


def _is_edge(part: str | Span) -> bool:
    if isinstance(part, Span):
        return part.kind in {"tag", "element"}
    return not part.strip()


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _trailing_space(text: str) -> str:
    return text[len(text.rstrip()) :]


def with_spaces_of(original: str, text: str) -> str:
    """`text` with the space that stands around `original`."""
    return _leading_space(original) + text.strip() + _trailing_space(original) if original.strip() else original
