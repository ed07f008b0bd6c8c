"""The verifier's own translations: of every source, in their order, and which hypothesis of a beam."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scripted import FIRST_PIECE_ID, ScriptedEngine, source_length

from specmt.decoding.beam import beam_search
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.errors import TrainingError
from specmt.text.vocabulary import EOS_ID
from specmt.training import distillation
from specmt.training.distillation import Decoding, Ids, common_ends, nearest, translate_in_shards

A, B, C, D, E = range(FIRST_PIECE_ID, FIRST_PIECE_ID + 5)
PAIRS: list[tuple[Ids, Ids]] = [([A, B, C], [D, E]), ([B], [A]), ([C, C, A, D], [B]), ([E], [E, E])]


def hypotheses(source: Ids, beam: int) -> list[Ids]:
    request = Request(0, [*source, EOS_ID], 2 * len(source) + 10)
    (found,) = beam_search(ScriptedEngine(), [request], beam, 1.0)
    return [[id_ for id_ in hypothesis.ids if id_ != EOS_ID] for hypothesis in found]


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 1), (3, 1), (1, 3), (2, 2)])
def test_greedy_output_of_each_source_stands_in_its_place(tmp_path: Path, batch_size: int, workers: int) -> None:
    found = translate_in_shards(ScriptedEngine(), PAIRS, tmp_path, Decoding(batch_size), workers)
    assert [len(ids) for ids in found] == [len(source) for source, _ in PAIRS]
    assert found == [
        translate_in_shards(ScriptedEngine(), [pair], tmp_path / str(place), Decoding(1))[0]
        for place, pair in enumerate(PAIRS)
    ]


def test_of_a_beam_the_best_or_the_one_nearest_the_reference_is_taken(tmp_path: Path) -> None:
    beams = [hypotheses(source, 3) for source, _ in PAIRS]
    wanted = [(source, beam[-1]) for (source, _), beam in zip(PAIRS, beams, strict=True)]
    best = translate_in_shards(ScriptedEngine(), wanted, tmp_path / "best", Decoding(2, beam=3))
    chosen = translate_in_shards(ScriptedEngine(), wanted, tmp_path / "near", Decoding(2, 3, nearest_reference=True))
    assert best == [beam[0] for beam in beams]
    assert chosen == [beam[-1] for beam in beams] != best


def test_nearness_is_that_of_tokens_and_their_order() -> None:
    assert nearest([[A, C, B, D], [A, B, C, E], [A, B, C, E]], [A, B, C, D]) == [A, B, C, E]
    assert nearest([[A], [B], []], [C, D]) == [A]


def test_where_no_hypothesis_is_near_the_reference_is_taken(tmp_path: Path) -> None:
    beam, reference = [[A, B, C, E], [B]], [A, B, C, D]
    score = distillation._BLEU.sentence_score(f"{A} {B} {C} {E}", [f"{A} {B} {C} {D}"]).score
    assert nearest(beam, reference, reference_below=score) == beam[0]
    assert nearest(beam, reference, reference_below=score + 0.1) == reference
    decoding = Decoding(2, 3, nearest_reference=True, reference_below=100.0)
    assert translate_in_shards(ScriptedEngine(), PAIRS, tmp_path, decoding) == [reference for _, reference in PAIRS]


def test_the_nearest_has_an_end_if_the_reference_has_one_and_any_has() -> None:
    stop, mark = D, E
    assert common_ends([[A, stop]] * 40 + [[mark]] * 4 + [[A, B], [C], []]) == {stop, mark}
    assert nearest([[A, A, stop], [A, B, C]], [A, B, C, stop], {stop, mark}) == [A, A, stop]
    assert nearest([[A, A, mark], [A, B, C]], [A, B, C, stop], {stop, mark}) == [A, A, mark]
    assert nearest([[A, A, stop], [A, B, C]], [A, B, C], {stop, mark}) == [A, B, C]
    assert nearest([[A, A], [A, B, C], []], [A, B, C, stop], {stop, mark}) == [A, B, C]


def endless_from_a(source: tuple[int, ...]) -> int:
    """A target that no limit admits where the source begins with A."""
    return 99 if source[0] == A else source_length(source)


@pytest.mark.parametrize("decoding", [Decoding(2), Decoding(2, beam=3), Decoding(2, beam=3, nearest_reference=True)])
def test_a_translation_that_the_length_limit_cut_is_learned_by_nobody(tmp_path: Path, decoding: Decoding) -> None:
    cut, *whole = translate_in_shards(ScriptedEngine(length=endless_from_a), PAIRS, tmp_path, decoding)
    assert cut == (PAIRS[0][1] if decoding.nearest_reference else [])
    assert all(whole)


def test_of_a_beam_what_ended_is_compared_with_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request(0, [A, EOS_ID], 3)
    beam = [Hypothesis(request, ids) for ids in ([A, B, C], [D, EOS_ID], [A, E, EOS_ID])]
    monkeypatch.setattr(distillation, "beam_decode", lambda *_: iter([beam]))
    decoding = Decoding(1, beam=3, nearest_reference=True)
    assert translate_in_shards(ScriptedEngine(), [([A], [A, B, C])], tmp_path, decoding) == [[A, E]]


@pytest.mark.parametrize("content", ["", "[[1", "[]", "3"])
def test_a_damaged_shard_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "00000000.json").write_text(content)
    with pytest.raises(TrainingError, match=r"00000000\.json: damaged; remove it"):
        translate_in_shards(ScriptedEngine(), PAIRS, tmp_path, Decoding(2))


def test_shards_that_stand_are_read_and_not_translated_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distillation, "SHARD_SENTENCES", 2)
    first = translate_in_shards(ScriptedEngine(), PAIRS, tmp_path, Decoding(2))
    (tmp_path / "00000000.json").write_text(json.dumps([[A], [B]]))
    assert translate_in_shards(ScriptedEngine(), PAIRS, tmp_path, Decoding(2)) == [[A], [B], *first[2:]]
