"""Would a tree of drafts pay? What it would emit, strict, beside a chain, and what its rows cost in each engine.

    python scripts/measure_tree.py [--bundle DIR] [--lines 200] [--rounds 20]

A draft of d slots is a lattice; a tree holds its n most probable nodes, best first, each node a token after the path to
it (probabilities are those of the drafter, bigram term included, among a slot's 16 best tokens). Under strict an
iteration emits the longest path that the verifier's greedy output takes, and one token more. So the reference engine
drafts once at every position of every greedy translation, and nothing has to be verified to count exactly.

The time of an iteration is that of a draft of d slots and of a verifier's pass over n + 1 tokens, measured in the
native engine and in torch. What a tree needs beyond that (the search for its nodes, a mask, keys and values moved to
where a chain has them) counts as free. Times are the processor's. Run it on one core: `taskset 2 python ...`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from benchmarking import BUNDLED, ROOT

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.bundle import Bundle, load_bundle
from specmt.corpus import Pair, evenly_spread, read_corpus
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.engines.base import AnyEngine, Lattice
from specmt.engines.drafting import walk
from specmt.engines.torch_engine import TorchEngine
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.text.vocabulary import EOS_ID
from specmt.translator import Translator
from specmt.tuning import requests_of

CORPORA = ("multi30k.valid", "tatoeba.valid")
NODES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24)
DEPTHS = (1, 2, 3, 4, 5, 6, 8, 10)
"""Slots that are drafted."""
BATCH_SIZE = 32
CALLS = 10
"""Calls of a pass that are timed together."""
SOURCE_TOKENS, READ_TOKENS = 20, 10
"""Tokens of the sentence, and target tokens in the caches, when a pass is timed."""


# -- what a tree emits


def log_probabilities(lattice: Lattice, row: int) -> FloatArray:
    """What follows what: nats, shape (draft_length, width, width), [slot, candidate before, candidate]."""
    scores = lattice.scores[row][:, None, :] + lattice.transitions[row]
    scores = scores - scores.max(axis=2, keepdims=True)
    normalised: FloatArray = scores - np.log(np.exp(scores).sum(axis=2, keepdims=True))
    return normalised


def accepted_by_nodes(ids: IntArray, log_probs: FloatArray, greedy: Sequence[int], most: int) -> list[int]:
    """Tokens accepted from the tree of the 1, 2, …, `most` most probable nodes.

    Args:
        ids: each slot's candidates, shape (draft_length, width).
        log_probs: see `log_probabilities`; all rows of slot 0 are alike.
        greedy: what the verifier says from here on.
    """
    accepted: list[int] = []
    longest = 0
    # Least first: minus the path's log-probability, then its slots, candidate, and whether greedy takes it.
    waiting: list[tuple[float, int, int, bool]] = []

    def expand(cost: float, slots: int, before: int, taken: bool) -> None:
        if slots < len(ids):
            for candidate, log_prob in enumerate(log_probs[slots, before].tolist()):
                same = taken and slots < len(greedy) and int(ids[slots, candidate]) == greedy[slots]
                heappush(waiting, (cost - log_prob, slots + 1, candidate, same))

    expand(0.0, 0, 0, True)
    while waiting and len(accepted) < most:
        cost, slots, candidate, taken = heappop(waiting)
        longest = max(longest, slots if taken else 0)
        accepted.append(longest)
        expand(cost, slots, candidate, taken)
    return accepted


def accepted_of_chain(draft: Sequence[int], greedy: Sequence[int]) -> int:
    """Tokens accepted from a chain."""
    for place, (own, said) in enumerate(zip(draft, greedy, strict=False)):
        if own != said:
            return place
    return min(len(draft), len(greedy))


def emissions(accepted: Sequence[int]) -> list[int]:
    """Tokens that each iteration emits, given the tokens accepted from a draft at every position of a sentence."""
    emitted, position = [], 0
    while position < len(accepted):
        emitted.append(min(accepted[position] + 1, len(accepted) - position))
        position += emitted[-1]
    return emitted


def lattices(engine: TorchEngine, source: Sequence[int], greedy: Sequence[int], depth: int) -> Lattice:
    """Drafts of `depth` slots at every position of a translation, a row each."""
    read = np.array([[EOS_ID, *greedy[:-1]]])
    rows = engine.encode([source])
    rows.drafts = True
    engine.verify(rows, read, beta=1)
    positions = np.arange(len(greedy))
    drafted = engine.select(rows, np.zeros(len(greedy), dtype=np.int64))
    engine.keep(drafted, positions)
    return engine.draft(drafted, read[0], depth)


@dataclass(frozen=True)
class Counts:
    """Mean emitted tokens: of trees by depth and nodes, of chains by length; and mean tokens of a sentence."""

    trees: dict[int, dict[int, float]]
    chains: dict[int, float]
    tokens: float


def count(translator: Translator, lines: Sequence[str]) -> Counts:
    """Mean emitted tokens over lines, with an engine of torch."""
    engine = translator.engine
    assert isinstance(engine, TorchEngine)
    requests = requests_of(translator, lines)
    sources = {request.index: request.source_ids for request in requests}
    emitted: dict[int, dict[int, list[int]]] = {depth: {nodes: [] for nodes in NODES} for depth in DEPTHS}
    chained: dict[int, list[int]] = {depth: [] for depth in DEPTHS}
    lengths = []
    for hypothesis in decode(engine, RequestQueue(requests, BATCH_SIZE), Greedy(), BATCH_SIZE):
        greedy = hypothesis.ids
        lengths.append(len(greedy))
        for depth in DEPTHS:
            lattice = lattices(engine, sources[hypothesis.request.index], greedy, depth)
            drafts = walk(lattice).tolist()
            chained[depth] += emissions(
                [accepted_of_chain(draft, greedy[place:]) for place, draft in enumerate(drafts)]
            )
            trees = [
                accepted_by_nodes(lattice.ids[place], log_probabilities(lattice, place), greedy[place:], NODES[-1])
                for place in range(len(greedy))
            ]
            for nodes in NODES:
                emitted[depth][nodes] += emissions([accepted[:nodes][-1] for accepted in trees])
    return Counts(
        {depth: {nodes: fmean(some) for nodes, some in by_nodes.items()} for depth, by_nodes in emitted.items()},
        {depth: fmean(some) for depth, some in chained.items()},
        fmean(lengths),
    )


# -- what it costs


def passes(engine: AnyEngine, source: Sequence[int]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every pass by its name; nothing is committed, so that each run finds the same caches."""
    rows, last = engine.encode([source]), np.full(1, 7)
    engine.draft(rows, last, 1)
    engine.verify(rows, np.full((1, READ_TOKENS), 9), 1)
    engine.commit(rows, np.full(1, READ_TOKENS))
    yield "encode", lambda: engine.encode([source])
    for tokens in sorted({1, *(nodes + 1 for nodes in NODES)}):
        yield f"verify {tokens}", partial(engine.verify, rows, np.full((1, tokens), 7), 1)
    for depth in DEPTHS:
        yield f"draft {depth}", partial(engine.draft, rows, last, depth)


def timed(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median processor milliseconds of each pass over rounds in which each is run some times."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            begun = time.process_time()
            for _ in range(CALLS):
                call()
            times[name].append((time.process_time() - begun) / CALLS * 1e3)
    return {name: median(taken[1:]) for name, taken in times.items()}


# -- both


@dataclass(frozen=True)
class Choice:
    """A draft's depth and nodes (of a chain: as many), mean emitted tokens, milliseconds per sentence."""

    depth: int
    nodes: int
    emitted: float
    milliseconds: float


def sentence_milliseconds(costs: Mapping[str, float], tokens: float, emitted: float, depth: int, nodes: int) -> float:
    """Encoder, and as many iterations as a sentence of so many tokens takes."""
    return costs["encode"] + tokens / emitted * (costs[f"draft {depth}"] + costs[f"verify {nodes + 1}"])


def choices(counts: Counts, costs: Mapping[str, float]) -> tuple[list[Choice], list[Choice]]:
    """Chains, and trees that branch, with their time a sentence."""
    time_of = partial(sentence_milliseconds, costs, counts.tokens)
    chains = [Choice(k, k, mean, time_of(mean, k, k)) for k, mean in counts.chains.items()]
    trees = [
        Choice(depth, nodes, mean, time_of(mean, depth, nodes))
        for depth, by_nodes in counts.trees.items()
        for nodes, mean in by_nodes.items()
        if nodes > 1
    ]
    return chains, trees


def fastest(found: Sequence[Choice]) -> Choice:
    """The least time a sentence."""
    return min(found, key=lambda choice: choice.milliseconds)


def emission_table(counts: Counts) -> list[str]:
    """By nodes: the chain that emits most with as many rows, and the tree of the best depth."""
    lines = ["| rows | chain: k | emitted | tree: slots | emitted | more |", "| --- | --- | --- | --- | --- | --- |"]
    for nodes in NODES:
        length, chain = max(((k, mean) for k, mean in counts.chains.items() if k <= nodes), key=lambda pair: pair[1])
        depth, tree = max(((d, by_nodes[nodes]) for d, by_nodes in counts.trees.items()), key=lambda pair: pair[1])
        lines.append(f"| {nodes + 1} | {length} | {chain:.2f} | {depth} | {tree:.2f} | {tree - chain:+.2f} |")
    return lines


def time_table(counts: Counts, engines: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Each engine's fastest chain and fastest tree, and plain steps."""
    lines = [
        "| engine | `ar`, ms | chain: k | emitted | ms | tree: slots, nodes | emitted | ms | tree / chain |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, costs in engines.items():
        chain, tree = (fastest(found) for found in choices(counts, costs))
        plain = costs["encode"] + counts.tokens * costs["verify 1"]
        lines.append(
            f"| {name} | {plain:.2f} | {chain.nodes} | {chain.emitted:.2f} | {chain.milliseconds:.2f} "
            f"| {tree.depth}, {tree.nodes} | {tree.emitted:.2f} | {tree.milliseconds:.2f} "
            f"| {tree.milliseconds / chain.milliseconds:.2f} |"
        )
    return lines


def cost_table(engines: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Milliseconds of a verifier's pass by rows."""
    rows = sorted({1, *(nodes + 1 for nodes in NODES)})
    cells = {name: [f"{costs[f'verify {count}']:.2f}" for count in rows] for name, costs in engines.items()}
    lines = [f"| engine | {' | '.join(map(str, rows))} |", f"| --- |{' --- |' * len(rows)}"]
    return lines + [f"| {name} | {' | '.join(some)} |" for name, some in cells.items()]


def parser_of(description: str | None, lines: int) -> argparse.ArgumentParser:
    """Options of what is counted on validation lines."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=BUNDLED, help="the pair (default: the bundled one)")
    parser.add_argument("--corpora", type=Path, default=ROOT / "data" / "corpora")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablations", help="where results are kept")
    parser.add_argument("--lines", type=int, default=lines, help=f"of each validation file (default: {lines})")
    return parser


def validation_files(bundle: Bundle, corpora: Path) -> list[list[Pair]]:
    """The pairs of each validation file."""
    return [read_corpus(corpora / name, bundle.source_language, bundle.target_language) for name in CORPORA]


def main() -> None:
    """Count, time, print the tables."""
    parser = parser_of(__doc__, lines=200)
    parser.add_argument("--rounds", type=int, default=20, help="of timing (default: 20)")
    arguments = parser.parse_args()
    reference = load_translator(arguments.bundle, engine="torch")
    files = validation_files(load_bundle(arguments.bundle), arguments.corpora)
    lines = [pair.source for pairs in files for pair in evenly_spread(pairs, arguments.lines)]
    counts = count(reference, lines)
    print("\n".join(emission_table(counts)), flush=True)
    source = [*np.random.default_rng(1).integers(5, 2000, SOURCE_TOKENS - 1).tolist(), EOS_ID]
    engines: dict[str, Any] = {
        engine.name: timed(dict(passes(engine, source)), arguments.rounds)
        for engine in (load_translator(arguments.bundle, engine="native").engine, reference.engine)
    }
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_json(
        arguments.folder / "tree.json",
        {"chains": counts.chains, "trees": counts.trees, "tokens": counts.tokens, "milliseconds": engines},
    )
    print("\n".join([*cost_table(engines), *time_table(counts, engines)]))
    print(f"{counts.tokens:.1f} tokens per sentence", file=sys.stderr)


if __name__ == "__main__":
    main()
