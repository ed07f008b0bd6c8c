"""What is not to be translated comes out unchanged and in place; terms come out as required.

A wrapper of translation (`wrapping.Wrapper`), line by line, whatever translates. A line without anything to protect is
handed on untouched. Another goes through at most `ATTEMPTS` attempts and pieces:

1. *Spans* (URLs, e-mail addresses, placeholders, elements such as `<b>…</b>`) are replaced by *carriers*: words that
   models copy. Numbers and terms stand as they are: mostly they come out right by themselves.
2. Where each carrier comes back once, and each number and term is found, the spans are put back.
3. Else each of several sentences, and each part between tags that have no pair, goes through this by itself; a single
   sentence is tried again with other carriers, now for the missing numbers and terms as well.
4. At last the text between the spans is translated piece by piece and joined. That keeps everything, in order.

The first attempt is translated among the other lines of the stream. A line with elements has none there: what is
between their tags is translated before, in the same way. Every result is checked; what is not found in it is reported
in `Translation.unplaced`. All decisions follow from the translations alone, so two strategies that translate alike give
the same lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from specmt.errors import InputError
from specmt.protection.carriers import Attempt, Carriers
from specmt.protection.finding import KINDS, SpanFinder
from specmt.protection.lines import ProtectedLine, rewritten, with_spaces_of
from specmt.protection.numbers import digits, surplus
from specmt.protection.pieces import as_piece, combined, translate_pieces, without_end
from specmt.protection.spans import Element, Number, Parts, Span, lacking, source, target
from specmt.protection.terminology import Terminology
from specmt.text.capitals import without_capital
from specmt.text.vocabulary import AnyVocabulary
from specmt.translation import Translation, distinct
from specmt.wrapping import Run

ATTEMPTS = 4


@dataclass(frozen=True)
class _Prepared:
    """A line, and its first attempt, which is being translated; None: nothing is."""

    line: ProtectedLine
    attempt: Attempt | None


class Protection:
    """Finds what is to be protected, and sees that it comes out."""

    def __init__(
        self,
        vocabulary: AnyVocabulary,
        kinds: Iterable[str] = KINDS,
        terminology: Terminology | None = None,
        language: str = "",
        target_language: str = "",
    ) -> None:
        """Protect spans of `kinds`, of `KINDS`, and terms.

        Args:
            language: of the lines, ISO 639-1; without it, a line is not protected sentence by sentence.
            target_language: theirs in translation; times of day are written plainly from German into English alone.

        Raises:
            UsageError: another kind.
        """
        self._into_english = (language, target_language) == ("de", "en")
        self._spans = SpanFinder(kinds, terminology, plain_german=self._into_english)
        self._carriers = Carriers(vocabulary, of_dates=self._into_english)
        self._language = language

    def before(self, line: str) -> tuple[str, _Prepared | None]:
        """See `Wrapper`: the line with carriers, which mostly suffices; else nothing, and `after` does all."""
        return self._prepared(line) if self._spans.any_in(line) else (line, None)

    def after(self, prepared: _Prepared, translation: Translation, run: Run) -> Translation:
        """See `Wrapper`."""
        line, attempt = prepared.line, prepared.attempt
        made = attempt.restored(line, translation) if attempt else None
        if made is None:
            made = self._translated(line, 1 if attempt else 0, run)
        parts = self._spans.parts(line.text)
        required = "".join(map(target, parts))
        if repeated := surplus(required, made.text):
            tries = (self._with_carriers(line, repeated, number, run) for number in (1, 2))
            made = next((one for one in tries if one and not surplus(required, one.text)), made)
        return self._checked(made, parts)

    def _prepared(self, text: str, depth: int = 0) -> tuple[str, _Prepared]:
        """What to translate for a text, and what `after` needs to know."""
        text = self._spans.readable(text)
        line = ProtectedLine(text, self._spans.parts(text), depth)
        attempt = None
        if not any(True for _ in line.elements()):
            line.cut_edges()
            attempt = self._carriers.attempt(line, 0)
        return (attempt.text if attempt else ""), _Prepared(line, attempt)

    def _translated(self, line: ProtectedLine, tried: int, run: Run) -> Translation:
        """A line after so many attempts that failed."""
        if not tried:
            self._translate_elements(line, run)
            line.cut_edges()
        sections = line.sections(self._language)
        for number in range(tried, 1 if len(sections) > 1 else ATTEMPTS):
            if made := self._tried(line, number, run):
                return made
        return self._by_sections(line, sections, run) if len(sections) > 1 else translate_pieces(line, run)

    def _with_carriers(self, line: ProtectedLine, runs: Set[str], number: int, run: Run) -> Translation | None:
        """As `_tried`, with carriers for the numbers that have one of these runs of digits."""
        line.missing |= {span.text for span in line.spans if isinstance(span, Number) and runs & {*digits(span.text)}}
        return self._tried(line, number, run)

    def _tried(self, line: ProtectedLine, number: int, run: Run) -> Translation | None:
        """What attempt `number` makes of a line; None if it fails."""
        attempt = self._carriers.attempt(line, number)
        if attempt is None:
            return None
        try:
            (translation,) = run([[attempt.text]])
        except InputError:
            if not number:
                raise
            return None  # too long only with its carriers
        return attempt.restored(line, translation)

    def _by_sections(self, line: ProtectedLine, sections: Sequence[str | Span], run: Run) -> Translation:
        """A line's translation, each of its sections by itself."""
        texts = [section.strip() for section in sections if isinstance(section, str)]
        made = iter(self._each(texts, line.depth + 1, run))
        said: list[str | Translation] = []
        for section in sections:
            if isinstance(section, Span):
                said.append(section.target)
            else:
                said.append(self._section(section, next(made), first=not said))
        return line.with_edges(combined(line, said))

    def _section(self, section: str, translation: Translation, first: bool) -> Translation:
        """A section's translation with the space around it; see `as_piece`."""
        source = section.strip()
        if not source:
            return replace(translation, text=section)
        last = self._spans.parts(source)[-1]
        required = last.target if isinstance(last, Span) else ""
        return rewritten(translation, lambda text: with_spaces_of(section, as_piece(source, text, first, required)))

    def _translate_elements(self, line: ProtectedLine, run: Run) -> None:
        """Make one span of each pair of tags and what is between them, which is translated by itself."""
        places = list(line.elements())
        contents = ["".join(map(source, line.parts[first + 1 : last])) for first, last in places]
        made = self._each(contents, line.depth + 1, run)
        # From the right: what is replaced moves the places behind it.
        for (first, last), content, translation in reversed(list(zip(places, contents, made, strict=True))):
            line.parts[first : last + 1] = [_element(line.parts[first : last + 1], content.strip(), translation)]

    def _each(self, texts: Sequence[str], depth: int, run: Run) -> list[Translation]:
        """Texts that are translated by themselves."""
        prepared = [self._prepared(text, depth) for text in texts]
        tried = list(run([[text for text, _ in prepared]])) if prepared else []
        return [self.after(one, translation, run) for (_, one), translation in zip(prepared, tried, strict=True)]

    def _checked(self, translation: Translation, parts: Parts) -> Translation:
        """Say what of the source's spans is not in the translation, and leave out alternatives that lost more."""
        spans = [part for part in parts if isinstance(part, Span)]
        if self._into_english and any(isinstance(span, Number) for span in spans):
            from specmt.protection import money

            if amounts := money.amounts_in(parts):
                others = {span.target for span in spans if not (isinstance(span, Number) and span.target[0] != "[")}
                translation = rewritten(translation, partial(money.set_right, amounts, others))
        if times := [span.time for span in spans if isinstance(span, Number) and span.time]:
            from specmt.protection.clock import set_right

            translation = rewritten(translation, partial(set_right, times))
        lost = lacking(translation.text, spans, spans)
        # Alternatives in pieces have not been looked at before, and rewritten ones may have become the same.
        n_best = tuple(one for one in distinct(translation.n_best) if set(lacking(one.text, spans, spans)) <= set(lost))
        return replace(translation, n_best=n_best, unplaced=tuple(span.text for span in lost))


def _element(parts: Parts, content: str, translation: Translation) -> Element:
    """A pair of tags and what is between them, given its text and translation, as one span."""
    opening, closing = source(parts[0]), source(parts[-1])
    between = parts[1:-1]
    inner = "".join(map(source, between))
    said = [part for part in between if source(part).strip()]

    def as_content(text: str) -> str:
        if not said:
            return ""
        text = without_end(content, text.strip(), said[-1].target if isinstance(said[-1], Span) else "")
        begins_with_span = isinstance(said[0], Span) and text.startswith(said[0].target)
        return text if begins_with_span else without_capital(content, text)

    made = rewritten(translation, lambda text: opening + with_spaces_of(inner, as_content(text)) + closing)
    holds_positional = any(isinstance(part, Span) and part.is_positional for part in between)
    is_count = len(said) == 1 and (isinstance(said[0], Number) or getattr(said[0], "is_count", False))
    element = Element(opening + inner + closing, made.text, "element", made, holds_positional, is_count)
    if len(between) != 1 or not content:
        return element
    before, _, behind = inner.partition(content)
    around = (opening + before, behind + closing) if isinstance(between[0], str) else None
    return replace(element, content=content, translated=as_content(translation.text), around=around)
