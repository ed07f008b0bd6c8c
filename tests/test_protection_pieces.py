"""Alternatives of lines that are translated in pieces."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protecting import Model, Words, stream_of, translated
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, scripted_translator

from specmt.protection.protection import Protection
from specmt.protection.terminology import Terminology
from specmt.settings import DecodingSettings
from specmt.text.sentences import CARRIER_NAMES
from specmt.translation import Alternative, Translation

BEAM = replace(DecodingSettings.from_defaults(DEFAULTS).strict(), strategy="ar", beam=4, n_best=3)


class Listing(Model):
    """Says what a table says, the best first, with its score; no two scores have the same ids."""

    def __init__(self, table: dict[str, list[tuple[str, float]]]) -> None:
        super().__init__(str)
        self.table = table

    def translation(self, index: int, line: str) -> Translation:
        n_best = [Alternative(text, score, (int(-score * 8), 2), (score, 0.0)) for text, score in self.table[line]]
        source_ids = (8,) * len(line)
        best = n_best[0]
        return Translation(
            index, line, best.text, best.score, best.ids, (), tuple(n_best), source_ids, best.token_log_probs
        )


TABLE = {
    "ein": [("one", -0.5), ("a", -1.0), ("an", -2.0)],
    "hund": [("dog", -0.25), ("hound", -0.5), ("cur", -2.0)],
    "hund.": [("A dog.", -0.25), ("Dog.", -0.5), ("A dog!", -1.0)],
    "satz": [("clause.", -0.25), ("Clause", -0.5), ("sentence", -1.0)],
}


@pytest.mark.parametrize(
    ("line", "alternatives"),
    [
        # One piece, by itself, in tags, in more of them, and beside what is no text.
        ("<b>ein</b>", [("<b>one</b>", -0.5), ("<b>a</b>", -1.0), ("<b>an</b>", -2.0)]),
        ("<p>hund.</p>", [("<p>a dog.</p>", -0.25), ("<p>dog.</p>", -0.5), ("<p>a dog!</p>", -1.0)]),
        (
            "<p> <b>ein</b> </p>",
            [("<p> <b>one</b> </p>", -0.5), ("<p> <b>a</b> </p>", -1.0), ("<p> <b>an</b> </p>", -2.0)],
        ),
        ("ein <br/> {x}", [("one <br/> {x}", -0.5), ("a <br/> {x}", -1.0), ("an <br/> {x}", -2.0)]),
        # What reads the same, once its look of a sentence is taken off, is there once: the better.
        ("<b>satz</b>", [("<b>clause</b>", -0.25), ("<b>sentence</b>", -1.0)]),
        # Several pieces: the mean of their scores, each weighted by its source tokens, three and four.
        (
            "ein <br/> hund",
            [
                ("one <br/> dog", -2.5 / 7),
                ("one <br/> hound", -3.5 / 7),
                ("a <br/> dog", -4 / 7),
            ],
        ),
        (
            "<b>ein</b> <i>hund.</i>",
            [
                ("<b>one</b> <i>a dog.</i>", -2.75 / 8),
                ("<b>one</b> <i>dog.</i>", -4 / 8),
                ("<b>a</b> <i>a dog.</i>", -4.25 / 8),
            ],
        ),
    ],
)
def test_a_line_in_pieces_has_as_many_alternatives_as_they_have(
    line: str, alternatives: list[tuple[str, float]]
) -> None:
    (one,) = translated(Protection(Words()), [line], Listing(TABLE))
    assert [(other.text, other.score) for other in one.n_best] == alternatives
    best = one.n_best[0]
    assert (one.text, one.score, one.ids, one.token_log_probs) == (
        best.text,
        best.score,
        best.ids,
        best.token_log_probs,
    )


@given(st.lists(st.lists(st.integers(1, 40), min_size=3, max_size=3, unique=True), min_size=2, max_size=4))
def test_the_alternatives_are_the_best_of_all_that_can_be_joined(losses: list[list[int]]) -> None:
    cores = [chr(ord("a") + place) * (place + 1) for place in range(len(losses))]
    table = {
        core: [(f"{core.upper()}{place}", -loss / 8) for place, loss in enumerate(sorted(each))]
        for core, each in zip(cores, losses, strict=True)
    }
    every = {
        "<br/>".join(text for text, _ in way): sum(
            len(core) * score for core, (_, score) in zip(cores, way, strict=True)
        )
        for way in product(*table.values())
    }
    (one,) = translated(Protection(Words()), ["<br/>".join(cores)], Listing(table))
    scores = [other.score * sum(map(len, cores)) for other in one.n_best]
    assert scores == pytest.approx(sorted(every.values(), reverse=True)[:3])
    assert scores == pytest.approx([every[other.text] for other in one.n_best])
    assert len({other.text for other in one.n_best}) == 3
    assert one.text == one.n_best[0].text == "<br/>".join(f"{core.upper()}0" for core in cores)


def test_an_alternative_in_pieces_that_lost_a_term_is_left_out() -> None:
    """Where no space stands between, a piece may run into the term."""
    listing = Listing(
        {"x-": [("y-", -0.5), ("y", -1.0), ("z-", -2.0)], "x": [("w", -0.25)], "x-da": [("y-here", -0.5)]}
    )
    terms = Terminology([("da", "there")])
    (one,) = translated(Protection(Words(CARRIER_NAMES), terminology=terms), ["x-da<br/>x"], listing)
    assert [other.text for other in one.n_best] == ["y-there<br/>w", "z-there<br/>w"]
    assert one.unplaced == ()


def test_without_alternatives_asked_for_there_are_none() -> None:
    (one,) = translated(Protection(Words()), ["ein <br/> <b>hund</b>"], Model(str.upper))
    assert (one.text, one.n_best) == ("EIN <br/> <b>HUND</b>", ())


@pytest.mark.parametrize("line", ["<p>x</p>", "<b><i>x</i></b>", "x<br/>x", "x {y}<br/> <li>x</li>"])
def test_a_beam_of_a_model_gives_alternatives_in_tags(line: str) -> None:
    line = line.replace("x", SENTENCES[0])
    translator = scripted_translator(ScriptedEngine())
    protection = Protection(translator.vocabulary)
    found = []
    for settings in (BEAM, replace(BEAM, n_best=1)):
        found += translator.translate_stream(stream_of(line), settings, batch_size=1, wrapper=protection)
    listed, best = found
    assert replace(listed, n_best=()) == best
    assert len({one.text for one in listed.n_best}) == 3
    assert [one.score for one in listed.n_best] == sorted((one.score for one in listed.n_best), reverse=True)
    assert (listed.text, listed.score, listed.ids) == (best.text, listed.n_best[0].score, listed.n_best[0].ids)
