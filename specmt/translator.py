"""Text in, text out: lines to requests, hypotheses to lines in their order. What `specmt translate` and `eval` call."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from specmt.beam import beam_search, length_normalised
from specmt.bundle import Bundle, DecodingDefaults, load_bundle
from specmt.decoding import (
    Greedy,
    Hypothesis,
    Iteration,
    Plan,
    ReplayCounts,
    Request,
    RequestQueue,
    Speculative,
    decode,
)
from specmt.engines.base import AnyEngine
from specmt.errors import EngineError, UsageError
from specmt.replay import FixedSpeculative, Replay
from specmt.vocabulary import EOS_ID, AnyVocabulary
from specmt.workers import run_in_parallel

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
class Alternative:
    """One translation of an n-best list, with its length-normalised log-probability."""

    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """One line's translation. A blank line has no tokens, no iterations and an empty text."""

    index: int
    source: str
    text: str
    score: float
    """Log-probability (nats) over length (tokens) to the power of the length penalty."""
    ids: tuple[int, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    n_best: tuple[Alternative, ...] = ()
    """All alternatives asked for, the best (this translation) first; empty when one was asked for."""
    unplaced: tuple[str, ...] = ()
    """What should have come out unchanged, or terms, that the text does not have; see `protection`."""
    replay: ReplayCounts | None = None
    """What was replayed; None where nothing is."""


class ReproducibleLine(str):
    """A line whose translation must not depend on what is decoded beside it, among lines that do not ask for that."""

    __slots__ = ()


class Translator:
    """A loaded pair of models with its vocabulary."""

    def __init__(
        self,
        engine: AnyEngine,
        vocabulary: AnyVocabulary,
        defaults: DecodingDefaults,
        workers: int = 1,
        model_digest: str = "",
    ) -> None:
        """Put the parts together.

        Args:
            workers: cores over which sentences are spread; for engines that use one core a call.
            model_digest: `Bundle.digest` of what was loaded.
        """
        self.engine = engine
        self.vocabulary = vocabulary
        self.defaults = defaults
        self.workers = workers
        self.model_digest = model_digest

    @property
    def has_drafter(self) -> bool:
        """Whether it can speculate."""
        return self.engine.max_draft_length > 0

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
        first = 0
        for chunk in chunks:
            numbered = list(enumerate(chunk, start=first))
            yield from self._translate_chunk(numbered, settings, batch_size, max_batch_tokens)
            first += len(chunk)

    def _translate_chunk(
        self,
        chunk: Sequence[tuple[int, str]],
        settings: DecodingSettings,
        batch_size: int,
        max_batch_tokens: int | None,
    ) -> Iterator[Translation]:
        always = settings.reproducible or settings.strategy == "replay"
        requests = {
            index: request
            for index, line in chunk
            if (request := self.request(index, line, always or isinstance(line, ReproducibleLine)))
        }
        finished = self._decode(list(requests.values()), settings, batch_size, max_batch_tokens)
        hypotheses: dict[int, list[Hypothesis]] = {}
        for index, line in chunk:
            if index not in requests:
                yield Translation(index, line, "", 0.0)
                continue
            while index not in hypotheses:
                done = next(finished)
                hypotheses[done[0].request.index] = done
            yield self._translation(line, hypotheses.pop(index), settings)

    def request(self, index: int, line: str, reproducible: bool = False) -> Request | None:
        """What is decoded for a line; None if it is blank."""
        ids = self.vocabulary.encode(line)
        if not ids:
            return None
        limit = int(self.defaults.max_tokens_factor * len(ids)) + self.defaults.max_tokens_offset
        return Request(index, [*ids, EOS_ID], limit, reproducible)

    def _decode(
        self, requests: Sequence[Request], settings: DecodingSettings, batch_size: int, max_batch_tokens: int | None
    ) -> Iterator[list[Hypothesis]]:
        """The hypotheses of each request, best first, as they finish; every worker gets its share of a short queue."""
        workers = max(1, min(self.workers, len(requests)))
        batch_size = min(batch_size, -(-len(requests) // workers))
        queue = RequestQueue(requests, batch_size, max_batch_tokens)

        def work() -> Iterator[list[Hypothesis]]:
            if settings.strategy == "ar" and settings.beam > 1:
                while batch := queue.take(batch_size, wait=True):
                    yield from beam_search(self.engine, batch, settings.beam, settings.length_penalty)
            else:
                plan = _plan(settings, self.engine, any(request.reproducible for request in requests))
                yield from ([done] for done in decode(self.engine, queue, plan, batch_size))

        return run_in_parallel(work, workers)

    def _translation(self, line: str, hypotheses: list[Hypothesis], settings: DecodingSettings) -> Translation:
        alternatives = tuple(
            Alternative(
                self.vocabulary.decode(hypothesis.ids),
                length_normalised(hypothesis.log_prob, len(hypothesis.ids), settings.length_penalty),
            )
            for hypothesis in hypotheses[: settings.n_best]
        )
        best = hypotheses[0]
        return Translation(
            best.request.index,
            line,
            alternatives[0].text,
            alternatives[0].score,
            tuple(best.ids),
            tuple(best.iterations),
            alternatives if settings.n_best > 1 else (),
            replay=best.replay if best.request.reproducible and settings.strategy != "spec" else None,
        )


def _plan(settings: DecodingSettings, engine: AnyEngine, reproducible: bool) -> Plan:
    """`reproducible`: whether any request is. In an engine whose rows are exact, all of `spec` is."""
    group, in_flight = settings.replay_group, settings.in_flight
    if settings.strategy != "spec":
        strategy = Replay(settings.replay_window, group, settings.trace) if reproducible else Greedy()
        return Plan(strategy, None, group, in_flight)
    speculative = Speculative(settings.draft_length, settings.beta, settings.tau, settings.trace)
    apart = FixedSpeculative(speculative, group) if reproducible and not engine.row_exact else None
    return Plan(speculative, apart, group, in_flight)


def load_translator(
    path: Path, device: str = "cpu", precision: str = "fp32", threads: int = 1, engine: str = "auto"
) -> Translator:
    """Load a bundle into an engine.

    Args:
        precision: `fp32` or `bf16`, of the torch engine.
        threads: cores that may be used.
        engine: `onnx`, `torch`, or `auto`: onnx on a CPU where the bundle has graphs, unless `bf16` is wanted.

    Raises:
        BundleError: see `load_bundle`.
        EngineError: the device or a package is not there, or the bundle has no graphs.
    """
    bundle = load_bundle(path)
    if engine == "auto":
        engine = "onnx" if bundle.has_graphs and (device, precision) == ("cpu", "fp32") else "torch"
    if engine == "onnx":
        loaded, workers = _onnx_engine(bundle, device), threads
    else:
        loaded, workers = _torch_engine(bundle, device, precision, threads), 1
    return Translator(loaded, bundle.vocabulary(), bundle.decoding, workers, bundle.digest)


def _onnx_engine(bundle: Bundle, device: str) -> AnyEngine:
    if device != "cpu":
        raise EngineError(f"the onnx engine runs on the CPU, not on {device}")
    if not bundle.has_graphs:
        raise EngineError(f"{bundle.path}: no graphs for the onnx engine; `specmt export {bundle.path}` writes them")
    from specmt.engines.onnx_engine import OnnxEngine

    return OnnxEngine(bundle.architecture, bundle.path)


def _torch_engine(bundle: Bundle, device: str, precision: str, threads: int) -> AnyEngine:
    try:
        import torch
    except ImportError:
        raise EngineError("the torch engine needs torch: pip install 'specmt[gpu]'") from None
    from specmt.engines.torch_engine import TorchEngine
    from specmt.weights import load_weights

    torch.set_num_threads(threads)
    weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
    return TorchEngine(bundle.architecture, weights, device, bf16=precision == "bf16")
