"""What is not to be translated comes out unchanged and in place; terms come out as required.

A stage around translation: lines in, translations out, over any function that translates lines. Every line goes through
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

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specmt.corpus import read_lines
from specmt.errors import InputError, UsageError
from specmt.translation import Alternative, Translation
from specmt.vocabulary import UNK_ID, AnyVocabulary
from specmt.wrapping import Run

KINDS = ("url", "email", "tag", "placeholder", "number")
NAMES = ("Tom", "Mary", "John", "Berlin", "Boston", "Paris", "Obama", "Peter", "Japan", "London")
"""Carriers of spans and terms, the best first; see docs/protection.md for how they were found."""
NUMBERS = ("12", "47", "17", "50", "100", "1995", "2013", "1990", "23", "7")
"""Carriers of numbers."""
ATTEMPTS = 4

_PATTERNS = {
    "tag": r"<!--.*?-->|</?[A-Za-z][\w:-]*(?:\s[^<>]*)?/?>",
    "url": r"(?:(?:https?|ftp|file)://|www\.)[^\s<>\"'{}|\\^`]*[^\s<>\"'{}|\\^`.,;:!?()\[\]]",
    "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "placeholder": (
        r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|%\{[^{}]*\}|\{[\w.\[\]#-]*(?:![rsa])?(?::[^{}\s]*)?\}"
        r"|(?<![\d%])%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:ll?|h)?[sdifgGxXeEuco@](?!\w)"
        r"|(?<![\w%])%[A-Z_][A-Z0-9_]*%|(?<![\w%])%\d+(?!\w)|\$[A-Za-z_]\w*|&(?:[A-Za-z]\w*|#\d+);"
    ),
    "number": r"(?<![\w.,])\d+(?:[.,:/]\d+)*(?!\w)",
}
_TRIGGER = re.compile(r"[\d<@{%$&]|://|www\.")
"""What stands in every span but a term; a line without is told from others fast."""
_OPENING = re.compile(r"<([A-Za-z][\w:-]*)(?:\s[^<>]*)?(?<!/)>")


@dataclass(frozen=True)
class Span:
    """A part of a line: what it is, how it stands there, and how it must stand in the translation."""

    kind: str
    """One of `KINDS`, `term`, or `element`: an opening tag, its content and the closing tag."""
    text: str
    target: str
    content: str = ""
    """Of an element: the text between the tags, if no other span stands in it."""
    translated: str = ""
    """Its translation by itself."""

    @property
    def is_soft(self) -> bool:
        """Whether it may stay in the text: it comes out right more often than not."""
        return self.kind in {"number", "term"}

    def found(self, text: str) -> int:
        """How often `text` has it."""
        if self.kind == "number":
            return len(re.findall(rf"(?<!\d)(?<!\d[.,]){re.escape(self.target)}(?!\d|[.,:/]\d)", text))
        if self.kind == "term":
            first = self.target[0]
            either = f"[{re.escape(first)}{re.escape(first.upper())}]" if first.islower() else re.escape(first)
            return len(re.findall(rf"(?<!\w){either}{re.escape(self.target[1:])}(?!\w)", text))
        return text.count(self.target)


class Terminology:
    """Source terms and their required translations. A term matches whole words, with any case of its first letter."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        self.targets = dict(entries)
        longest_first = sorted(self.targets, key=len, reverse=True)
        self.pattern = "|".join(rf"(?<!\w){_either_case(term)}(?!\w)" for term in longest_first)
        self._by_form = {form: target for term, target in self.targets.items() for form in _forms(term)}

    def target(self, form: str) -> str:
        """The required translation of a term as it stands in a line."""
        return self.targets.get(form) or self._by_form[form]


def _forms(term: str) -> tuple[str, str]:
    return term[0].lower() + term[1:], term[0].upper() + term[1:]


def _either_case(term: str) -> str:
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(_forms(term))))})"


def read_terminology(path: Path) -> Terminology:
    """Read `source term TAB required translation` a line; blank lines count for nothing.

    Raises:
        InputError: the file cannot be read, or a line is none or says something else than one before; it is named.
    """
    entries: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise InputError(f"{path}, line {number}: expected a source term, a tab, and its translation")
        if entries.setdefault(columns[0], columns[1]) != columns[1]:
            raise InputError(f"{path}, line {number}: {columns[0]!r} has another translation before")
    return Terminology(entries.items())


Parts = list["str | Span"]


@dataclass
class _Plan:
    """A line on its way: its parts, and which of the soft spans did not come out by themselves."""

    index: int
    line: str
    parts: Parts
    prefix: str = ""
    suffix: str = ""
    missing: set[str] = field(default_factory=set)
    """Texts of numbers and terms that need carriers."""

    @property
    def spans(self) -> list[Span]:
        return [part for part in self.parts if isinstance(part, Span)]


@dataclass(frozen=True)
class _Attempt:
    """A line with carriers, and the span that each carries."""

    text: str
    carried: dict[str, Span]


@dataclass(frozen=True)
class _Prepared:
    """A line on its way through a stream; without an attempt nothing of it is in flight."""

    plan: _Plan
    attempt: _Attempt | None


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
        kinds = list(kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"--protect {kind}: expected none, or some of {','.join(KINDS)}")
        self._terminology = terminology
        patterns = {kind: pattern for kind, pattern in _PATTERNS.items() if kind in kinds and kind != "number"}
        if terminology and terminology.targets:
            patterns["term"] = terminology.pattern
        if "number" in kinds:
            patterns["number"] = _PATTERNS["number"]
        alternatives = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items())
        self._pattern = re.compile(alternatives or r"(?!)")
        self._names, self._numbers = (
            [word for word in words if UNK_ID not in vocabulary.encode(word)] for words in (NAMES, NUMBERS)
        )

    def translate(self, chunks: Iterable[Sequence[str]], run: Run) -> Iterator[Translation]:
        """Translations in the order of the lines, one for each.

        Args:
            run: called with all chunks that need nothing, one after the other, and with what is made of others.
        """
        source = iter(chunks)
        held: list[Sequence[str]] = []

        def untouched() -> Iterator[Sequence[str]]:
            for chunk in source:
                if any(map(self._concerns, chunk)):
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
        """See `wrapping.Wrapper`: the line with carriers, which mostly suffices; else nothing, and `after` does all."""
        if not self._concerns(line):
            return line, None
        plan = _Plan(0, line, self.parts(line))
        attempt = None
        if not any(True for _ in _elements(plan)):
            _cut_edges(plan)
            attempt = self._attempt(plan, 0)
        return (attempt.text if attempt else ""), _Prepared(plan, attempt)

    def after(self, prepared: _Prepared, translation: Translation, run: Run) -> Translation:
        """See `wrapping.Wrapper`."""
        plan, attempt = prepared.plan, prepared.attempt
        restored = _restored(plan, attempt, translation) if attempt else None
        if restored is None:
            return self._translate_chunk([plan.line], run)[0]
        return _checked(restored, plan, self.parts(plan.line))

    def _concerns(self, line: str) -> bool:
        worth_a_look = self._terminology is not None or _TRIGGER.search(line) is not None
        return worth_a_look and self._pattern.search(line) is not None

    def parts(self, line: str) -> Parts:
        """A line as text and spans in turn."""
        parts: Parts = []
        end = 0
        for match in self._pattern.finditer(line):
            kind, text = str(match.lastgroup), match[0]
            target = self._terminology.target(text) if kind == "term" and self._terminology else text
            parts += [line[end : match.start()], Span(kind, text, target)]
            end = match.end()
        return [part for part in [*parts, line[end:]] if part]

    # -- one chunk

    def _translate_chunk(self, lines: Sequence[str], run: Run) -> list[Translation]:
        plans = [_Plan(index, line, self.parts(line)) for index, line in enumerate(lines)]
        done: dict[int, Translation] = {}
        self._translate_elements(plans, run)
        for plan in plans:
            _cut_edges(plan)
        waiting = plans
        for attempt in range(ATTEMPTS):
            attempts = [self._attempt(plan, attempt) for plan in waiting]
            tried = [(plan, one) for plan, one in zip(waiting, attempts, strict=True) if one is not None]
            given_up = [plan for plan, one in zip(waiting, attempts, strict=True) if one is None]
            translations = run([[one.text for _, one in tried]]) if tried else iter(())
            failed = []
            for (plan, one), translation in zip(tried, translations, strict=True):
                restored = _restored(plan, one, translation)
                if restored is None:
                    failed.append(plan)
                else:
                    done[plan.index] = restored
            waiting = failed + given_up
            if not failed:
                break
        done |= _translate_pieces(waiting, run)
        return [_checked(done[plan.index], plan, self.parts(plan.line)) for plan in plans]

    def _translate_elements(self, plans: Sequence[_Plan], run: Run) -> None:
        """Make one span of each pair of tags and what is between them, which is translated by itself."""
        found = [(plan, place) for plan in plans for place in _elements(plan)]
        contents = ["".join(map(_source, plan.parts[first + 1 : last])) for plan, (first, last) in found]
        if not found:
            return
        translated = self._translate_chunk(contents, run)
        for (plan, (first, last)), content, translation in reversed(
            list(zip(found, contents, translated, strict=True))
        ):
            opening, closing = (_source(plan.parts[place]) for place in (first, last))
            text = _as_piece(content.strip(), translation.text.strip(), first=False) if content.strip() else ""
            inner = _with_spaces_of(content, text)
            plain, word = (content.strip(), text) if last == first + 2 else ("", "")
            element = Span("element", opening + content + closing, opening + inner + closing, plain, word)
            plan.parts[first : last + 1] = [element]

    def _attempt(self, plan: _Plan, attempt: int) -> _Attempt | None:
        """The line with carriers in place of what needs them; None where only pieces are left to try.

        At first, an element stands as its content, and its tags go around that content's translation.
        """
        if any(span.kind == "tag" for span in plan.spans) or not any(_piece(part).core for part in _texts(plan)):
            return None  # a tag without its pair parts the text; and where there is none, nothing is to be translated
        texts, carried, free = [], {}, {kind: self._carriers(plan, kind, attempt) for kind in ("names", "numbers")}
        for part in plan.parts:
            if isinstance(part, str) or (part.is_soft and part.text not in plan.missing):
                texts.append(_source(part))
                continue
            if attempt == 0 and part.translated:
                sent, carrier = part.content, part.translated
            else:
                carriers = free["numbers" if part.kind == "number" else "names"]
                sent = carrier = carriers.pop(0) if carriers else ""
            if not carrier or carrier in carried:
                return None
            texts.append(sent)
            carried[carrier] = part
        return _Attempt("".join(texts), carried)

    def _carriers(self, plan: _Plan, kind: str, attempt: int) -> list[str]:
        """Carriers that stand neither in the line nor in what will be put into it; each attempt has others first."""
        taken = " ".join([plan.line, *(span.target for span in plan.spans)]).casefold()
        words = [word for word in (self._names if kind == "names" else self._numbers) if word.casefold() not in taken]
        needed = sum(not span.is_soft or span.text in plan.missing for span in plan.spans)
        first = attempt * min(needed, 2) % len(words) if words else 0
        return words[first:] + words[:first]


def _source(part: str | Span) -> str:
    return part.text if isinstance(part, Span) else part


def _texts(plan: _Plan) -> Iterator[str]:
    return (part for part in plan.parts if isinstance(part, str))


def _elements(plan: _Plan) -> Iterator[tuple[int, int]]:
    """Places of outermost opening tags and the tags that close them, with text between."""
    parts, first = plan.parts, 0
    while first < len(parts):
        last = _closing(parts, first)
        if last is not None:
            yield first, last
            first = last
        first += 1


def _closing(parts: Parts, first: int) -> int | None:
    opening = parts[first]
    match = _OPENING.fullmatch(opening.text) if isinstance(opening, Span) and opening.kind == "tag" else None
    if not match:
        return None
    depth = 0
    for place in range(first, len(parts)):
        text = _source(parts[place]) if isinstance(parts[place], Span) else ""
        again = _OPENING.fullmatch(text)
        depth += bool(again and again[1] == match[1])
        depth -= text.replace(" ", "") == f"</{match[1]}>"
        if depth == 0:
            return place if place > first + 1 else None
    return None


def _cut_edges(plan: _Plan) -> None:
    """Take tags, elements and space off the line's ends: nothing that the model should see."""
    while plan.parts and _is_edge(plan.parts[0]):
        part = plan.parts.pop(0)
        plan.prefix += part.target if isinstance(part, Span) else part
    while plan.parts and _is_edge(plan.parts[-1]):
        part = plan.parts.pop()
        plan.suffix = (part.target if isinstance(part, Span) else part) + plan.suffix
    first, last = (plan.parts[0], plan.parts[-1]) if plan.parts else (None, None)
    if plan.prefix and isinstance(first, str):
        plan.prefix += _leading_space(first)
        plan.parts[0] = first.lstrip()
        last = plan.parts[-1]
    if plan.suffix and isinstance(last, str):
        plan.suffix = _trailing_space(last) + plan.suffix
        plan.parts[-1] = last.rstrip()


def _is_edge(part: str | Span) -> bool:
    if isinstance(part, Span):
        return part.kind in {"tag", "element"}
    return not part.strip()


def _leading_space(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]


def _trailing_space(text: str) -> str:
    return text[len(text.rstrip()) :]


def _with_spaces_of(source: str, text: str) -> str:
    return _leading_space(source) + text.strip() + _trailing_space(source) if source.strip() else source


def _put_back(text: str, attempt: _Attempt) -> str | None:
    """`text` with spans for carriers; None unless each carrier is there once."""
    if not attempt.carried:
        return text
    by_form = {form: span for carrier, span in attempt.carried.items() for form in {carrier, *_forms(carrier)}}
    pattern = re.compile(
        rf"(?<![^\W_])(?:{'|'.join(map(re.escape, sorted(by_form, key=len, reverse=True)))})(?![^\W_])"
    )
    found = Counter(by_form[form] for form in pattern.findall(text))
    if found != Counter(attempt.carried.values()):
        return None
    return pattern.sub(lambda match: _filled(by_form[match[0]], match[0], attempt), text)


def _filled(span: Span, form: str, attempt: _Attempt) -> str:
    """What takes a carrier's place; an element whose content was its own carrier takes that between its tags."""
    if span.translated and span.translated in attempt.carried:
        opening, _, closing = span.text.partition(span.content)
        return opening + form + closing
    return span.target


def _restored(plan: _Plan, attempt: _Attempt, translation: Translation) -> Translation | None:
    """The translation with everything in its place; None if something is not, which `plan.missing` then knows."""
    text = _put_back(translation.text, attempt)
    wanted = Counter(span for span in plan.spans if span.is_soft)
    lost = [span for span, count in wanted.items() if span.found(_prose(text or translation.text, plan.spans)) < count]
    carried = {span.text for span in attempt.carried.values()}
    plan.missing |= {span.text for span in lost if span.text not in carried}
    if text is None or lost:
        return None
    alternatives = []
    for one in translation.n_best:
        restored = _put_back(one.text, attempt)
        if restored is not None and all(
            span.found(_prose(restored, plan.spans)) >= count for span, count in wanted.items()
        ):
            alternatives.append(Alternative(plan.prefix + restored + plan.suffix, one.score))
    return replace(translation, source=plan.line, text=plan.prefix + text + plan.suffix, n_best=tuple(alternatives))


# -- piece by piece


@dataclass(frozen=True)
class _Piece:
    """Text between spans: what is kept of its ends, and what the model translates."""

    before: str
    core: str
    after: str


_EDGES = re.compile(r"^([\W_]*)(.*?)(\s*)$", re.DOTALL)
_ENDINGS = ".!?…"


def _piece(text: str) -> _Piece:
    match = _EDGES.match(text)
    assert match
    return _Piece(*match.groups())


def _translate_pieces(plans: Sequence[_Plan], run: Run) -> dict[int, Translation]:
    pieces = {
        (plan.index, i): _piece(part) for plan in plans for i, part in enumerate(plan.parts) if isinstance(part, str)
    }
    asked = {place: piece for place, piece in pieces.items() if piece.core}
    cores = [piece.core for piece in asked.values()]
    translated = dict(zip(asked, run([cores]), strict=True)) if asked else {}
    done = {}
    for plan in plans:
        text, used = plan.prefix, []
        for i, part in enumerate(plan.parts):
            if isinstance(part, Span):
                text += part.target
                continue
            piece, translation = pieces[plan.index, i], translated.get((plan.index, i))
            text += piece.before + (_as_piece(piece.core, translation.text, first=not text) if translation else "")
            text += piece.after
            used += [translation] if translation else []
        done[plan.index] = _joined(plan, text + plan.suffix, used)
    return done


def _as_piece(source: str, text: str, first: bool) -> str:
    """A piece's translation without the look of a sentence, which the model gives everything."""
    if source[-1] not in _ENDINGS:
        text = text.rstrip(_ENDINGS) or text
    if not first and source[0].islower() and text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text


def _joined(plan: _Plan, text: str, pieces: Sequence[Translation]) -> Translation:
    ids = tuple(id_ for piece in pieces for id_ in piece.ids)
    weights = [max(len(piece.ids), 1) for piece in pieces]
    score = sum(piece.score * weight for piece, weight in zip(pieces, weights, strict=True)) / max(sum(weights), 1)
    iterations = tuple(iteration for piece in pieces for iteration in piece.iterations)
    n_best = (Alternative(text, score),) if any(piece.n_best for piece in pieces) else ()
    return Translation(plan.index, plan.line, text, score, ids, iterations, n_best)


def _prose(text: str, spans: Iterable[Span]) -> str:
    """A text without its addresses and placeholders: a number that stands in one is not one of the text's own."""
    for span in sorted(spans, key=lambda span: -len(span.text)):
        if span.kind in {"url", "email", "placeholder"}:
            text = text.replace(span.target, " ")
    return text


def _checked(translation: Translation, plan: _Plan, parts: Parts) -> Translation:
    """Say what of the source's spans is not in the translation."""
    wanted = Counter(part for part in parts if isinstance(part, Span))
    prose = _prose(translation.text, wanted)
    unplaced = tuple(
        span.text for span, count in wanted.items() if span.found(prose if span.is_soft else translation.text) < count
    )
    return replace(translation, unplaced=unplaced) if unplaced else translation
