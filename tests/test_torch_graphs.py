"""Passes of fixed shapes for a single row: what they give is what the reference engine gives, recorded or not."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from pairs import random_weights
from scripted import beams, decoded
from torch_pair import PAIR, REAL_IDS, SEED, drafted, read, sentences, targets

from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Greedy, Speculative, Strategy
from specmt.engines import torch_graphs
from specmt.engines.base import Lattice
from specmt.engines.drafting import in_two_passes
from specmt.engines.drafting import walk as walk_arrays
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_graphs import GraphedTorchEngine, Recorded, walk
from specmt.engines.torch_networks import TensorLattice
from specmt.text.vocabulary import EOS_ID

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")],
    ),
]
CLOSE = 1e-3
"""Nats, and as much of scores, by which a GPU may differ."""
STRATEGIES = [Greedy(), Speculative(6, 1, 0.0), Speculative(3, 3, 1.5)]


@pytest.fixture(scope="module")
def plain() -> TorchEngine:
    return TorchEngine(PAIR, random_weights(PAIR, SEED))


@pytest.fixture(scope="module", params=DEVICES)
def graphed(request: pytest.FixtureRequest) -> GraphedTorchEngine:
    return GraphedTorchEngine(PAIR, random_weights(PAIR, SEED), request.param)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


def requests(count: int = 30) -> list[Request]:
    return [Request(index, source, 4 + 5 * index % 9) for index, source in enumerate(sentences(count))]


def found(engine: TorchEngine, strategy: Strategy, batch_size: int, of: Sequence[Request]) -> dict[int, list[int]]:
    return {index: one.ids for index, one in sorted(decoded(engine, of, strategy, batch_size).items())}


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ids_are_those_of_the_reference(
    plain: TorchEngine, graphed: GraphedTorchEngine, strategy: Strategy, batch_size: int
) -> None:
    assert found(graphed, strategy, batch_size, requests()) == found(plain, strategy, batch_size, requests())


def test_one_sentence_at_a_time_is_recorded_and_many_are_not(
    graphed: GraphedTorchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(
        Recorded, "__call__", lambda self, given, run=Recorded.__call__: calls.append(len(given)) or run(self, given)
    )
    alone = decoded(graphed, requests(4), Speculative(4, 1, 0.0), 1)
    iterations = sum(len(one.iterations) for one in alone.values())
    assert len(calls) == iterations + 4
    calls.clear()
    graphed.encode([[5, EOS_ID], [6, EOS_ID]])
    assert not calls


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40, 256, 257])
def test_sources_of_any_length(plain: TorchEngine, graphed: GraphedTorchEngine, length: int) -> None:
    source, ids = [*([7, 9, 8] * length)[: length - 1], EOS_ID], targets(1, 9)
    assert_close(*(read(engine, engine.encode([source]), ids, 9) for engine in (graphed, plain)))


def test_a_target_longer_than_the_seat(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    source, ids = sentences(1)[0], targets(1, 150)
    rows, expected = graphed.encode([source]), plain.encode([source])
    for start in range(0, 150, 5):
        part = ids[:, start : start + 5]
        assert_close(read(graphed, rows, part, 5), read(plain, expected, part, 5))
    assert rows.capacity == 160


def test_what_was_rejected_leaves_no_trace(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    source, ids, others = sentences(1)[0], targets(1, 8), targets(1, 8, seed=4)
    rows = graphed.encode([source])
    read(graphed, rows, ids[:, :3], 3)
    read(graphed, rows, others[:, :5], 0)
    assert_close(read(graphed, rows, ids[:, 3:], 5), read(plain, plain.encode([source]), ids, 8)[:, 3:])


def test_a_seat_is_taken_until_nothing_uses_it(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    first, second, third = sentences(3)
    ids, expected = targets(1, 6), read(plain, plain.encode([first]), targets(1, 6), 6)
    rows = graphed.encode([first])
    beside = graphed.encode([second])
    assert beside.sitting is None
    assert_close(read(graphed, beside, ids, 6), read(plain, plain.encode([second]), ids, 6))
    reordered = graphed.reorder(rows, np.array([0]))  # which reads the same source, from where it lies
    del rows
    gc.collect()
    assert graphed.encode([third]).sitting is None
    assert_close(read(graphed, reordered, ids, 6), expected)
    del reordered
    gc.collect()
    assert graphed.encode([third]).sitting is not None


def test_a_row_that_is_joined_goes_on_among_others(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    first, second = sentences(2)
    ids = targets(2, 6)
    rows = graphed.encode([first])
    read(graphed, rows, ids[:1, :3], 3)
    other = graphed.encode([second])
    read(graphed, other, ids[1:, :3], 3)
    both = graphed.join(rows, other)
    expected = plain.encode([first, second])
    read(plain, expected, ids[:, :3], 3)
    assert_close(read(graphed, both, ids[:, 3:], 3), read(plain, expected, ids[:, 3:], 3))


def test_drafts_are_those_of_the_reference(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    source, ids = sentences(1)[0], targets(1, 7)
    lattices = [drafted(engine, source, ids, 5, 4) for engine in (graphed, plain)]
    assert lattices[0].ids.tolist() == lattices[1].ids.tolist()
    assert_close(lattices[0].transitions, lattices[1].transitions)
    rows, expected = graphed.encode([source]), plain.encode([source])
    for last in (EOS_ID, 9, 12):
        one = graphed.draft_and_verify(rows, np.array([last]), 4, 3)
        other = in_two_passes(plain, expected, np.array([last]), 4, 3)
        assert one.draft.tolist() == other.draft.tolist()
        assert one.candidates.ids.tolist() == other.candidates.ids.tolist()
        assert_close(one.candidates.log_probs, other.candidates.log_probs)
        for engine, state in ((graphed, rows), (plain, expected)):
            engine.commit(state, np.array([2]))


def test_beam_search_is_the_references(plain: TorchEngine, graphed: GraphedTorchEngine) -> None:
    one, other = (
        [[hypothesis.ids for hypothesis in beam] for beam in beams(engine, requests(6), 4, 1.0)]
        for engine in (graphed, plain)
    )
    assert one == other


def test_a_verifier_without_a_drafter(plain: TorchEngine) -> None:
    weights = {name: part for name, part in random_weights(PAIR, SEED).items() if not name.startswith("drafter.")}
    alone = GraphedTorchEngine(replace(PAIR, drafter_layers=0, draft_length=0, bigram_rank=0), weights, "cpu")
    assert found(alone, Greedy(), 1, requests(8)) == found(plain, Greedy(), 1, requests(8))


def test_longer_tables_of_positions_do_not_move_those_in_use(graphed: GraphedTorchEngine) -> None:
    source, ids = sentences(1)[0], targets(1, 9)
    before = read(graphed, graphed.encode([source]), ids, 9)
    far = graphed.encode([[*REAL_IDS, EOS_ID] * 40, [5, EOS_ID]])
    graphed.commit(far, np.array([3000, 3000]))
    graphed.verify(far, targets(2, 2), 1)
    assert_close(read(graphed, graphed.encode([source]), ids, 9), before)


def test_the_walk_is_that_of_arrays() -> None:
    rng = np.random.default_rng(0)
    ids, scores = rng.integers(0, 99, (3, 5, 7)), rng.normal(size=(3, 5, 7)).astype(np.float32)
    transitions = rng.normal(size=(3, 5, 7, 7)).astype(np.float32) * 3
    tensors = TensorLattice(*(torch.from_numpy(array) for array in (ids, scores, transitions)))
    assert walk(tensors).tolist() == walk_arrays(Lattice(ids, scores, transitions)).tolist()
    assert torch_graphs.walk(TensorLattice(*(part[:1] for part in tensors))).shape == (1, 5)
