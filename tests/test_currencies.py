"""Signs of currencies that a vocabulary lacks: what the source says in words tells which one `<unk>` stands for."""

from __future__ import annotations

import pytest

from specmt import BUNDLED_MODEL
from specmt.assembly import Part, translated
from specmt.bundles.bundle import load_bundle
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.text.currencies import signs_of
from specmt.text.guards import LineWarning
from specmt.text.segmentation import Segment
from specmt.text.vocabulary import EOS_ID, UNK_ID, Vocabulary


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    vocabulary = load_bundle(BUNDLED_MODEL).vocabulary()
    assert vocabulary.encode("$")[-1] == vocabulary.encode("£")[-1] == UNK_ID
    return vocabulary


def said(vocabulary: Vocabulary, source: str, translation: str) -> Part:
    """What becomes of a translation with `<unk>` for each sign that the vocabulary lacks."""
    ids = [*vocabulary.encode(translation), EOS_ID]
    segment = Segment(source, vocabulary.encode(source))
    request = Request(0, [*segment.ids, EOS_ID], len(ids), False, 1)
    return translated(segment, [Hypothesis(request, ids)], 1, 1.0, vocabulary)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Das kostet 50 Dollar.", "That costs $50."),
        ("3,5 Milliarden US-Dollar", "$3,5 billion"),
        ("15 kanadische Dollar", "15 Canadian $"),
    ],
)
def test_a_currency_that_is_named_has_its_sign(vocabulary: Vocabulary, source: str, expected: str) -> None:
    (rendered,) = said(vocabulary, source, expected).renderings
    assert (rendered.text, rendered.warnings) == (expected, ())


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("20 Dollar oder 15 Pfund", "$20 or £15", "$20 or 15 pounds"),
        ("Es wiegt 7 Pfund.", "It weighs £7.", "It weighs 7 pounds."),
        ("2,5 Millionen Pfund", "£2.5 million", "2.5 million pounds"),
    ],
)
def test_pounds_may_be_a_weight(vocabulary: Vocabulary, source: str, translation: str, expected: str) -> None:
    (rendered,) = said(vocabulary, source, translation).renderings
    assert (rendered.text, rendered.warnings) == (expected, ())


def test_symbols_of_the_source_keep_their_places(vocabulary: Vocabulary) -> None:
    (rendered,) = said(vocabulary, "Das ☃ kostet 50 Dollar.", "The ☃ costs $50.").renderings
    assert (rendered.text, rendered.warnings) == ("The ☃ costs $50.", ())


@pytest.mark.parametrize(
    ("source", "translation"),
    [("Das kostet 50.", "That costs $50."), ("20 Dollar", "$20 $30"), ("20 Pfund", "£20 pounds")],
)
def test_what_no_name_explains_is_left_out(vocabulary: Vocabulary, source: str, translation: str) -> None:
    (rendered,) = said(vocabulary, source, translation).renderings
    assert not {"$", "£", "⁇"} & {*rendered.text}
    assert rendered.warnings == (LineWarning.UNKNOWN_DROPPED,)


@pytest.mark.parametrize(
    ("source", "translation", "signs"),
    [
        ("5 US-Dollar, 6 Pfund und ½ Million Yen", "", ["$", "£", "¥"]),
        ("5 DOLLAR", "5", ["$"]),
        ("Dollar, der Dollarkurs, 3 Pfundstücke, 150 je Dollar, 3 zum Dollar", "", []),
        ("20 Dollar und 3 Pfund", "20 dollars and 3", ["£"]),
    ],
)
def test_names_of_currencies_are_words(source: str, translation: str, signs: list[str]) -> None:
    assert signs_of(source, translation) == signs


@pytest.mark.timeout(60)
def test_long_numbers_take_no_more_than_their_length() -> None:
    """In quadratic time this would take minutes."""
    assert signs_of("1" * 500_000 + " 1 a" * 100_000, "") == []
