"""One sentence at a time in the torch engine on a GPU: recorded passes beside eager ones, same weights, one process.

Greedy, strict and relaxed, from token ids to token ids, over evenly spread lines; the best of some rounds each.

    python scripts/bench_graphs.py data/corpora/multi30k.test2016.de ... [--model DIR] [--lines 20] [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from benchmarking import ended

from specmt import BUNDLED_MODEL
from specmt.bundles.bundle import load_bundle
from specmt.bundles.weights import load_weights
from specmt.corpus import evenly_spread
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.decoding.loops import Greedy, RequestQueue, Speculative, Strategy, decode
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_graphs import GraphedTorchEngine
from specmt.text.vocabulary import EOS_ID
from specmt.text_files import read_lines
from specmt.training.distillation import EXTRA_TOKENS

ROUNDS = 3
STRATEGIES: dict[str, Strategy] = {
    "ar": Greedy(),
    "strict, k = 5": Speculative(5, 1, 0.0),
    "strict, k = 8": Speculative(8, 1, 0.0),
    "relaxed, k = 8": Speculative(8, 3, 0.3),
}


def main() -> None:
    """Print a line for each engine and strategy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--model", type=Path, default=BUNDLED_MODEL)
    parser.add_argument("--lines", type=int, default=20)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.model)
    vocabulary = bundle.vocabulary()
    lines = [line for path in arguments.sources for line in evenly_spread(read_lines(path), arguments.lines)]
    sources = [[*vocabulary.encode(line), EOS_ID] for line in lines]
    weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
    expected: list[list[int]] | None = None
    for name, engine_type in (("eager", TorchEngine), ("recorded", GraphedTorchEngine)):
        engine = engine_type(bundle.architecture, weights, arguments.device, bf16=True)
        for strategy_name, strategy in STRATEGIES.items():
            seconds, hypotheses = timed(engine, sources, strategy)
            ids = [hypothesis.ids for hypothesis in hypotheses]
            expected = expected or ids
            iterations = sum(len(hypothesis.iterations) for hypothesis in hypotheses)
            print(
                f"{name}, {strategy_name}: {1000 * seconds / len(sources):.2f} ms a line, "
                f"{1000 * seconds / iterations:.2f} ms an iteration, {sum(map(len, ids)) / iterations:.2f} tokens in "
                f"one; {sum(map(list.__eq__, ids, expected))} of {len(ids)} lines as eager ar has them",
                flush=True,
            )


def timed(engine: TorchEngine, sources: Sequence[Sequence[int]], strategy: Strategy) -> tuple[float, list[Hypothesis]]:
    """Seconds of the best round, and the hypotheses in the order of the sources."""
    best = float("inf")
    for _ in range(ROUNDS):
        requests = [Request(index, ids, 2 * len(ids) + EXTRA_TOKENS) for index, ids in enumerate(sources)]
        begun = time.perf_counter()
        hypotheses = list(decode(engine, RequestQueue(requests, 1), strategy, 1))
        best = min(best, time.perf_counter() - begun)
    return best, sorted(hypotheses, key=lambda hypothesis: hypothesis.request.index)


if __name__ == "__main__":
    ended(main)
