"""The native engine's builds for other processors, on this one: each build that it can run, ONNX Runtime, CTranslate2.

A process for each, pinned to one core, warmed up, in turn over rounds; milliseconds a sentence, text in to text out,
sentences one at a time and in batches of 32. CTranslate2 is held to AVX2, as on processors that have no more. Ends
with an error if two builds give different texts.

    python scripts/bench_builds.py [--checkpoint FILE] [--bundle DIR] [--lines 150] [--rounds 7]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import benchmarking
import peers
from benchmark_systems import Setup, System, start
from benchmarking import last_cores, rotated, with_range

from specmt.bundles.bundle import load_bundle
from specmt.engines.native_library import BUILD_VARIABLE, runnable

SETS = ("Multi30k test2016", "newstest2021")


def _ours(bundle: Path, engine: str, strategy: str, build: str = "") -> Setup:
    tuned = {"draft_length": 3, "rows": 1} if strategy == "spec-strict" else None
    settings: dict[str, Any] = {"bundle": str(bundle), "strategy": strategy, "tuned": tuned, "engine": engine}
    settings |= {"precision": "fp32", "threads": 1, "device": "cpu"}
    return Setup("specmt", settings, tuple(last_cores(1)), {BUILD_VARIABLE: build} if build else {})


def setups(options: benchmarking.Options) -> dict[str, Setup]:
    """What is timed, by its name in the table."""
    found = {}
    for build in reversed(runnable()):
        for strategy in ("ar", "spec-strict"):
            found[f"native, {build}, {strategy}"] = _ours(options.bundle, "native", strategy, build)
    found["onnx, ar"] = _ours(options.bundle, "onnx", "ar")
    if options.checkpoint:
        made = peers.prepared(load_bundle(options.bundle), options.checkpoint, options.folder)
        settings: dict[str, Any] = {
            "model": str(made.converted),
            "tokenizer": str(peers.tokenizer_path(options.bundle)),
        }
        settings |= {"beam": 1, "inter": 1, "intra": 1, "device": "cpu", "vocabulary_map": made.has_vocabulary_map}
        environment = {"CT2_FORCE_CPU_ISA": "AVX2"}
        found["CTranslate2 greedy, AVX2"] = Setup("ctranslate2", settings, tuple(last_cores(1)), environment)
    return found


def main() -> int:
    """Time them and print the table."""
    parser = benchmarking.parser(__doc__ or "")
    parser.add_argument("--lines", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    options = benchmarking.options(arguments)
    corpora = {name: [pair.source for pair in benchmarking.corpus(options, name, arguments.lines)] for name in SETS}
    systems: dict[str, System] = {name: start(setup) for name, setup in setups(options).items()}
    columns = [(corpus, size) for corpus in corpora for size in (1, 32)]
    texts: dict[str, dict[str, list[str]]] = {corpus: {} for corpus in corpora}
    times: dict[tuple[str, str, int], list[float]] = {}
    for number in range(arguments.rounds + 1):
        for name in rotated(list(systems), number):
            for corpus, size in columns:
                run = systems[name].run(corpora[corpus], size)
                texts[corpus][name] = run.texts
                if number:  # the first warms up
                    times.setdefault((name, corpus, size), []).append(1e3 * run.seconds / len(run.texts))
    print("|  | " + " | ".join(f"{corpus}, {size} at a time" for corpus, size in columns) + " |")
    print("| --- " * (1 + len(columns)) + "|")
    for name, system in systems.items():
        system.close()
        print(f"| {name} | " + " | ".join(with_range(times[name, *column], 2) for column in columns) + " |")
    native = [name for name in systems if name.startswith("native")]
    return int(any(texts[corpus][name] != texts[corpus][native[0]] for corpus in corpora for name in native))


if __name__ == "__main__":
    benchmarking.ended(main)
