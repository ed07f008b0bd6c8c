"""What each pass costs by draft length, for three sizes of random pairs, beside CTranslate2's step at the same sizes.

Times are in milliseconds on one core: medians over rounds in which every pass is run once, so that a busy neighbour
slows all of them alike. Random weights do, if activations are spread as a trained pair's: exported for us, as a fairseq
checkpoint through CTranslate2's own converter for it (the checkpoint's settings serve as a template). Its steps are
those of the fastest of its instruction sets and, where our output has fewer tokens than the vocabulary, of all pieces
or as many by a vocabulary map. Also how many tokens the given bundle emits at each draft length, to turn passes into
time a token.

    python scripts/bench_passes.py [--checkpoint FILE] [--bundle DIR] [--quick]
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import benchmarking
import numpy as np
import peers
from benchmark_systems import Setup, Worker
from benchmarking import CORPORA, Options, Results, last_cores
from numpy.typing import NDArray

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS, load_bundle
from specmt.bundles.tensors import expected_shapes, ids_name
from specmt.bundles.weights import read_stored, save_weights, weight_bits
from specmt.engines.native_engine import NativeEngine, NativeRows
from specmt.exporting import write_cpu_files
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID
from specmt.tuning import counted_emission

DRAFTED = 8192
"""Pieces of 32,000 that a drafter predicts: 95 % of the corpora's English, as the bundle's 3,072 of 8,000 are."""
LARGE = {
    "6+6 × d512, 32,000 pieces": Architecture(32000, 512, 8, 2048, 6, 6, 1, 25, 64, draft_vocabulary_size=DRAFTED),
    "12+2 × d512, 32,000 pieces": Architecture(32000, 512, 8, 2048, 12, 2, 1, 25, 64, draft_vocabulary_size=DRAFTED),
}
DRAFT_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25)
SOURCE_TOKENS = 20
READ_TOKENS = 10
"""Target tokens that stand in the caches when a pass is timed."""
EMITTED_TOKENS = 16
"""After those, in one call, by which steps and iterations are timed: as in translation."""
STEPS = (5, 45)
"""Lengths between which CTranslate2's step is the slope, and its encoder what is left."""
BETA = 3
STANDS_OUT = 8
"""How much larger than the others one number of a normalised vector is, and one of an attention's values."""
TOKEN_STANDS_OUT = 11
"""How far the best token's score lies above the others' mean, in their standard deviations; in the bundled pair it is
10 to 12."""
ACTIVE_ABOVE = 1.5
"""Above it a hidden unit is active: about one in thirteen, as in the bundled pair."""


def random_weights(architecture: Architecture) -> dict[str, NDArray[Any]]:
    """Weights whose activations are spread as a trained pair's: one stands out, and few hidden units are active.

    Otherwise many activations lie far from zero, which costs time on processors without VNNI: there the passes of such
    a pair took four times as long as the bundled one's. And one token stands out from the others, or any of them might
    be the best, which costs the native engine another look at all.
    """
    random = np.random.default_rng(0)
    weights: dict[str, NDArray[Any]] = {}
    for name, shape in expected_shapes(architecture).items():
        if name.endswith(ids_name("")):
            weights[name] = np.arange(shape[0])
        elif len(shape) == 2:
            weights[name] = random.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)
        else:
            weights[name] = np.full(shape, name.endswith("norm.weight"), dtype=np.float32)
            if name.endswith("fc1.bias"):
                weights[name] -= ACTIVE_ABOVE
        if name.endswith(("norm.weight", "v_proj.weight")):
            weights[name][0] *= STANDS_OUT
    output = weights.get("output.weight", weights["embeddings.weight"])
    weights["verifier.decoder.layer_norm.bias"] += TOKEN_STANDS_OUT * output[7]
    return weights


def sentences(architecture: Architecture, count: int, tokens: int) -> list[list[int]]:
    """Random sources of `tokens` tokens, end-of-sentence included."""
    ids = np.random.default_rng(1).integers(5, architecture.vocabulary_size, (count, tokens - 1))
    return [[*row, EOS_ID] for row in ids.tolist()]


def calibration_text(architecture: Architecture) -> list[list[int]]:
    """Random sources from which the ranges of a random pair's activations are found."""
    return sentences(architecture, 8, SOURCE_TOKENS)


def read(engine: NativeEngine, source: list[int]) -> NativeRows:
    """A row with `READ_TOKENS` target tokens."""
    rows = engine.encode([source])
    engine.verify(rows, np.full((1, READ_TOKENS), 9), 1)
    engine.commit(rows, np.full(1, READ_TOKENS))
    return rows


def passes(engine: NativeEngine, source: list[int]) -> Iterator[tuple[str, Callable[[], int]]]:
    """Every pass by its name; each call says how many passes it ran. Each run finds the same caches."""
    last_ids = np.full(1, 7)
    # For a row that has drafted, a step keeps what the drafter reads as well: `ar` has another.
    plain, drafting = read(engine, source), read(engine, source)

    def once(call: Callable[[], object]) -> Callable[[], int]:
        def run() -> int:
            call()
            return 1

        return run

    def iterations(rows: NativeRows, length: int) -> Callable[[], int]:
        room = [EMITTED_TOKENS]
        return lambda: len(
            engine.iterate(NativeRows(rows.rows, rows.counts), [7], room, length, 1, tau=0.0, scored=False).accepted[0]
        )

    yield "encode", once(lambda: engine.encode([source]))
    yield "step", iterations(plain, 0)
    for length in DRAFT_LENGTHS:
        tokens = np.full((1, length + 1), 7)
        yield f"draft {length}", once(partial(engine.draft, drafting, last_ids, length))
        yield f"verify {length}", once(partial(engine.verify, drafting, tokens, BETA))
        yield f"both {length}", iterations(drafting, length)


def their_calls(workers: dict[str, Worker]) -> dict[str, Callable[[], float]]:
    """CTranslate2 on so many steps, by its settings; each call gives its seconds."""
    return {
        f"{name} {steps}": partial(lambda worker, steps: float(worker.ask({"steps": steps})["seconds"]), worker, steps)
        for name, worker in workers.items()
        for steps in STEPS
    }


def measured(
    calls: dict[str, Callable[[], int]], theirs: dict[str, Callable[[], float]], rounds: int
) -> dict[str, float]:
    """Median milliseconds of each pass over interleaved rounds, the first two of which only warm up."""
    times: dict[str, list[float]] = {name: [] for name in (*calls, *theirs)}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            call()  # what the call before left in the processor's caches is not this one's affair, nor theirs below
            begun = time.perf_counter()
            count = call()
            times[name].append((time.perf_counter() - begun) * 1e3 / count)
        for name, timed in theirs.items():
            timed()
            times[name].append(timed() * 1e3)
    return {name: float(np.median(taken[2:])) for name, taken in times.items()}


def their_costs(milliseconds: dict[str, float], beam: int) -> dict[str, float] | None:
    """CTranslate2's encoder and step, of its fastest way to multiply; None if it was not measured."""
    short, long = STEPS
    found = []
    for way in {name.split()[1] for name in milliseconds if name.startswith(f"{beam} ")}:
        times = [milliseconds[f"{beam} {way} {steps}"] for steps in STEPS]
        step = (times[1] - times[0]) / (long - short)
        found.append({"step": step, "encode": times[0] - short * step})
    return min(found, key=lambda costs: costs["step"]) if found else None


def size(architecture: Architecture, bits: int, template: Path | None, rounds: int) -> dict[str, Any]:
    """All costs of one size at batch size 1, in milliseconds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights = random_weights(architecture)
        nothing_known = {name: np.eye(array.shape[-1], dtype=np.float32) for name, array in weights.items()}
        save_weights(weights, folder / WEIGHTS, moments=nothing_known if bits == 4 else None)
        write_cpu_files(folder, architecture, calibration_text(architecture))
        engine = NativeEngine(architecture, folder)
        (source,) = sentences(architecture, 1, SOURCE_TOKENS)
        workers = _workers(architecture, template, folder) if template else {}
        milliseconds = measured(dict(passes(engine, source)), their_calls(workers), rounds)
        for worker in workers.values():
            worker.close()
    theirs = {str(beam): their_costs(milliseconds, beam) for beam in (1, 5)}
    ours = {key: value for key, value in milliseconds.items() if not key[0].isdigit()}
    return {"ours": ours, "CTranslate2": theirs, "vocabulary_map": bool(architecture.target_vocabulary_size)}


def _workers(architecture: Architecture, template: Path, folder: Path) -> dict[str, Worker]:
    peers.random_checkpoint(architecture, template, folder)
    converted, said = folder / "converted", architecture.target_vocabulary_size
    peers.convert(folder / "verifier.pt", folder, converted, "int8")
    if said:
        peers.write_vocabulary_map(peers.random_pieces(said), converted)
    maps = (False, True)[: 1 + bool(said)]
    ways = [(environment, one) for environment in peers.instructions().values() for one in maps]
    settings = {"model": str(converted), "source_tokens": SOURCE_TOKENS}
    return {
        f"{beam} {place}": Worker(
            Setup("steps", {**settings, "beam": beam, "vocabulary_map": one}, tuple(last_cores(1)), environment)
        )
        for beam in (1, 5)
        for place, (environment, one) in enumerate(ways)
    }


def emitted(options: Options) -> dict[str, Any]:
    """Mean emitted tokens of the bundle by draft length, strict, and tokens of a sentence, on each test set."""
    translator = load_translator(options.bundle)
    found = {}
    for name in CORPORA:
        lines = [pair.source for pair in benchmarking.corpus(options, name, 20 if options.quick else 200)]
        greedy = replace(DecodingSettings.relaxed(translator.defaults), strategy="ar")
        tokens = [len(done.ids) for done in translator.translate(lines, greedy, batch_size=16)]
        emission = counted_emission(translator, lines, name)
        found[name] = {**emission.to_json(), "target_tokens": float(np.mean(tokens))}
    return found


def main() -> None:
    """Measure each size, and keep what was measured."""
    parser = benchmarking.parser(str(__doc__))
    options = benchmarking.options(parser.parse_args(), native=True)
    own = replace(load_bundle(options.bundle).architecture, draft_length=25)
    name = f"the bundle: {own.encoder_layers}+{own.decoder_layers} × d{own.width}, {own.vocabulary_size:,} pieces"
    sizes = {name: own, **LARGE}
    os.sched_setaffinity(0, last_cores(1))
    bits = weight_bits(read_stored(options.bundle / WEIGHTS, load_bundle(options.bundle).architecture))
    settings = {
        "weight_bits": bits,
        "draft_lengths": DRAFT_LENGTHS,
        "sizes": {key: asdict(value) for key, value in sizes.items()},
    }
    results = Results(options, "passes", settings)
    results.part("emitted tokens", lambda: emitted(options))
    rounds = 3 if options.quick else 30
    for key, architecture in sizes.items():
        results.part(f"size/{key}", partial(size, architecture, bits, options.checkpoint, rounds))


if __name__ == "__main__":
    benchmarking.ended(main)
