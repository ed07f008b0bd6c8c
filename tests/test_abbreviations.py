"""Abbreviations that models know less well than words: read in full, and nothing else changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt import BUNDLED_MODEL
from specmt.loading import load_translator
from specmt.text.abbreviations import _IN_FULL, written_out
from specmt.text.capitals import with_capitals_of
from specmt.text.ordinary import Ordinary
from specmt.text.segmentation import whole
from specmt.text.sentences import sentences_of
from specmt.text.vocabulary import Vocabulary
from specmt.translator import Translator


@pytest.fixture(scope="module")
def translator() -> Translator:
    return load_translator(BUNDLED_MODEL)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Die Fahrt dauert 3 Std. mit dem Zug.", "Die Fahrt dauert 3 Stunden mit dem Zug."),
        ("Nach 1 Std. und 11 Min. war er da.", "Nach 1 Stunde und 11 Minuten war er da."),
        ("Es dauert 5 Min.", "Es dauert 5 Minuten."),
        ("„Es dauert 5 Min.“", "„Es dauert 5 Minuten.“"),
        ("Es dauert 5 Min. Er kam.", "Es dauert 5 Minuten. Er kam."),
        ("ca. 5 Min. ab.", "ca. 5 Minuten ab."),
        ("2,1 Std., 30Sek.", "2,1 Stunden, 30Sekunden."),
        ("½ TL Salz und 2 EL", "½ Teelöffel Salz und 2 Esslöffel"),
        ("30 TL (Teilnehmer), 2 TL und 3 EL an Bord", "30 TL (Teilnehmer), 2 TL und 3 EL an Bord"),
        ("2 EL kaltes Wasser, 5 min. und 3 std.", "2 Esslöffel kaltes Wasser, 5 Minuten und 3 Stunden."),
        ("Min. 5 Std. Max. 8 Std.", "Min. 5 Stunden. Max. 8 Stunden."),
        ("(inkl.) Alles inkl.!", "(inkl.) Alles inkl.!"),
        ("50 Tsd. Euro für 4 Pers.", "50 Tausend Euro für 4 Personen."),
        ("Das gilt gem. Art. 5 und wg. Regen.", "Das gilt gemäß Art. 5 und wegen Regen."),
        ("Inkl. Frühstück, zzgl. Versand", "Inklusive Frühstück, zuzüglich Versand"),
        ("Das kostet 5 Euro inkl.", "Das kostet 5 Euro inklusive."),
    ],
)
def test_abbreviations_are_written_out(text: str, expected: str) -> None:
    assert written_out(text) == expected


@pytest.mark.parametrize("abbreviation", sorted(_IN_FULL))
def test_what_is_written_out_ends_no_sentence_before_a_noun(abbreviation: str) -> None:
    line = f"{abbreviation} Frühstück am Sonntag."
    assert sentences_of("de", line) == [line]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Das Min. ist 3.",
        "Der TL sprach mit EL.",
        "Gem. Musterstadt, Lt. Müller",
        "Sie ist 5 EL-Fan.",
        "z.B. ca. usw. bzw. ggf.",
        "evtl.de",
        "5 Minuten",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert written_out(text) == text


@given(text=st.text("15 Std.Min.ELwg.inkl \n", max_size=40))
def test_what_is_written_out_stays_so_and_has_as_many_words(text: str) -> None:
    once = written_out(text)
    assert len(once.split()) == len(text.split())
    assert written_out(once).split() == once.split()


@pytest.mark.parametrize(
    "text",
    ["Er kam wg. Regen nicht.", "Das gilt gem. Satzung.", "Die Stadt hat 20 Tsd. Einwohner.", "Sie gilt lt. Vertrag."],
)
def test_these_abbreviations_end_no_sentence(text: str) -> None:
    assert sentences_of("de", text) == [text]


def test_an_abbreviation_is_translated_as_the_word(translator: Translator) -> None:
    short = ["Es dauert 5 Std.", "Geben Sie 2 EL Mehl dazu.", "Das Spiel wurde wg. Regen abgesagt.", "2 TL"]
    full = [
        "Es dauert 5 Stunden.",
        "Geben Sie 2 Esslöffel Mehl dazu.",
        "Das Spiel wurde wegen Regen abgesagt.",
        "2 Teelöffel",
    ]
    found, expected = list(translator.translate(short)), list(translator.translate(full))
    assert [one.text for one in found] == [one.text for one in expected]
    assert [one.source_ids for one in found] == [one.source_ids for one in expected]
    assert [one.source for one in found] == short
    assert found[0].text == "It takes 5 hours."


def test_what_is_written_out_gets_no_capitals(translator: Translator) -> None:
    vocabulary = translator.vocabulary
    assert isinstance(vocabulary, Vocabulary)
    for text, ordinary, said in (
        ("2 TL", "2 Teelöffel", "2 teaspoons"),
        ("Die NATO wartet 5 Min.", "Die NATO wartet 5 Minuten.", "NATO waits 5 minutes."),
    ):
        (segment,) = Ordinary("de", vocabulary).segments(whole(text, vocabulary.encode))
        assert segment.ordinary == ordinary
        assert with_capitals_of(segment, said) == said


def test_abbreviations_of_other_languages_stay(translator: Translator) -> None:
    assert isinstance(translator.vocabulary, Vocabulary)
    assert Ordinary("en", translator.vocabulary).text("About 5 Min. lt. him") == "About 5 Min. lt. him"
