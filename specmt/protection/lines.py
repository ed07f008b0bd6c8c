"""A line on its way: elements that become one span, and what is taken off its ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from specmt.decoding.hypotheses import ReplayCounts
from specmt.protection.spans import Element, Mark, Number, Parts, Span, source, target
from specmt.text.sentences import sentences_of
from specmt.translation import Translation

_OPENING = re.compile(r"<([A-Za-z][\w:-]*)(?:\s[^<]*)?(?<!/)>")
_CLOSING = re.compile(r"</(.+)>")
_BLOCKS = re.compile(r"<(?i:address|blockquote|caption|d[dt]|div|h[1-6]|label|li|option|p|t[dh]|title)\b")
"""What elements begin with that are texts of their own."""
_SENTENCE_END = re.compile(r"[.!?…:][\W_]{0,9}$")
_DEEPEST = 50
"""Elements in one another that are translated by themselves."""


@dataclass
class ProtectedLine:
    """A line on its way: its parts, and which of the soft spans did not come out by themselves."""

    text: str
    parts: Parts
    depth: int = 0
    """Elements that the line is the content of."""
    before: Parts = field(default_factory=list)
    """What was cut off in front of the parts, and `behind` them."""
    behind: Parts = field(default_factory=list)
    missing: set[str] = field(default_factory=set)
    """Texts of numbers and terms that need carriers."""

    @property
    def spans(self) -> list[Span]:
        """The parts that are spans."""
        return [part for part in self.parts if isinstance(part, Span)]

    @property
    def texts(self) -> list[str]:
        """The parts that are no spans."""
        return [part for part in self.parts if isinstance(part, str)]

    def stays(self, span: Span) -> bool:
        """Whether a span may stand in what is translated as it is: it has come out by itself so far."""
        return span.is_soft and span.text not in self.missing

    def elements(self) -> Iterator[tuple[int, int]]:
        """Places of outermost opening tags and the tags that close them, with text between; none at a great depth."""
        end = 0
        for first, last in sorted(_closings(self.parts).items()) if self.depth < _DEEPEST else ():
            if first >= end and last > first + 1:
                yield first, last
                end = last

    def cut_edges(self) -> None:
        """Take tags, elements that are no part of a sentence, and space off the line's ends."""
        begin, cut = 0, list[str | Span]()
        while begin < len(self.parts) and _is_edge(self.parts[begin], said=source(self.parts[begin])):
            begin += 1
        self.before += self.parts[:begin]
        self.parts = parts = self.parts[begin:]
        while parts and _is_edge(parts[-1], said="".join(map(source, parts[-3:-1]))):
            cut.append(parts.pop())
        self.behind[:0] = reversed(cut)
        if self.before and parts and isinstance(first := parts[0], str):
            self.before.append(_leading_space(first))
            parts[0] = first.lstrip()
        if self.behind and parts and isinstance(last := parts[-1], str):
            self.behind.insert(0, _trailing_space(last))
            parts[-1] = last.rstrip()

    def sections(self, language: str) -> list[str | Span]:
        """What stands between tags without pairs, and these; in sentences where `language` (ISO 639-1) is not empty."""
        sections = list[str | Span]()
        between: Parts = []
        for part in self.parts:
            if isinstance(part, Span) and part.kind == "tag":
                sections += [*_sentences(between, language), part]
                between = []
            else:
                between.append(part)
        return [*sections, *_sentences(between, language)]

    def with_edges(self, core: Translation) -> Translation:
        """The parts' translation, with its alternatives, between what was cut off."""
        before, behind = (
            [part.made for part in edge if isinstance(part, Element)] for edge in (self.before, self.behind)
        )
        prefix, suffix = ("".join(map(target, edge)) for edge in (self.before, self.behind))

        def whole(one: Translation) -> Translation:
            return self.joined(prefix + one.text + suffix, [*before, one, *behind])

        others = [whole(core.with_alternative(one)) for one in core.n_best]
        return replace(whole(core), n_best=tuple(other.as_alternative for other in others))

    def joined(self, text: str, used: Sequence[Translation]) -> Translation:
        """The line's translation, which is `text`, made of several; those of blank texts count for nothing."""
        used = [one for one in used if one.source_ids]
        if len(used) == 1:
            return replace(used[0], source=self.text, text=text)
        weights = [len(one.source_ids) if one.ids else 0 for one in used]
        return Translation(
            0,
            self.text,
            text,
            sum(one.score * weight for one, weight in zip(used, weights, strict=True)) / (sum(weights) or 1),
            tuple(id_ for one in used for id_ in one.ids),
            iterations=tuple(iteration for one in used for iteration in one.iterations),
            source_ids=tuple(id_ for one in used for id_ in one.source_ids),
            token_log_probs=tuple(log_prob for one in used for log_prob in one.token_log_probs),
            segments=max(sum(one.segments for one in used), 1),
            decoded=sum(one.decoded for one in used),
            warnings=tuple(dict.fromkeys(warning for one in used for warning in one.warnings)),
            replay=ReplayCounts.total(one.replay for one in used if one.replay),
        )


def rewritten(translation: Translation, change: Callable[[str], str]) -> Translation:
    """A translation with its text, and those of its alternatives, changed."""
    others = (replace(one, text=change(one.text)) for one in translation.n_best)
    return replace(translation, text=change(translation.text), n_best=tuple(others))


def _closings(parts: Parts) -> dict[int, int]:
    """The places of opening tags, and of those that close them."""
    opened: dict[str, list[int]] = {}
    found = {}
    for place, part in enumerate(parts):
        if not isinstance(part, Span):
            continue
        if isinstance(part, Mark):
            marks = opened.setdefault(f"mark {part.pair}", [])
            if part.opens:
                marks.append(place)
            elif marks:
                found[marks.pop()] = place
            continue
        opening = _OPENING.fullmatch(part.text) if part.kind == "tag" else None
        if opening:
            opened.setdefault(opening[1], []).append(place)
        elif (closing := _CLOSING.fullmatch(part.text.replace(" ", ""))) and opened.get(closing[1]):
            found[opened[closing[1]].pop()] = place
    return found


def _is_edge(part: str | Span, said: str) -> bool:
    """`said`: what stands before the place where it would be cut off; an element within a sentence is no edge."""
    if isinstance(part, str):
        return not part.strip()
    is_block = _BLOCKS.match(part.text) is not None
    return part.kind == "tag" or (isinstance(part, Element) and (is_block or _ends_sentence(said)))


def _ends_sentence(text: str) -> bool:
    text = re.sub(r"<[^<>]*>", "", text).rstrip()
    return not text or _SENTENCE_END.search(text, max(len(text) - 10, 0)) is not None


def _sentences(parts: Parts, language: str) -> Iterator[str]:
    """The sentences of parts, if there are any; none ends within a span."""
    text = "".join(map(source, parts))
    if not text:
        return
    masked = "".join(source(part) if isinstance(part, (str, Number)) else _masked(part) for part in parts)
    begin = 0
    for sentence in sentences_of(language, masked) if language else [masked]:
        yield text[begin : begin + len(sentence)]
        begin += len(sentence)


def _masked(span: Span) -> str:
    """As many letters as a span has, but for the end of a sentence in an element."""
    end = span.sentence_end if isinstance(span, Element) else ""
    return "X" * (len(span.text) - len(end)) + end


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _trailing_space(text: str) -> str:
    return text[len(text.rstrip()) :]


def with_spaces_of(original: str, text: str) -> str:
    """`text` with the space that stands around `original`."""
    return _leading_space(original) + text.strip() + _trailing_space(original) if original.strip() else original
