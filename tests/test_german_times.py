"""German times are written as models know them, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from protecting import Model, Words, translated

from specmt.protection.finding import KINDS, SpanFinder
from specmt.protection.german_times import written_plainly
from specmt.protection.protection import Protection
from specmt.protection.terminology import Terminology


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Um halb 8 gehe ich.", "Um 7:30 gehe ich."),
        ("Es ist halb eins.", "Es ist 12:30."),
        ("Von halb neun bis halb fünf", "Von 8:30 bis 4:30"),
        ("kurz vor halb vier", "kurz vor 3:30"),
        ("Halb acht!", "7:30!"),
        ("HEUTE UM HALB ACHT", "HEUTE UM 7:30"),
        ("für halb sieben verabredet", "für 6:30 verabredet"),
        ("Es ist fünf vor halb acht.", "Es ist 7:25."),
        ("Er kam zehn nach halb eins.", "Er kam 12:40."),
        ("um halb drei Uhr nachts, um halb drei Uhr", "um 2:30 Uhr nachts, um 2:30"),
        ("um dreiviertel acht, um drei viertel neun", "um 7:45, um 8:45"),
        ("um viertel acht", "um 7:15"),
        ("Montag halb zwölf", "Montag 11:30"),
        ("um 17 Uhr 30.", "um 17.30 Uhr."),
        ("um 8 Uhr 05 und um 20 Uhr 15.", "um 8.05 Uhr und um 20.15 Uhr."),
        ("um acht Uhr dreißig, um 8 Uhr dreißig", "um 8:30, um 8.30 Uhr"),
        ("um zwanzig Uhr fünf", "um 20.05 Uhr"),
        ("Achtzehn Uhr, null Uhr", "18 Uhr, 0 Uhr"),
        ("von neun bis siebzehn Uhr", "von 9 bis 17 Uhr"),
        ("um elf Uhr nachts", "um 11 Uhr nachts"),
        ("um 17 uhr 30, ab 18uhr", "um 17.30 Uhr, ab 18 Uhr"),
        ("Um 18Uhr, 18:30Uhr", "Um 18 Uhr, 18:30 Uhr"),
        ("um 19h, ab 14h30, Beginn: 9 h", "um 19 Uhr, ab 14.30 Uhr, Beginn: 9 Uhr"),
        ("von 9-17Uhr, von 9.30 – 11 Uhr", "von 9 bis 17 Uhr, von 9.30 bis 11 Uhr"),
    ],
)
def test_times_are_written_plainly(text: str, expected: str) -> None:
    assert SpanFinder(plain_german=True).readable(text) == expected
    assert written_plainly(text) == expected
    assert written_plainly(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Das Glas ist halb leer.",
        "Es ist halb so groß.",
        "Halb zwei Drittel der Leute",
        "Er ist halb zwei Jahre alt.",
        "um halb zwei Stunden, für halb zwei Euro",
        "Er kam mit halb neun Leuten.",
        "Es ist Viertel nach drei, um viertel vor neun",
        "ein viertel acht",
        "Im Viertel acht Häuser",
        "um acht Uhr abends, um drei Uhr",
        "um 18 Uhr 30 Leute, um 18 Uhr 30 % mehr",
        "um 18 Uhr 30. Mai",
        "um 25 Uhr 30",
        "um acht Uhr zehn Leute",
        "die 20-Uhr-Nachrichten, 9–18 Uhr",
        "2h30 lang, nach 19h",
        "Die Uhr zeigt zwanzig Uhren.",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert written_plainly(text) == text


def german(
    kinds: Iterable[str] = KINDS, terminology: Terminology | None = None, languages: tuple[str, str] = ("de", "en")
) -> Protection:
    """Protection of lines from one language into another."""
    return Protection(Words(), kinds, terminology, *languages)


def sent(protection: Protection, line: str) -> list[list[str]]:
    """What a model is given for a line."""
    model = Model(str)
    assert translated(protection, [line], model)[0].source == line
    return model.calls


def test_the_model_reads_a_line_with_plain_times() -> None:
    assert sent(german(), "Um halb acht") == [["Um 7:30"]]
    assert sent(german(), "Um halb leer") == [["Um halb leer"]]


def test_what_follows_a_span_begins_no_line() -> None:
    finder = SpanFinder(plain_german=True)
    for line in ("Das sind {x} halb vier Leute", "Mit {x} viertel acht"):
        assert finder.readable(line) == line
    assert finder.readable("{x}, um halb vier") == "{x}, um 3:30"
    assert finder.readable("Halb vier, {x}") == "3:30, {x}"


@pytest.mark.parametrize("kinds", [(), ("url", "email", "tag", "placeholder")])
def test_where_numbers_are_not_protected_it_reads_the_line_as_it_is(kinds: tuple[str, ...]) -> None:
    assert sent(german(kinds), "Um halb acht, um 18Uhr") == [["Um halb acht, um 18Uhr"]]


@pytest.mark.parametrize("languages", [("de", "fr"), ("nl", "en"), ("", "")])
def test_between_other_languages_it_reads_the_line_as_it_is(languages: tuple[str, str]) -> None:
    assert sent(german(languages=languages), "Um halb acht") == [["Um halb acht"]]


def test_addresses_tags_placeholders_and_terms_are_not_rewritten() -> None:
    terms = Terminology([("halb acht", "half past seven")])
    line = '<a title="um 18Uhr">Um 18Uhr</a> {{um 18Uhr}} um halb acht: https://a.de/?q=ab,18Uhr'
    model = Model(lambda text: text.replace("halb acht", "half past seven").replace("18 Uhr", "6 p.m."))
    (one,) = translated(german(terminology=terms), [line], model)
    assert one.text.startswith('<a title="um 18Uhr">Um 6 p.m.</a>')
    assert "{{um 18Uhr}} um half past seven" in one.text and one.text.endswith("https://a.de/?q=ab,18Uhr")
    assert one.unplaced == ()
