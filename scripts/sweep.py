"""How the bundle's strategies do by β, τ, draft length and batch size: quality, emitted tokens, speed over `ar`.

Text is scored, and tokens are counted, over whole test sets, 32 lines at a time; draft lengths over at most 400 lines.
Times are of fewer lines, spread evenly: text in to text out on one core, all settings in turn, block of lines by block
of lines, over six rounds (three for batches), so that a busy neighbour slows all of them alike. `write_sweep.py`
makes tables of it.

    python scripts/sweep.py [--bundle DIR] [--engine E] [--clock C] [--quick] && python scripts/write_sweep.py

Where other work shares the core, `--clock cpu` counts the processor's time that decoding got, not what it waited for.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import benchmarking
import numpy as np
from benchmarking import CORPORA, Options, Results, last_cores, rotated
from significance import compare

from specmt.arrays import IntArray
from specmt.corpus import Pair
from specmt.engines.base import AnyEngine, Candidates, Rows, Speculation
from specmt.engines.drafting import walk
from specmt.evaluation.measuring import Output
from specmt.evaluation.scoring import scores
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID
from specmt.translation import Translation
from specmt.translator import Translator

BETAS = (1, 2, 3, 5)
TAUS = (0.3, 1.0, 2.0, 3.0)
DRAFT_LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
TRIED_LENGTHS = (1, 2, 3, 4, 6, 8)
"""Among which each batch size finds its best draft length."""
SOURCE_TOKENS = (5, 10, 15, 20, 30, 40)
"""The longest source of each class but the last."""
SCORED_BATCH = 32
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
BLOCK = 20
"""Lines that one setting translates before it is another's turn."""
WARM_UP_LINES = 8


@dataclass(frozen=True)
class Extent:
    """How many lines, at most, each kind of measurement takes."""

    scored: int
    counted: int
    timed: int
    batched: int
    rounds: int
    batch_rounds: int

    @classmethod
    def of(cls, quick: bool) -> Extent:
        """Few, to see that it runs, or enough."""
        return cls(40, 20, 6, 6, 2, 2) if quick else cls(10**6, 400, 60, 60, 6, 3)


class DrafterAlone:
    """An engine whose verifier says whatever the drafter says: every draft is accepted, the bonus token is drafted too.

    The verifier still reads the tokens, because a draft starts from its states of the prefix; what it thinks of them
    is thrown away.
    """

    iterate: Any = None

    def __init__(self, engine: AnyEngine) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever the engine has)
        """Everything else is the engine's."""
        return getattr(self.engine, name)

    def draft_and_verify(self, rows: Rows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """Draft one token more than asked for, which stands for the bonus token."""
        drafted = walk(self.engine.draft(rows, last_ids, draft_length + 1))
        draft = drafted[:, :draft_length]
        self.engine.verify(rows, np.concatenate([last_ids[:, None], draft], axis=1), beta)
        said = drafted[:, :, None]
        return Speculation(draft, Candidates(said, np.zeros(said.shape, dtype=np.float32)))


def drafter_alone(translator: Translator) -> Translator:
    """The same pair, with nothing checked. With a draft length of k it takes k + 1 drafted tokens per pass."""
    engine: Any = DrafterAlone(translator.engine)
    return Translator(
        engine, translator.vocabulary, translator.defaults, translator.workers, splitting=translator.splitting
    )


# -- texts and tokens


def translated(
    translator: Translator, pairs: Sequence[Pair], settings: DecodingSettings, batch_size: int = SCORED_BATCH
) -> list[Translation]:
    """The sources' translations."""
    return list(translator.translate([pair.source for pair in pairs], settings, batch_size))


def measured(translations: Sequence[Translation], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Scores, and what is emitted and accepted. SpecDec's code counts an end's iteration, but not the end itself."""
    output = Output.of(translations)
    quality = scores(output.texts, [pair.target for pair in pairs])
    iterations = [iteration.emitted for one in translations for iteration in one.iterations]
    ends = sum(emitted[-1] == EOS_ID for emitted in iterations)
    return {
        **asdict(quality),
        "emitted": output.mean_emitted_tokens(),
        "emitted_without_ends": output.mean_emitted_tokens() - ends / len(iterations),
        "acceptance_rate": float(output.accepted.sum() / max(output.drafted.sum(), 1)),
    }


def scored_with(translator: Translator, pairs: Sequence[Pair], settings: DecodingSettings) -> dict[str, Any]:
    """Scores and mean emitted tokens of a setting."""
    return measured(translated(translator, pairs, settings), pairs)


def strategies(translator: Translator) -> dict[str, tuple[Translator, DecodingSettings]]:
    """What is compared in quality."""
    spec = DecodingSettings.relaxed(translator.defaults)
    ar, alone = replace(spec, strategy="ar"), drafter_alone(translator)
    longest = translator.engine.max_draft_length
    lengths = sorted({min(max(spec.draft_length, 2), longest), longest})
    return {
        "ar": (translator, ar),
        "beam 5": (translator, replace(ar, beam=5)),
        "strict": (translator, spec.strict()),
        "relaxed": (translator, spec),
        **{f"drafter alone, k = {k}": (alone, replace(spec, draft_length=k - 1, beta=1)) for k in lengths if k > 1},
    }


def quality(translator: Translator, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Every strategy over a test set: scores, acceptance, what differs from `ar` and beam search by chance."""
    done = {name: translated(one, pairs, settings) for name, (one, settings) in strategies(translator).items()}
    outputs = {name: Output.of(translations) for name, translations in done.items()}
    found = {name: measured(translations, pairs) for name, translations in done.items()}
    for name, output in outputs.items():
        same = sum(own == ar for own, ar in zip(output.texts, outputs["ar"].texts, strict=True))
        found[name] |= {"differing_from_ar": len(pairs) - same}
    texts = {name: outputs[name].texts for name in ("relaxed", "strict", "ar", "beam 5")}
    references = [pair.target for pair in pairs]
    comparisons = [one for baseline in ("ar", "beam 5") for one in compare(texts, baseline, references)]
    return {
        "lines": len(pairs),
        "strategies": found,
        "comparisons": [asdict(comparison) for comparison in comparisons],
        "by_source_tokens": by_source_tokens(done["strict"], done["relaxed"]),
    }


def by_source_tokens(strict: Sequence[Translation], relaxed: Sequence[Translation]) -> list[dict[str, Any]]:
    """Mean emitted tokens by the source's tokens; lines decoded in several segments are left out."""
    classes: dict[int, list[int]] = {}
    for line, translation in enumerate(strict):
        if translation.segments == 1 and translation.ids:
            place = int(np.searchsorted(SOURCE_TOKENS, len(translation.source_ids)))
            classes.setdefault(place, []).append(line)
    return [
        {
            "from": SOURCE_TOKENS[place - 1] + 1 if place else 1,
            "to": SOURCE_TOKENS[place] if place < len(SOURCE_TOKENS) else None,
            "lines": len(lines),
            "strict": Output.of([strict[line] for line in lines]).mean_emitted_tokens(),
            "relaxed": Output.of([relaxed[line] for line in lines]).mean_emitted_tokens(),
        }
        for place, lines in sorted(classes.items())
    ]


def grid(spec: DecodingSettings) -> dict[str, DecodingSettings]:
    """β × τ; with β = 1 τ says nothing."""
    found = {"β 1": replace(spec, beta=1)}
    return found | {f"β {beta}, τ {tau:g}": replace(spec, beta=beta, tau=tau) for beta in BETAS[1:] for tau in TAUS}


def draft_lengths(longest: int) -> list[int]:
    """Those that are measured: all of a short drafter, more and more thinly of a long one."""
    return sorted({length for length in DRAFT_LENGTHS if length < longest} | {longest})


def by_draft_length(translator: Translator, pairs: Sequence[Pair], length: int) -> dict[str, Any]:
    """Mean emitted tokens, strict and relaxed, and by slot how much of a strict draft is accepted."""
    spec = replace(DecodingSettings.relaxed(translator.defaults), draft_length=length)
    strict = Output.of(translated(translator, pairs, spec.strict()))
    relaxed = Output.of(translated(translator, pairs, spec))
    return {
        "strict": strict.mean_emitted_tokens(),
        "relaxed": relaxed.mean_emitted_tokens(),
        "acceptance_by_position": strict.acceptance_by_position(),
    }


# -- times


Run = Callable[[Sequence[str]], object]
Clock = Callable[[], float]
"""Seconds."""


def race(runs: Mapping[str, Run], blocks: Sequence[Sequence[str]], rounds: int, clock: Clock) -> dict[str, list[float]]:
    """Seconds of each run over all blocks, a sum a round. Runs take turns block by block; a few lines warm them up."""
    for run in runs.values():
        run(blocks[0][:WARM_UP_LINES])
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        sums = dict.fromkeys(runs, 0.0)
        for place, block in enumerate(blocks):
            gc.collect()
            gc.disable()
            for name in rotated(list(runs), number + place):
                begun = clock()
                runs[name](block)
                sums[name] += clock() - begun
            gc.enable()
        for name, total in sums.items():
            seconds[name].append(total)
    return seconds


def blocks(lines: Sequence[str], size: int) -> list[Sequence[str]]:
    """The lines, `size` at a time."""
    return [lines[start : start + size] for start in range(0, len(lines), size)]


def translating(translator: Translator, settings: DecodingSettings, batch_size: int) -> Run:
    """Translate lines, and forget what came out."""
    settings = replace(settings, scored=False)
    return lambda lines: [translation.index for translation in translator.translate(lines, settings, batch_size)]


def speed(translator: Translator, lines: Sequence[str], rounds: int, clock: Clock) -> dict[str, Any]:
    """Seconds at batch size 1 of everything that is swept, by name."""
    spec = DecodingSettings.relaxed(translator.defaults)
    settings = {"ar": replace(spec, strategy="ar"), "beam 5": replace(spec, strategy="ar", beam=5), "relaxed": spec}
    settings |= grid(spec)
    for length in draft_lengths(translator.engine.max_draft_length):
        settings[f"strict, k {length}"] = replace(spec.strict(), draft_length=length)
        settings[f"relaxed, k {length}"] = replace(spec, draft_length=length)
    runs = {name: translating(translator, one, batch_size=1) for name, one in settings.items()}
    return {"lines": len(lines), "seconds": race(runs, blocks(lines, BLOCK), rounds, clock)}


def batches(translator: Translator, lines: Sequence[str], batch_size: int, rounds: int, clock: Clock) -> dict[str, Any]:
    """Seconds at a batch size, strict at its best draft length and at the usual one; the best is found beforehand."""
    spec = DecodingSettings.relaxed(translator.defaults)
    longest = translator.engine.max_draft_length
    tried = {
        length: translating(translator, replace(spec.strict(), draft_length=length), batch_size)
        for length in TRIED_LENGTHS
        if length <= longest
    }
    found = race({str(length): run for length, run in tried.items()}, [lines], rounds, clock)
    best = min(tried, key=lambda length: median(found[str(length)]))
    runs = {
        "ar": translating(translator, replace(spec, strategy="ar"), batch_size),
        "strict": translating(translator, spec.strict(), batch_size),
        "strict, best k": tried[best],
        "relaxed": translating(translator, spec, batch_size),
    }
    return {"lines": len(lines), "best": best, "seconds": race(runs, [lines], rounds, clock)}


# -- all of it


def sections(
    translator: Translator, corpus: Callable[[int], list[Pair]], extent: Extent, clock: Clock
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The parts of one test set and how they are measured; what is scored first, what is timed behind it."""
    scored, counted = corpus(extent.scored), corpus(extent.counted)
    yield "quality", partial(quality, translator, scored)
    for name, settings in grid(DecodingSettings.relaxed(translator.defaults)).items():
        yield f"grid/{name}", partial(scored_with, translator, scored, settings)
    for length in draft_lengths(translator.engine.max_draft_length):
        yield f"draft length/{length}", partial(by_draft_length, translator, counted, length)
    timed = [pair.source for pair in corpus(extent.timed)]
    yield "speed", partial(speed, translator, timed, extent.rounds, clock)
    for size in BATCH_SIZES:
        lines = [pair.source for pair in corpus(max(extent.batched, 3 * size))]
        yield f"batch size/{size}", partial(batches, translator, lines, size, extent.batch_rounds, clock)


def main() -> None:
    """Measure on each test set, and keep what was measured."""
    parser = benchmarking.parser(str(__doc__))
    parser.add_argument("--engine", default="auto", help="auto, native, onnx or torch")
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="what time is (default: wall)")
    arguments = parser.parse_args()
    options: Options = benchmarking.options(arguments)
    os.sched_setaffinity(0, last_cores(1))
    translator = load_translator(options.bundle, engine=arguments.engine)
    extent = Extent.of(options.quick)
    about = {
        "engine": translator.engine.name,
        "clock": arguments.clock,
        "decoding": asdict(translator.defaults),
        "extent": asdict(extent),
    }
    results = Results(options, "sweep", {"corpora": list(CORPORA), **about})
    for name in CORPORA:
        for part, measure in sections(
            translator, partial(benchmarking.corpus, options, name), extent, CLOCKS[arguments.clock]
        ):
            results.part(f"{name}/{part}", measure)


if __name__ == "__main__":
    benchmarking.ended(main)
