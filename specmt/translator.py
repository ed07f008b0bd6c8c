"""Text in, text out: lines to requests, hypotheses to lines in their order. What `specmt translate` and `eval` call."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from specmt.admission import Admission, Gate
from specmt.assembly import Board, Line, Part, translated
from specmt.bundles.bundle import DecodingDefaults
from specmt.decoding.hypotheses import Hypothesis, ReplayCounts, Request
from specmt.decoding.loops import Plan, RequestQueue, Waiting, decode
from specmt.decoding.plans import plan_of
from specmt.engines.base import AnyEngine
from specmt.errors import InputError, UsageError
from specmt.line_alignment import LineAligner
from specmt.reading import Reader, Spelling
from specmt.settings import BATCH_SIZE, DecodingSettings
from specmt.streams.inputs import InputLine, is_text
from specmt.streams.line_stream import LineStream
from specmt.text.guards import repeats
from specmt.text.marks import is_mark, is_single_letter
from specmt.text.segmentation import Segment, Splitting
from specmt.text.sentences import CARRIER_NAMES
from specmt.text.vocabulary import EOS_ID, AnyVocabulary, Vocabulary
from specmt.translation import Alternative, Translation
from specmt.tuned import default_settings
from specmt.workers import Result, run_in_parallel, run_in_threads
from specmt.wrapping import Wrapper, Wrapping

if TYPE_CHECKING:
    from specmt.alignment import Aligner

LOOK_AHEAD = 16
"""Batches of sentences that are sorted by length together."""


def look_ahead(batch_size: int) -> int:
    """Lines that are worth reading before translating: one where each is wanted at once."""
    return batch_size * LOOK_AHEAD if batch_size > 1 else 1


@dataclass(frozen=True)
class Limits:
    """The most tokens that a model has positions for; None: any number."""

    source: int | None = None
    """End-of-sentence not counted."""
    target: int | None = None
    """End-of-sentence counted."""


class Translator:
    """A loaded pair of models with its vocabulary."""

    target_language = ""
    """ISO 639-1, where it is known: how words are told apart when translations are scored."""

    def __init__(
        self,
        engine: AnyEngine,
        vocabulary: AnyVocabulary,
        defaults: DecodingDefaults,
        workers: int = 1,
        model_digest: str = "",
        splitting: Splitting | None = None,
        aligner: Callable[[], Aligner] | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Put the parts together.

        Args:
            workers: cores over which sentences are spread; for engines that use one core a call.
            model_digest: `Bundle.digest` of what was loaded.
            splitting: how lines are split; without it each is one segment.
            aligner: loads what alignments need.
            limits: of the model's positions; without them it has positions for any number of tokens.
        """
        self.engine = engine
        self.vocabulary = vocabulary
        self.defaults = defaults
        self.workers = workers
        self.splitting = splitting
        self.limits = limits or Limits()
        self.model_digest = model_digest
        self._spelling: Spelling | None = None
        if splitting and isinstance(vocabulary, Vocabulary):
            self._spelling = Spelling(splitting.language, vocabulary)
        self._load_aligner = aligner
        self._aligner: Aligner | None = None

    @property
    def has_drafter(self) -> bool:
        """Whether it can speculate."""
        return self.engine.max_draft_length > 0

    @property
    def aligner(self) -> Aligner:
        """Made when it is first used.

        Raises:
            UsageError: this translator has none.
        """
        if self._aligner is None:
            if self._load_aligner is None:
                raise UsageError("--alignment: this translator was made without an aligner")
            self._aligner = self._load_aligner()
        return self._aligner

    def checked(self, settings: DecodingSettings) -> DecodingSettings:
        """These settings; raises `UsageError` where they make no sense or ask for what this translator cannot do."""
        if settings.align:
            _ = self.aligner
        return settings.checked(self.engine)

    def translate(
        self,
        lines: Iterable[str | InputLine],
        settings: DecodingSettings | None = None,
        batch_size: int = BATCH_SIZE,
        wrapper: Wrapper | None = None,
    ) -> Iterator[Translation]:
        """Translations in the order of the lines, one for each.

        Lines are read `LOOK_AHEAD` batches at a time and sorted by length within; with `batch_size` 1 one at a time.

        Args:
            settings: how to decode; without them, as the command does without options (`tuned.default_settings`).
            wrapper: what is done around the translation of a line: a `Protection` with its languages for what the
                command does.

        Raises:
            InputError: a line that is no text, or cannot be decoded as `settings` say.
            TypeError: one text, whose characters are no lines.
            UsageError: settings that make no sense, or a batch of no lines.
        """
        if isinstance(lines, str | bytes):
            raise TypeError("translate() takes lines, not one text: translate([text], …)")
        _check_sizes(batch_size)
        settings = default_settings(self) if settings is None else settings
        wrapping = self._wrapping(wrapper, settings, batch_size)
        entered = (wrapping.enter(index, _input_line(index, line)) for index, line in enumerate(lines))
        window = look_ahead(batch_size)
        for translation in self.translate_chunks(iter(lambda: list(islice(entered, window)), []), settings, batch_size):
            yield self._left(wrapping, translation, settings)

    def translate_chunks(
        self,
        chunks: Iterable[Sequence[str | InputLine]],
        settings: DecodingSettings,
        batch_size: int,
        max_batch_tokens: int | None = None,
        line: int | None = None,
    ) -> Iterator[Translation]:
        """As `translate`, for lines that come in chunks: each chunk is finished before the next is asked for.

        Args:
            max_batch_tokens: source tokens decoded at a time, padding included; a longer sentence goes alone.
            line: the index of the line of which they are parts, if they are, for errors.
        """
        settings = self.checked(settings)
        _check_sizes(batch_size, max_batch_tokens)
        board = self._board(settings, part_of=line)
        first = 0
        for chunk in chunks:
            requests = [
                request
                for index, text in enumerate(chunk, start=first)
                for request in board.open(index, _checked_line(index, _input_line(index, text), settings))
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
        wrapper: Wrapper | None = None,
        lines_have_options: bool = False,
    ) -> Iterator[Translation]:
        """As `translate`, for lines that are still arriving: each enters the rows in flight as soon as there is room.

        Args:
            first: the index of the stream's next line.
            wrapper: what is done around the translation of a line.
            lines_have_options: whether a line may ask for reproducibility by itself.

        Raises:
            SpecmtError: the stream or a line cannot be read, after the translations of all lines before it.
        """
        settings = self.checked(settings)
        _check_sizes(batch_size, max_batch_tokens)
        board = self._board(settings, first)
        wrapping = self._wrapping(wrapper, settings, batch_size, max_batch_tokens)
        results: queue.SimpleQueue[Result[list[Hypothesis]]] = queue.SimpleQueue()

        def open_line(index: int, line: InputLine) -> Sequence[Request]:
            with lines.named_in_errors():
                requests = board.open(index, wrapping.enter(index, _checked_line(index, line, settings)))
            if not requests:
                results.put(Result([]))  # nothing to decode, but perhaps to be written at once
            return requests

        admission = Admission(lines, open_line, batch_size * LOOK_AHEAD, self.workers, max_batch_tokens, first)
        plan = plan_of(settings, self.engine, settings.always_reproducible or lines_have_options)

        def work() -> Iterator[list[Hypothesis]]:
            gate = Gate(admission)
            for done in self._decode_waiting(gate, plan, settings, batch_size):
                gate.landed(done[0].request)
                yield done

        def left(translation: Translation) -> Translation:
            with lines.named_in_errors():
                return self._left(wrapping, translation, settings)

        for done in run_in_threads(work, self.workers, results, admission.stop):
            if done:
                board.close(done)
            for translation in self._ready(board, settings):
                yield left(translation)
                admission.finished(translation.index + 1)
        for translation in self._ready(board, settings):
            yield left(translation)
        lines.check()
        assert board.empty, "a line was opened and not translated"

    def _decode(
        self, requests: Sequence[Request], settings: DecodingSettings, batch_size: int, max_batch_tokens: int | None
    ) -> Iterator[list[Hypothesis]]:
        """The hypotheses of each request, best first, as they finish; every worker gets its share of a short queue."""
        workers = max(1, min(self.workers, len(requests)))
        batch_size = min(batch_size, -(-len(requests) // workers))
        waiting = RequestQueue(requests, batch_size, max_batch_tokens)
        plan = plan_of(settings, self.engine, any(request.reproducible for request in requests))
        return run_in_parallel(lambda: self._decode_waiting(waiting, plan, settings, batch_size), workers)

    def _decode_waiting(
        self, waiting: Waiting, plan: Plan, settings: DecodingSettings, batch_size: int
    ) -> Iterator[list[Hypothesis]]:
        if settings.strategy == "ar" and settings.beam > 1:
            from specmt.decoding.beam import beam_decode

            yield from beam_decode(self.engine, waiting, batch_size, settings.beam, settings.length_penalty)
        else:
            yield from ([done] for done in decode(self.engine, waiting, plan, batch_size))

    def _wrapping(
        self, wrapper: Wrapper | None, settings: DecodingSettings, batch_size: int, max_batch_tokens: int | None = None
    ) -> Wrapping:
        unaligned = replace(settings, align=False)  # what comes of it goes through `_aligned_anew`
        return Wrapping(
            wrapper,
            lambda line: lambda chunks: self.translate_chunks(chunks, unaligned, batch_size, max_batch_tokens, line),
        )

    def _left(self, wrapping: Wrapping, translation: Translation, settings: DecodingSettings) -> Translation:
        left = wrapping.leave(translation)
        return self._aligned_anew(translation, left, settings) if settings.align else left

    # -- lines to requests and back

    def _board(self, settings: DecodingSettings, first: int = 0, part_of: int | None = None) -> Board:
        def request(number: int, segment: Segment, given: InputLine) -> Request | None:
            reproducible = settings.always_reproducible or bool(given.options.get("reproducible"))
            return self._request(number, segment, settings.guards, reproducible)

        def part(segment: Segment, hypotheses: Sequence[Hypothesis]) -> Part:
            return translated(segment, hypotheses, settings.n_best, settings.length_penalty, self.vocabulary)

        return Board(self._reader(settings, part_of).segments, request, part, first)

    def _reader(self, settings: DecodingSettings, part_of: int | None = None) -> Reader:
        return Reader(self.vocabulary, self.splitting, self._spelling, settings, self.limits.source, part_of)

    def requests(self, lines: Iterable[str]) -> list[Request]:
        """What is decoded for lines without further settings: their segments, less those that would be copied."""
        read = self._reader(DecodingSettings.from_defaults(self.defaults)).segments
        segments = [segment for index, line in enumerate(lines) for segment in read(index, InputLine(line))]
        requests = [self._request(number, segment, True, False) for number, segment in enumerate(segments)]
        return [request for request in requests if request]

    def _request(self, number: int, segment: Segment, guards: bool, reproducible: bool) -> Request | None:
        is_copied = is_single_letter(segment.text) or not self.vocabulary.has_word(segment.ids)
        is_carrier = self.target_language == "en" and segment.text in CARRIER_NAMES
        if is_mark(segment.text) or is_carrier or (guards and is_copied):
            return None
        if self.limits.source is not None and len(segment.ids) > self.limits.source:
            return None  # one character, which cannot be split
        limit = int(self.defaults.max_tokens_factor * len(segment.ids)) + self.defaults.max_tokens_offset
        limit = min(limit, self.limits.target or limit)
        source_repeats = repeats(segment.ids) if guards else None
        return Request(number, [*segment.ids, EOS_ID], limit, reproducible, source_repeats)

    def _ready(self, board: Board, settings: DecodingSettings) -> Iterator[Translation]:
        return (self._translation(line, settings) for line in board.ready())

    def _translation(self, line: Line, settings: DecodingSettings) -> Translation:
        parts, given = line.complete_parts, line.given
        aligner = self._line_aligner(settings) if settings.align else None
        alternatives = tuple(
            Alternative(
                rendered.text,
                rendered.score,
                rendered.ids,
                rendered.token_log_probs,
                aligner.parts(parts, rendered) if aligner else (),
            )
            for rendered in line.renderings(settings.n_best)
        )
        best = alternatives[0] if alternatives else Alternative("", 0.0)
        warnings = chain(given.warnings, *(part.renderings[0].warnings for part in parts))
        return Translation(
            line.index,
            given.text,
            best.text,
            best.score,
            best.ids,
            iterations=tuple(iteration for part in parts for iteration in part.iterations),
            n_best=alternatives if settings.n_best > 1 else (),
            source_ids=tuple(id_ for part in parts for id_ in part.segment.ids),
            token_log_probs=best.token_log_probs,
            segments=max(len(parts), 1),
            decoded=sum(bool(part.renderings[0].ids) for part in parts),
            warnings=tuple(dict.fromkeys(warnings)),
            alignment=best.alignment,
            fields=given.fields,
            replay=ReplayCounts.total(part.replay for part in parts if part.replay),
        )

    def _line_aligner(self, settings: DecodingSettings) -> LineAligner:
        assert isinstance(self.vocabulary, Vocabulary), "what an aligner is made for"
        return LineAligner(self.aligner, self.vocabulary, self._reader(settings).segmenter)

    def _aligned_anew(self, translation: Translation, left: Translation, settings: DecodingSettings) -> Translation:
        """What a wrapper made of a translation, with the pairs of the texts as they are now."""
        if (left.source, left.text, left.alignment) == (translation.source, translation.text, translation.alignment):
            return left
        align = self._line_aligner(settings).texts
        others = [replace(one, alignment=align(left.source, one.text)) for one in left.n_best]
        pairs = others[0].alignment if others else align(left.source, left.text)
        return replace(left, alignment=pairs, n_best=tuple(others))


def _checked_line(index: int, line: InputLine, settings: DecodingSettings) -> InputLine:
    if settings.beam > 1 and line.options.get("reproducible"):
        raise InputError(f"line {index + 1}: `reproducible`: not with --beam")
    return line


def _check_sizes(batch_size: int, max_batch_tokens: int | None = None) -> None:
    if min(batch_size, 1 if max_batch_tokens is None else max_batch_tokens) < 1:
        raise UsageError("--batch-size and --max-batch-tokens are at least 1")


def _input_line(index: int, line: str | InputLine) -> InputLine:
    given = line if isinstance(line, InputLine) else InputLine(line)
    text: object = given.text
    if not (isinstance(text, str) and is_text(text)):
        raise InputError(f"line {index + 1}: not a text of whole characters")
    return given
