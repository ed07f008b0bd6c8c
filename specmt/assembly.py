"""A line as segments and requests on the way in, and as one text with its scores on the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import TypeAlias

from specmt.decoding.hypotheses import Hypothesis, Iteration, ReplayCounts, Request, length_normalised
from specmt.streams.inputs import InputLine
from specmt.text.capitals import with_capitals_of, without_capital
from specmt.text.characters import has_letter, printable
from specmt.text.currencies import pounds, signs_of
from specmt.text.guards import LineWarning, without_repeats
from specmt.text.marks import is_mark, is_single_letter, plain
from specmt.text.punctuation import begun, bracketed, goes_on_behind, punctuated
from specmt.text.segmentation import Segment
from specmt.text.sentences import CARRIER_NAMES
from specmt.text.vocabulary import EOS_ID, UNK_ID, AnyVocabulary


@dataclass(frozen=True)
class Rendered:
    """A text with what it was made of. `score`: as `Translation.score`; `token_log_probs`: nats, one an id."""

    text: str
    score: float
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    warnings: tuple[LineWarning, ...] = ()
    kept_ids: tuple[int, ...] = ()
    """What the text is made of: not end-of-sentence, nor what a guard left out."""
    parts: tuple[Rendered, ...] = ()
    """What a joined text is made of."""


@dataclass(frozen=True)
class Part:
    """A segment and its translations, best first; for one that was copied there is one, without ids."""

    segment: Segment
    renderings: tuple[Rendered, ...]
    iterations: tuple[Iteration, ...] = ()
    replay: ReplayCounts | None = None
    """What was replayed of a reproducible request that does not speculate."""


def copied(segment: Segment) -> Part:
    """A segment in which nothing can be translated; where there may have been something, it has a warning."""
    text = segment.text
    expected = is_mark(text) or is_single_letter(text) or text in CARRIER_NAMES or not has_letter(text)
    return Part(segment, (Rendered(_as_it_is(segment), 0.0, warnings=() if expected else (LineWarning.COPIED,)),))


def _as_it_is(segment: Segment) -> str:
    return plain(printable(segment.text).strip())


def translated(
    segment: Segment, hypotheses: Sequence[Hypothesis], count: int, length_penalty: float, vocabulary: AnyVocabulary
) -> Part:
    """A segment with the best `count` of its hypotheses that read differently, as text.

    One that says nothing is taken only where none says anything.
    """
    symbols = _symbols(segment, vocabulary)
    ways = (
        (hypothesis, _rendered(hypothesis, symbols, length_penalty, vocabulary, segment)) for hypothesis in hypotheses
    )
    first = next(ways)
    said = (way for way in chain([first], ways) if LineWarning.EMPTY not in way[1].warnings)
    chosen = list(islice(_distinct(said), count)) or [first]
    best = chosen[0][0]
    return Part(
        segment,
        tuple(rendered for _, rendered in chosen),
        tuple(best.iterations),
        best.replay if best.replay.replays else None,
    )


def _distinct(ways: Iterable[tuple[Hypothesis, Rendered]]) -> Iterator[tuple[Hypothesis, Rendered]]:
    """Those whose texts none before has: with and without a full stop, for one, they may have become the same."""
    texts = set[str]()
    for way in ways:
        if way[1].text not in texts:
            texts.add(way[1].text)
            yield way


def _symbols(segment: Segment, vocabulary: AnyVocabulary) -> list[str]:
    """What stands in the source for each `<unk>`."""
    if UNK_ID not in segment.ids:
        return []
    return [printable(symbol) for symbol in vocabulary.unknown_symbols(segment.ordinary or segment.text)]


def _rendered(
    hypothesis: Hypothesis, symbols: Sequence[str], length_penalty: float, vocabulary: AnyVocabulary, segment: Segment
) -> Rendered:
    """A hypothesis as text; the segment as it is stands where it says nothing."""
    ids, request = hypothesis.ids, hypothesis.request
    guarded = request.source_repeats is not None
    collapsed = without_repeats(ids, request.source_repeats) if request.source_repeats is not None else None
    warnings = [LineWarning.REPETITION] if collapsed is not None else []
    if guarded and not hypothesis.runaway and ids[-1:] != [EOS_ID]:
        warnings.append(LineWarning.LENGTH_LIMIT)
    kept = ids if collapsed is None else collapsed
    unknown = kept.count(UNK_ID) if guarded else 0
    if unknown > len(symbols):
        symbols = _with_currencies(symbols, kept, segment, vocabulary)
    text = vocabulary.decode_with(kept, symbols) if unknown else vocabulary.decode(kept)
    if "£" in symbols:
        text = pounds(segment.text, text)
    text = with_capitals_of(segment, text)
    if guarded:
        text = begun(bracketed(punctuated(text, segment.text), segment.text), segment.text)
        kept = _without_surplus(kept, len(symbols))
        if text.strip():
            warnings += _warnings_of_unknown(unknown, symbols)
        else:
            text = _as_it_is(segment)
            warnings.append(LineWarning.EMPTY)
    score = length_normalised(hypothesis.log_prob, len(ids), length_penalty)
    words = tuple(kept[:-1] if kept[-1:] == [EOS_ID] else kept)
    return Rendered(text, score, tuple(ids), tuple(hypothesis.token_log_probs), tuple(warnings), words)


def _with_currencies(
    symbols: Sequence[str], ids: Sequence[int], segment: Segment, vocabulary: AnyVocabulary
) -> Sequence[str]:
    """What each `<unk>` of a translation stands for, where it has more than its source.

    Before a number, it is the sign of a currency that the source names, if it names enough.
    """
    signs = iter(signs_of(segment.ordinary or segment.text, vocabulary.decode(ids)))
    own = iter(symbols)
    surplus = ids.count(UNK_ID) - len(symbols)
    found = list[str]()
    for id_, following in zip_longest(ids, ids[1:], fillvalue=EOS_ID):
        if id_ == UNK_ID:
            is_sign = surplus > 0 and (vocabulary.piece(following)[:1].isdecimal() or not symbols)
            surplus -= is_sign
            found.append(next(signs if is_sign else own, ""))
    return found if all(found) else symbols


def _warnings_of_unknown(unknown: int, symbols: Sequence[str]) -> list[LineWarning]:
    """What to say of a translation with so many `<unk>`, given what stands in the source for its own."""
    warnings = [LineWarning.UNKNOWN_COPIED] if any(map(has_letter, symbols[:unknown])) else []
    if unknown > len(symbols):
        warnings.append(LineWarning.UNKNOWN_DROPPED)
    elif unknown < len(symbols):
        warnings.append(LineWarning.UNKNOWN_LOST)
    return warnings


def _without_surplus(ids: Sequence[int], symbols: int) -> list[int]:
    """Ids without the `<unk>` behind the first so many."""
    kept = list[int]()
    for id_ in ids:
        symbols -= id_ == UNK_ID
        if id_ != UNK_ID or symbols >= 0:
            kept.append(id_)
    return kept


def join(parts: Sequence[Part], count: int) -> list[Rendered]:
    """The best `count` translations of a line, best first; none for a line without parts.

    A joined line's score is the mean of its parts' scores, each weighted by its source tokens; parts that were copied
    do not count. So the best line has the best parts.
    """
    if len(parts) == 1:
        return list(parts[0].renderings[:count])
    weights = [len(part.segment.ids) if part.renderings[0].ids else 0 for part in parts]
    total = sum(weights) or 1
    # What was chosen is a chain, newest first: to copy it for each part would take time in the square of a long line.
    lines: list[tuple[float, _Chain]] = [(0.0, None)] if parts else []
    for part, weight in zip(parts, weights, strict=True):
        longer: list[tuple[float, _Chain]] = [
            (score + weight * rendered.score / total, (chosen, rendered))
            for score, chosen in lines
            for rendered in part.renderings[:count]
        ]
        lines = sorted(longer, key=lambda line: -line[0])[:count]
    segments = [part.segment for part in parts]
    return [_joined(score, _in_order(chosen), segments) for score, chosen in lines]


_Chain: TypeAlias = "tuple[_Chain, Rendered] | None"


def _in_order(chain: _Chain) -> list[Rendered]:
    links = []
    while chain:
        chain, link = chain
        links.append(link)
    return links[::-1]


def _joined(score: float, chosen: Sequence[Rendered], segments: Sequence[Segment]) -> Rendered:
    texts = []
    goes_on = False
    for rendered, segment in zip(chosen, segments, strict=True):
        text = without_capital(segment.text, rendered.text) if goes_on else rendered.text
        goes_on = "\n" not in segment.glue and goes_on_behind(segment.text)
        if text:
            texts.append(text + segment.glue)
    return Rendered(
        "".join(texts).strip(" \n"),
        score,
        tuple(id_ for rendered in chosen for id_ in rendered.ids),
        tuple(log_prob for rendered in chosen for log_prob in rendered.token_log_probs),
        parts=tuple(chosen),
    )


def word_places(
    parts: Sequence[Part], renderings: Sequence[Rendered], glues: Sequence[str]
) -> Iterator[tuple[int, int]]:
    """Source and target words that stand before each part; a part that nothing parts from the last goes on its word.

    Args:
        glues: what stands between each rendering and the next.
    """
    source = target = 0
    for part, rendered, glue in zip(parts, renderings, glues, strict=True):
        yield source, target
        source += len(part.segment.text.split()) - (not part.segment.glue)
        target += len(rendered.text.split()) - (not glue and bool(rendered.text))


@dataclass
class Line:
    """A line under way: its segments, and the part made of each once it is translated."""

    index: int
    given: InputLine
    segments: Sequence[Segment]
    parts: list[Part | None]
    translated: int = 0
    """Parts from the beginning that are known to be there: of a long line not all are looked at each time."""

    @property
    def complete(self) -> bool:
        """Whether every segment is translated."""
        while self.translated < len(self.parts) and self.parts[self.translated] is not None:
            self.translated += 1
        return self.translated == len(self.parts)

    def renderings(self, count: int) -> list[Rendered]:
        """The best `count` translations of a complete line."""
        return join(self.complete_parts, count)

    @property
    def complete_parts(self) -> list[Part]:
        """All parts, in order."""
        return [part for part in self.parts if part is not None]


class Board:
    """Lines under way: opened as they come, closed segment by segment, given out complete and in order.

    One thread at a time may open, and another may close and ask what is ready.
    """

    def __init__(
        self,
        segments: Callable[[int, InputLine], Sequence[Segment]],
        request: Callable[[int, Segment, InputLine], Request | None],
        part: Callable[[Segment, Sequence[Hypothesis]], Part],
        first: int = 0,
    ) -> None:
        """Begin with no lines.

        Args:
            segments: of a line, given its index; may raise a `SpecmtError`.
            request: what to decode for a segment of a line, as the given number; None where it is to be copied.
            part: a segment with its hypotheses, best first.
            first: the index of the first line.
        """
        self._segments = segments
        self._request = request
        self._part = part
        self._lines: dict[int, Line] = {}
        self._places: dict[int, tuple[int, int]] = {}
        """The line and the segment of each request under way."""
        self._requests = 0
        self._next = first

    def open(self, index: int, given: InputLine) -> list[Request]:
        """What is to be decoded for a line, perhaps nothing; lines are opened in order."""
        segments = self._segments(index, given)
        line = Line(index, given, segments, [None] * len(segments))
        requests = []
        for place, segment in enumerate(segments):
            request = self._request(self._requests, segment, given)
            if request is None:
                line.parts[place] = copied(segment)
            else:
                self._places[self._requests] = index, place
                requests.append(request)
                self._requests += 1
        self._lines[index] = line
        return requests

    def close(self, hypotheses: Sequence[Hypothesis]) -> None:
        """A segment is translated: its hypotheses, best first."""
        index, place = self._places.pop(hypotheses[0].request.index)
        line = self._lines[index]
        line.parts[place] = self._part(line.segments[place], hypotheses)

    def ready(self) -> Iterator[Line]:
        """The lines that come next in order and are complete; each is given out once."""
        while (line := self._lines.get(self._next)) is not None and line.complete:
            del self._lines[self._next]
            self._next += 1
            yield line

    @property
    def empty(self) -> bool:
        """Whether no line is under way."""
        return not self._lines
