"""What each pass of the onnx engine costs, by window and batch size, for three sizes of random pairs.

Times are in milliseconds on one thread: medians over rounds in which every pass is run once, so that a busy neighbour
slows all of them alike. Read the ratios to the autoregressive step. Weights do not change the cost, so random ones do.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from specmt.architecture import Architecture
from specmt.bundle import WEIGHTS
from specmt.engines.base import FloatArray
from specmt.engines.onnx_engine import OnnxEngine, OnnxRows
from specmt.engines.onnx_export import export_graphs
from specmt.vocabulary import EOS_ID
from specmt.weights import expected_shapes, save_weights

SIZES = {
    "6+3 x d256": Architecture(8000, 256, 4, 1024, 6, 3, 1, 25, 64),
    "6+6 x d512": Architecture(32000, 512, 8, 2048, 6, 6, 1, 25, 64),
    "12+2 x d512": Architecture(32000, 512, 8, 2048, 12, 2, 1, 25, 64),
}
DRAFT_LENGTHS = (1, 3, 5, 8, 12, 16, 25)
SOURCE_TOKENS = 20
READ_TOKENS = 10
"""Target tokens that stand in the caches when a pass is timed."""


def random_weights(architecture: Architecture) -> dict[str, FloatArray]:
    """Weights of a scale at which activations stay ordinary."""
    random = np.random.default_rng(0)
    weights = {}
    for name, shape in expected_shapes(architecture).items():
        values = random.standard_normal(shape, dtype=np.float32)
        weights[name] = values * np.float32(shape[-1] ** -0.5) if len(shape) == 2 else np.ones(shape, dtype=np.float32)
    return weights


def sentences(architecture: Architecture, count: int, tokens: int) -> list[list[int]]:
    """Random sources of `tokens` tokens, end-of-sentence included."""
    ids = np.random.default_rng(1).integers(5, architecture.vocabulary_size, (count, tokens - 1))
    return [[*row, EOS_ID] for row in ids.tolist()]


def passes(
    engine: OnnxEngine, rows: OnnxRows, sources: list[list[int]], beta: int
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every pass by its name. Nothing is committed, so that each run finds the same caches."""
    last_ids = np.full(len(sources), 7)
    yield "encode", lambda: engine.encode(sources)
    yield "step", lambda: engine.verify(rows, last_ids[:, None], 1)
    for length in DRAFT_LENGTHS:
        tokens = np.full((len(sources), length + 1), 7)
        yield f"draft {length}", partial(engine.draft, rows, last_ids, length)
        yield f"verify {length}", partial(engine.verify, rows, tokens, beta)
        yield f"both {length}", partial(engine.draft_and_verify, rows, last_ids, length, beta)


def measured(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each call over interleaved rounds, the first two of which only warm up."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 2):
        for name, call in calls.items():
            call()  # what the call before left in the processor's caches is not this one's affair
            begun = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begun) * 1e3)
    return {name: float(np.median(taken[2:])) for name, taken in times.items()}


def table(milliseconds: dict[str, float]) -> Iterator[str]:
    """A Markdown table: a line a draft length, and the cost of an iteration in autoregressive steps."""
    step = milliseconds["step"]
    yield f"encode {SOURCE_TOKENS} tokens {milliseconds['encode']:.2f} ms, step {step:.3f} ms"
    yield ""
    yield "| k | draft | verify | draft and verify in one call | in steps |"
    yield "|---|---|---|---|---|"
    for length in DRAFT_LENGTHS:
        draft, verify, both = (milliseconds[f"{name} {length}"] for name in ("draft", "verify", "both"))
        yield f"| {length} | {draft:.3f} | {verify:.3f} | {both:.3f} | {both / step:.2f} |"


def main() -> None:
    """Export, load and time each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--beta", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    options = parser.parse_args()
    for size in options.sizes:
        architecture = SIZES[size]
        with tempfile.TemporaryDirectory() as folder:
            save_weights(random_weights(architecture), Path(folder) / WEIGHTS)
            export_graphs(Path(folder), architecture, sentences(architecture, 4, 8))
            engine = OnnxEngine(architecture, Path(folder))
            for batch_size in options.batch_sizes:
                sources = sentences(architecture, batch_size, SOURCE_TOKENS)
                rows = engine.encode(sources)
                engine.verify(rows, np.full((batch_size, READ_TOKENS), 9), 1)
                engine.commit(rows, np.full(batch_size, READ_TOKENS))
                calls = dict(passes(engine, rows, sources, options.beta))
                print(f"\n### {size}, vocabulary {architecture.vocabulary_size}, batch {batch_size}\n")
                print("\n".join(table(measured(calls, options.rounds))), flush=True)


if __name__ == "__main__":
    main()
