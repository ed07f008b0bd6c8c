"""Beam search against hand-made tables, against every sequence that there is, and against a plain beam search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import FIRST_PIECE_ID, ScriptedEngine, TableEngine, beams, decoded

from specmt.arrays import FloatArray
from specmt.decoding.beam import beam_search
from specmt.decoding.hypotheses import Hypothesis, Iteration, Request, length_normalised
from specmt.decoding.loops import Greedy
from specmt.text.vocabulary import EOS_ID

A, B, C = range(FIRST_PIECE_ID, FIRST_PIECE_ID + 3)
Scored = tuple[list[int], float]
"""A hypothesis' ids and log-probability."""


@dataclass
class RandomEngine(ScriptedEngine):
    """Draws log-probabilities for each source and prefix: three pieces and end-of-sentence."""

    vocabulary_size: int = FIRST_PIECE_ID + 3
    seed: int = 0

    def ranked(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]:
        scores = self._scores(source, prefix)
        return sorted(scores, key=lambda id_: -scores[id_])

    def log_probs(self, source: Sequence[int], prefix: Sequence[int]) -> FloatArray:
        return np.array(sorted(self._scores(source, prefix).values(), reverse=True), dtype=np.float32)

    def _scores(self, source: Sequence[int], prefix: Sequence[int]) -> dict[int, float]:
        rng = np.random.default_rng([self.seed, *source, 0, *prefix])
        logits = rng.normal(scale=1.5, size=4)
        logits -= np.log(np.exp(logits).sum())
        return dict(zip((EOS_ID, A, B, C), logits.astype(np.float32).tolist(), strict=True))


def request(*ids: int, max_tokens: int, index: int = 0) -> Request:
    return Request(index, [*ids, EOS_ID], max_tokens)


def search(engine: ScriptedEngine, asked: Request, beam: int, length_penalty: float) -> list[Scored]:
    (hypotheses,) = beams(engine, [asked], beam, length_penalty)
    return scored(hypotheses)


def scored(hypotheses: Sequence[Hypothesis]) -> list[Scored]:
    return [(hypothesis.ids, hypothesis.log_prob) for hypothesis in hypotheses]


def assert_same(found: Sequence[Scored], expected: Sequence[Scored]) -> None:
    assert [ids for ids, _ in found] == [ids for ids, _ in expected]
    assert [log_prob for _, log_prob in found] == pytest.approx([log_prob for _, log_prob in expected], abs=1e-5)


def best_first(hypotheses: Sequence[Scored], length_penalty: float) -> list[Scored]:
    return sorted(hypotheses, key=lambda one: -one[1] / len(one[0]) ** length_penalty)


# -- by hand

SHORT_OR_LONG = {
    (): [(EOS_ID, -1.0), (A, -1.25), (B, -3.0), (C, -4.0)],
    (A,): [(EOS_ID, -0.5), (B, -2.0), (C, -3.0), (A, -4.0)],
    (B,): [(EOS_ID, -0.5), (A, -2.0), (C, -3.0), (B, -4.0)],
}


@pytest.mark.parametrize(
    ("length_penalty", "expected"),
    [
        # [end]: -1 over 1 token; [A, end]: -1.75 over 2 tokens, which is -0.875 a token.
        pytest.param(0.0, [[EOS_ID], [A, EOS_ID]], id="no penalty: -1.00 before -1.75"),
        pytest.param(1.0, [[A, EOS_ID], [EOS_ID]], id="penalty 1: -0.875 before -1.00"),
        pytest.param(0.5, [[EOS_ID], [A, EOS_ID]], id="penalty 0.5: -1.00 before -1.24"),
    ],
)
def test_the_length_penalty_changes_the_order(length_penalty: float, expected: list[list[int]]) -> None:
    found = search(TableEngine(table=SHORT_OR_LONG), request(A, max_tokens=9), 2, length_penalty)
    assert [ids for ids, _ in found] == expected
    assert {tuple(ids): log_prob for ids, log_prob in found} == {(EOS_ID,): -1.0, (A, EOS_ID): -1.75}


@pytest.mark.parametrize(
    ("log_prob", "tokens", "length_penalty", "score"),
    [(-6.0, 4, 0.0, -6.0), (-6.0, 4, 0.5, -3.0), (-6.0, 4, 1.0, -1.5), (-6.0, 4, 2.0, -0.375), (0.0, 0, 1.0, 0.0)],
)
def test_a_score_is_the_log_probability_over_a_power_of_the_length(
    log_prob: float, tokens: int, length_penalty: float, score: float
) -> None:
    assert length_normalised(log_prob, tokens, length_penalty) == score


def test_a_beam_of_2_finds_what_greedy_passes_over() -> None:
    """Greedy takes A and pays for it later."""
    table = {
        (): [(A, -0.5), (B, -1.0), (C, -5.0), (EOS_ID, -9.0)],
        (A,): [(EOS_ID, -3.0), (B, -3.5), (C, -4.0), (A, -5.0)],
        (B,): [(EOS_ID, -0.125), (A, -4.0), (B, -5.0), (C, -6.0)],
    }
    engine, asked = TableEngine(table=table), request(A, max_tokens=9)
    assert search(engine, asked, 1, 1.0) == [([A, EOS_ID], -3.5)]
    assert search(engine, asked, 2, 1.0)[0] == ([B, EOS_ID], -1.125)


def test_an_end_that_is_not_among_the_best_beam_continuations_is_dropped() -> None:
    """With two places, end-of-sentence in third place neither ends a hypothesis nor takes a place."""
    table = {
        (): [(A, -0.5), (B, -1.0), (EOS_ID, -1.5), (C, -2.0)],
        (A,): [(EOS_ID, -0.25), (A, -8.0), (B, -8.0), (C, -8.0)],
        (B,): [(EOS_ID, -0.25), (A, -8.0), (B, -8.0), (C, -8.0)],
    }
    found = search(TableEngine(table=table), request(A, max_tokens=9), 2, 0.0)
    assert found == [([A, EOS_ID], -0.75), ([B, EOS_ID], -1.25)]


def test_at_the_limit_the_best_prefixes_end_without_end_of_sentence() -> None:
    table = {
        (): [(A, -0.5), (B, -1.0), (C, -2.0), (EOS_ID, -3.0)],
        (A,): [(B, -0.5), (C, -1.0), (EOS_ID, -2.0), (A, -3.0)],
        (B,): [(A, -0.25), (C, -2.0), (EOS_ID, -3.0), (B, -4.0)],
    }
    found = search(TableEngine(table=table), request(A, max_tokens=2), 2, 1.0)
    assert found == [([A, B], -1.0), ([B, A], -1.25)]


def test_a_hypothesis_counts_one_iteration_a_token() -> None:
    ((best, *_),) = beams(TableEngine(table=SHORT_OR_LONG), [request(A, max_tokens=9)], 2, 1.0)
    assert best.iterations == [Iteration(0, 0, (A,)), Iteration(0, 0, (EOS_ID,))]


def test_the_search_ends_with_the_last_place_taken() -> None:
    engine = TableEngine(table=SHORT_OR_LONG)
    beams(engine, [request(A, max_tokens=9)], 2, 1.0)
    assert engine.calls == [("encode", 1), ("verify", 2), ("verify", 2)]


def test_a_sentence_is_given_out_when_its_search_ends() -> None:
    engine = TableEngine(table=SHORT_OR_LONG)
    asked = [request(A, max_tokens=limit, index=index) for index, limit in enumerate((9, 1))]
    searching = beam_search(engine, asked, 2, 1.0)
    assert next(searching)[0].request.index == 1
    assert engine.calls == [("encode", 2), ("verify", 4)], "the other has not gone on yet"
    assert [found[0].request.index for found in searching] == [0]


def test_a_sentence_that_is_done_leaves_the_batch() -> None:
    engine = TableEngine(table=SHORT_OR_LONG)
    asked = [request(A, max_tokens=limit, index=index) for index, limit in enumerate((1, 9, 1))]
    beams(engine, asked, 2, 1.0)
    assert engine.calls == [("encode", 3), ("verify", 6), ("verify", 2)]


# -- against every sequence


def every_sequence(engine: ScriptedEngine, asked: Request, prefix: tuple[int, ...] = ()) -> Iterator[Scored]:
    """All that ends in end-of-sentence or at the limit."""
    continuations = zip(
        engine.ranked(asked.source_ids, prefix), engine.log_probs(asked.source_ids, prefix).tolist(), strict=True
    )
    for id_, log_prob in continuations:
        ids = (*prefix, id_)
        if id_ == EOS_ID or len(ids) == asked.max_tokens:
            yield list(ids), log_prob
        else:
            yield from ((rest, log_prob + more) for rest, more in every_sequence(engine, asked, ids))


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("max_tokens", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_beam_as_wide_as_the_search_space_ranks_every_sequence(
    seed: int, max_tokens: int, length_penalty: float
) -> None:
    engine, asked = RandomEngine(seed=seed), request(A, B, max_tokens=max_tokens)
    everything = list(every_sequence(engine, asked))
    assert len(everything) == {1: 4, 2: 13, 3: 40}[max_tokens]
    assert_same(search(engine, asked, 41, length_penalty), best_first(everything, length_penalty))


# -- against a plain search of one sentence


def plain_beam_search(engine: ScriptedEngine, asked: Request, beam: int, length_penalty: float) -> list[Scored]:
    """Of the 2 · beam best continuations of all prefixes, those that end among the first `beam` are results."""
    prefixes: list[Scored] = [([], 0.0)]
    ended: list[Scored] = []
    while len(ended) < beam:
        continuations: list[Scored] = []
        for ids, log_prob in prefixes:
            following = engine.ranked(asked.source_ids, ids), engine.log_probs(asked.source_ids, ids).tolist()
            continuations += [([*ids, id_], log_prob + more) for id_, more in zip(*following, strict=True)]
        continuations = best_first(continuations, 0.0)[: 2 * beam]
        if len(continuations[0][0]) == asked.max_tokens:
            ended += continuations[:beam]
            break
        ended += [one for one in continuations[:beam] if one[0][-1] == EOS_ID]
        prefixes = [one for one in continuations if one[0][-1] != EOS_ID][:beam]
    return best_first(ended[:beam], length_penalty)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 7), st.sampled_from([0.0, 0.6, 1.0, 1.5]))
def test_any_beam_finds_what_a_plain_beam_search_finds(
    seed: int, beam: int, max_tokens: int, length_penalty: float
) -> None:
    engine, asked = RandomEngine(seed=seed), request(A, C, max_tokens=max_tokens)
    assert_same(search(engine, asked, beam, length_penalty), plain_beam_search(engine, asked, beam, length_penalty))


@given(st.integers(0, 10**6), st.integers(1, 4), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_sentences_searched_together_find_what_each_finds_alone(seed: int, beam: int, limits: list[int]) -> None:
    engine = RandomEngine(seed=seed)
    asked = [request(A, *[B] * index, max_tokens=limit, index=index) for index, limit in enumerate(limits)]
    together = beams(engine, asked, beam, 1.0)
    assert [scored(hypotheses) for hypotheses in together] == [search(engine, one, beam, 1.0) for one in asked]
    indices = [[hypothesis.request.index for hypothesis in found] for found in together]
    assert indices == [[index] * len(found) for index, found in enumerate(together)]


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_a_beam_of_1_is_greedy(seed: int, max_tokens: int) -> None:
    engine = RandomEngine(seed=seed)
    asked = [request(A, *[C] * index, max_tokens=max_tokens, index=index) for index in range(4)]
    greedy = decoded(engine, asked, Greedy(), batch_size=4)
    assert [[one.ids for one in found] for found in beams(engine, asked, 1, 1.0)] == [
        [greedy[index].ids] for index in range(4)
    ]


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 6), st.sampled_from([0.0, 1.0]))
def test_alternatives_differ_and_are_sorted_and_none_exceeds_the_limit(
    seed: int, beam: int, max_tokens: int, length_penalty: float
) -> None:
    found = search(RandomEngine(seed=seed), request(B, max_tokens=max_tokens), beam, length_penalty)
    assert found == best_first(found, length_penalty)
    assert len({tuple(ids) for ids, _ in found}) == len(found) == min(beam, 4 if max_tokens == 1 else beam)
    assert all(len(ids) == max_tokens or (len(ids) < max_tokens and ids[-1] == EOS_ID) for ids, _ in found)
    assert all(EOS_ID not in ids[:-1] for ids, _ in found)
