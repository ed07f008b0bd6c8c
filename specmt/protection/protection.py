"""What is not to be translated comes out unchanged and in place; terms come out as required.

A wrapper of translation: lines in, translations out, over any function that translates lines. Every line goes through
at most `ATTEMPTS` + 1 calls, in which only lines that failed before take part:

1. *Spans* (URLs, e-mail addresses, placeholders, elements such as `<b>…</b>`) are replaced by *carriers*: words that
   models copy. Numbers and terms stand as they are: mostly they come out right by themselves.
2. Where each carrier comes back once, and each number and term is found, the spans are put back. Else the line is
   tried again with other carriers, now for the missing numbers and terms as well.
3. At last the text between the spans is translated piece by piece and joined. That keeps everything, in order.

Every result is checked; what is not found in it is reported in `Translation.unplaced`. All decisions follow from the
translations alone, so two strategies that translate alike give the same lines. A chunk of lines without anything to
protect is handed on untouched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from specmt.protection.carriers import Attempt, Carriers
from specmt.protection.lines import ProtectedLine, with_spaces_of
from specmt.protection.pieces import as_piece, translate_pieces
from specmt.protection.spans import KINDS, Span, SpanFinder, lacking, source
from specmt.protection.terminology import Terminology
from specmt.translation import Translation
from specmt.vocabulary import AnyVocabulary
from specmt.wrapping import Run

ATTEMPTS = 4


@dataclass(frozen=True)
class _Prepared:
    """A line on its way through a stream; without an attempt nothing of it is in flight."""

    line: ProtectedLine
    attempt: Attempt | None


class Protection:
    """Finds what is to be protected, and sees that it comes out."""

    def __init__(
        self,
        vocabulary: AnyVocabulary,
        kinds: Iterable[str] = KINDS,
        terminology: Terminology | None = None,
    ) -> None:
        """`kinds` of spans that are protected, of `KINDS`.

        Raises:
            UsageError: another kind.
        """
        self._spans = SpanFinder(kinds, terminology)
        self._carriers = Carriers(vocabulary)

    def translate(self, chunks: Iterable[Sequence[str]], run: Run) -> Iterator[Translation]:
        """Translations in the order of the lines, one for each.

        Args:
            run: called with all chunks that need nothing, one after the other, and with what is made of others.
        """
        source = iter(chunks)
        held: list[Sequence[str]] = []

        def untouched() -> Iterator[Sequence[str]]:
            for chunk in source:
                if any(map(self._spans.any_in, chunk)):
                    held.append(chunk)
                    return
                yield chunk

        index = 0
        while True:
            for translation in run(untouched()):
                yield translation if translation.index == index else replace(translation, index=index)
                index += 1
            if not held:
                return
            for translation in self._translate_chunk(held.pop(), run):
                yield replace(translation, index=index)
                index += 1

    def before(self, line: str) -> tuple[str, _Prepared | None]:
        """See `Wrapper`: the line with carriers, which mostly suffices; else nothing, and `after` does all."""
        if not self._spans.any_in(line):
            return line, None
        protected = self._line(0, line)
        attempt = None
        if not any(True for _ in protected.elements()):
            protected.cut_edges()
            attempt = self._carriers.attempt(protected, 0)
        return (attempt.text if attempt else ""), _Prepared(protected, attempt)

    def after(self, prepared: _Prepared, translation: Translation, run: Run) -> Translation:
        """See `Wrapper`."""
        line, attempt = prepared.line, prepared.attempt
        restored = attempt.restored(line, translation) if attempt else None
        if restored is None:
            return self._translate_chunk([line.text], run)[0]
        return self._checked(restored, line)

    def _line(self, index: int, text: str) -> ProtectedLine:
        return ProtectedLine(index, text, self._spans.parts(text))

    def _translate_chunk(self, texts: Sequence[str], run: Run) -> list[Translation]:
        lines = [self._line(index, text) for index, text in enumerate(texts)]
        done: dict[int, Translation] = {}
        self._translate_elements(lines, run)
        for line in lines:
            line.cut_edges()
        waiting = lines
        for number in range(ATTEMPTS):
            attempts = [self._carriers.attempt(line, number) for line in waiting]
            tried = [(line, one) for line, one in zip(waiting, attempts, strict=True) if one is not None]
            given_up = [line for line, one in zip(waiting, attempts, strict=True) if one is None]
            translations = run([[one.text for _, one in tried]]) if tried else iter(())
            failed = []
            for (line, one), translation in zip(tried, translations, strict=True):
                restored = one.restored(line, translation)
                if restored is None:
                    failed.append(line)
                else:
                    done[line.index] = restored
            waiting = failed + given_up
            if not failed:
                break
        done |= translate_pieces(waiting, run)
        return [self._checked(done[line.index], line) for line in lines]

    def _translate_elements(self, lines: Sequence[ProtectedLine], run: Run) -> None:
        """Make one span of each pair of tags and what is between them, which is translated by itself."""
        found = [(line, place) for line in lines for place in line.elements()]
        if not found:
            return
        contents = ["".join(map(source, line.parts[first + 1 : last])) for line, (first, last) in found]
        translations = self._translate_chunk(contents, run)
        # From the right: what is replaced moves the places behind it.
        for (line, (first, last)), content, translation in reversed(
            list(zip(found, contents, translations, strict=True))
        ):
            opening, closing = source(line.parts[first]), source(line.parts[last])
            text = as_piece(content.strip(), translation.text.strip(), first=False) if content.strip() else ""
            inner = with_spaces_of(content, text)
            plain, word = (content.strip(), text) if last == first + 2 else ("", "")
            element = Span("element", opening + content + closing, opening + inner + closing, plain, word)
            line.parts[first : last + 1] = [element]

    def _checked(self, translation: Translation, line: ProtectedLine) -> Translation:
        """Say what of the source's spans is not in the translation."""
        spans = self._line(line.index, line.text).spans
        unplaced = tuple(span.text for span in lacking(translation.text, spans, spans))
        return replace(translation, unplaced=unplaced) if unplaced else translation
