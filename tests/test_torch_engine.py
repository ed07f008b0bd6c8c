"""The torch engine on tiny random weights: decoding against whole passes, what comes out, and fairseq."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from pairs import fairseq_verifier, random_weights
from scripted import beams, decoded
from torch_pair import CLOSE, PAIR, REAL_IDS, SEED, assert_close, read, sentences, targets

from specmt.arrays import IntArray
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.decoding.loops import Greedy, Speculative, Strategy
from specmt.decoding.verification import blank, check
from specmt.engines.base import Candidates, Lattice, step
from specmt.engines.torch_engine import TorchEngine, TorchRows
from specmt.errors import EngineError
from specmt.text.vocabulary import EOS_ID


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return TorchEngine(PAIR, random_weights(PAIR, SEED))


def requests(count: int = 36) -> list[Request]:
    """Limits of 4 to 12 tokens, so that rows end at different times and those in flight have different lengths."""
    return [Request(index, source, 4 + 5 * index % 9) for index, source in enumerate(sentences(count))]


def ids_of(engine: TorchEngine, strategy: Strategy, batch_size: int, count: int = 36) -> dict[int, list[int]]:
    return {index: one.ids for index, one in sorted(decoded(engine, requests(count), strategy, batch_size).items())}


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


@pytest.mark.parametrize("device", ["gpu", "", "cuda:99", "cpu:x", "tpu", "meta"])
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
        np.testing.assert_allclose(found, logits.log_softmax(dim=-1).numpy(), rtol=1e-6, atol=2e-5)


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
    np.testing.assert_allclose(found, logits.log_softmax(dim=-1).numpy(), rtol=1e-6, atol=2e-5)


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
    for request, found in zip(asked, beams(engine, asked, beam, length_penalty), strict=True):
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
