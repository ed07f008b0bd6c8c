"""Lines in, lines out, in order, whatever the lines, the batch and the strategy; over the scripted engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st
from pairs import TINY, random_weights
from scripted import (
    DEFAULTS,
    SENTENCES,
    RankOf,
    ScriptedEngine,
    always_right,
    by_position,
    never_right,
    right_before,
    scripted_translator,
    tiny_vocabulary,
)

from specmt.engines.torch_engine import TorchEngine
from specmt.errors import InputError, UsageError
from specmt.settings import DecodingSettings
from specmt.text.guards import LineWarning
from specmt.text.segmentation import Splitting
from specmt.text.vocabulary import EOS_ID
from specmt.translation import Translation
from specmt.translator import LOOK_AHEAD, Limits, Translator, look_ahead

SPEC = replace(DecodingSettings.from_defaults(DEFAULTS), guards=False)
STRICT = SPEC.strict()
AR = replace(SPEC, strategy="ar")
BEAM = replace(AR, beam=3)
SETTINGS = {
    "spec": SPEC,
    "strict": STRICT,
    "fixed shape": replace(SPEC, reproducible=True, replay_group=2),
    "ar": AR,
    "beam": BEAM,
    "n-best": replace(BEAM, n_best=2),
}

lines_of_text = st.lists(st.text(max_size=12), max_size=8)


def translate(
    lines: Sequence[str],
    settings: DecodingSettings = STRICT,
    batch_size: int = 4,
    rule: RankOf = always_right,
) -> list[Translation]:
    return list(scripted_translator(ScriptedEngine(rule)).translate(lines, settings, batch_size))


@pytest.mark.parametrize("sizes", [(0, None), (-1, None), (4, 0), (4, -5)])
def test_batches_of_nothing_are_refused(sizes: tuple[int, int | None]) -> None:
    translator = scripted_translator(ScriptedEngine())
    with pytest.raises(UsageError, match="at least 1"):
        list(translator.translate_chunks([["ein"]], STRICT, *sizes))
    with pytest.raises(UsageError, match="at least 1"):
        list(translator.translate(["ein"], STRICT, min(sizes[0], 0)))


def by_the_script(line: str) -> tuple[str, tuple[int, ...]]:
    """The script's greedy translation of a line, and its ids."""
    ids = tiny_vocabulary().encode(line)
    if not ids:
        return "", ()
    greedy = ScriptedEngine().greedy([*ids, EOS_ID], 2 * len(ids) + 10)
    return tiny_vocabulary().decode(greedy), tuple(greedy)


# -- one line out for each line in


@given(lines_of_text, st.sampled_from(list(SETTINGS)), st.integers(1, 5))
def test_any_lines_give_as_many_lines_in_their_order(lines: list[str], settings: str, batch_size: int) -> None:
    translations = translate(lines, SETTINGS[settings], batch_size, by_position([0, 1, -1]))
    assert [(one.index, one.source) for one in translations] == list(enumerate(lines))
    assert all(len(f"{one.text}|".splitlines()) == 1 for one in translations)


@given(lines_of_text, st.integers(1, 5), st.lists(st.integers(-1, 2), min_size=1, max_size=5))
def test_strict_and_ar_are_the_scripts_greedy_for_any_lines(
    lines: list[str], batch_size: int, ranks: list[int]
) -> None:
    expected = [by_the_script(line) for line in lines]
    for settings in (STRICT, AR):
        found = translate(lines, settings, batch_size, by_position(ranks))
        assert [(one.text, one.ids) for one in found] == expected


@given(lines_of_text, st.sampled_from(list(SETTINGS)), st.integers(2, 9))
def test_batch_size_changes_nothing(lines: list[str], settings: str, batch_size: int) -> None:
    rule = by_position([0, 0, 1, 0, -1])
    assert translate(lines, SETTINGS[settings], batch_size, rule) == translate(lines, SETTINGS[settings], 1, rule)


@pytest.mark.parametrize("settings", SETTINGS)
@settings_of_hypothesis(max_examples=4)
@given(order=st.permutations(range(len(SENTENCES))))
def test_a_line_is_translated_the_same_wherever_it_stands(order: list[int], settings: str) -> None:
    straight = translate(SENTENCES, SETTINGS[settings], 3, by_position([0, 1, 0]))
    shuffled = translate([SENTENCES[i] for i in order], SETTINGS[settings], 3, by_position([0, 1, 0]))
    assert [replace(one, index=order[one.index]) for one in shuffled] == [straight[i] for i in order]


@pytest.mark.parametrize("settings", SETTINGS)
def test_more_lines_than_are_looked_at_together_stay_in_order(settings: str) -> None:
    lines = [SENTENCES[i % 8][: 1 + i % 30] for i in range(2 * LOOK_AHEAD * 2 + 3)]
    translations = translate(lines, SETTINGS[settings], batch_size=2)
    assert [(one.index, one.source) for one in translations] == list(enumerate(lines))


def test_repeated_lines_are_translated_each() -> None:
    (first, second, third) = translate([SENTENCES[0], SENTENCES[1], SENTENCES[0]])
    assert (first.index, first.text) == (0, by_the_script(SENTENCES[0])[0])
    assert (second.index, second.text) == (1, by_the_script(SENTENCES[1])[0])
    assert third == replace(first, index=2)


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u3000", "\u200b"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_blank_line_is_a_blank_line(settings: str, blank: str) -> None:
    first, empty, last = translate([SENTENCES[0], blank, SENTENCES[1]], SETTINGS[settings])
    assert empty == Translation(index=1, source=blank, text="", score=0.0, ids=(), iterations=(), n_best=())
    assert (first.index, last.index) == (0, 2)
    assert [first, last] == [
        replace(one, index=2 * one.index) for one in translate([SENTENCES[0], SENTENCES[1]], SETTINGS[settings])
    ]


def test_blank_lines_alone_run_no_pass() -> None:
    engine = ScriptedEngine()
    translations = list(scripted_translator(engine).translate(["", " ", ""], SPEC, 2))
    assert [one.text for one in translations] == ["", "", ""]
    assert engine.calls == []


def test_no_lines_give_no_translations() -> None:
    assert translate([]) == []


# -- what a translation says


def test_ids_end_with_end_of_sentence_which_is_not_in_the_text() -> None:
    (translation,) = translate([SENTENCES[0]])
    assert translation.ids[-1] == EOS_ID
    assert translation.text == tiny_vocabulary().decode(translation.ids[:-1])


@pytest.mark.parametrize(("rule", "iterations"), [(always_right, 2), (never_right, 7), (right_before(1), 4)])
def test_iterations_are_those_of_the_decoding(rule: RankOf, iterations: int) -> None:
    """Six tokens and end-of-sentence; draft length 4."""
    line = tiny_vocabulary().decode(tiny_vocabulary().encode(SENTENCES[0])[:6])
    assert len(tiny_vocabulary().encode(line)) == 6
    (translation,) = translate([line], rule=rule)
    assert len(translation.iterations) == iterations
    assert tuple(id_ for iteration in translation.iterations for id_ in iteration.emitted) == translation.ids


@pytest.mark.parametrize("length_penalty", [0.0, 0.5, 1.0])
def test_the_score_is_normalised_by_the_length_penalty(length_penalty: float) -> None:
    engine = ScriptedEngine(gaps=(1.0,))
    settings = replace(STRICT, length_penalty=length_penalty)
    (translation,) = scripted_translator(engine).translate([SENTENCES[0]], settings, 1)
    best = float(engine.log_probs([], [])[0])
    tokens = len(translation.ids)
    assert translation.score == pytest.approx(best * tokens / tokens**length_penalty, abs=1e-4)


@pytest.mark.parametrize(("factor", "offset"), [(2.0, 10), (1.5, 1), (0.0, 3), (0.7, 1)])
@pytest.mark.parametrize("settings", ["strict", "ar", "beam"])
def test_a_translation_without_end_stops_at_the_limit(settings: str, factor: float, offset: int) -> None:
    defaults = replace(DEFAULTS, max_tokens_factor=factor, max_tokens_offset=offset)
    translator = scripted_translator(ScriptedEngine(length=lambda source: 1000), defaults)
    (translation,) = translator.translate([SENTENCES[0]], SETTINGS[settings], 1)
    assert len(translation.ids) == int(factor * len(tiny_vocabulary().encode(SENTENCES[0]))) + offset
    assert EOS_ID not in translation.ids


@pytest.mark.parametrize("settings", SETTINGS)
def test_no_translation_is_longer_than_the_model_has_positions_for(settings: str) -> None:
    endless = ScriptedEngine(length=lambda source: 1000)
    translator = Translator(endless, tiny_vocabulary(), DEFAULTS, limits=Limits(target=5))
    found = translator.translate(SENTENCES, replace(SETTINGS[settings], guards=True), 3)
    assert {(len(one.ids), one.warnings) for one in found} == {(5, (LineWarning.LENGTH_LIMIT,))}


def test_what_cannot_be_split_into_as_many_tokens_as_the_model_has_positions_for_is_copied() -> None:
    split = Splitting("de", max_source_tokens=1)
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=split, limits=Limits(source=1))
    assert len(tiny_vocabulary().encode("ö")) > 1
    (translation,) = translator.translate(["ö"], AR, 1)
    assert (translation.text, translation.warnings) == ("ö", (LineWarning.COPIED,))
    assert translator.requests(["ö"]) == []


def test_a_trace_is_kept_when_asked_for() -> None:
    (traced,) = translate([SENTENCES[0]], replace(SPEC, trace=True), rule=right_before(2))
    (plain,) = translate([SENTENCES[0]], SPEC, rule=right_before(2))
    assert all(len(one.draft) == 4 and len(one.candidates) == 5 for one in traced.iterations)
    assert all(one.draft == one.candidates == () for one in plain.iterations)
    assert [one._replace(draft=(), candidates=()) for one in traced.iterations] == list(plain.iterations)


def test_n_best_alternatives_are_sorted_and_the_translation_is_the_first() -> None:
    (translation,) = translate([SENTENCES[2]], replace(AR, beam=4, n_best=3))
    assert len(translation.n_best) == 3
    best = translation.n_best[0]
    assert (best.text, best.score, best.ids) == (translation.text, translation.score, translation.ids)
    scores = [alternative.score for alternative in translation.n_best]
    assert scores == sorted(scores, reverse=True)
    assert len({alternative.text for alternative in translation.n_best}) == 3


def test_an_alternative_that_says_nothing_is_left_out_where_another_says_something() -> None:
    nothing_first = ScriptedEngine(length=lambda source: 0)
    translator = scripted_translator(nothing_first)
    (translation,) = translator.translate([SENTENCES[0]], replace(AR, beam=4, n_best=3, guards=True))
    texts = [alternative.text for alternative in translation.n_best]
    assert len(texts) == 3 and "" not in texts and SENTENCES[0] not in texts
    assert translation.text == texts[0] and not translation.warnings


def test_of_alternatives_that_read_the_same_one_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(AR, beam=4, n_best=4, guards=True)
    texts = [one.text for one in translate([SENTENCES[2]], settings)[0].n_best]
    monkeypatch.setattr("specmt.assembly.punctuated", lambda text, source: texts[0] if text == texts[2] else text)
    (translation,) = translate([SENTENCES[2]], settings)
    assert [one.text for one in translation.n_best] == [texts[0], texts[1], texts[3]]


@pytest.mark.parametrize("wrong", [b"ein", None, 3, "half \ud800"])
def test_what_is_no_text_is_named(wrong: str) -> None:
    with pytest.raises(InputError, match="line 2: not a text"):
        translate(["ein", wrong])


def test_a_narrower_n_best_is_the_head_of_a_wider_one() -> None:
    two, four = (translate([SENTENCES[2]], replace(AR, beam=4, n_best=n))[0] for n in (2, 4))
    assert two.n_best == four.n_best[:2]
    assert translate([SENTENCES[2]], replace(AR, beam=4))[0] == replace(four, n_best=())


# -- reading


class Lines:
    """Counts how many lines were asked for."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        self.pulled = 0

    def __iter__(self) -> Iterator[str]:
        for line in self.lines:
            self.pulled += 1
            yield line


@pytest.mark.parametrize("settings", SETTINGS)
def test_with_batch_size_1_a_line_is_translated_before_the_next_is_read(settings: str) -> None:
    lines = Lines(SENTENCES)
    translations = scripted_translator(ScriptedEngine()).translate(lines, SETTINGS[settings], batch_size=1)
    for count in range(1, len(SENTENCES) + 1):
        assert next(translations).index == count - 1
        assert lines.pulled == count


def test_with_larger_batches_no_more_is_read_than_is_sorted_together() -> None:
    lines = Lines(SENTENCES * 20)
    next(scripted_translator(ScriptedEngine()).translate(lines, STRICT, batch_size=3))
    assert lines.pulled == look_ahead(3) == 3 * LOOK_AHEAD


def test_nothing_is_read_before_a_translation_is_asked_for() -> None:
    lines = Lines(SENTENCES)
    scripted_translator(ScriptedEngine()).translate(lines, STRICT, batch_size=1)
    assert lines.pulled == 0


def test_a_chunk_is_translated_before_the_next_is_asked_for() -> None:
    asked: list[int] = []

    def chunks() -> Iterator[list[str]]:
        for first in range(0, 8, 3):
            asked.append(first)
            yield list(SENTENCES[first : first + 3])

    translations = scripted_translator(ScriptedEngine()).translate_chunks(chunks(), STRICT, batch_size=8)
    seen = [(one.index, one.text, len(asked)) for one in translations]
    assert seen == [(i, by_the_script(line)[0], 1 + i // 3) for i, line in enumerate(SENTENCES)]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("sizes", [[8], [1] * 8, [3, 0, 5], [0, 8, 0]])
def test_chunks_of_any_size_give_the_same_translations(sizes: list[int], settings: str) -> None:
    unread = iter(SENTENCES)
    chunks = [[next(unread) for _ in range(size)] for size in sizes]
    translator = scripted_translator(ScriptedEngine(right_before(2)))
    found = list(translator.translate_chunks(chunks, SETTINGS[settings], batch_size=4))
    assert found == translate(SENTENCES, SETTINGS[settings], 4, right_before(2))


def largest_batches(engine: ScriptedEngine, settings: DecodingSettings, limit: int | None) -> list[Translation]:
    translator = scripted_translator(engine)
    return list(translator.translate_chunks([SENTENCES], settings, batch_size=8, max_batch_tokens=limit))


def test_a_batch_holds_no_more_source_tokens_than_allowed() -> None:
    lengths = sorted(len(tiny_vocabulary().encode(line)) + 1 for line in SENTENCES)
    engine = ScriptedEngine()
    largest_batches(engine, AR, limit=2 * lengths[-1])
    assert max(rows for _, rows in engine.calls) == max(
        rows for rows in range(1, 9) if rows * lengths[rows - 1] <= 2 * lengths[-1]
    )


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("limit", [1, 50, 120, 10_000, None])
def test_a_limit_of_tokens_changes_no_translation(settings: str, limit: int | None) -> None:
    found = largest_batches(ScriptedEngine(right_before(2)), SETTINGS[settings], limit)
    assert found == translate(SENTENCES, SETTINGS[settings], 8, right_before(2))


@pytest.mark.parametrize("settings", ["strict", "ar"])
def test_a_sentence_longer_than_the_limit_goes_alone(settings: str) -> None:
    engine = ScriptedEngine()
    largest_batches(engine, SETTINGS[settings], limit=1)
    assert {rows for _, rows in engine.calls} == {1}


def test_sorting_by_length_does_not_show_in_the_output() -> None:
    engine = ScriptedEngine()
    lines = sorted(SENTENCES, key=len, reverse=True)
    translations = list(scripted_translator(engine).translate(lines, AR, batch_size=2))
    assert [one.source for one in translations] == lines
    assert [one.text for one in translations] == [by_the_script(line)[0] for line in lines]


# -- several workers


@pytest.mark.parametrize("workers", [2, 3, 20])
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_number_of_workers_changes_nothing(settings: str, workers: int) -> None:
    lines = [*SENTENCES, "", *SENTENCES]
    translator = Translator(ScriptedEngine(right_before(2)), tiny_vocabulary(), DEFAULTS, workers=workers)
    found = list(translator.translate(lines, SETTINGS[settings], batch_size=2))
    assert found == translate(lines, SETTINGS[settings], 2, right_before(2))


def test_blank_lines_alone_need_no_worker() -> None:
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, workers=3)
    assert [one.text for one in translator.translate(["", " "], SPEC, 2)] == ["", ""]


@pytest.mark.parametrize("workers", [1, 3])
def test_what_goes_wrong_in_a_worker_is_raised_where_translations_are_read(workers: int) -> None:
    class Broken(ScriptedEngine):
        def verify(self, *_: object) -> NoReturn:
            raise ValueError("broken")

    translator = Translator(Broken(), tiny_vocabulary(), DEFAULTS, workers=workers)
    with pytest.raises(ValueError, match="broken"):
        list(translator.translate(SENTENCES, SPEC, 2))


# -- a real network


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_a_network_gives_strict_the_ids_of_ar_at_any_batch_size(batch_size: int) -> None:
    translator = Translator(TorchEngine(TINY, random_weights(TINY, seed=2)), tiny_vocabulary(), DEFAULTS)
    alone = [one.ids for one in translator.translate(SENTENCES, AR, batch_size=1)]
    assert [one.ids for one in translator.translate(SENTENCES, AR, batch_size)] == alone
    assert [one.ids for one in translator.translate(SENTENCES, STRICT, batch_size)] == alone
    assert len(set(alone)) > 4
