"""Which draft length is fastest here? Time of an iteration, on this machine, over the tokens that it emits.

A longer draft emits more tokens per iteration and costs more time. What an iteration costs is measured in whole
decodings, where the processor's caches are as they are in use. What it emits does not depend on the machine: it is
counted at every draft length on validation text, here or when the pair was trained.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from specmt.corpus import evenly_spread
from specmt.decoding.hypotheses import Iteration, Request
from specmt.decoding.loops import Flight, Greedy, Speculative, Strategy
from specmt.engines.base import AnyEngine
from specmt.errors import InputError
from specmt.text.vocabulary import EOS_ID, MASK_ID
from specmt.text_files import read_lines
from specmt.translator import Translator

TIMED_SENTENCES = 24
"""Sentences whose iterations are timed, at most."""
ROWS = (2, 4, 8, 16, 32, 64)
"""Numbers of rows in flight at which speculation is compared with plain steps."""
COUNTED_SENTENCES = 200
"""Sentences whose emitted tokens are counted, at most."""

Clock = Callable[[], float]
"""Seconds."""


@dataclass(frozen=True)
class Emission:
    """Mean tokens that an iteration emits under strict, for each draft length from 1, and how that is known.

    Recovered or bonus token included, end-of-sentence counted.
    """

    by_draft_length: tuple[float, ...]
    sentences: int
    source: str
    """For the reader: a file's name, or what else it was."""

    def to_json(self) -> dict[str, Any]:
        """As it stands in a manifest."""
        return {"by_draft_length": list(self.by_draft_length), "sentences": self.sentences}


@dataclass(frozen=True)
class Timing:
    """One draft length: seconds that an iteration takes at batch size 1, and mean tokens that it emits."""

    draft_length: int
    iteration_seconds: float
    emitted_tokens: float

    @property
    def token_seconds(self) -> float:
        """Seconds an emitted token takes."""
        return self.iteration_seconds / self.emitted_tokens


@dataclass(frozen=True)
class Tuning:
    """What was measured, shortest draft first, and how long a token of `ar` takes.

    `rows`: the most rows in flight with which the best draft length is faster than plain steps; 0: not even with one.
    """

    timings: tuple[Timing, ...]
    ar_token_seconds: float
    emission: Emission
    rows: int

    @property
    def best(self) -> Timing:
        """The least time a token; the shorter draft where two are equal."""
        return min(self.timings, key=lambda timing: timing.token_seconds)

    def to_json(self) -> dict[str, Any]:
        """One JSON object; times in seconds."""
        return {
            "draft_length": self.best.draft_length,
            "rows": self.rows,
            "ar_token_seconds": self.ar_token_seconds,
            "emission": {**self.emission.to_json(), "source": self.emission.source},
            "timings": [{**asdict(timing), "token_seconds": timing.token_seconds} for timing in self.timings],
        }


# -- what an iteration emits


def counted_emission(translator: Translator, lines: Sequence[str], source: str) -> Emission:
    """Decode sentences spread evenly over `lines` at every draft length, and count.

    Acceptance by slot at one length would not do: slots see one another, and more of a long draft lies behind a
    sentence's end.

    Raises:
        InputError: no line has a word.
    """
    requests = evenly_spread(requests_of(translator, lines), COUNTED_SENTENCES)
    means = []
    for length in range(1, translator.engine.max_draft_length + 1):
        done = _decode(translator.engine, requests, _strict(length), time.perf_counter)
        means.append(fmean(len(iteration.emitted) for iteration in done.iterations))
    return Emission(tuple(means), len(requests), source)


def recorded_emission(scores: Mapping[str, Any]) -> Emission | None:
    """What training recorded in a manifest's scores; None if that is missing or makes no sense."""
    try:
        recorded = scores["validation"]["emission"]
        means = tuple(float(mean) for mean in recorded["by_draft_length"])
        sentences = int(recorded["sentences"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not means or not all(1 <= mean <= length + 1 for length, mean in enumerate(means, start=1)):
        return None
    return Emission(means, sentences, "the model's validation text, counted when it was trained")


def sample_lines(language: str) -> list[str] | None:
    """The few sentences that are bundled in a language, if there are any."""
    sample = Path(__file__).parent / "samples" / f"sample.{language}"
    return read_lines(sample) if sample.is_file() else None


# -- what it costs

_PLAIN = Greedy(scored=False)


def _strict(draft_length: int) -> Speculative:
    return Speculative(draft_length, beta=1, tau=0.0, scored=False)


def requests_of(translator: Translator, lines: Sequence[str]) -> list[Request]:
    """What is decoded for lines: a request for each segment that has a word of the model's.

    Raises:
        InputError: there is none.
    """
    requests = translator.requests(lines)
    if not requests:
        raise InputError("tuning needs text, and there is none")
    return requests


def made_up_requests(translator: Translator) -> list[Request]:
    """Sources of 8 to 31 random pieces: what an iteration costs hardly depends on what is said."""
    random = np.random.default_rng(0)
    pieces, limits = translator.vocabulary.source_size, translator.limits
    longest = min(limit for limit in (limits.source, limits.target, 7 + TIMED_SENTENCES) if limit)
    lengths = [min(length, longest) for length in range(8, 8 + TIMED_SENTENCES)]
    sources = [random.integers(MASK_ID + 1, pieces, length).tolist() for length in lengths]
    return [Request(index, [*ids, EOS_ID], len(ids)) for index, ids in enumerate(sources)]


def tune(
    engine: AnyEngine,
    requests: Sequence[Request],
    emission: Emission,
    rounds: int,
    clock: Clock = time.perf_counter,
    workers: int = 1,
) -> Tuning:
    """Time `ar` and every draft length whose emission is known, in turn, over some of the requests.

    Then the fastest length and `ar` with more and more rows in flight, until `ar` is faster.

    Args:
        workers: that decode so many rows each at a time, as a stream's sentences are; a row alone has all cores.
    """
    requests = evenly_spread(requests, TIMED_SENTENCES)
    longest = min(engine.max_draft_length, len(emission.by_draft_length))
    strategies: dict[int, Strategy] = {0: _PLAIN}
    strategies |= {length: _strict(length) for length in range(1, longest + 1)}
    for strategy in strategies.values():
        _decode(engine, requests[:2], strategy, clock)
    # Sentence by sentence, there and back over the lengths: what slows the machine down for a while favours none.
    runs: dict[int, list[list[_Decoded]]] = {length: [[] for _ in requests] for length in strategies}
    for number in range(rounds):
        for place, request in enumerate(requests):
            for length in sorted(strategies, reverse=(number + place) % 2 == 1):
                runs[length][place].append(_decode(engine, [request], strategies[length], clock))
    seconds = {length: _iteration_seconds(sentences) for length, sentences in runs.items()}
    timings = tuple(
        Timing(length, seconds[length], emission.by_draft_length[length - 1]) for length in range(1, longest + 1)
    )
    found = Tuning(timings, seconds[0], emission, rows=0)
    if found.best.token_seconds > found.ar_token_seconds:
        return found

    with ThreadPoolExecutor(workers) as pool:  # of threads that keep their buffers, as a stream's do

        def seconds_of(batch: Sequence[Request], strategy: Strategy) -> float:
            return _together([Flight(engine) for _ in range(workers)], batch, strategy, clock, pool)

        return replace(found, rows=_most_rows(seconds_of, requests, strategies[found.best.draft_length], rounds))


def _most_rows(
    seconds_of: Callable[[Sequence[Request], Strategy], float],
    requests: Sequence[Request],
    strategy: Strategy,
    rounds: int,
) -> int:
    """The most rows in flight, of `ROWS` or one, with which `strategy` is not slower than plain steps."""
    most = 1
    for rows in ROWS:
        batch = [replace(requests[place % len(requests)], index=place) for place in range(rows)]
        runs = [[seconds_of(batch, way) for way in (_PLAIN, strategy)] for _ in range(rounds)]
        plain, speculative = (min(seconds) for seconds in zip(*runs, strict=True))
        if speculative > plain:
            break
        most = rows
    return most


def _together(
    flights: Sequence[Flight], requests: Sequence[Request], strategy: Strategy, clock: Clock, pool: Executor
) -> float:
    """Seconds of decoding sentences in each of the flights, all at a time; encoding left out."""

    def land(flight: Flight) -> None:
        while flight.hypotheses:
            strategy.advance(flight)
            flight.land()

    for flight in flights:
        flight.admit(requests)
    begun = clock()
    list(pool.map(land, flights))
    return clock() - begun


@dataclass(frozen=True)
class _Decoded:
    """Iterations of all sentences, and the seconds that they took together."""

    iterations: list[Iteration]
    seconds: float


def _iteration_seconds(sentences: Sequence[Sequence[_Decoded]]) -> float:
    """Mean seconds of an iteration over sentences, each of which counts with the shortest of its runs.

    Other work on the machine only adds time, and more to long drafts than to short ones.
    """
    total = sum(min(run.seconds for run in runs) for runs in sentences)
    return total / sum(len(runs[0].iterations) for runs in sentences)


def _decode(engine: AnyEngine, requests: Sequence[Request], strategy: Strategy, clock: Clock) -> _Decoded:
    """Decode one sentence at a time; the clock runs for iterations only, not while a source is encoded."""
    iterations: list[Iteration] = []
    seconds = 0.0
    for request in requests:
        flight = Flight(engine)
        flight.admit([request])
        while flight.hypotheses:
            begun = clock()
            strategy.advance(flight)
            seconds += clock() - begun
            for hypothesis in flight.land():
                iterations += hypothesis.iterations
    return _Decoded(iterations, seconds)
