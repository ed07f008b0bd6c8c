"""Terms whose translations hold other spans, and terminologies of thousands of terms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protecting import Model, Words, translated

from specmt.errors import InputError
from specmt.protection.finding import SpanFinder
from specmt.protection.protection import Protection
from specmt.protection.spans import Span, lacking
from specmt.protection.terminology import Terminology, forms

HOLDING = Terminology(
    [
        ("Seite", "page {name}"),
        ("Blatt", "sheet of page {name}"),
        ("Hilfe", "help (https://a.de/x)"),
        ("Knopf", "<b>button</b>"),
        ("Fassung", "Version 2"),
        ("Rabatt", "discount 20"),
        ("Netz", "see www"),
        ("Adresse", "www.a.de address"),
    ]
)


@pytest.mark.parametrize(
    ("line", "said", "lost"),
    [
        # The term and what it holds are both there, whichever comes first.
        ("Seite {name}", "page {name} {name}", set()),
        ("{name}, Seite", "{name}, page {name}", set()),
        ("Hilfe: https://a.de/x", "help (https://a.de/x): https://a.de/x", set()),
        ("<b>Knopf</b>", "<b><b>button</b></b>", set()),
        ("Fassung 2", "Version 2 2", set()),
        ("Blatt, Seite {name}", "sheet of page {name}, page {name} {name}", set()),
        # What stands in the term alone is not there by itself.
        ("Seite {name}", "page {name}", {"{name}"}),
        ("Seite {name}", "side {name} {name}", {"Seite"}),
        ("Blatt, Seite", "sheet of page {name}", {"Seite"}),
        ("Fassung 2", "Version 2", {"2"}),
        # A term within a longer span is part of that.
        ('Seite <a title="page {name}">', '<a title="page {name}"> side', {"Seite"}),
        ('Seite {name} <a title="page {name}">', '<a title="page {name}"> {name} page {name}', set()),
        ("Rabatt 20%%", "discount 20%%", {"Rabatt"}),
        ("20%% Rabatt", "discount 20%%, discount 20", set()),
        ("www.a.de Netz", "see www.a.de, see www", set()),
        ("www.a.de/b Netz Adresse www.a.de", "see www.a.de/b, see www www.a.de address www.a.de", set()),
    ],
)
def test_a_term_that_holds_another_span_is_told_from_it(line: str, said: str, lost: set[str]) -> None:
    spans = [part for part in SpanFinder(terminology=HOLDING).parts(line) if isinstance(part, Span)]
    assert {span.text for span in lacking(said, spans, spans)} == lost


@pytest.mark.parametrize(
    ("line", "text", "calls"),
    [
        # The model says something else than the term, which is carried then; what it holds is there once more.
        ("seht Seite {name} an", "seht page {name} {name} an", 2),
        ("seht {name}, Seite", "seht {name}, page {name}", 2),
        # It says a word that with the placeholder is the term: one of the two is lost.
        ("seht Blatt {name} an", "seht page {name} {name} an", 2),
        # So with a number, for which a carrier is tried first.
        ("die Fassung 2 da", "die Version 2 2 da", 3),
    ],
)
def test_a_line_with_a_term_that_holds_another_span_needs_no_pieces(line: str, text: str, calls: int) -> None:
    terms = Terminology([("Seite", "page {name}"), ("Blatt", "page {name}"), ("Fassung", "Version 2")])
    model = Model(lambda asked: asked.replace("Seite", "side").replace("Blatt", "page").replace("Fassung", "Version"))
    (one,) = translated(Protection(Words(), terminology=terms), [line], model)
    assert (one.text, one.unplaced, len(model.calls)) == (text, (), calls)


def whole_word(word: str, pattern: str) -> str:
    """A pattern where it is no part of a longer word or number; it matches `word`."""
    before = r"(?<!\w)(?<!\d[.,:/])" if word[0].isdecimal() else r"(?<!\w)"
    return before + pattern + (r"(?!\w|[.,:/]\d)" if word[-1].isdecimal() else r"(?!\w)")


def one_after_the_other(terms: Iterable[str]) -> re.Pattern[str]:
    """The plain way to find any term: each tried in turn, the longest first, with its first letter in either case."""
    longest_first = sorted(terms, key=len, reverse=True)
    return re.compile(
        "|".join(whole_word(term, f"(?:{'|'.join(map(re.escape, forms(term)))})") for term in longest_first)
    )


SIGNS = "aAbéÉ1２ -.:_(İ"


@given(st.sets(st.text(SIGNS, min_size=1, max_size=9), min_size=1), st.data())
def test_terms_are_found_as_if_each_was_tried_in_turn(terms: set[str], data: st.DataObject) -> None:
    line = "".join(data.draw(st.lists(st.sampled_from([*terms, *SIGNS, " "]))))
    composed = {unicodedata.normalize("NFC", term) for term in terms}
    terminology = Terminology([(term, "x") for term in composed])
    spellings = {unicodedata.normalize(form, term) for term in composed for form in ("NFC", "NFD")}
    found = [match.span() for match in re.finditer(terminology.pattern, line)]
    assert found == [match.span() for match in one_after_the_other(spellings).finditer(line)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_term_that_the_file_has_in_both_spellings_is_taken_in_that_of_the_text(form: str, reverse: bool) -> None:
    """With any case of its first letter; one that the file has in one spelling is found in both."""
    spelt = [("Gl\u00fcck", "luck"), ("Glu\u0308ck", "fortune")]
    terminology = Terminology([*(reversed(spelt) if reverse else spelt), ("H\u00fctte", "hut")])
    line = unicodedata.normalize(form, "Gl\u00fcck gl\u00fcck h\u00fctte")
    targets = [part.target for part in SpanFinder((), terminology).parts(line) if isinstance(part, Span)]
    assert targets == [dict(spelt)[unicodedata.normalize(form, spelt[0][0])]] * 2 + ["hut"]


@pytest.mark.timeout(60)
def test_thousands_of_terms_take_no_more_time_than_the_text() -> None:
    """Tried one after the other, they would take hours."""
    terms = [f"{first}{second}wort{number}" for first in "abcdefgh" for second in "abcdefgh" for number in range(80)]
    finder = SpanFinder(terminology=Terminology([(term, term.upper()) for term in terms]))
    line = " ".join(terms) + " hund und katze" * 100_000
    assert sum(isinstance(part, Span) for part in finder.parts(line)) == len(terms) == 5_120


@given(st.text(SIGNS, min_size=1, max_size=3), st.text(f"{SIGNS},/", max_size=12), st.integers(1, 3))
def test_a_term_is_found_in_a_translation_as_by_a_pattern(target: str, text: str, count: int) -> None:
    first = target[0]
    firsts = {first, first.upper()} if first.islower() else {first}
    pattern = whole_word(target, f"(?:{'|'.join(map(re.escape, firsts))}){re.escape(target[1:])}")
    assert Span(target, target, "term").taken_from(text, count) == re.subn(pattern, " ", text, count=count)
    whole = rf"(?<!\w){re.escape(target)}(?!\w)"
    assert Span(target, target, "code").taken_from(text, count) == re.subn(whole, " ", text, count=count)


@pytest.mark.parametrize("pair", [("", "x"), ("Hund", "")])
def test_an_empty_term_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(InputError, match="a term or a translation is empty"):
        Terminology([pair])
