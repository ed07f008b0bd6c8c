"""Guards: what repeats itself is ended at the same token by ar and strict, what cannot be translated is copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, by_position, scripted_translator, tiny_vocabulary

from specmt.assembly import translated
from specmt.decoding.hypotheses import Hypothesis, Iteration, Request
from specmt.settings import DecodingSettings
from specmt.text.characters import printable
from specmt.text.guards import (
    ALLOWED_REPEATS,
    END_RUN,
    MAX_PERIOD,
    LineWarning,
    RepeatCounter,
    allowed_repeats,
    repeats,
    runaway_length,
    without_repeats,
)
from specmt.text.punctuation import begun
from specmt.text.segmentation import Segment
from specmt.text.vocabulary import EOS_ID, UNK_ID
from specmt.translation import Translation

SPEC = DecodingSettings.from_defaults(DEFAULTS)
STRICT = SPEC.strict()
AR = replace(SPEC, strategy="ar")


@dataclass
class LoopingEngine(ScriptedEngine):
    """A verifier that goes round a loop of `period` tokens from `start` on."""

    period: int = 3
    start: int = 4
    last: int = 10_000
    """Target tokens before which the loop ends."""

    def ranked(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]:
        if self.start + self.period <= len(prefix) < self.last:
            best = prefix[len(prefix) - self.period]
            return [best, *(id_ for id_ in super().ranked(source, prefix) if id_ != best)]
        return super().ranked(source, prefix)


@dataclass
class UnknownEngine(ScriptedEngine):
    """A verifier that says `<unk>` at the given places."""

    unknown: tuple[int, ...] = ()

    def ranked(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]:
        usual = super().ranked(source, prefix)
        return [UNK_ID, *usual[:-1]] if len(prefix) in self.unknown else usual


def translate(engine: ScriptedEngine, line: str, settings: DecodingSettings = STRICT) -> Translation:
    (translation,) = scripted_translator(engine).translate([line], settings, 1)
    return translation


def longest_run(ids: Sequence[int]) -> int:
    """The most repeats of any phrase at the end, counted the plain way."""
    most = 1
    for period in range(1, MAX_PERIOD + 1):
        count = 1
        while (count + 1) * period <= len(ids) and ids[-period:] == ids[
            -(count + 1) * period : -count * period or None
        ]:
            count += 1
        most = max(most, count)
    return most


# -- counting


@given(st.lists(st.integers(5, 7), max_size=40))
def test_counts_are_those_of_looking_back(ids: list[int]) -> None:
    counter = RepeatCounter()
    for place, id_ in enumerate(ids, start=1):
        counter.append(id_)
        assert counter.longest == longest_run(ids[:place])
    assert repeats(ids) == max((longest_run(ids[:place]) for place in range(1, len(ids) + 1)), default=1)


@given(
    st.lists(st.integers(5, 14), max_size=30),
    st.lists(st.integers(5, 14), min_size=1, max_size=MAX_PERIOD),
    st.integers(0, 80),
    st.integers(0, 60),
    st.integers(ALLOWED_REPEATS, 7),
)
def test_a_runaway_is_found_where_counting_token_by_token_finds_it(
    before: list[int], phrase: list[int], length: int, begin: int, allowed: int
) -> None:
    ids = [*before, *(phrase * length)[:length], *before]
    counter, first = RepeatCounter(), None
    for place, id_ in enumerate(ids, start=1):
        counter.append(id_)
        if place > begin and counter.runaway(allowed, END_RUN) is not None:
            first = place
            break
    assert runaway_length(ids, begin, allowed) == first


@pytest.mark.parametrize(
    ("ids", "source_repeats", "kept"),
    [
        ([5, 6, 7, 8], 1, None),
        ([5, 6] * 4, 1, None),
        ([5, 6] * 5, 1, [5, 6]),
        ([9, 9, 5, 6] + [5, 6] * 4, 1, [9, 9, 5, 6]),
        ([9] + [5, 6] * 7 + [5, 8, 2], 1, [9, 5, 6, 8, 2]),
        ([5] * 9 + [7] + [6] * 12 + [2], 1, [5, 7, 6, 2]),
        ([5] * 7, 1, None),
        ([5] * 8, 1, [5]),
        ([5] * 8, 8, None),
        ([5] * 11, 8, [5] * 8),
        ([5, 6, 7] * 5, 2, [5, 6, 7]),
        ([5, 6, 7] * 7, 6, [5, 6, 7] * 6),
        (list(range(10, 18)) * 5, 1, list(range(10, 18))),
        (list(range(10, 19)) * 9, 1, None),
    ],
)
def test_a_phrase_may_stand_a_few_times_or_as_often_as_in_the_source(
    ids: list[int], source_repeats: int, kept: list[int] | None
) -> None:
    assert without_repeats(ids, source_repeats) == kept
    assert allowed_repeats(source_repeats) == max(ALLOWED_REPEATS, source_repeats)


@given(st.lists(st.integers(5, 6), max_size=60), st.integers(1, 6))
def test_what_is_left_is_what_was_said_in_its_order(ids: list[int], source_repeats: int) -> None:
    kept = without_repeats(ids, source_repeats)
    if kept is not None:
        unread = iter(ids)
        assert len(kept) < len(ids) and all(id_ in unread for id_ in kept)


# -- in translation


@pytest.mark.parametrize("period", range(1, MAX_PERIOD + 1))
@pytest.mark.parametrize("rule", [[0], [0, -1], [0, 0, 1]])
def test_a_runaway_is_ended_at_the_same_token_by_ar_and_strict_and_reported(period: int, rule: list[int]) -> None:
    engine = LoopingEngine(by_position(rule), length=lambda source: 10_000, period=period)
    translator = scripted_translator(engine, replace(DEFAULTS, max_tokens_offset=500))
    (greedy,) = translator.translate([SENTENCES[0]], AR, 1)
    (strict,) = translator.translate([SENTENCES[0]], STRICT, 1)
    assert strict.ids == greedy.ids
    assert len(greedy.ids) < 4 + period + max(END_RUN, 5 * period) + period
    assert strict.text == greedy.text == begun(tiny_vocabulary().decode(greedy.ids[: 4 + period]), SENTENCES[0])
    assert strict.warnings == greedy.warnings == (LineWarning.REPETITION,)


def test_beam_search_is_guarded_too() -> None:
    engine = LoopingEngine(length=lambda source: 10_000, gaps=(5.0,))
    translation = translate(engine, SENTENCES[0], replace(AR, beam=2))
    assert translation.warnings == (LineWarning.REPETITION, LineWarning.LENGTH_LIMIT)
    assert translation.text == begun(tiny_vocabulary().decode(translation.ids[:7]), SENTENCES[0])


def test_without_guards_nothing_is_ended_or_reported() -> None:
    engine = LoopingEngine(length=lambda source: 10_000)
    translation = translate(engine, SENTENCES[0], replace(STRICT, guards=False))
    limit = 2 * len(tiny_vocabulary().encode(SENTENCES[0])) + 10
    assert len(translation.ids) == limit and translation.warnings == ()


@pytest.mark.parametrize("settings", [STRICT, AR])
def test_a_short_run_is_left_out_and_what_follows_it_is_kept(settings: DecodingSettings) -> None:
    engine = LoopingEngine(length=lambda source: 10_000, period=2, last=17)
    translation = translate(engine, SENTENCES[0], settings)
    assert translation.warnings == (LineWarning.REPETITION, LineWarning.LENGTH_LIMIT)
    plain = tiny_vocabulary().decode([*translation.ids[:6], *translation.ids[17:]])
    assert translation.text == begun(plain, SENTENCES[0])


def test_the_length_limit_is_reported() -> None:
    translation = translate(ScriptedEngine(length=lambda source: 10_000), SENTENCES[0])
    assert translation.warnings == (LineWarning.LENGTH_LIMIT,)
    assert EOS_ID not in translation.ids


def test_an_ordinary_translation_has_no_warnings() -> None:
    assert translate(ScriptedEngine(), SENTENCES[0]).warnings == ()


@pytest.mark.parametrize(
    ("line", "warnings"),
    [("...", ()), ("1.000 – 2", ()), ("😀😀", ()), ("a)", ()), ("世界", (LineWarning.COPIED,))],
)
def test_where_nothing_is_known_the_source_stands_and_letters_are_reported(
    line: str, warnings: tuple[LineWarning, ...]
) -> None:
    engine = ScriptedEngine()
    translation = translate(engine, line)
    assert (translation.text, translation.warnings) == (printable(line).strip(), warnings)
    assert engine.calls == []


def test_where_the_model_says_nothing_the_source_stands() -> None:
    engine = ScriptedEngine(length=lambda source: 0)
    for settings in (AR, STRICT):
        translation = translate(engine, f" {SENTENCES[0]}", settings)
        assert translation.ids == (EOS_ID,)
        assert (translation.text, translation.warnings) == (SENTENCES[0], (LineWarning.EMPTY,))
    assert translate(engine, SENTENCES[0], replace(STRICT, guards=False)).text == ""


def test_what_is_counted_is_of_the_hypothesis_that_says_something() -> None:
    said = tiny_vocabulary().encode(SENTENCES[1])
    silent, saying = (
        Hypothesis(Request(0, [9], 9, source_repeats=1), ids, 0.0, [Iteration(0, 0, (id_,)) for id_ in ids])
        for ids in ([EOS_ID], [*said, EOS_ID])
    )
    part = translated(Segment("ein.", [9]), [silent, saying], 1, 1.0, tiny_vocabulary())
    assert part.renderings[0].text == SENTENCES[1]
    assert len(part.iterations) == len(said) + 1


def test_unknown_symbols_are_copied_in_order() -> None:
    line = "Ein Mann 😀 spielt ☃ gern"
    translation = translate(UnknownEngine(unknown=(1, 3)), line)
    before, between, after = (tiny_vocabulary().decode_with([id_], []) for id_ in translation.ids[:5:2])
    assert translation.text.replace(" ", "").startswith(f"{before}😀{between}☃{after}".replace(" ", ""))
    assert translation.warnings == ()


@pytest.mark.parametrize("settings", [AR, STRICT])
def test_unknown_letters_are_copied_and_reported(settings: DecodingSettings) -> None:
    translation = translate(UnknownEngine(unknown=(1,)), "Ein Mann 犬 spielt", settings)
    assert "犬" in translation.text
    assert translation.warnings == (LineWarning.UNKNOWN_COPIED,)


@pytest.mark.parametrize(("unknown", "kept"), [((), ""), ((0,), "😀")])
def test_unknown_symbols_that_are_lost_are_reported(unknown: tuple[int, ...], kept: str) -> None:
    line = "Ein 😀 Mann ☃ geht"
    translation = translate(UnknownEngine(unknown=unknown), line)
    assert [symbol for symbol in translation.text if symbol in "😀☃"] == [*kept]
    assert translation.warnings == (LineWarning.UNKNOWN_LOST,)
    assert translate(UnknownEngine(unknown=unknown), line, replace(STRICT, guards=False)).warnings == ()


def test_more_unknown_symbols_than_the_source_has_are_left_out_and_reported() -> None:
    translation = translate(UnknownEngine(unknown=(0, 1, 2)), "Ein 😀 Mann")
    assert translation.text.count("😀") == 1 and "⁇" not in translation.text
    assert translation.warnings == (LineWarning.UNKNOWN_DROPPED,)
    assert translation.ids.count(UNK_ID) == 3


def test_what_is_copied_never_breaks_a_line() -> None:
    assert printable("a\r\u2028b\x85\x00c") == "a  b  c"
