"""How far decoding is from its limit, and where its time goes.

The limit of a sentence at draft length k is its encoder pass and the fewest iterations that could emit its tokens,
ceil(tokens / (k + 1)): every draft accepted, nothing around the passes. Each pass counts with what it takes here alone,
run again and again on this sentence; steps and iterations several in a call where the engine can, as in translation.

The profile runs whole translations with a clock around each part: tokenise, encode, draft and verify (in one call, as
the engine does it; and as two, to tell them apart), detokenise; bookkeeping is the rest: Python, acceptance, rows that
come and go.

    python scripts/bench_limit.py [--bundle DIR] [--quick]
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any, TypeVar

import benchmarking
import numpy as np
from benchmarking import CORPORA, Options, Results, last_cores

from specmt.arrays import IntArray
from specmt.engines.base import AnyEngine, Candidates, Lattice, Rows, Speculation
from specmt.engines.drafting import draft_and_verify
from specmt.evaluation.measuring import strategy_settings
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID, AnyVocabulary
from specmt.translation import Translation
from specmt.translator import Translator

T = TypeVar("T")
ROUNDS = 3
ITERATED_TOKENS = 8
"""That are emitted in one call, at most, when iterations are timed."""


class Stopwatch:
    """Seconds by part. Parts do not lie in one another."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def time(self, part: str, call: Callable[[], T]) -> T:
        """Call, and count the time for `part`."""
        begun = time.perf_counter()
        result = call()
        self.seconds[part] += time.perf_counter() - begun  # type: ignore[assignment]
        return result


class SeparateEngine:
    """An engine whose passes are timed, drafts and verifies in two calls."""

    draft_and_verify: Any = None
    iterate: Any = None

    def __init__(self, engine: AnyEngine, watch: Stopwatch) -> None:
        self.engine = engine
        self.watch = watch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the engine has)
        """Not timed: bookkeeping, and what the engine says of itself."""
        return getattr(self.engine, name)

    def encode(self, sources: Sequence[Sequence[int]]) -> Any:  # noqa: ANN401  (the engine's own rows)
        """Timed as `encode`."""
        return self.watch.time("encode", lambda: self.engine.encode(sources))

    def draft(self, rows: Rows, last_ids: IntArray, draft_length: int) -> Lattice:
        """Timed as `draft`."""
        return self.watch.time("draft", lambda: self.engine.draft(rows, last_ids, draft_length))

    def verify(self, rows: Rows, token_ids: IntArray, beta: int) -> Candidates:
        """Timed as `verify`."""
        return self.watch.time("verify", lambda: self.engine.verify(rows, token_ids, beta))


class FusedTimedEngine(SeparateEngine):
    """The same where the engine drafts and verifies in one call."""

    def draft_and_verify(self, rows: Rows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """Timed as `draft and verify`."""
        call = partial(draft_and_verify, self.engine, rows, last_ids, draft_length, beta)
        return self.watch.time("draft and verify", call)

    @property
    def iterate(self) -> Any:  # noqa: ANN401  (None where the engine has none)
        """Timed as `iterations`."""
        iterate = getattr(self.engine, "iterate", None)
        return iterate and (lambda *given: self.watch.time("iterations", lambda: iterate(*given)))


class TimedVocabulary:
    """A vocabulary whose work is timed."""

    def __init__(self, vocabulary: AnyVocabulary, watch: Stopwatch) -> None:
        self._vocabulary, self._watch = vocabulary, watch

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the vocabulary has)
        """Not timed: bookkeeping."""
        return getattr(self._vocabulary, name)

    def encode(self, text: str) -> list[int]:
        """Timed as `tokenise`."""
        return self._watch.time("tokenise", lambda: self._vocabulary.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Timed as `detokenise`."""
        return self._watch.time("detokenise", lambda: self._vocabulary.decode(ids))


def profile(
    translator: Translator, lines: Sequence[str], settings: DecodingSettings, fused: bool, batch_size: int
) -> dict[str, float]:
    """Milliseconds a sentence by part, the median over rounds of each; `total` is text in to text out."""
    rounds = []
    for _ in range(ROUNDS + 1):
        watch = Stopwatch()
        engine: Any = (FusedTimedEngine if fused else SeparateEngine)(translator.engine, watch)
        vocabulary: Any = TimedVocabulary(translator.vocabulary, watch)
        timed = Translator(engine, vocabulary, translator.defaults)
        begun = time.perf_counter()
        for _ in timed.translate(lines, settings, batch_size):
            pass
        total = time.perf_counter() - begun
        watch.seconds["bookkeeping"] = total - sum(watch.seconds.values())  # type: ignore[assignment]
        rounds.append({**watch.seconds, "total": total})
    parts = rounds[-1]
    return {part: median(one.get(part, 0.0) for one in rounds[1:]) * 1e3 / len(lines) for part in parts}


def _repeated(call: Callable[[], object]) -> float:
    """Median seconds of a call."""
    times = []
    for _ in range(9):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return median(times[2:])


def _iteration(
    engine: AnyEngine, rows: Rows, last_ids: IntArray, draft_length: int, settings: DecodingSettings
) -> float:
    """Median seconds of an iteration, or of a step where nothing is drafted; the rows stay as they are."""
    iterate = getattr(engine, "iterate", None)
    if iterate is None:
        if draft_length == 0:
            return _repeated(partial(engine.verify, rows, last_ids[:, None], 1))
        return _repeated(partial(draft_and_verify, engine, rows, last_ids, draft_length, settings.beta))
    room, iterations = np.full(1, ITERATED_TOKENS), 0

    def run() -> None:
        nonlocal iterations
        beta = settings.beta if draft_length else 1
        iterations = len(
            iterate(copy(rows), last_ids, room, draft_length, beta, settings.tau, scored=settings.scored).accepted[0]
        )

    return _repeated(run) / iterations


def _least(translator: Translator, translation: Translation, settings: DecodingSettings) -> float:
    """Seconds of the fewest passes that could give a line's translation."""
    engine = translator.engine
    source = [[*translator.vocabulary.encode(translation.source), EOS_ID]]
    encoder = _repeated(partial(engine.encode, source))
    tokens = len(translation.ids)
    rows = engine.encode(source)
    # Half of the sentence stands in the caches, as on average.
    read = np.array([[EOS_ID, *translation.ids[: tokens // 2]]])
    engine.verify(rows, read, 1)
    engine.commit(rows, np.array([read.shape[1]]))
    last = np.array([translation.ids[tokens // 2]])
    length = 0 if settings.strategy == "ar" else settings.draft_length
    return encoder + -(-tokens // (length + 1)) * _iteration(engine, rows, last, length, settings)


def limit(translator: Translator, lines: Sequence[str], settings: DecodingSettings) -> dict[str, float]:
    """Milliseconds a sentence takes (median over rounds), and would take at its limit.

    Both are measured line by line, one behind the other: a machine that slows down slows both.
    """
    least = measured = 0.0
    iterations = tokens = 0
    for line in lines:
        (greedy,) = translator.translate([line], replace(settings, strategy="ar"), batch_size=1)
        least += _least(translator, greedy, settings)
        seconds = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            (done,) = translator.translate([line], settings, batch_size=1)
            seconds.append(time.perf_counter() - begun)
        measured += median(seconds)
        iterations += len(done.iterations)
        tokens += len(done.ids)
    return {
        "measured": measured * 1e3 / len(lines),
        "limit": least * 1e3 / len(lines),
        "emitted": tokens / iterations,
        "draft_length": settings.draft_length,
    }


def main() -> None:
    """Measure on each test set, and keep what was measured."""
    parser = benchmarking.parser(str(__doc__))
    options: Options = benchmarking.options(parser.parse_args())
    os.sched_setaffinity(0, last_cores(1))
    results = Results(options, "limit", {"corpora": list(CORPORA), "rounds": ROUNDS})
    translator = load_translator(options.bundle)
    relaxed = strategy_settings("spec", translator.defaults)
    strict = relaxed.strict()
    if length := translator.engine.strict_draft_length:
        strict = replace(strict, draft_length=length)
    ways = {"spec": relaxed, "spec-strict": strict, "ar": replace(relaxed, strategy="ar")}
    for name in CORPORA:
        lines = [pair.source for pair in benchmarking.corpus(options, name, 12 if options.quick else 100)]
        for way, settings in ways.items():
            results.part(f"limit/{name}/{way}", partial(limit, translator, lines, settings))
            for batch_size in (1, 32):
                done = partial(profile, translator, lines, settings, batch_size=batch_size)
                results.part(f"profile/{name}/{batch_size}/{way}", partial(done, fused=True))
                if way != "ar":
                    results.part(f"profile/{name}/{batch_size}/{way}, in two calls", partial(done, fused=False))


if __name__ == "__main__":
    benchmarking.ended(main)
