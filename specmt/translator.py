"""Text in, text out: lines to requests, hypotheses to lines in their order. What `specmt translate` and `eval` call."""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

from specmt.admission import Admission, Gate
from specmt.alignment import Aligner, Pairs
from specmt.assembly import Board, Line, Part, Rendered, translated, word_places
from specmt.beam import beam_search
from specmt.bundle import DecodingDefaults
from specmt.decoding import (
    Greedy,
    Hypothesis,
    Iteration,
    Plan,
    ReplayCounts,
    Request,
    RequestQueue,
    Speculative,
    Waiting,
    decode,
)
from specmt.engines.base import AnyEngine
from specmt.errors import InputError, UsageError
from specmt.guards import LineWarning, repeats
from specmt.inputs import InputLine
from specmt.replay import FixedSpeculative, Replay
from specmt.segmentation import Segment, Segmenter, whole
from specmt.streams import LineStream
from specmt.vocabulary import EOS_ID, AnyVocabulary, Vocabulary
from specmt.workers import Result, run_in_parallel, run_in_threads

REPLAY_WINDOW = 16
REPLAY_GROUP = 8
LOOK_AHEAD = 16
"""Batches of sentences that are sorted by length together."""


def look_ahead(batch_size: int) -> int:
    """Lines that are worth reading before translating: one where each is wanted at once."""
    return batch_size * LOOK_AHEAD if batch_size > 1 else 1


@dataclass(frozen=True)
class DecodingSettings:
    """How to decode. `strategy` is `spec`, `replay` or `ar`; `beam` > 1 and `n_best` need `ar`."""

    strategy: str
    draft_length: int
    beta: int
    tau: float
    beam: int
    length_penalty: float
    n_best: int = 1
    trace: bool = False
    """Keep each iteration's draft and candidates."""
    split: bool = True
    """Translate the sentences of a line one by one, and split what is longer than `max_source_tokens`."""
    max_source_tokens: int | None = None
    """Of a segment, or without `split` of a line, which is an error if longer; None: what the model was trained on."""
    guards: bool = True
    """End translations that repeat themselves, copy what the model does not know (`specmt.guards`)."""
    align: bool = False
    """Find the source word of each target word."""
    reproducible: bool = False
    """Whether no translation depends on what is decoded beside it. `ar` then is `replay`, which always is so."""
    replay_window: int = REPLAY_WINDOW
    """Tokens of a row that are replayed at a time."""
    replay_group: int = REPLAY_GROUP
    """Rows of every pass of fixed shape."""
    in_flight: bool = True
    """Whether new sentences enter while others are being decoded."""

    @classmethod
    def from_defaults(cls, defaults: DecodingDefaults) -> DecodingSettings:
        """Relaxed `spec` as the bundle's manifest has it."""
        return cls("spec", defaults.draft_length, defaults.beta, defaults.tau, 1, defaults.length_penalty)

    def strict(self) -> DecodingSettings:
        """The same with beta = 1: the very tokens of `ar` greedy."""
        return replace(self, beta=1)

    def checked(self, engine: AnyEngine) -> DecodingSettings:
        """These settings, if they make sense.

        Raises:
            UsageError: settings that contradict one another or that the engine cannot do.
        """
        if self.strategy not in {"spec", "replay", "ar"}:
            raise UsageError(f"--strategy: {self.strategy!r} is none of spec, replay, ar")
        if min(self.replay_window, self.replay_group) < 1:
            raise UsageError("--replay-window and --replay-group are at least 1")
        if self.reproducible and self.beam > 1:
            raise UsageError("--reproducible: not with --beam")
        if min(self.beta, self.beam, self.n_best) < 1 or not 0 <= self.tau <= math.inf:
            raise UsageError("--beta, --beam and --n-best are at least 1, and --tau is not negative")
        if self.max_source_tokens is not None and self.max_source_tokens < 1:
            raise UsageError("--max-source-tokens is at least 1")
        if not math.isfinite(self.length_penalty):
            raise UsageError(f"--length-penalty: {self.length_penalty} is not a finite number")
        if self.strategy != "ar" and (self.beam > 1 or self.n_best > 1):
            raise UsageError(
                "--beam and --n-best need --strategy ar: speculation and replay keep one hypothesis a sentence"
            )
        if self.n_best > self.beam:
            raise UsageError(f"--n-best {self.n_best} needs --beam {self.n_best} or more")
        if self.strategy == "spec" and not engine.max_draft_length:
            raise UsageError("this model has no drafter: it decodes with --strategy ar only")
        if self.strategy == "spec" and not 1 <= self.draft_length <= engine.max_draft_length:
            raise UsageError(f"--draft-length: this model drafts 1 to {engine.max_draft_length} tokens")
        return self


@dataclass(frozen=True)
class Splitting:
    """What splitting needs to know of a pair: the source language (ISO 639-1), and the tokens it was trained on."""

    language: str
    max_source_tokens: int


@dataclass(frozen=True)
class Alternative:
    """One translation of an n-best list, with its length-normalised log-probability."""

    text: str
    score: float
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    """Nats, one a token."""
    alignment: Pairs = ()
    """Source and target words, see `Aligner`; found when asked for."""


@dataclass(frozen=True)
class Translation:
    """One line's translation. A blank line has no tokens, no iterations and an empty text.

    A line of several segments has their tokens and iterations one after the other, each with its end-of-sentence.
    """

    index: int
    source: str
    text: str
    score: float
    """Log-probability (nats) over length (tokens) to the power of the length penalty; for several segments the mean
    of theirs, weighted by source tokens."""
    ids: tuple[int, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    n_best: tuple[Alternative, ...] = ()
    """All alternatives asked for, the best (this translation) first; empty when one was asked for."""
    source_ids: tuple[int, ...] = ()
    """Of all segments, without end-of-sentence."""
    token_log_probs: tuple[float, ...] = ()
    """Nats, one an id."""
    segments: int = 1
    """Parts that the line was decoded in."""
    warnings: tuple[LineWarning, ...] = ()
    alignment: Pairs = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What came with the line and passes through."""
    unplaced: tuple[str, ...] = ()
    """What should have come out unchanged, or terms, that the text does not have; see `protection`."""
    replay: ReplayCounts | None = None
    """What was replayed; None where nothing is."""


class ReproducibleLine(str):
    """A line whose translation must not depend on what is decoded beside it, among lines that do not ask for that."""

    __slots__ = ()


class Stage(Protocol):
    """What is done to a line around its translation; see `protection`."""

    def before(self, line: str) -> tuple[str, Any]:
        """What to translate for a line, perhaps nothing, and what `after` needs to know; None: nothing to do then."""

    def after(self, prepared: Any, translation: Translation, run: Run) -> Translation:  # noqa: ANN401
        """The line's translation; `run` translates more where that is needed."""


Run = Callable[[Iterable[Sequence[str]]], Iterator[Translation]]
"""Translates chunks of lines, one translation a line, in order."""


class Translator:
    """A loaded pair of models with its vocabulary."""

    def __init__(
        self,
        engine: AnyEngine,
        vocabulary: AnyVocabulary,
        defaults: DecodingDefaults,
        workers: int = 1,
        model_digest: str = "",
        splitting: Splitting | None = None,
        aligner: Callable[[], Aligner] | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            workers: cores over which sentences are spread; for engines that use one core a call.
            model_digest: `Bundle.digest` of what was loaded.
            splitting: how lines are split; without it each is one segment.
            aligner: loads what alignments need.
        """
        self.engine = engine
        self.vocabulary = vocabulary
        self.defaults = defaults
        self.workers = workers
        self.splitting = splitting
        self.model_digest = model_digest
        self._load_aligner = aligner
        self._aligner: Aligner | None = None

    @property
    def has_drafter(self) -> bool:
        """Whether it can speculate."""
        return self.engine.max_draft_length > 0

    @property
    def aligner(self) -> Aligner:
        """Loaded when it is first used.

        Raises:
            UsageError: this translator has none.
        """
        if self._aligner is None:
            if self._load_aligner is None:
                raise UsageError("--alignment: this translator was made without an aligner")
            self._aligner = self._load_aligner()
        return self._aligner

    def translate(self, lines: Iterable[str], settings: DecodingSettings, batch_size: int) -> Iterator[Translation]:
        """Translations in the order of the lines, one for each.

        Lines are read `LOOK_AHEAD` batches at a time and sorted by length within; with `batch_size` 1 one at a time.
        """
        unread = iter(lines)
        window = look_ahead(batch_size)
        yield from self.translate_chunks(iter(lambda: list(islice(unread, window)), []), settings, batch_size)

    def translate_chunks(
        self,
        chunks: Iterable[Sequence[str]],
        settings: DecodingSettings,
        batch_size: int,
        max_batch_tokens: int | None = None,
    ) -> Iterator[Translation]:
        """As `translate`, for lines that come in chunks: each chunk is finished before the next is asked for.

        Args:
            max_batch_tokens: source tokens decoded at a time, padding included; a longer sentence goes alone.
        """
        settings = settings.checked(self.engine)
        board = self._board(settings)
        first = 0
        for chunk in chunks:
            requests = [
                request
                for index, line in enumerate(chunk, start=first)
                for request in board.open(index, _input_line(line))
            ]
            first += len(chunk)
            yield from self._ready(board, settings)
            for done in self._decode(requests, settings, batch_size, max_batch_tokens):
                board.close(done)
                yield from self._ready(board, settings)

    def translate_stream(
        self,
        lines: LineStream[InputLine],
        settings: DecodingSettings,
        batch_size: int,
        max_batch_tokens: int | None = None,
        first: int = 0,
        stage: Stage | None = None,
        lines_have_options: bool = False,
    ) -> Iterator[Translation]:
        """As `translate`, for lines that are still arriving: each enters the rows in flight as soon as there is room.

        Args:
            first: the index of the stream's next line.
            stage: what is done around the translation of a line.
            lines_have_options: whether a line may ask for reproducibility by itself.

        Raises:
            SpecmtError: the stream or a line cannot be read, after the translations of all lines before it.
        """
        settings = settings.checked(self.engine)
        board = self._board(settings, first)
        staging = _Staging(stage, lambda chunks: self.translate_chunks(chunks, settings, batch_size, max_batch_tokens))
        results: queue.SimpleQueue[Result[list[Hypothesis]]] = queue.SimpleQueue()

        def open_line(index: int, line: InputLine) -> Sequence[Request]:
            requests = board.open(index, staging.enter(index, line))
            if not requests:
                results.put(Result([]))  # nothing to decode, but perhaps to be written at once
            return requests

        admission = Admission(lines, open_line, batch_size * LOOK_AHEAD, self.workers, max_batch_tokens, first)
        plan = _plan(settings, self.engine, always_reproducible(settings) or lines_have_options)

        def work() -> Iterator[list[Hypothesis]]:
            gate = Gate(admission)
            for done in self._decode_waiting(gate, plan, settings, batch_size):
                gate.landed(done[0].request)
                yield done

        for done in run_in_threads(work, self.workers, results, admission.stop):
            if done:
                board.close(done)
            for translation in self._ready(board, settings):
                yield staging.leave(translation)
                admission.finished(translation.index + 1)
        yield from map(staging.leave, self._ready(board, settings))
        lines.check()
        assert board.empty, "a line was opened and not translated"

    def _decode(
        self, requests: Sequence[Request], settings: DecodingSettings, batch_size: int, max_batch_tokens: int | None
    ) -> Iterator[list[Hypothesis]]:
        """The hypotheses of each request, best first, as they finish; every worker gets its share of a short queue."""
        workers = max(1, min(self.workers, len(requests)))
        batch_size = min(batch_size, -(-len(requests) // workers))
        waiting = RequestQueue(requests, batch_size, max_batch_tokens)
        plan = _plan(settings, self.engine, any(request.reproducible for request in requests))
        return run_in_parallel(lambda: self._decode_waiting(waiting, plan, settings, batch_size), workers)

    def _decode_waiting(
        self, waiting: Waiting, plan: Plan, settings: DecodingSettings, batch_size: int
    ) -> Iterator[list[Hypothesis]]:
        if settings.strategy == "ar" and settings.beam > 1:
            while batch := waiting.take(batch_size, wait=True):
                yield from beam_search(self.engine, batch, settings.beam, settings.length_penalty)
        else:
            yield from ([done] for done in decode(self.engine, waiting, plan, batch_size))

    # -- lines to requests and back

    def _board(self, settings: DecodingSettings, first: int = 0) -> Board:
        def request(number: int, segment: Segment, given: InputLine) -> Request | None:
            reproducible = always_reproducible(settings) or bool(given.options.get("reproducible"))
            return self._request(number, segment, settings.guards, reproducible)

        def part(segment: Segment, hypotheses: Sequence[Hypothesis]) -> Part:
            return translated(segment, hypotheses[: settings.n_best], settings.length_penalty, self.vocabulary)

        return Board(self._segments(settings), request, part, first)

    def _segments(self, settings: DecodingSettings) -> Callable[[int, str], Sequence[Segment]]:
        """How lines become segments."""
        encode, splitting = self.vocabulary.encode, self.splitting
        most = settings.max_source_tokens or (splitting.max_source_tokens if splitting else None)
        if splitting is not None and most is not None and settings.split:
            segmenter = Segmenter(splitting.language, encode, most)
            return lambda _, line: segmenter.split(line)

        def unsplit(index: int, line: str) -> Sequence[Segment]:
            segments = whole(line, encode)
            if most is not None and segments and len(segments[0].ids) > most:
                raise InputError(
                    f"line {index + 1}: {len(segments[0].ids)} tokens, at most {most} fit: leave out --no-split, "
                    "raise --max-source-tokens, or shorten the line"
                )
            return segments

        return unsplit

    def request(self, index: int, line: str) -> Request | None:
        """What is decoded for a line that is not split; None if there is nothing to translate."""
        segments = whole(line, self.vocabulary.encode)
        return self._request(index, segments[0], guards=True, reproducible=False) if segments else None

    def _request(self, number: int, segment: Segment, guards: bool, reproducible: bool) -> Request | None:
        if guards and not self.vocabulary.has_word(segment.ids):
            return None
        limit = int(self.defaults.max_tokens_factor * len(segment.ids)) + self.defaults.max_tokens_offset
        source_repeats = repeats(segment.ids) if guards else None
        return Request(number, [*segment.ids, EOS_ID], limit, reproducible, source_repeats)

    def _ready(self, board: Board, settings: DecodingSettings) -> Iterator[Translation]:
        return (self._translation(line, settings) for line in board.ready())

    def _translation(self, line: Line, settings: DecodingSettings) -> Translation:
        parts, given = line.complete_parts, line.given
        alternatives = tuple(
            Alternative(
                rendered.text,
                rendered.score,
                rendered.ids,
                rendered.token_log_probs,
                self._alignment(parts, rendered) if settings.align else (),
            )
            for rendered in line.renderings(settings.n_best)
        )
        best = alternatives[0] if alternatives else Alternative("", 0.0)
        warnings = [warning for part in parts for warning in part.renderings[0].warnings]
        return Translation(
            line.index,
            given.text,
            best.text,
            best.score,
            best.ids,
            tuple(iteration for part in parts for iteration in part.iterations),
            alternatives if settings.n_best > 1 else (),
            tuple(id_ for part in parts for id_ in part.segment.ids),
            best.token_log_probs,
            max(len(parts), 1),
            tuple(dict.fromkeys(warnings)),
            best.alignment,
            given.fields,
            replay=ReplayCounts.total(part.replay for part in parts if part.replay),
        )

    def _alignment(self, parts: Sequence[Part], rendered: Rendered) -> Pairs:
        """Pairs of words of a line and one of its translations, segment by segment."""
        chosen = rendered.parts or (rendered,)
        pairs: list[tuple[int, int]] = []
        for part, one, (sources, targets) in zip(parts, chosen, word_places(parts, chosen), strict=True):
            if one.kept_ids:
                assert isinstance(self.vocabulary, Vocabulary), "what an aligner is made for"
                found = self.aligner.words(part.segment.ids, one.kept_ids, self.vocabulary)
                pairs += [(source + sources, target + targets) for source, target in found]
        return tuple(sorted(set(pairs)))


class _Staging:
    """Takes the lines of a stream through a stage. One thread enters lines, another may let them leave."""

    def __init__(self, stage: Stage | None, again: Run) -> None:
        self._stage, self._again = stage, again
        self._entered: dict[int, tuple[InputLine, Any]] = {}

    def enter(self, index: int, line: InputLine) -> InputLine:
        """What is to be translated for a line."""
        if self._stage is None:
            return line
        text, prepared = self._stage.before(line.text)
        if prepared is None:
            return line
        self._entered[index] = line, prepared
        return replace(line, text=text)

    def leave(self, translation: Translation) -> Translation:
        """The line's translation, made of that of what entered."""
        if self._stage is None or translation.index not in self._entered:
            return translation
        line, prepared = self._entered.pop(translation.index)
        made = self._stage.after(prepared, translation, self._again)
        return replace(made, index=translation.index, source=line.text, fields=line.fields)


def _input_line(line: str) -> InputLine:
    return InputLine(line, options={"reproducible": True} if isinstance(line, ReproducibleLine) else {})


def always_reproducible(settings: DecodingSettings) -> bool:
    """Whether every line is decoded reproducibly, asked or not."""
    return settings.reproducible or settings.strategy == "replay"


def _plan(settings: DecodingSettings, engine: AnyEngine, reproducible: bool) -> Plan:
    """`reproducible`: whether any request may be. In an engine whose rows are exact, all of `spec` is."""
    group, in_flight = settings.replay_group, settings.in_flight
    if settings.strategy != "spec":
        strategy = Replay(settings.replay_window, group, settings.trace) if reproducible else Greedy()
        return Plan(strategy, None, group, in_flight)
    speculative = Speculative(settings.draft_length, settings.beta, settings.tau, settings.trace)
    apart = FixedSpeculative(speculative, group) if reproducible and not engine.row_exact else None
    return Plan(speculative, apart, group, in_flight)
