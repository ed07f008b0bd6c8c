"""BLEU, chrF, speed and acceptance of decoding strategies, measured side by side, as one result object.

Every strategy is timed over the same span, text in to text out, through `Translator.translate`: warmed up, run in turn
`repeats` times with the order rotated so that noise of the machine hits all alike, and scored outside of that span.
"""

from __future__ import annotations

import gc
import platform
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np

from specmt.arrays import IntArray
from specmt.bundles.bundle import DecodingDefaults
from specmt.corpus import evenly_spread
from specmt.decoding.hypotheses import Iteration, ReplayCounts
from specmt.errors import InputError, UsageError
from specmt.evaluation.scoring import Scores, scores
from specmt.machine import cpu_model, usable_cores
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID
from specmt.translation import Translation
from specmt.translator import Translator

STRATEGIES = "ar, beam2 (or another number), replay, spec-strict, spec, spec-reproducible"
BASELINE = "ar"
"""The strategy that all speed is compared with; always run, and always among the results."""
WARM_UP_LINES = 8
"""Lines (or one batch, if that is more) that each strategy translates before its clock runs."""
LATENCY_LINES = 200
"""At most so many lines, spread evenly, are translated one at a time for latency when batches are larger than 1."""


@dataclass(frozen=True)
class Latency:
    """Milliseconds a line takes at batch size 1: mean and percentiles. Blank and copied lines do not count."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True)
class Machine:
    """Where and with what was measured."""

    cpu: str
    cores: int
    """That this process may use."""
    threads: int | None
    """That the engine was given, as far as it is known."""
    os: str
    python: str
    torch: str | None
    """Version of torch, if it is loaded."""
    engine: str
    precision: str


@dataclass(frozen=True)
class StrategyResult:
    """One strategy's measurements. What is accepted or emitted is counted as `hypotheses.Iteration` does."""

    strategy: str
    settings: DecodingSettings
    bleu: float
    """0–100, cased; of 13a's tokens, unless the language has no blanks between words."""
    bleu_signature: str
    chrf: float
    """0–100."""
    chrf_signature: str
    seconds: float
    """Median over the rounds of the time for all lines."""
    seconds_min: float
    seconds_max: float
    sentences_per_second: float
    """Sentences that were translated, of which a line may have several, over `seconds`; not what was copied."""
    latency_ms: Latency
    speedup_vs_ar: float
    """Seconds of `ar` greedy over this strategy's in the same round, median over the rounds."""
    speedup_vs_ar_min: float
    """Smallest of these ratios."""
    speedup_vs_ar_max: float
    mean_emitted_tokens: float
    """Tokens an iteration (or a replay), recovered or bonus token included, end-of-sentence counted; 1 for `ar`."""
    acceptance_rate: float | None
    """Accepted over drafted tokens, 0–1, slots behind the end of the sentence left out; None if nothing was drafted."""
    acceptance_by_position: tuple[float, ...]
    """For each slot, of the iterations in which it lay within the sentence, the share (0–1) that accepted it."""
    emitted_histogram: tuple[int, ...]
    """At index n, the number of iterations that emitted n tokens."""
    iterations: int
    identical_to_ar: float
    """Share (0–1) of all lines whose text is that of `ar` greedy."""
    replay: ReplayCounts | None = None
    """Sums over all lines; None where nothing is replayed."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; of the settings, those that matter to the strategy."""
        relaxed = ("tau",) if self.settings.beta > 1 else ()
        names = {
            "spec": ("draft_length", "beta", *relaxed, "reproducible"),
            "replay": ("replay_window", "replay_group"),
            "ar": ("beam", "length_penalty"),
        }[self.settings.strategy]
        values = asdict(self) | {"settings": {name: getattr(self.settings, name) for name in names}}
        return {"strategy": values.pop("strategy"), **values}


@dataclass(frozen=True)
class Evaluation:
    """The results of one run, in the order asked for; `ar` comes first if it was not asked for."""

    machine: Machine
    lines: int
    batch_size: int
    repeats: int
    results: tuple[StrategyResult, ...]

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return asdict(self) | {"results": [result.to_json() for result in self.results]}


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    strategies: Sequence[str],
    batch_size: int,
    repeats: int = 3,
    report: Callable[[str], None] = lambda line: None,
    threads: int | None = None,
) -> Evaluation:
    """Translate `sources` with each strategy `repeats` times and compare with `references`, line by line.

    Args:
        strategies: `ar` (greedy), `beam5` or another beam, `replay`, `spec-strict`, `spec`,
            `spec-reproducible`. `ar` is run in any case.
        batch_size: of the timed passes. Latency is always that of batch size 1: from the timed passes if this is 1,
            every line of each counted, else from one more pass over at most `LATENCY_LINES` lines.
        report: called with a line on what has been done.
        threads: that the engine was given, for the record; None takes torch's if torch is loaded.

    Raises:
        UsageError: an unknown strategy, or settings that the engine cannot do.
        InputError: no text, or not a reference for each source.
    """
    chosen = _checked(translator, sources, references, strategies)
    sentences = [line for line in sources if translator.requests([line])]
    for settings in chosen.values():
        _time(translator, evenly_spread(sentences, max(WARM_UP_LINES, batch_size)), settings, batch_size)
    report(f"warmed up {', '.join(chosen)}")

    outputs: dict[str, Output] = {}
    timings: dict[str, list[_Timing]] = {name: [] for name in chosen}
    for done in range(repeats):
        for name in _rotated(list(chosen), done):
            translations, timing = _time(translator, sources, chosen[name], batch_size)
            report(f"round {done + 1} of {repeats}: {name} took {timing.seconds:.2f} s")
            timings[name].append(timing)
            outputs.setdefault(name, Output.of(translations))

    latencies = timings
    if batch_size > 1:
        latencies = {name: [_time_singly(translator, sentences, settings)] for name, settings in chosen.items()}
        report("measured latency at batch size 1")
    results = [
        _result(
            name,
            settings,
            outputs,
            timings,
            latencies[name],
            scores(outputs[name].texts, references, translator.target_language),
        )
        for name, settings in chosen.items()
    ]
    return Evaluation(_machine(translator, threads), len(sources), batch_size, repeats, tuple(results))


# -- what to run


def strategy_settings(name: str, defaults: DecodingDefaults) -> DecodingSettings:
    """The settings that a strategy's name stands for, for text alone.

    Raises:
        UsageError: no such strategy.
    """
    spec = replace(DecodingSettings.relaxed(defaults), scored=False)
    if name == "spec":
        return spec
    if name == "spec-strict":
        return spec.strict()
    if name == "spec-reproducible":
        return replace(spec, reproducible=True)
    if name in {"ar", "replay"}:
        return replace(spec, strategy=name)
    if beam := re.fullmatch("beam([1-9][0-9]{0,4})", name):
        return replace(spec, strategy="ar", beam=int(beam[1]))
    raise UsageError(f"--strategies: {name!r} is none of {STRATEGIES}")


def _checked(
    translator: Translator, sources: Sequence[str], references: Sequence[str], strategies: Sequence[str]
) -> dict[str, DecodingSettings]:
    if len(sources) != len(references):
        raise InputError(f"{len(sources)} source lines, {len(references)} reference lines: they must be line-aligned")
    if not translator.requests(sources):
        raise InputError("the source has no line with a word to translate: nothing to evaluate")
    names = strategies if BASELINE in strategies else [BASELINE, *strategies]
    chosen = {name: strategy_settings(name, translator.defaults) for name in names}
    return {name: settings.checked(translator.engine) for name, settings in chosen.items()}


def _rotated(names: Sequence[str], places: int) -> list[str]:
    first = places % len(names)
    return [*names[first:], *names[:first]]


# -- running and timing


@dataclass(frozen=True)
class _Timing:
    """`seconds` for all lines; `lines_ms`: milliseconds of each that was translated, since the one before it."""

    seconds: float
    lines_ms: list[float]


def _time(
    translator: Translator, lines: Sequence[str], settings: DecodingSettings, batch_size: int
) -> tuple[list[Translation], _Timing]:
    gc.collect()
    translations, marks = [], []
    _synchronise()
    start = time.perf_counter()
    for translation in translator.translate(lines, settings, batch_size):
        translations.append(translation)
        marks.append(time.perf_counter())
    _synchronise()
    seconds = time.perf_counter() - start
    spans = np.diff(marks, prepend=start) * 1000
    translated = [span for span, translation in zip(spans.tolist(), translations, strict=True) if translation.ids]
    return translations, _Timing(seconds, translated)


def _time_singly(translator: Translator, sentences: Sequence[str], settings: DecodingSettings) -> _Timing:
    _time(translator, evenly_spread(sentences, WARM_UP_LINES), settings, batch_size=1)
    return _time(translator, evenly_spread(sentences, LATENCY_LINES), settings, batch_size=1)[1]


def _synchronise() -> None:
    """Wait for the GPU, if there is one in use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()


# -- from translations and times to results


@dataclass(frozen=True)
class Output:
    """What of a pass is measured. `drafted` within the sentence, `accepted`, `emitted`: tokens, shape (iterations,)."""

    texts: list[str]
    sentences: int
    drafted: IntArray
    accepted: IntArray
    emitted: IntArray
    replay: ReplayCounts | None

    @classmethod
    def of(cls, translations: Iterable[Translation]) -> Output:
        """Gather it from translations."""
        translations = list(translations)
        iterations = [iteration for translation in translations for iteration in translation.iterations]
        return cls(
            [translation.text for translation in translations],
            sum(translation.decoded for translation in translations),
            np.array([slots for one in translations for slots in _drafted(one.iterations)], dtype=np.int64),
            np.array([iteration.accepted for iteration in iterations], dtype=np.int64),
            np.array([len(iteration.emitted) for iteration in iterations], dtype=np.int64),
            ReplayCounts.total(one.replay for one in translations if one.replay),
        )

    def mean_emitted_tokens(self) -> float:
        """Tokens an iteration, recovered or bonus token included, end-of-sentence counted."""
        return float(self.emitted.mean())

    def acceptance_by_position(self) -> tuple[float, ...]:
        """See `StrategyResult`."""
        slots = range(self.drafted.max())
        return tuple(float((self.accepted > slot).sum() / (self.drafted > slot).sum()) for slot in slots)


def _drafted(iterations: Sequence[Iteration]) -> list[int]:
    """Slots of each iteration of a line that lie within a sentence as it came out."""
    counts, left = [], 0
    for iteration in reversed(iterations):
        if iteration.emitted[-1:] == (EOS_ID,):  # a line may have several sentences
            left = 0
        left += len(iteration.emitted)
        counts.append(min(iteration.drafted, left))
    return counts[::-1]


def _result(
    name: str,
    settings: DecodingSettings,
    outputs: Mapping[str, Output],
    timings: Mapping[str, Sequence[_Timing]],
    latencies: Sequence[_Timing],
    quality: Scores,
) -> StrategyResult:
    output, baseline = outputs[name], outputs[BASELINE]
    seconds = [timing.seconds for timing in timings[name]]
    baseline_seconds = [timing.seconds for timing in timings[BASELINE]]
    ratios = [ar / own for ar, own in zip(baseline_seconds, seconds, strict=True)]
    drafted = int(output.drafted.sum()) if settings.strategy == "spec" else 0  # what is replayed is no draft
    same = [own == ar for own, ar in zip(output.texts, baseline.texts, strict=True)]
    return StrategyResult(
        strategy=name,
        settings=settings,
        **asdict(quality),
        seconds=median(seconds),
        seconds_min=min(seconds),
        seconds_max=max(seconds),
        sentences_per_second=output.sentences / median(seconds),
        latency_ms=_latency([ms for timing in latencies for ms in timing.lines_ms]),
        speedup_vs_ar=median(ratios),
        speedup_vs_ar_min=min(ratios),
        speedup_vs_ar_max=max(ratios),
        mean_emitted_tokens=output.mean_emitted_tokens(),
        acceptance_rate=int(output.accepted.sum()) / drafted if drafted else None,
        acceptance_by_position=output.acceptance_by_position() if drafted else (),
        emitted_histogram=tuple(np.bincount(output.emitted).tolist()),
        iterations=len(output.emitted),
        identical_to_ar=sum(same) / len(same),
        replay=output.replay,
    )


def _latency(milliseconds: Sequence[float]) -> Latency:
    p50, p95, p99 = np.percentile(milliseconds, [50, 95, 99]).tolist()
    return Latency(float(np.mean(milliseconds)), p50, p95, p99)


# -- the machine


def _machine(translator: Translator, threads: int | None) -> Machine:
    torch = sys.modules.get("torch")
    if threads is None and torch is not None:
        threads = torch.get_num_threads()
    engine = translator.engine.name
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        threads=threads,
        os=platform.platform(),
        python=platform.python_version(),
        torch=str(torch.__version__) if torch is not None else None,
        engine=engine,
        precision=engine.rpartition("-")[2],
    )
