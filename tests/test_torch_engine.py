"""The torch engine on tiny random weights: caches against one whole pass, batches against single rows, and fairseq."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from pairs import fairseq_verifier, random_weights
from scripted import decoded

from specmt.architecture import Architecture
from specmt.beam import beam_search
from specmt.decoding import Greedy, Hypothesis, Request, Speculative, Strategy
from specmt.engines.base import Candidates, IntArray, Lattice, step
from specmt.engines.torch_engine import TorchEngine, TorchRows
from specmt.errors import EngineError
from specmt.verification import blank, check
from specmt.vocabulary import EOS_ID, MASK_ID

PAIR = Architecture(
    vocabulary_size=24,
    width=32,
    heads=4,
    feed_forward_width=64,
    encoder_layers=2,
    decoder_layers=2,
    drafter_layers=2,
    draft_length=6,
    bigram_rank=8,
)
SEED = 5
"""With these weights some sentences end early, and greedy's choices are never closer than 0.003 nats."""
CLOSE = 1e-4
"""Nats by which sums in another order may differ with weights as large as these."""

REAL_IDS = np.arange(MASK_ID + 1, PAIR.vocabulary_size)


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return TorchEngine(PAIR, random_weights(PAIR, SEED))


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    """Sources of 2 to 12 tokens."""
    rng = np.random.default_rng(seed)
    return [[*rng.choice(REAL_IDS, rng.integers(1, 12)).tolist(), EOS_ID] for _ in range(count)]


def targets(*shape: int, seed: int = 1) -> IntArray:
    """Target ids, each row starting from end-of-sentence."""
    ids = np.random.default_rng(seed).choice(REAL_IDS, shape)
    ids[:, 0] = EOS_ID
    return ids.astype(np.int64)


def requests(count: int = 36) -> list[Request]:
    """Limits of 4 to 12 tokens, so that rows end at different times and those in flight have different lengths."""
    return [Request(index, source, 4 + 5 * index % 9) for index, source in enumerate(sentences(count))]


def ids_of(engine: TorchEngine, strategy: Strategy, batch_size: int, count: int = 36) -> dict[int, list[int]]:
    return {index: one.ids for index, one in sorted(decoded(engine, requests(count), strategy, batch_size).items())}


def table(candidates: Candidates) -> np.ndarray:
    """Log-probabilities of the whole vocabulary, shape (batch, T, vocabulary size)."""
    full = np.empty((*candidates.ids.shape[:2], PAIR.vocabulary_size), dtype=np.float32)
    np.put_along_axis(full, candidates.ids, candidates.log_probs, axis=2)
    return full


def read(engine: TorchEngine, rows: TorchRows, ids: IntArray, keep: Sequence[int] | int) -> np.ndarray:
    """Verify, commit the first `keep` tokens of each row, and give the whole table."""
    candidates = engine.verify(rows, ids, PAIR.vocabulary_size)
    engine.commit(rows, np.broadcast_to(np.array(keep, dtype=np.int64), len(ids)))
    return table(candidates)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


def assert_same_lattice(found: Lattice, expected: Lattice) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert_close(found.scores, expected.scores)
    assert_close(found.transitions, expected.transitions)


# -- strict is greedy


class SometimesRight(TorchEngine):
    """Drafts what the verifier will say, but for some places of the target; its own drafter runs nevertheless."""

    def draft(self, rows: TorchRows, last_ids: IntArray, draft_length: int) -> Lattice:
        lattice = super().draft(rows, last_ids, draft_length)
        ahead = self.reorder(rows, np.arange(len(last_ids)))
        ids, scores = lattice.ids.copy(), np.zeros_like(lattice.scores)
        scores[:, :, 0] = 1
        for slot in range(draft_length):
            last_ids = step(self, ahead, last_ids, beta=1).ids[:, 0, 0]
            wrong = np.where(last_ids == REAL_IDS[0], REAL_IDS[1], REAL_IDS[0])
            ids[:, slot, 0] = np.where((ahead.lengths % 5 == 0) | (ahead.lengths % 7 == 3), wrong, last_ids)
        return Lattice(ids, scores, np.zeros_like(lattice.transitions))


@pytest.fixture(scope="module")
def greedy(engine: TorchEngine) -> dict[int, list[int]]:
    """Greedy ids of each sentence alone, by whole passes: nothing is cached."""
    found = {}
    for request in requests():
        ids: list[int] = []
        while len(ids) < request.max_tokens and EOS_ID not in ids:
            candidates = engine.verify(engine.encode([request.source_ids]), np.array([[EOS_ID, *ids]]), beta=1)
            ids.append(int(candidates.ids[0, -1, 0]))
        found[request.index] = ids
    return found


def test_the_sentences_are_worth_decoding(greedy: dict[int, list[int]]) -> None:
    assert len({tuple(ids) for ids in greedy.values()}) > 20
    assert len({len(ids) for ids in greedy.values()}) > 3


@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_stepwise_greedy_gives_the_ids_of_whole_passes(
    engine: TorchEngine, greedy: dict[int, list[int]], batch_size: int
) -> None:
    assert ids_of(engine, Greedy(), batch_size) == greedy


@pytest.mark.parametrize("draft_length", [3, 6])
@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_strict_spec_gives_greedys_ids(
    engine: TorchEngine, greedy: dict[int, list[int]], batch_size: int, draft_length: int
) -> None:
    assert ids_of(engine, Speculative(draft_length, 1, 0.0), batch_size) == greedy


@pytest.mark.parametrize("draft_length", [3, 6])
@pytest.mark.parametrize("batch_size", [1, 7, 32])
def test_strict_spec_gives_greedys_ids_when_drafts_are_often_right(
    greedy: dict[int, list[int]], batch_size: int, draft_length: int
) -> None:
    engine = SometimesRight(PAIR, random_weights(PAIR, SEED))
    hypotheses = decoded(engine, requests(), Speculative(draft_length, 1, 0.0), batch_size)
    assert {index: hypotheses[index].ids for index in sorted(hypotheses)} == greedy
    accepted = {iteration.accepted for one in hypotheses.values() for iteration in one.iterations}
    assert accepted >= {1, 2, min(draft_length, 4)}


# -- relaxed, without any cache


def relaxed_by_whole_passes(engine: TorchEngine, request: Request, strategy: Speculative) -> list[int]:
    """The definition: each iteration encodes and reads everything anew, so nothing can be left over from before."""
    hypothesis = Hypothesis(request)
    while not hypothesis.finished:
        rows = engine.encode([request.source_ids])
        prefix = np.array([[EOS_ID, *hypothesis.ids]])
        engine.draft(rows, prefix[:, 0], 1)
        engine.verify(rows, prefix, 1)
        engine.commit(rows, np.array([prefix.shape[1] - 1]))
        lattice = engine.draft(rows, prefix[:, -1], strategy.draft_length)
        left, draft = 0, []
        for slot in range(strategy.draft_length):
            left = int((lattice.scores[0, slot] + lattice.transitions[0, slot, left]).argmax())
            draft.append(int(lattice.ids[0, slot, left]))
        whole = engine.verify(
            engine.encode([request.source_ids]), np.array([[*prefix[0].tolist(), *draft]]), strategy.beta
        )
        slots = slice(prefix.shape[1] - 1, None)
        candidates = blank(Candidates(whole.ids[:, slots], whole.log_probs[:, slots]), strategy.tau)
        verdict = check(np.array([draft]), candidates)
        end = verdict.accepted[0] + 1
        hypothesis.extend(verdict.emitted_ids[0, :end].tolist(), verdict.log_probs[0, :end].tolist())
    return hypothesis.ids


@pytest.fixture(scope="module")
def relaxed(engine: TorchEngine) -> dict[int, list[int]]:
    return {one.index: relaxed_by_whole_passes(engine, one, Speculative(6, 5, 3.0)) for one in requests(16)}


@pytest.mark.parametrize("batch_size", [1, 5, 16])
def test_relaxed_spec_gives_the_ids_of_whole_passes_at_any_batch_size(
    engine: TorchEngine, relaxed: dict[int, list[int]], greedy: dict[int, list[int]], batch_size: int
) -> None:
    assert ids_of(engine, Speculative(6, 5, 3.0), batch_size, count=16) == relaxed
    assert relaxed != {index: greedy[index] for index in relaxed}


def test_the_order_of_the_sentences_changes_no_ids(engine: TorchEngine, relaxed: dict[int, list[int]]) -> None:
    hypotheses = decoded(engine, reversed(requests(16)), Speculative(6, 5, 3.0), batch_size=5)
    assert {index: hypotheses[index].ids for index in sorted(hypotheses)} == relaxed


# -- caches


@pytest.mark.parametrize("parts", [[1] * 20, [20], [1, 4, 7, 8], [19, 1]])
def test_reading_in_parts_gives_what_one_pass_gives(engine: TorchEngine, parts: list[int]) -> None:
    ids, sources = targets(3, 20), sentences(3)
    whole = read(engine, engine.encode(sources), ids, 20)
    rows, start, found = engine.encode(sources), 0, []
    for part in parts:
        found.append(read(engine, rows, ids[:, start : start + part], part))
        start += part
    assert_close(np.concatenate(found, axis=1), whole)
    assert rows.lengths.tolist() == [20, 20, 20]


def test_a_position_does_not_see_what_follows_it(engine: TorchEngine) -> None:
    ids = targets(1, 12)
    other = ids.copy()
    other[0, 7:] = ids[0, 7:][::-1]
    one, two = (read(engine, engine.encode(sentences(1)), tokens, 12) for tokens in (ids, other))
    assert_close(one[:, :7], two[:, :7])
    assert np.abs(one[:, 8:] - two[:, 8:]).max() > 1


def test_every_earlier_token_and_the_source_matter(engine: TorchEngine) -> None:
    """Else the tests of the caches could not fail."""
    ids, source = targets(1, 12), sentences(1)[0]
    last = read(engine, engine.encode([source]), ids, 12)[0, -1]
    for place in range(1, 11):
        other = ids.copy()
        other[0, place] = REAL_IDS[0] if ids[0, place] != REAL_IDS[0] else REAL_IDS[1]
        assert np.abs(read(engine, engine.encode([source]), other, 12)[0, -1] - last).max() > 0.01
    assert np.abs(read(engine, engine.encode([source[1:]]), ids, 12)[0, -1] - last).max() > 0.01


@pytest.mark.parametrize("kept", [0, 1, 3, 6])
def test_tokens_that_were_not_committed_leave_no_trace(engine: TorchEngine, kept: int) -> None:
    """Neither in the verifier's caches nor in those that the drafter reads."""
    sources, ids = sentences(2), targets(2, 16)
    other = targets(2, 16, seed=9)
    rolled, straight = engine.encode(sources), engine.encode(sources)
    for rows in (rolled, straight):
        engine.draft(rows, ids[:, 0], 3)
        read(engine, rows, ids[:, :4], 4)
    read(engine, rolled, np.concatenate([ids[:, 4 : 4 + kept], other[:, 4 + kept : 10]], axis=1), kept)
    read(engine, straight, ids[:, 4 : 4 + kept], kept) if kept else None
    assert rolled.lengths.tolist() == straight.lengths.tolist() == [4 + kept] * 2
    rest = ids[:, 4 + kept :]
    assert_same_lattice(engine.draft(rolled, rest[:, 0], 5), engine.draft(straight, rest[:, 0], 5))
    assert_close(read(engine, rolled, rest, 3), read(engine, straight, rest, 3))
    assert_same_lattice(engine.draft(rolled, rest[:, 3], 5), engine.draft(straight, rest[:, 3], 5))


def test_a_draft_leaves_no_trace_in_the_verifier(engine: TorchEngine) -> None:
    ids = targets(2, 8)
    drafted, plain = engine.encode(sentences(2)), engine.encode(sentences(2))
    read(engine, drafted, ids[:, :4], 4)
    read(engine, plain, ids[:, :4], 4)
    engine.draft(drafted, ids[:, 4], 6)
    assert_close(read(engine, drafted, ids[:, 4:], 4), read(engine, plain, ids[:, 4:], 4))


def test_the_drafter_sees_the_committed_prefix_and_the_last_token(engine: TorchEngine) -> None:
    ids = targets(1, 6)

    def lattice(tokens: IntArray) -> Lattice:
        rows = engine.encode(sentences(1))
        engine.draft(rows, tokens[:, 0], 1)
        read(engine, rows, tokens[:, :5], 5)
        return engine.draft(rows, tokens[:, 5], 4)

    for place in range(1, 6):
        other = ids.copy()
        other[0, place] = REAL_IDS[0] if ids[0, place] != REAL_IDS[0] else REAL_IDS[1]
        changed, straight = lattice(other), lattice(ids)
        assert changed.ids.tolist() != straight.ids.tolist() or np.abs(changed.scores - straight.scores).max() > 0.01


# -- rows


def rows_of_unequal_lengths(engine: TorchEngine) -> tuple[list[TorchRows], TorchRows, list[IntArray]]:
    """Three rows apart and joined, with 3, 7 and 0 committed tokens, and tokens to read next."""
    sources, lengths = [sentences(3)[i] for i in (1, 0, 2)], (3, 7, 0)
    assert len({len(source) for source in sources}) == 3
    apart, tokens = [], []
    for place, (source, length) in enumerate(zip(sources, lengths, strict=True)):
        ids = targets(1, length + 6, seed=20 + place)
        rows = engine.encode([source])
        engine.draft(rows, ids[:, 0], 2)
        if length:
            read(engine, rows, ids[:, :length], length)
        apart.append(rows)
        tokens.append(ids[:, length:])
    joined = engine.join(engine.join(apart[0], apart[1]), apart[2])
    return apart, joined, tokens


def assert_each_is(
    engine: TorchEngine, rows: TorchRows, apart: Sequence[TorchRows], tokens: Sequence[IntArray]
) -> None:
    """`rows` draft and read as each of `apart` does alone, also when they keep different numbers of tokens."""
    together = np.concatenate(tokens)
    lattice = engine.draft(rows, together[:, 0], 4)
    keep = [1 + place % 4 for place in range(len(apart))]
    first = read(engine, rows, together[:, :4], keep)
    rest = np.concatenate([ids[:, count : count + 2] for ids, count in zip(tokens, keep, strict=True)])
    second = read(engine, rows, rest[:, :1], 1)
    after = engine.draft(rows, rest[:, -1], 4)
    for place, (alone, ids) in enumerate(zip(apart, tokens, strict=True)):
        row = slice(place, place + 1)
        single = engine.reorder(alone, np.array([0]))
        assert_same_lattice(_row(lattice, row), engine.draft(single, ids[:, 0], 4))
        assert_close(first[row], read(engine, single, ids[:, :4], keep[place]))
        assert_close(second[row], read(engine, single, rest[row, :1], 1))
        assert_same_lattice(_row(after, row), engine.draft(single, rest[row][:, -1], 4))


def _row(lattice: Lattice, row: slice) -> Lattice:
    return Lattice(lattice.ids[row], lattice.scores[row], lattice.transitions[row])


def test_joined_rows_do_what_each_does_alone(engine: TorchEngine) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    assert joined.lengths.tolist() == [3, 7, 0]
    assert_each_is(engine, joined, apart, tokens)


@pytest.mark.parametrize("indices", [[0], [2], [1, 0], [2, 0, 1], [0, 2], [1, 1, 0, 1]])
def test_selected_rows_do_what_each_does_alone(engine: TorchEngine, indices: list[int]) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array(indices))
    assert chosen.lengths.tolist() == [[3, 7, 0][i] for i in indices]
    assert_each_is(engine, chosen, [apart[i] for i in indices], [tokens[i] for i in indices])


def test_a_row_selected_twice_goes_two_ways(engine: TorchEngine) -> None:
    """Beams start so: what one of them reads is not seen by the other."""
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array([1, 1]))
    assert_each_is(engine, chosen, [apart[1], apart[1]], [tokens[1], tokens[0]])


def test_selecting_leaves_the_rows_as_they_were(engine: TorchEngine) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array([2, 1, 0]))
    read(engine, chosen, np.concatenate(tokens[::-1])[:, :5], 5)
    assert_each_is(engine, joined, apart, tokens)


def test_reordered_beams_do_what_their_prefixes_say(engine: TorchEngine) -> None:
    sources = sentences(2)
    ids = targets(4, 9)
    beams = engine.select(engine.encode(sources), np.array([0, 0, 1, 1]))
    read(engine, beams, ids[:, :5], 5)
    order = np.array([1, 1, 3, 2])
    found = read(engine, engine.reorder(beams, order), ids[:, 5:], 4)
    whole = np.concatenate([ids[order, :5], ids[:, 5:]], axis=1)
    expected = read(engine, engine.encode([sources[0], sources[0], sources[1], sources[1]]), whole, 9)
    assert_close(found, expected[:, 5:])


@pytest.mark.parametrize("longer", [1, 5, 30])
def test_padding_beside_a_longer_source_changes_nothing(engine: TorchEngine, longer: int) -> None:
    ids, source = targets(1, 10), sentences(1)[0]
    neighbour = [*np.random.default_rng(3).choice(REAL_IDS, len(source) + longer - 1).tolist(), EOS_ID]
    alone = engine.encode([source])
    beside = engine.encode([neighbour, source])
    lattices = [
        engine.draft(alone, ids[:, 0], 6),
        _row(engine.draft(beside, np.repeat(ids[:, 0], 2), 6), slice(1, 2)),
    ]
    assert_same_lattice(*lattices)
    assert_close(read(engine, beside, np.repeat(ids, 2, axis=0), 10)[1:], read(engine, alone, ids, 10))


def test_a_longer_row_that_leaves_changes_nothing(engine: TorchEngine) -> None:
    """The caches stay as wide as it was."""
    ids = targets(2, 40)
    short, long = sentences(1)[0], [*REAL_IDS.tolist(), *REAL_IDS.tolist(), EOS_ID]
    rows = engine.join(engine.encode([long]), engine.encode([short]))
    engine.draft(rows, ids[:, 0], 1)
    read(engine, rows, ids[:, :33], [33, 2])
    left = engine.select(rows, np.array([1]))
    assert_each_is(engine, left, [_read_alone(engine, short, ids[1:, :2])], [ids[1:, 2:10]])


def _read_alone(engine: TorchEngine, source: list[int], ids: IntArray) -> TorchRows:
    rows = engine.encode([source])
    engine.draft(rows, ids[:, 0], 1)
    read(engine, rows, ids, ids.shape[1])
    return rows


# -- what comes out


def test_candidates_are_the_most_probable_tokens_best_first(engine: TorchEngine) -> None:
    ids = targets(2, 5)
    all_of_them = engine.verify(engine.encode(sentences(2)), ids, PAIR.vocabulary_size)
    assert np.allclose(np.exp(all_of_them.log_probs).sum(axis=2), 1, atol=1e-5)
    assert (np.diff(all_of_them.log_probs, axis=2) <= 0).all()
    for beta in (1, 2, 5):
        some = engine.verify(engine.encode(sentences(2)), ids, beta)
        assert some.ids.tolist() == all_of_them.ids[:, :, :beta].tolist()
        assert_close(some.log_probs, all_of_them.log_probs[:, :, :beta])


def test_more_candidates_than_tokens_are_all_of_them(engine: TorchEngine) -> None:
    candidates = engine.verify(engine.encode(sentences(1)), targets(1, 1), beta=99)
    assert sorted(candidates.ids[0, 0].tolist()) == list(range(PAIR.vocabulary_size))


@pytest.mark.parametrize("bf16", [False, True])
def test_arrays_are_of_the_interfaces_types(bf16: bool) -> None:
    engine = TorchEngine(PAIR, random_weights(PAIR, SEED), bf16=bf16)
    rows = engine.encode(sentences(3))
    lattice = engine.draft(rows, np.full(3, EOS_ID), 4)
    assert (lattice.ids.shape, lattice.ids.dtype) == ((3, 4, 16), np.int64)
    assert (lattice.scores.shape, lattice.scores.dtype) == ((3, 4, 16), np.float32)
    assert (lattice.transitions.shape, lattice.transitions.dtype) == ((3, 4, 16, 16), np.float32)
    candidates = engine.verify(rows, targets(3, 2), 2)
    assert (candidates.ids.shape, candidates.ids.dtype) == ((3, 2, 2), np.int64)
    assert (candidates.log_probs.shape, candidates.log_probs.dtype) == ((3, 2, 2), np.float32)


def test_a_slots_tokens_are_sorted_and_slot_0_has_one_left_neighbour(engine: TorchEngine) -> None:
    lattice = engine.draft(engine.encode(sentences(3)), np.full(3, EOS_ID), 6)
    assert (np.diff(lattice.scores, axis=2) <= 0).all()
    assert (lattice.transitions[:, 0] == lattice.transitions[:, 0, :1]).all()
    assert np.abs(np.diff(lattice.transitions[:, 1:], axis=2)).max() > 0.1


def test_fewer_slots_than_the_model_has_may_be_drafted(engine: TorchEngine) -> None:
    """Slots see one another, so their scores differ; what is left of them must stay what it was."""
    last_ids = np.full(2, EOS_ID)
    for draft_length in range(1, 7):
        lattice = engine.draft(engine.encode(sentences(2)), last_ids, draft_length)
        assert lattice.ids.shape == (2, draft_length, 16)
    assert engine.max_draft_length == 6


# -- precision and device


def test_the_name_says_device_and_precision(engine: TorchEngine) -> None:
    assert engine.name == "torch-cpu-fp32"
    assert TorchEngine(PAIR, random_weights(PAIR, SEED), bf16=True).name == "torch-cpu-bf16"


def test_bf16_agrees_with_fp32_to_its_precision(engine: TorchEngine) -> None:
    """Eight bits of a number: with smaller weights, so that what it does to logits is small as well."""
    weights = random_weights(PAIR, SEED, projections=0.15)
    half, full = (TorchEngine(PAIR, weights, bf16=bf16) for bf16 in (True, False))
    ids = targets(4, 12)
    found, expected = (read(one, one.encode(sentences(4)), ids, 12) for one in (half, full))
    assert np.abs(found - expected)[:, :, REAL_IDS].max() < 0.25
    sure = np.sort(expected, axis=2)[:, :, -1] - np.sort(expected, axis=2)[:, :, -2] > 0.5
    assert sure.sum() > 20
    assert found.argmax(axis=2)[sure].tolist() == expected.argmax(axis=2)[sure].tolist()


@pytest.mark.parametrize("strategy", [Greedy(), Speculative(6, 1, 0.0), Speculative(6, 3, 1.0)], ids=repr)
def test_bf16_decodes_every_sentence_to_its_end_or_limit(strategy: Strategy) -> None:
    engine = TorchEngine(PAIR, random_weights(PAIR, SEED), bf16=True)
    hypotheses = decoded(engine, requests(6), strategy, batch_size=4)
    assert sorted(hypotheses) == list(range(6))
    assert all(one.finished and EOS_ID not in one.ids[:-1] for one in hypotheses.values())


@pytest.mark.parametrize("bf16", [False, True])
def test_a_source_of_one_token_can_be_the_first(bf16: bool) -> None:
    weights = random_weights(PAIR, SEED)
    fresh, used = (TorchEngine(PAIR, weights, bf16=bf16) for _ in range(2))
    used.encode([[5] * 20])
    assert_close(*(read(engine, engine.encode([[EOS_ID]]), targets(1, 1), 1) for engine in (fresh, used)))


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99", "cpu:x", "tpu"])
def test_an_unknown_device_is_one_line(device: str) -> None:
    with pytest.raises(EngineError) as caught:
        TorchEngine(PAIR, random_weights(PAIR), device)
    assert str(caught.value) == f"no device {device!r} on this machine"


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_cuda_without_cuda_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"^no device 'cuda' on this machine$"):
        TorchEngine(PAIR, random_weights(PAIR), "cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.parametrize("bf16", [False, True])
def test_cuda_gives_what_the_cpu_gives(engine: TorchEngine, bf16: bool) -> None:
    weights = random_weights(PAIR, SEED, projections=0.15)
    there, here = TorchEngine(PAIR, weights, "cuda", bf16=bf16), TorchEngine(PAIR, weights)
    assert there.name == f"torch-cuda-{'bf16' if bf16 else 'fp32'}"
    ids = targets(4, 12)
    found, expected = (read(one, one.encode(sentences(4)), ids, 12) for one in (there, here))
    np.testing.assert_allclose(found[:, :, REAL_IDS], expected[:, :, REAL_IDS], rtol=0, atol=0.25 if bf16 else 1e-3)
    if not bf16:
        assert ids_of(there, Speculative(6, 1, 0.0), 7) == ids_of(here, Greedy(), 7)


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_heads_may_be_any_divisor_of_the_width(heads: int) -> None:
    pair = replace(PAIR, heads=heads)
    engine = TorchEngine(pair, random_weights(pair, SEED))
    greedy, strict = (ids_of(engine, strategy, 5, count=8) for strategy in (Greedy(), Speculative(4, 1, 0.0)))
    assert strict == greedy


def test_a_verifier_without_a_drafter_decodes(engine: TorchEngine, greedy: dict[int, list[int]]) -> None:
    weights = {name: part for name, part in random_weights(PAIR, SEED).items() if not name.startswith("drafter.")}
    alone = TorchEngine(replace(PAIR, drafter_layers=0, draft_length=0, bigram_rank=0), weights)
    assert ids_of(alone, Greedy(), 7) == greedy


# -- fairseq


needs_fairseq = pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq")
of_fairseq = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@needs_fairseq
@of_fairseq
@torch.inference_mode()
def test_log_probabilities_are_fairseqs() -> None:
    weights = random_weights(PAIR, SEED, projections=0.3)
    model, _ = fairseq_verifier(PAIR, weights)
    engine = TorchEngine(PAIR, weights)
    for source_length, target_length in ((1, 1), (2, 5), (7, 3), (20, 40), (3, 100), (60, 2)):
        source = [*np.random.default_rng(source_length).choice(REAL_IDS, source_length - 1).tolist(), EOS_ID]
        ids = targets(1, target_length)
        logits, _ = model(torch.tensor([source]), torch.tensor([source_length]), torch.from_numpy(ids))
        found = read(engine, engine.encode([source]), ids, target_length)
        np.testing.assert_allclose(found, logits.log_softmax(dim=-1).numpy(), rtol=0, atol=1e-5)


@needs_fairseq
@of_fairseq
@torch.inference_mode()
def test_log_probabilities_of_a_padded_batch_are_fairseqs() -> None:
    weights = random_weights(PAIR, SEED, projections=0.3)
    model, dictionary = fairseq_verifier(PAIR, weights)
    engine = TorchEngine(PAIR, weights)
    sources, ids = sentences(5), targets(5, 11)
    # fairseq pads on the left.
    longest = max(map(len, sources))
    padded = torch.tensor([[dictionary.pad()] * (longest - len(source)) + source for source in sources])
    logits, _ = model(padded, torch.tensor([len(source) for source in sources]), torch.from_numpy(ids))
    found = read(engine, engine.encode(sources), ids, 11)
    np.testing.assert_allclose(found, logits.log_softmax(dim=-1).numpy(), rtol=0, atol=1e-5)


@needs_fairseq
@of_fairseq
@torch.inference_mode()
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 1.5])
def test_beam_search_finds_what_fairseqs_generator_finds(engine: TorchEngine, length_penalty: float) -> None:
    """Where all hypotheses end before the limit: there, fairseq forces an end-of-sentence."""
    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

    from fairseq.sequence_generator import SequenceGenerator  # isort: skip

    model, dictionary = fairseq_verifier(PAIR, random_weights(PAIR, SEED))
    limit, beam = 20, 4
    generator = SequenceGenerator(
        [model], dictionary, beam_size=beam, max_len_a=0, max_len_b=limit - 1, min_len=0, len_penalty=length_penalty
    )
    asked = [Request(index, source, limit) for index, source in enumerate(sentences(30))]
    compared = 0
    for request, found in zip(asked, beam_search(engine, asked, beam, length_penalty), strict=True):
        if any(len(one.ids) == limit for one in found):
            continue
        source = torch.tensor([request.source_ids])
        sample = {"net_input": {"src_tokens": source, "src_lengths": torch.tensor([source.size(1)])}}
        (expected,) = generator.generate([model], sample)
        assert [one.ids for one in found] == [one["tokens"].tolist() for one in expected]
        scores = [one.log_prob / len(one.ids) ** length_penalty for one in found]
        assert scores == pytest.approx([float(one["score"]) for one in expected], abs=CLOSE)
        compared += 1
    assert compared >= 3
