"""What does a finished drafter owe to its parts? Parts are taken away, nothing is trained: mean emitted tokens, strict.

    python scripts/ablate_finished_drafter.py [--bundle DIR] [--lines 100]

- the bigram term: left out; only its weightiest ranks kept
- candidates per slot among which neighbours are reconciled: fewer than 16
- tokens that can be drafted: fewer; and a bound for more, as if every token outside the list were drafted right
- slots: drafted beyond those that are verified, so that the first ones see more neighbours

A part that is missing from the start of training could be made up for by the others, so that a loss seen here is the
most that the part is worth. The reference engine drafts once at every position of every greedy translation of the
validation lines, which is all that strict depends on: see `measure_tree.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

import numpy as np
import torch
from measure_tree import BATCH_SIZE, accepted_of_chain, emissions, lattices, parser_of, validation_files
from torch import Tensor

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import load_bundle
from specmt.bundles.tensors import DRAFTER_OUTPUT, ids_name
from specmt.bundles.weights import load_weights
from specmt.corpus import evenly_spread
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.engines.base import Lattice
from specmt.engines.drafting import walk
from specmt.engines.torch_engine import TorchEngine
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.text.vocabulary import EOS_ID
from specmt.tuning import requests_of

LENGTHS = (4, 8)
WIDTHS = (1, 2, 4, 8)
SIZES = (2048, 1024, 512)
RANKS = (32, 16, 8)
Weights = Mapping[str, Tensor]
Sentence = tuple[Sequence[int], Sequence[int]]
"""Source and the verifier's greedy translation, ids with end-of-sentence."""


def without_bigram(lattice: Lattice) -> Lattice:
    """Each slot alone."""
    return replace(lattice, transitions=np.zeros_like(lattice.transitions))


def narrowed(width: int, lattice: Lattice) -> Lattice:
    """The best `width` candidates of each slot."""
    return Lattice(lattice.ids[:, :, :width], lattice.scores[:, :, :width], lattice.transitions[:, :, :width, :width])


def weightiest(weights: Weights, rank: int) -> Tensor:
    """The ranks of the bigram term with the largest products of norms, ascending, shape (rank,)."""
    left, right = (weights[f"drafter.bigram_{side}.weight"].norm(dim=0) for side in ("left", "right"))
    gate = weights["drafter.bigram_gate.weight"].norm(dim=1)
    kept: Tensor = (left * gate * right).topk(rank).indices.sort().values
    return kept


def with_rank(architecture: Architecture, weights: Weights, rank: int) -> TorchEngine:
    """The pair with some ranks of its bigram term."""
    kept = weightiest(weights, rank)
    changed = {name: weights[name][:, kept] for name in ("drafter.bigram_left.weight", "drafter.bigram_right.weight")}
    changed["drafter.bigram_gate.weight"] = weights["drafter.bigram_gate.weight"][kept]
    return TorchEngine(replace(architecture, bigram_rank=rank), {**weights, **changed})


def with_tokens(architecture: Architecture, weights: Weights, kept: IntArray) -> TorchEngine:
    """The pair with a drafter that says the tokens `kept` (ascending ids) of those that it says."""
    names = (f"{DRAFTER_OUTPUT}.weight", ids_name(DRAFTER_OUTPUT), "drafter.bigram_right.weight")
    places = torch.from_numpy(np.searchsorted(weights[ids_name(DRAFTER_OUTPUT)].numpy(), kept))
    changed = {name: weights[name][places] for name in names}
    return TorchEngine(replace(architecture, draft_vocabulary_size=len(kept)), {**weights, **changed})


def most_frequent(ids: IntArray, sentences: Sequence[Sequence[int]], size: int) -> IntArray:
    """The `size` of these ids that stand most often in sentences, ascending."""
    counts = np.bincount(np.concatenate([np.asarray(sentence) for sentence in sentences]), minlength=ids.max() + 1)
    return np.sort(ids[np.argsort(-counts[ids], kind="stable")[:size]])


def mean_emitted(
    engine: TorchEngine,
    sentences: Sequence[Sentence],
    length: int,
    change: Callable[[Lattice], Lattice] = lambda lattice: lattice,
    slots: int = 0,
    given: frozenset[int] = frozenset(),
) -> float:
    """Mean emitted tokens, strict.

    Args:
        length: draft tokens that are verified.
        change: of what the drafter says.
        slots: that are drafted, if not as many.
        given: tokens that count as drafted right wherever they are due.
    """
    emitted: list[int] = []
    for source, greedy in sentences:
        drafts = walk(change(lattices(engine, source, greedy, slots or length)))[:, :length]
        accepted = []
        for place, draft in enumerate(drafts.tolist()):
            due = greedy[place : place + length]
            said = [token if token in given else own for own, token in zip(draft, due, strict=False)]
            accepted.append(accepted_of_chain(said, due))
        emitted += emissions(accepted)
    return fmean(emitted)


def variants(
    architecture: Architecture, weights: Weights, engine: TorchEngine, references: Sequence[Sequence[int]]
) -> dict[str, Callable[[Sequence[Sentence], int], float]]:
    """What is counted, by its name.

    Args:
        references: from which the most frequent tokens are taken.
    """
    said = weights[ids_name(DRAFTER_OUTPUT)].numpy()
    others = frozenset(range(architecture.vocabulary_size)) - frozenset(said.tolist())
    whole = partial(mean_emitted, engine)
    found: dict[str, Callable[[Sequence[Sentence], int], float]] = {
        "as it is": whole,
        "no bigram term": partial(whole, change=without_bigram),
        "all slots drafted": partial(whole, slots=architecture.draft_length),
        "other tokens always right": partial(whole, given=others),
    }
    found |= {f"{width} candidates per slot": partial(whole, change=partial(narrowed, width)) for width in WIDTHS}
    for rank in RANKS:
        found[f"bigram term of rank {rank}"] = partial(mean_emitted, with_rank(architecture, weights, rank))
    for size in SIZES:
        kept = most_frequent(said, references, size)
        found[f"{size} tokens drafted"] = partial(mean_emitted, with_tokens(architecture, weights, kept))
    return found


def main() -> None:
    """Count with every part taken away, and print the table."""
    arguments = parser_of(__doc__, lines=100).parse_args()
    torch.set_num_threads(1)
    bundle = load_bundle(arguments.bundle)
    files = validation_files(bundle, arguments.corpora)
    lines = [pair.source for pairs in files for pair in evenly_spread(pairs, arguments.lines)]
    references = [[*bundle.vocabulary().encode(pair.target), EOS_ID] for pairs in files for pair in pairs]
    weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
    engine = TorchEngine(bundle.architecture, weights)
    requests = requests_of(load_translator(arguments.bundle), lines)
    sources = {request.index: request.source_ids for request in requests}
    done = decode(engine, RequestQueue(requests, BATCH_SIZE), Greedy(), BATCH_SIZE)
    sentences = [(sources[hypothesis.request.index], hypothesis.ids) for hypothesis in done]
    said = frozenset(weights[ids_name(DRAFTER_OUTPUT)].tolist())
    share = fmean(token not in said for _, greedy in sentences for token in greedy)
    rows: dict[str, dict[str, float]] = {}
    for name, count in variants(bundle.architecture, weights, engine, references).items():
        rows[name] = {str(length): count(sentences, length) for length in LENGTHS}
        print(f"| {name} | {' | '.join(f'{mean:.2f}' for mean in rows[name].values())} |", flush=True)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_json(arguments.folder / "finished.json", {"outside": share, "emitted": rows})
    print(f"{share:.1%} of the greedy tokens are none that it drafts")


if __name__ == "__main__":
    main()
