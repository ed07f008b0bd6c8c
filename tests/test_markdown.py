"""Markdown's marks stay around what they were around, and what is between them is translated."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from protecting import Model, Words, translated

from specmt.protection.carriers import NUMBERS
from specmt.protection.finding import KINDS, SpanFinder
from specmt.protection.protection import Protection
from specmt.protection.spans import Mark, Span, source
from specmt.text.sentences import CARRIER_NAMES


def marks_in(line: str) -> list[str]:
    """The marks that are found in a line."""
    return [part.text for part in SpanFinder().parts(line) if isinstance(part, Mark)]


@pytest.mark.parametrize(
    ("line", "marks"),
    [
        ("Das ist **sehr wichtig**.", ["**", "**"]),
        ("*a* und _b_, __c__ ~~d~~ ***e***", ["*", "*", "_", "_", "__", "__", "~~", "~~", "***", "***"]),
        ("**a *b* c**", ["**", "**"]),
        ("**{name}:** https://a.de/_x_/", ["**", "**"]),
        ('Siehe [hier](a.md) und [da](#b "T").', ["[", "](a.md)", "[", '](#b "T")']),
        ("![Hund](https://a.de/b_(c).png)", ["![", "](https://a.de/b_(c).png)"]),
        ("[a](https://b.de/c_(d)) http://g.de/(h", ["[", "](https://b.de/c_(d))"]),
        ("**[a](b)**", ["**", "[", "](b)", "**"]),
        ("Schüler*innen, 5 * 3 * 2, Preis* und *Fuß, get_user_name, ____ ___.__", []),
        (r"\*kein\* und * Punkt * zwei", []),
        ("`*a*` und `[b](c)`", []),
        ("[1] (a) [x](y z)", []),
        ("Siehe [hier][docs], [da][] und [dort](a 'T').", ["[", "][docs]", "[", "][]", "[", "](a 'T')"]),
        (r"\[kein Link\](https://a.de) [a\](b)", []),
        ("__init__ und __main__", []),
    ],
)
def test_pairs_of_marks_are_found(line: str, marks: list[str]) -> None:
    assert marks_in(line) == marks
    assert "".join(map(source, SpanFinder().parts(line))) == line
    assert not marks or SpanFinder().any_in(line)
    assert not any(isinstance(part, Mark) for part in SpanFinder(set(KINDS) - {"tag"}).parts(line))


def test_what_is_between_backticks_is_one_span() -> None:
    parts = SpanFinder().parts("Rufen Sie `git commit` oder ``a `b` c`` auf, geht`s?")
    assert [part.text for part in parts if isinstance(part, Span)] == ["`git commit`", "``a `b` c``"]


def test_a_sentence_may_end_within_marks() -> None:
    model = Model(lambda text: f"<{text}>")
    (one,) = translated(Protection(Words(), language="de"), ["Das ist **gut!** Bitte geh."], model)
    assert one.text.endswith("<Bitte geh.>") and ["Das ist gut!"] in model.calls


@pytest.mark.parametrize(
    ("line", "carriers"),
    [("Es sind **%d** Hunde", NUMBERS), ("<b>5</b> Hunde", NUMBERS), ("**{x}** ja", CARRIER_NAMES)],
)
def test_emphasised_numbers_travel_as_numbers(line: str, carriers: Sequence[str]) -> None:
    model = Model(lambda text: re.sub("%d|5|{x}", "some", text))
    translated(Protection(Words()), [line], model)
    sent = [word for call in model.calls for text in call for word in text.split()]
    assert {*sent} & {*NUMBERS, *CARRIER_NAMES} and {*sent} & {*carriers}


ENGLISH = {"Das ist nicht wichtig": "This is not important", "nicht": "not", "Siehe hier": "See here", "hier": "here"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Das ist **nicht** wichtig", "This is **not** important"),
        ("**Das ist nicht wichtig**", "**This is not important**"),
        ("Siehe [hier](a.md)", "See [here](a.md)"),
        ("![hier](a.png)", "![here](a.png)"),
    ],
)
def test_a_line_is_translated_without_its_marks(line: str, expected: str) -> None:
    (one,) = translated(Protection(Words()), [line], Model(lambda text: ENGLISH.get(text, "?")))
    assert (one.text, one.unplaced) == (expected, ())


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit", ["*a ", "**a", "_a ", "*a*", "[a](b", "[a](b)", "[a](b(", "`a", "`a` ", "~~a", "[", "](", "*a_b*_"]
)
def test_long_lines_take_no_more_than_their_length(unit: str) -> None:
    """In quadratic time these would take minutes."""
    line = unit * 50_000
    assert "".join(map(source, SpanFinder().parts(line))) == line
