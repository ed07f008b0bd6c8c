"""The decoding of one sentence, iteration by iteration: decoder input, draft, candidates, output, next input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.text import Text

from specmt.decoding.hypotheses import Iteration
from specmt.decoding.verification import BLANK_ID
from specmt.settings import DecodingSettings
from specmt.text.characters import printable
from specmt.text.vocabulary import EOS_ID, MASK_PIECE, AnyVocabulary
from specmt.translation import Translation

BLANK_PIECE = "[BLANK]"


# -- what happened


@dataclass(frozen=True)
class Candidate:
    """One of the verifier's candidates for a position; for `[BLANK]` there is no log-probability (nats)."""

    piece: str
    log_prob: float | None


@dataclass(frozen=True)
class Emitted:
    """A token of the output and where it comes from: `accepted`, `recovered` or `bonus`."""

    piece: str
    origin: str


@dataclass(frozen=True)
class Step:
    """One iteration, in pieces.

    `candidates`: for each slot and the position after the last, the best one first. `verdicts`: for each slot
    `accepted`, `rejected`, or `unused` behind a rejection or the end. `next_input` is empty after the last iteration,
    whose `ended_by` is `end-of-sentence` or `length-limit`; a draft token behind that is dropped.
    """

    decoder_input: tuple[str, ...]
    draft: tuple[str, ...]
    candidates: tuple[tuple[Candidate, ...], ...]
    verdicts: tuple[str, ...]
    emitted: tuple[Emitted, ...]
    next_input: tuple[str, ...]
    ended_by: str | None

    @property
    def prefix(self) -> tuple[str, ...]:
        """The verified tokens that the iteration starts from."""
        return self.decoder_input[: len(self.decoder_input) - len(self.draft)]

    @property
    def output(self) -> tuple[str, ...]:
        """The verified tokens after the iteration."""
        return (*self.prefix, *(token.piece for token in self.emitted))


@dataclass(frozen=True)
class Explanation:
    """A translation and how it came about."""

    source: str
    source_pieces: tuple[str, ...]
    translation: str
    draft_length: int
    beta: int
    tau: float
    """Nats."""
    iterations: tuple[Step, ...]

    def to_json(self) -> dict[str, Any]:
        """One JSON object. The output of an iteration is its prefix and the emitted tokens."""
        values = asdict(self)
        for values_of_step, step in zip(values["iterations"], self.iterations, strict=True):
            values_of_step["output"] = step.output
        return values


def explain(translation: Translation, settings: DecodingSettings, vocabulary: AnyVocabulary) -> Explanation:
    """Lay a translation open.

    Args:
        translation: made with `settings`, whose strategy is `spec` and whose `trace` is on.
    """
    source = (*vocabulary.encode(translation.source), EOS_ID) if translation.ids else ()
    return Explanation(
        translation.source,
        tuple(vocabulary.source_piece(id_) for id_ in source),
        translation.text,
        settings.draft_length,
        settings.beta,
        settings.tau,
        tuple(_steps(translation.iterations, vocabulary)),
    )


def _steps(iterations: Sequence[Iteration], vocabulary: AnyVocabulary) -> Iterator[Step]:
    prefix: tuple[str, ...] = ()
    for number, iteration in enumerate(iterations, start=1):
        if not iteration.draft:
            raise ValueError("the translation was not decoded by spec with its trace kept")
        masks = (MASK_PIECE,) * len(iteration.draft)
        emitted = tuple(_emitted(iteration, vocabulary))
        output = (*prefix, *(token.piece for token in emitted))
        ended_by = None
        if number == len(iterations):
            ended_by = "end-of-sentence" if iteration.emitted[-1] == EOS_ID else "length-limit"
        yield Step(
            decoder_input=prefix + masks,
            draft=pieces(iteration.draft, vocabulary),
            candidates=tuple(tuple(_candidates(column, vocabulary)) for column in iteration.candidates),
            verdicts=_verdicts(iteration),
            emitted=emitted,
            next_input=() if ended_by else output + masks,
            ended_by=ended_by,
        )
        prefix = output


def _emitted(iteration: Iteration, vocabulary: AnyVocabulary) -> Iterator[Emitted]:
    own = "bonus" if iteration.accepted == len(iteration.draft) else "recovered"
    for place, piece in enumerate(pieces(iteration.emitted, vocabulary)):
        yield Emitted(piece, "accepted" if place < iteration.accepted else own)


def _verdicts(iteration: Iteration) -> tuple[str, ...]:
    verdicts = ["accepted"] * iteration.accepted + ["unused"] * (len(iteration.draft) - iteration.accepted)
    if iteration.accepted < len(iteration.emitted) and iteration.accepted < len(iteration.draft):
        verdicts[iteration.accepted] = "rejected"
    return tuple(verdicts)


def _candidates(column: Iterable[tuple[int, float]], vocabulary: AnyVocabulary) -> Iterator[Candidate]:
    for id_, log_prob in column:
        yield Candidate(BLANK_PIECE, None) if id_ == BLANK_ID else Candidate(vocabulary.piece(id_), log_prob)


def pieces(ids: Iterable[int], vocabulary: AnyVocabulary) -> tuple[str, ...]:
    """Target ids as the vocabulary spells them."""
    return tuple(vocabulary.piece(id_) for id_ in ids)


# -- how it looks

_LABEL_WIDTH = 15
_LEAST_ROOM = 16
NARROWEST = _LABEL_WIDTH + _LEAST_ROOM
"""Cells that a picture needs; a narrower terminal wraps its lines."""
_GAP = 2
_MOST_PIECES = 60
"""Verified tokens that are shown in a line of running text, the last ones: a picture then grows with its iterations."""
_MARKS = {"accepted": Text("✓", "green"), "rejected": Text("✗", "bold red"), "unused": Text("·", "dim")}
_ORIGIN_STYLES = {"accepted": "green", "recovered": "bold yellow", "bonus": "bold cyan"}
_LEGEND = "✓ accepted, ✗ rejected, · unused: behind a rejection or the end"


def nothing_to_decode(source: str) -> str:
    """Why a text was not decoded."""
    return "A mark, which is copied: nothing to decode." if source.strip() else "A blank line: nothing to decode."


def render(explanation: Explanation) -> RenderableType:
    """The whole decoding; slots are aligned and go into blocks below one another where the width does not suffice."""
    parts: list[RenderableType] = [
        _Field("Source", Text(printable(explanation.source))),
        _Field("", Text(" ".join(explanation.source_pieces), "dim")),
        _Field("Translation", Text(explanation.translation, "bold")),
        _Field("Settings", _settings(explanation)),
        _Field("Verdicts", Text(_LEGEND)),
    ]
    if not explanation.iterations:
        parts.append(Text(nothing_to_decode(explanation.source), "dim"))
    for number, step in enumerate(explanation.iterations, start=1):
        parts += [Text(), _title(number, step), _grid(step), _Field("Next input", _next_input(step))]
    return Group(*parts)


def _settings(explanation: Explanation) -> Text:
    relaxed = f"β = {explanation.beta}, τ = {explanation.tau:g} nats"
    return Text(f"k = {explanation.draft_length}, {relaxed if explanation.beta > 1 else 'β = 1 (strict)'}")


def _title(number: int, step: Step) -> Title:
    accepted = step.verdicts.count("accepted")
    return Title(f"Iteration {number}: {accepted} accepted, {len(step.emitted)} emitted")


def _next_input(step: Step) -> Text:
    if step.ended_by == "end-of-sentence":
        return Text("none: the output ends with end-of-sentence", "dim")
    if step.ended_by == "length-limit":
        return Text(f"none: the output has reached the limit of {len(step.output)} tokens", "dim")
    verified = len(step.output)
    text = Text(last_pieces(step.next_input[:verified]))
    return text.append(" " + " ".join(step.next_input[verified:]), "magenta")


def _grid(step: Step) -> _Grid:
    slots = len(step.draft)
    ranks = range(max(len(column) for column in step.candidates))
    rows = [
        _Row("Decoder input", True, tuple(Text(MASK_PIECE, "magenta") for _ in range(slots))),
        _Row("Draft", True, tuple(Text(piece) for piece in step.draft)),
        _Row("Verdicts", False, tuple(_MARKS[verdict] for verdict in step.verdicts)),
        *(
            _Row(
                "Candidates" if rank == 0 else "",
                False,
                tuple(_candidate(step, place, rank) for place in range(len(step.candidates))),
            )
            for rank in ranks
        ),
        _Row("Output", True, tuple(Text(token.piece, _ORIGIN_STYLES[token.origin]) for token in step.emitted)),
        _Row("", False, tuple(Text(token.origin, _ORIGIN_STYLES[token.origin]) for token in step.emitted)),
    ]
    return _Grid(step.prefix, rows)


def _candidate(step: Step, place: int, rank: int) -> Text:
    """A candidate's piece: the draft token's match green, what was not looked at dim."""
    candidate = step.candidates[place][rank]
    if candidate.log_prob is None or place >= len(step.emitted):
        return Text(candidate.piece, "dim")
    matched = place < len(step.draft) and candidate.piece == step.draft[place]
    return Text(candidate.piece, "green" if matched else "")


def last_pieces(pieces: Sequence[str]) -> str:
    """The last pieces of an output, after an ellipsis if it has more."""
    return " ".join(pieces if len(pieces) <= _MOST_PIECES else ("…", *pieces[-_MOST_PIECES:]))


@dataclass(frozen=True)
class Title:
    """A title in a rule; alone, and wrapped, where a rule would cut it."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rule = Rule(Text(self.text), align="left", style="dim")
        yield rule if cell_len(self.text) <= options.max_width - _GAP else Text(self.text)


@dataclass(frozen=True)
class _Field:
    """A label and a text, wrapped beside it."""

    label: str
    text: Text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self.text.wrap(console, _room(options))
        for number, line in enumerate(lines):
            labelled = _labelled("" if number else self.label).append_text(line)
            labelled.rstrip()
            yield labelled


@dataclass(frozen=True)
class _Row:
    """A line of the grid: `cells` stand in the columns of the slots, after the prefix where `has_prefix`."""

    label: str
    has_prefix: bool
    cells: tuple[Text, ...]


@dataclass(frozen=True)
class _Grid:
    """Rows whose slots are aligned. What is too wide goes into further blocks; a long prefix loses its beginning."""

    prefix: Sequence[str]
    rows: Sequence[_Row]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = _room(options)
        columns = max(len(row.cells) for row in self.rows)
        widths = [
            min(room, max(row.cells[column].cell_len for row in self.rows if column < len(row.cells)))
            for column in range(columns)
        ]
        left_over = room - sum(width + _GAP for width in widths)
        prefix = _shortened(self.prefix, max(left_over, room // 3))
        indent = cell_len(prefix) + _GAP if prefix else 0
        for number, block in enumerate(_blocks(widths, room, indent)):
            if number:
                yield Text()
            for row in self.rows:
                shown = prefix if row.has_prefix and number == 0 else ""
                if shown or any(column < len(row.cells) for column in block):
                    yield self._line(row, block, widths, shown, indent if number == 0 else 0)

    def _line(self, row: _Row, block: range, widths: Sequence[int], prefix: str, indent: int) -> Text:
        line = _labelled(row.label).append(prefix + " " * (indent - cell_len(prefix)))
        for column in block:
            if column < len(row.cells):
                cell = row.cells[column].copy()
                cell.truncate(widths[column], overflow="ellipsis", pad=True)
                line.append_text(cell).append(" " * _GAP)
        line.rstrip()
        return line


def _room(options: ConsoleOptions) -> int:
    """Cells beside the labels."""
    return max(options.max_width - _LABEL_WIDTH, _LEAST_ROOM)


def _labelled(label: str) -> Text:
    return Text.assemble((label.ljust(_LABEL_WIDTH), "dim"), no_wrap=True, overflow="crop")


def _blocks(widths: Sequence[int], room: int, indent: int) -> Iterator[range]:
    """Runs of columns that fit side by side; the first has `indent` less room, and is empty if nothing fits."""
    start, used = 0, indent
    for column, width in enumerate(widths):
        if used and used + width > room:
            yield range(start, column)
            start, used = column, 0
        used += width + _GAP
    yield range(start, len(widths))


def _shortened(pieces: Sequence[str], width: int) -> str:
    """As many of the last pieces as fit into `width` cells, after an ellipsis if some do not."""
    first, used = len(pieces), -1  # cells; no blank before the first piece
    while first and used <= width:
        first -= 1
        used += 1 + cell_len(pieces[first])
    if used <= width:
        return " ".join(pieces)
    while first < len(pieces) and used + len("… ") > width:
        used -= 1 + cell_len(pieces[first])
        first += 1
    return " ".join(("…", *pieces[first:]))
