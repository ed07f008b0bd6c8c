"""Latency, throughput and BLEU of specmt, CTranslate2 and fairseq on the same weights, cores and text.

Every system is a process of its own pinned to the same cores (one core first, then all), warmed up, and run in turn
over rounds whose order changes. A time spans text in to text out, tokenisation included. CTranslate2 gets the best of
its threads, batch sizes, instruction sets and vocabulary map, found on lines of the first test set; so does specmt with
its batch sizes.

    python scripts/bench_systems.py [--bundle DIR] [--checkpoint FILE] [--quick] [--fast]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import benchmarking
import peers
from benchmark_systems import Run, Setup, System, start
from benchmarking import CORPORA, ROOT, Options, Results, last_cores, rotated

from specmt.bundles.bundle import load_bundle
from specmt.corpus import Pair, evenly_spread

BATCH_SIZES = (16, 32, 64, 128)
SPECMT = ("spec", "ar", "spec-strict", "beam5")
WARM_UP_LINES = 20


@dataclass(frozen=True)
class Sampling:
    """How much is measured."""

    rounds: int
    """Slow systems run once, and translate a fifth of the latency lines."""
    lines: int
    """Of each test set, for throughput and BLEU."""
    latency_lines: int
    choosing_lines: int


FULL = Sampling(rounds=5, lines=1000, latency_lines=150, choosing_lines=150)
FAST = Sampling(rounds=3, lines=1000, latency_lines=100, choosing_lines=100)
QUICK = Sampling(rounds=2, lines=60, latency_lines=20, choosing_lines=20)


@dataclass(frozen=True)
class Candidate:
    """One way to run a system."""

    setup: Setup
    batch_size: int
    note: str


@dataclass(frozen=True)
class Contender:
    """A system and the ways to run it: for latency at batch size 1, and for a stream."""

    name: str
    latency: tuple[Candidate, ...]
    stream: tuple[Candidate, ...]
    slow: bool = False


def specmt(
    options: Options,
    strategy: str,
    cores: list[int],
    engine: str = "native",
    precision: str = "fp32",
    device: str = "cpu",
    tuned: Mapping[str, int] | None = None,
) -> Contender:
    """A strategy of ours."""
    torch = engine == "torch"
    settings = {
        "bundle": str(options.bundle),
        "strategy": strategy,
        "tuned": tuned,
        "engine": engine,
        "precision": precision,
        "threads": len(cores),
        "device": device,
    }
    setup = Setup("specmt", settings, tuple(cores))
    names = {"native": "", "onnx": ", onnx", "torch": f", torch {precision}{', GPU' if device == 'cuda' else ''}"}
    note = f"k = {tuned['draft_length']}, up to {tuned['rows']} rows" if tuned else ""
    stream = tuple(
        Candidate(setup, size, f"batch {size}{note and f', {note}'}") for size in ((32,) if torch else BATCH_SIZES)
    )
    slow = torch or (strategy.startswith("beam") and len(cores) > 1)
    return Contender(f"specmt {strategy}{names[engine]}", (Candidate(setup, 1, note),), stream, slow)


def ctranslate2(options: Options, models: peers.Peers, beam: int, cores: list[int]) -> Contender:
    """CTranslate2 with 8-bit integers: every split of the cores over translations and products.

    Each with its own choice of instructions and with ours for it, and with the tokens that the bundle's output has or
    all of them.
    """

    def setup(inter: int, intra: int, environment: Mapping[str, str], vocabulary_map: bool) -> Setup:
        settings = {
            "model": str(models.converted),
            "tokenizer": str(peers.tokenizer_path(options.bundle)),
            "beam": beam,
            "inter": inter,
            "intra": intra,
            "device": "cpu",
            "vocabulary_map": vocabulary_map,
        }
        return Setup("ctranslate2", settings, tuple(cores), environment)

    splits = sorted({(len(cores), 1), (1, len(cores))})
    ways = [
        (environment, vocabulary_map, note + (", vocabulary map" if vocabulary_map else ""))
        for note, environment in peers.instructions().items()
        for vocabulary_map in (False, True)[: 1 + models.has_vocabulary_map]
    ]
    latency = [
        Candidate(setup(1, intra, environment, vocabulary_map), 1, f"{intra} threads{note}")
        for intra in sorted({1, len(cores)})
        for environment, vocabulary_map, note in ways
    ]
    stream = [
        Candidate(
            setup(inter, intra, environment, vocabulary_map), size, f"batch {size}, {inter} × {intra} threads{note}"
        )
        for inter, intra in splits
        for environment, vocabulary_map, note in ways
        for size in BATCH_SIZES
    ]
    return Contender(
        f"CTranslate2 int8 {'greedy' if beam == 1 else f'beam {beam}'}",
        tuple(latency),
        tuple(stream),
        beam > 1 and len(cores) > 1,
    )


def fairseq(options: Options, models: peers.Peers, beam: int, cores: list[int]) -> Contender:
    """fairseq-interactive in float32."""
    settings = {
        "data": str(models.data),
        "checkpoint": str(models.checkpoint),
        "tokenizer": str(peers.tokenizer_path(options.bundle)),
        "beam": beam,
    }
    setup = Setup("fairseq", settings, tuple(cores))
    name = f"fairseq-interactive {'greedy' if beam == 1 else f'beam {beam}'}"
    return Contender(name, (Candidate(setup, 1, ""),), (Candidate(setup, 32, "batch 32"),), slow=True)


def has_gpu() -> bool:
    """Whether torch finds a CUDA device."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def contenders(
    options: Options, models: peers.Peers | None, cores: list[int], tuned: Mapping[str, int]
) -> Iterator[Contender]:
    """All systems for these cores; the slow ones run on one core only. `tuned`: how strict drafts, up to which rows."""
    for strategy in SPECMT:
        yield specmt(options, strategy, cores, tuned=tuned if strategy == "spec-strict" else None)
    for beam in (1, 5) if models else ():
        assert models is not None
        yield ctranslate2(options, models, beam, cores)
    if len(cores) == 1:
        yield specmt(options, "ar", cores, "onnx")
        for strategy in ("spec", "ar"):
            yield specmt(options, strategy, cores, "torch", "bf16")
        for beam in (1, 5) if models else ():
            assert models is not None
            yield fairseq(options, models, beam, cores)
        if has_gpu():
            for strategy in ("spec", "spec-strict", "ar"):
                yield specmt(options, strategy, cores, "torch", "bf16", "cuda")


class Processes:
    """The systems' processes by their setup; each is started once."""

    def __init__(self) -> None:
        self._systems: dict[str, System] = {}

    def run(self, candidate: Candidate, lines: Sequence[str], batch_size: int) -> Run:
        """Translate in the candidate's process, which is warm."""
        key = repr(candidate.setup)
        if key not in self._systems:
            self._systems[key] = start(candidate.setup)
            self._systems[key].run(lines[:WARM_UP_LINES], 1)
            if batch_size > 1:
                self._systems[key].run(lines[: 4 * WARM_UP_LINES], batch_size)
        return self._systems[key].run(lines, batch_size)

    def close(self) -> None:
        """End all processes."""
        for system in self._systems.values():
            system.close()
        self._systems.clear()


def tuned_here(options: Options) -> dict[str, int]:
    """What `specmt tune` finds on one core; kept apart from the user's own."""
    command = [sys.executable, "-m", "specmt", "tune", str(options.bundle), "--format", "json"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(options.folder / "cache"), "PYTHONPATH": str(ROOT)}
    pinned = ["taskset", "--cpu-list", str(last_cores(1)[0]), *command]
    done = subprocess.run(pinned, env=environment, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return {name: result[name] for name in ("draft_length", "rows")}


def choice(contender: Contender, lines: Sequence[str], stream: int | None) -> dict[str, Any]:
    """The fastest ways to run a system, as places among its candidates (`stream` if it is given), and what they are."""
    processes = Processes()
    ways = {"stream": contender.stream, "latency": contender.latency}
    found = {
        kind: stream if kind == "stream" and stream is not None else _fastest(processes, candidates, lines)
        for kind, candidates in ways.items()
    }
    processes.close()
    return {**found, "notes": {kind: ways[kind][place].note for kind, place in found.items()}}


def _fastest(processes: Processes, candidates: Sequence[Candidate], lines: Sequence[str]) -> int:
    """The place of the fastest of the candidates: each runs twice, in turn, and its better time counts."""
    if len(candidates) == 1:
        return 0
    best = [float("inf")] * len(candidates)
    for _ in range(2):
        for place, candidate in enumerate(candidates):
            seconds = processes.run(candidate, lines, candidate.batch_size).seconds
            best[place] = min(best[place], seconds)
    return best.index(min(best))


def measured(
    processes: Processes, contender: Contender, picks: dict[str, Any], pairs: Sequence[Pair], latency_lines: int
) -> dict[str, Any]:
    """One round of one system on one test set: all lines as a stream, then some of them one at a time."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    stream_way, latency_way = contender.stream[picks["stream"]], contender.latency[picks["latency"]]
    stream = processes.run(stream_way, sources, stream_way.batch_size)
    single = processes.run(latency_way, evenly_spread(sources, latency_lines), 1) if latency_lines else None
    return {
        "stream_seconds": stream.seconds,
        "sentences": len(pairs),
        "bleu": score(stream.texts, references),
        "marks": single.marks if single else [],
    }


def score(texts: Sequence[str], references: Sequence[str]) -> float:
    """BLEU, 0–100, cased, 13a tokens."""
    import sacrebleu

    return sacrebleu.corpus_bleu(list(texts), [list(references)]).score


def bench(options: Options, sampling: Sampling, models: peers.Peers | None) -> None:
    """Measure everything on one core, then on all; of `FAST` no slow systems but fairseq."""
    settings = {"sampling": asdict(sampling), "corpora": list(CORPORA), "batch_sizes": BATCH_SIZES}
    results = Results(options, "systems", settings)
    sets = {name: benchmarking.corpus(options, name, sampling.lines) for name in CORPORA}
    first = [pair.source for pair in next(iter(sets.values()))]
    if models:
        checkpoint = models.checkpoint
        shown = results.part(
            "same weights", lambda: peers.same_weights(options.bundle, checkpoint, models, evenly_spread(first, 100))
        )
        if shown["farthest_in_steps"] > 0.51 or shown["same_tokens"] < 0.97 * shown["lines"]:
            sys.exit(f"{options.bundle} and {checkpoint} are not the same verifier: {shown}")
    counts = sorted({1, len(os.sched_getaffinity(0))})
    for count in counts:
        _bench_cores(options, sampling, models, results, sets, count)


def _bench_cores(
    options: Options,
    sampling: Sampling,
    models: peers.Peers | None,
    results: Results,
    sets: dict[str, list[Pair]],
    count: int,
) -> None:
    tuned = results.part("tuned", partial(tuned_here, options))
    systems = list(contenders(options, models, last_cores(count), tuned))
    if sampling == FAST:
        systems = [system for system in systems if not system.slow or system.name.startswith("fairseq")]
    first = next(iter(sets))
    choosing = evenly_spread([pair.source for pair in sets[first]], sampling.choosing_lines)
    picks: dict[str, Any] = {}
    for system in systems:
        # Strict takes plain steps in a stream, so its batches are those of `ar`.
        stream = picks["specmt ar"]["stream"] if system.name == "specmt spec-strict" else None
        picks[system.name] = results.part(
            f"{count} cores/choice/{system.name}", partial(choice, system, choosing, stream)
        )
    processes = Processes()
    for number in range(sampling.rounds):
        for corpus, pairs in sets.items():
            for system in rotated(systems, number):
                if system.slow and number > 0:
                    continue
                lines = sampling.latency_lines // (5 if system.slow else 1)
                if count > 1 and corpus != first:
                    lines = 0  # latency on more cores: one test set shows what threads do
                part = partial(measured, processes, system, picks[system.name], pairs, lines)
                results.part(f"{count} cores/{corpus}/{number}/{system.name}", part)
    processes.close()


def main() -> None:
    """Measure, and keep what was measured."""
    parser = benchmarking.parser(str(__doc__))
    parser.add_argument(
        "--fast",
        action="store_true",
        help="three rounds, without torch, GPUs, and beams on several cores",
    )
    arguments = parser.parse_args()
    options = benchmarking.options(arguments, native=True)
    models = None
    if options.checkpoint:
        models = peers.prepared(load_bundle(options.bundle), options.checkpoint, options.folder)
    else:
        print("without CTranslate2 and fairseq", file=sys.stderr)
    bench(options, QUICK if options.quick else FAST if arguments.fast else FULL, models)


if __name__ == "__main__":
    benchmarking.ended(main)
