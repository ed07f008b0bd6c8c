"""Which β, τ and draft length? BLEU, mean emitted tokens and speed of each on a file, against `ar` of the same run.

    python scripts/tune_acceptance.py SOURCE REFERENCE [--model DIR] [--draft-lengths 5,6,8,10] [--lines 400]

First the draft length, strict, since it changes no text: the fastest is taken. Then β × τ at that length. Times are
medians of `--repeats` rounds in turn, at batch size 1 on one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import sacrebleu

from specmt.corpus import read_parallel
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.translation import Translation
from specmt.translator import Translator

BUNDLED = Path(__file__).parent.parent / "specmt" / "models" / "de-en"
BETAS = (2, 3, 5)
TAUS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0)


def timed(translator: Translator, lines: list[str], settings: DecodingSettings) -> tuple[float, list[Translation]]:
    """Seconds, text in to text out, and what came out."""
    start = time.perf_counter()
    translations = list(translator.translate(lines, settings, batch_size=1))
    return time.perf_counter() - start, translations


def measure(
    translator: Translator, lines: list[str], references: list[str], runs: dict[str, DecodingSettings], repeats: int
) -> dict[str, float]:
    """Run all in turn, print a row for each, and return each one's speedup over the first."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    outputs: dict[str, list[Translation]] = {}
    for _ in range(repeats):
        for name, settings in runs.items():
            taken, outputs[name] = timed(translator, lines, settings)
            seconds[name].append(taken)
    first = next(iter(runs))
    speedups = {name: statistics.median(seconds[first]) / statistics.median(seconds[name]) for name in runs}
    for name in runs:
        iterations = sum(len(translation.iterations) for translation in outputs[name])
        emitted = sum(len(translation.ids) for translation in outputs[name]) / iterations
        bleu = sacrebleu.corpus_bleu([translation.text for translation in outputs[name]], [references]).score
        print(f"{name:24}  BLEU {bleu:5.2f}  mean emitted {emitted:5.2f}  speedup {speedups[name]:5.2f}", flush=True)
    return speedups


def main() -> None:
    """Sweep and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--draft-lengths", default="4,5,6,7,8,10")
    parser.add_argument("--lines", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    pairs = read_parallel(arguments.source, arguments.reference)[: arguments.lines]
    lines, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    translator = load_translator(arguments.model, engine=arguments.engine)
    spec = DecodingSettings.relaxed(translator.defaults)
    runs = {"ar": replace(spec, strategy="ar")}
    lengths = {f"strict, draft length {k}": int(k) for k in arguments.draft_lengths.split(",")}
    runs |= {name: replace(spec.strict(), draft_length=k) for name, k in lengths.items()}
    speedups = measure(translator, lines, references, runs, arguments.repeats)
    best = max(lengths, key=lambda name: speedups[name])
    relaxed = {
        f"beta {beta}, tau {tau}": replace(spec, draft_length=lengths[best], beta=beta, tau=tau)
        for beta in BETAS
        for tau in TAUS
    }
    print(f"relaxed, draft length {lengths[best]}")
    measure(translator, lines, references, {"ar": runs["ar"], **relaxed}, arguments.repeats)


if __name__ == "__main__":
    main()
