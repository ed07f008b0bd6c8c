"""German shorthand is spelt out before it is translated, and nothing else is."""

from __future__ import annotations

import pytest
from protecting import Model, Words, translated

from specmt.protection.finding import SpanFinder
from specmt.protection.german_shorthand import spelt_out
from specmt.protection.protection import Protection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mo.-Fr. 8 bis 17 Uhr", "Montag bis Freitag 8 bis 17 Uhr"),
        ("Mo – Do 9:00", "Montag bis Donnerstag 9:00"),
        ("Sa/So geschlossen", "Samstag und Sonntag geschlossen"),
        ("Mo, Di u. Do frei", "Montag, Dienstag und Donnerstag frei"),
        ("am Do., den 8.6., um 10", "am Donnerstag, den 8.6., um 10"),
        ("Di, 6. Juni, 19 Uhr", "Dienstag, 6. Juni, 19 Uhr"),
        ("Wir treffen uns Mi um 15 Uhr.", "Wir treffen uns Mittwoch um 15 Uhr."),
        ("Mi: 8-12 Uhr", "Mittwoch: 8-12 Uhr"),
        ("Wir kommen am So.", "Wir kommen am Sonntag."),
        ("Nur Sa. und So.", "Nur Samstag und Sonntag."),
        ("3x täglich, 2 x pro Woche, 4-mal im Jahr", "dreimal täglich, zweimal pro Woche, viermal im Jahr"),
        ("3x tgl. einnehmen", "dreimal täglich einnehmen"),
        ("Ich war 2x dort und habe 3x angerufen.", "Ich war zweimal dort und habe dreimal angerufen."),
        ("Mo/Mi/Fr 17 Uhr", "Montag, Mittwoch und Freitag 17 Uhr"),
        ("Fr 17–19 Uhr, Fr., den 3.5.", "Freitag 17–19 Uhr, Freitag, den 3.5."),
        ("Im Jahr 79 n. Chr.", "Im Jahr 79 AD."),
        ("M. E. ist das falsch.", "Meiner Meinung nach ist das falsch."),
        ("5,- €, 25,-- Euro, 7.– CHF", "5 €, 25 Euro, 7 CHF"),
        ("I. d. R. ja, z.T. nein, u. U. später", "In der Regel ja, zum Teil nein, möglicherweise später"),
        ("Das stimmt z. T.", "Das stimmt zum Teil."),
        ("(z. B. Boskop)", "(zum Beispiel Boskop)"),
    ],
)
def test_shorthand_is_spelt_out(text: str, expected: str) -> None:
    assert spelt_out(text) == expected
    assert SpanFinder(plain_german=True).readable(text) == expected
    assert SpanFinder().readable(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "Fr. Müller kommt. So ist das. So um 10 Uhr gehen wir.",
        "Do it yourself. Mi fa so.",
        "2 x 3 m, 10x Zoom, 1.2x so, 13x täglich, 2x Cola",
        "VB 150,-, 3,-5",
        "z. B. Äpfel, d. h. Obst, S. 12, A. B. Müller",
        "Das kostet Fr. 12.50, von Fr. 2.10 auf Fr. 2.30. Ab Fr. 50, Fr. 4 - 5.",
        "Ich warte, bis Fr. Schmidt kommt. Der Brief vom Fr. Lehmann",
        "2x kleine Pizza, 1x große Cola, y = 2x ist, 10x optischer Zoom",
        "So 5.000 Euro, so So 7-8 Leute, So 3-4 Tage, So 12 h, So oder So, So & So",
        "M. E. Schmidt, Hans Z.T. Meier, M.E. Kunz",
        "(z. B. A4)",
    ],
)
def test_what_is_none_stays(text: str) -> None:
    assert spelt_out(text) == text


def test_addresses_and_codes_stay_as_they_are() -> None:
    line = "Mo.-Fr. auf https://a.de/Mo.-Fr.html und {z.T.}"
    assert SpanFinder(plain_german=True).readable(line) == line.replace("Mo.-Fr. ", "Montag bis Freitag ")
    for kept in ("[A](a.md?d=Mo-Fr)", '![A](b.png "Mo-Fr")', "[A](text/u.U./a)", "--tage=Mo-Fr #Mo-Fr Mo-Fr/"):
        assert SpanFinder(plain_german=True).readable(kept) == kept


def test_only_the_end_of_the_line_keeps_a_full_stop() -> None:
    finder = SpanFinder(plain_german=True)
    assert finder.readable("Das gilt z.T. {name} nicht z. T.") == "Das gilt zum Teil {name} nicht zum Teil."
    assert finder.readable("Mo.-Fr.<br>nicht am So.") == "Montag bis Freitag<br>nicht am Sonntag."


def test_the_model_reads_it_spelt_out() -> None:
    model = Model(lambda text: text)
    protection = Protection(Words(), language="de", target_language="en")
    (one,) = translated(protection, ["Sa/So geschlossen"], model)
    assert model.calls == [["Samstag und Sonntag geschlossen"]] and one.source == "Sa/So geschlossen"
