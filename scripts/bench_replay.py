"""What `replay` and `spec --reproducible` cost beside `ar` and `spec` under the same dynamic batching.

    python scripts/bench_replay.py [--source FILE] [--engine native|onnx|torch] [--precision fp32|bf16] [--lines 200]
        [--windows 8,16,32] [--groups 2,4,8] [--rounds 3] [--batch-size 32] [--wrong 0.01]

Everything is run once a round, in rotated order, on one thread; the figures are processor seconds. Throughput is the
median over rounds of the ratio to `ar` (or, for `spec-reproducible`, to `spec`) in the same round, with the range.
With --wrong, the fast path of `replay` says a wrong token with that probability, to see what mismatches cost; otherwise
the mismatches are those that happen.
"""

from __future__ import annotations

import argparse
import random
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from specmt.arrays import IntArray
from specmt.engines.base import AnyEngine, Candidates
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text_files import read_lines
from specmt.translator import Translator

ROOT = Path(__file__).parent.parent


class OftenWrong:
    """An engine that gives another token with a probability, but in passes over groups of fixed shape."""

    iterate: Any = None

    def __init__(self, engine: AnyEngine, probability: float) -> None:
        self._engine = engine
        self._probability = probability
        self._random = random.Random(0)
        self._group: object = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    def gather(self, *arguments: Any) -> object:  # noqa: ANN401
        """See `Engine.gather`."""
        self._group = self._engine.gather(*arguments)
        return self._group

    def verify(self, rows: object, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        candidates = self._engine.verify(rows, token_ids, beta)
        if rows is not self._group:
            for row in range(len(candidates.ids)):
                if self._random.random() < self._probability:
                    candidates.ids[row, 0, 0] = 100 + candidates.ids[row, 0, 0] % 1000
        return candidates


def timed(translator: Translator, lines: list[str], settings: DecodingSettings, batch_size: int) -> tuple[float, str]:
    """Processor seconds, and what was replayed, as cells of the table."""
    begun = time.process_time()
    translations = list(translator.translate(lines, settings, batch_size))
    seconds = time.process_time() - begun
    counts = [one.replay for one in translations if one.replay]
    tokens = sum(len(one.ids) for one in translations)
    recomputed = sum(one.recomputed for one in counts)
    sums = (sum(one.replays for one in counts), sum(one.mismatches for one in counts))
    return seconds, f"{sums[0]} | {sums[1]} | {100 * recomputed / max(tokens, 1):.2f} %"


def main() -> None:
    """Time and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, default=ROOT / "data" / "sample.de")
    parser.add_argument("--model", type=Path, default=ROOT / "specmt" / "models" / "de-en")
    parser.add_argument("--engine", default="native")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--windows", default="8,16,32")
    parser.add_argument("--groups", default="2,4,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--wrong", type=float, default=0.0)
    arguments = parser.parse_args()
    translator = load_translator(arguments.model, "cpu", arguments.precision, 1, arguments.engine)
    replaying = translator
    if arguments.wrong:
        wrong: Any = OftenWrong(translator.engine, arguments.wrong)
        replaying = Translator(wrong, translator.vocabulary, translator.defaults)
    lines = read_lines(arguments.source)[: arguments.lines]
    spec = DecodingSettings.relaxed(translator.defaults)
    runs = {"ar": replace(spec, strategy="ar"), "spec": spec}
    for group in map(int, arguments.groups.split(",")):
        runs[f"spec-reproducible, {group} rows"] = replace(spec, reproducible=True, replay_group=group)
        for window in map(int, arguments.windows.split(",")):
            chosen = replace(spec, strategy="replay", replay_window=window, replay_group=group)
            runs[f"replay, {group} × {window}"] = chosen
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    counted: dict[str, str] = {}
    names = list(runs)
    for done in range(arguments.rounds + 1):  # the first round warms up
        for name in names[done % len(names) :] + names[: done % len(names)]:
            engine = replaying if name.startswith("replay") else translator
            taken, counted[name] = timed(engine, lines, runs[name], arguments.batch_size)
            seconds[name] += [taken] if done else []
    print(
        f"{translator.engine.name}, {len(lines)} lines of {arguments.source.name}, batch size {arguments.batch_size}\n"
    )
    print("| run | seconds | throughput | replays | mismatches | tokens recomputed |\n|---|---|---|---|---|---|")
    for name in names:
        base = seconds["spec" if name.startswith("spec") else "ar"]
        ratios = [own / other for own, other in zip(base, seconds[name], strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"
        print(f"| {name} | {median(seconds[name]):.2f} | {spread} | {counted[name]} |")


if __name__ == "__main__":
    main()
