"""Amounts of money keep their signs in English, and nothing else gets one."""

from __future__ import annotations

import pytest
from protecting import Model, Words, translated

from specmt.protection.finding import SpanFinder
from specmt.protection.money import amounts_in, set_right
from specmt.protection.protection import Protection


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Bestellung vom 03.05.2023 über 1.249,90 €", {"03.05.2023": "", "1.249,90": "€"}),
        ("3 Nächte zu je EUR 80", {"3": "", "80": "€"}),
        ("50-Euro-Schein, 20 US-Dollar", {"50": "€", "20": "$"}),
        ("$ 5, £7, 8 USD", {"5": "$", "7": "£", "8": "$"}),
        ("3,5 Mio. € und 2 Milliarden US-Dollar in 2 Jahren", {"3,5": "€"}),
        ("-23,45 € und −1 €", {"23,45": "€", "1": "€"}),
        ("3.500 - 4.200 EUR, 5 bis 6 Tage", {"4.200": "€", "5": "", "6": ""}),
        ("50 und 100 Euro, 2, 3 oder 4 Euro", {"100": "€", "4": "€"}),
        ("3 x 20 €, Größe 42, 60 €", {"3": "", "20": "€", "42": "", "60": "€"}),
        ("60 m² für 800 €", {"60": "", "800": "€"}),
        ("20 Pfund, 30 Schweizer Franken, 500 T€", {}),
        ("5 Eier für 5 €", {}),
        ("Am 3. Mai um 18:00 Uhr", {"3": "", "18:00": ""}),
    ],
)
def test_what_is_an_amount_is_told_from_what_stands_beside_it(line: str, expected: dict[str, str]) -> None:
    assert amounts_in(SpanFinder().parts(line)) == expected


@pytest.mark.parametrize(
    ("amounts", "said", "expected"),
    [
        ({"3": "", "240": "€"}, "We pay €240 for €3 nights.", "We pay €240 for 3 nights."),
        ({"23,45": "€"}, "Your credit is -23,45.", "Your credit is -€23,45."),
        ({"850": "€"}, "850 each month", "€850 each month"),
        ({"850": "€"}, "850 euros, EUR 850, € 850, 850 million euros", "850 euros, EUR 850, € 850, 850 million euros"),
        ({"50": "€"}, "a 50-euro bill", "a 50-euro bill"),
        ({"7": "€", "15": "€"}, "7€50, 15% off", "7€50, 15% off"),
        ({"50": "$"}, "€50 or €-50", "$50 or $-50"),
        ({"10": "", "50": "€"}, "€10% of €50", "10% of €50"),
        ({"50": "€"}, "€50 for 20, 1.50, 50.5, 150", "€50 for 20, 1.50, 50.5, 150"),
    ],
)
def test_signs_are_set_right(amounts: dict[str, str], said: str, expected: str) -> None:
    assert set_right(amounts, [], said) == expected


def test_other_spans_stay_as_they_are() -> None:
    others = ["https://a.de/?id=20", "[20]", "preis-20.txt", '<b id="20">', "`x = 20`"]
    said = " 20 ".join(["", *others, ""])
    assert set_right({"20": "€"}, others, said) == " €20 ".join(["", *others, ""])


@pytest.mark.parametrize(
    ("languages", "expected"), [(("de", "en"), "We pay €240 for 3"), (("de", "fr"), "We pay 240 for €3")]
)
def test_into_english_signs_are_looked_after(languages: tuple[str, str], expected: str) -> None:
    protection = Protection(Words(), language=languages[0], target_language=languages[1])
    (one,) = translated(protection, ["Für 3 Nächte zahlen wir 240 €"], Model(lambda _: "We pay 240 for €3"))
    assert one.text == expected


@pytest.mark.timeout(60)
def test_thousands_of_amounts_take_no_more_than_their_length() -> None:
    """In quadratic time this would take minutes."""
    numbers = [str(number) for number in range(100_000, 160_000)]
    amounts = amounts_in(SpanFinder().parts(" €, ".join([*numbers, ""])))
    assert amounts["100000"] == "€" and len(amounts) == len(numbers)
    assert set_right(amounts, [], ", ".join(numbers)).count("€") == len(numbers)
