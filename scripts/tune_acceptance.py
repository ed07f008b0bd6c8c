"""Which β, τ and draft length? BLEU, mean emitted tokens and speed of each on a file, against `ar` of the same run.

    python scripts/tune_acceptance.py SOURCE REFERENCE [--model DIR] [--draft-lengths 5,6,8,10] [--lines 400]

First the draft length, strict, since it changes no text: the fastest is taken. Then β × τ at that length. Everything
is scored first; then all take turns, at batch size 1 on one core. A speedup is the median over `--repeats` rounds of
the ratio of their times (and its range).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarking import BUNDLED, ended, last_cores, with_range
from sweep import BLOCK, blocks, draft_lengths, measured, race, translated, translating

from specmt.corpus import Pair, read_parallel
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.translator import Translator

BETAS = (2, 3, 5)
TAUS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0)


def measure(
    translator: Translator, pairs: Sequence[Pair], runs: Mapping[str, DecodingSettings], rounds: int
) -> dict[str, float]:
    """Run all in turn, print a row for each, and return each one's speedup over the first, the median over rounds."""
    scored = {name: measured(translated(translator, pairs, one, batch_size=1), pairs) for name, one in runs.items()}
    lines = [pair.source for pair in pairs]
    timed = {name: translating(translator, one, batch_size=1) for name, one in runs.items()}
    seconds = race(timed, blocks(lines, BLOCK), rounds, time.perf_counter)
    first = seconds[next(iter(runs))]
    speedups = {}
    for name, found in scored.items():
        ratios = [plain / taken for plain, taken in zip(first, seconds[name], strict=True)]
        speedups[name] = median(ratios)
        told = f"BLEU {found['bleu']:5.2f}  mean emitted {found['emitted']:5.2f}  speedup {with_range(ratios, 2)}"
        print(f"{name:24}  {told}", flush=True)
    return speedups


def main() -> None:
    """Sweep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--draft-lengths", help="with commas between (default: up to the drafter's longest)")
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, last_cores(1))
    pairs = read_parallel(arguments.source, arguments.reference)[: arguments.lines]
    translator = load_translator(arguments.model, engine=arguments.engine)
    longest = translator.engine.max_draft_length
    asked = arguments.draft_lengths
    chosen = sorted(map(int, asked.split(","))) if asked else draft_lengths(longest)
    if not 1 <= chosen[0] <= chosen[-1] <= longest:
        sys.exit(f"{arguments.model} drafts 1 to {longest} tokens" if longest else f"{arguments.model} has no drafter")
    spec = DecodingSettings.relaxed(translator.defaults)
    runs = {"ar": replace(spec, strategy="ar")}
    lengths = {f"strict, draft length {k}": k for k in chosen}
    runs |= {name: replace(spec.strict(), draft_length=k) for name, k in lengths.items()}
    speedups = measure(translator, pairs, runs, arguments.repeats)
    best = max(lengths, key=lambda name: speedups[name])
    relaxed = {
        f"beta {beta}, tau {tau}": replace(spec, draft_length=lengths[best], beta=beta, tau=tau)
        for beta in BETAS
        for tau in TAUS
    }
    print(f"relaxed, draft length {lengths[best]}")
    measure(translator, pairs, {"ar": runs["ar"], **relaxed}, arguments.repeats)


if __name__ == "__main__":
    ended(main)
