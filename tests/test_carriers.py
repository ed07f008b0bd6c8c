"""Dates are carried by weekdays, which have the prepositions of dates."""

from __future__ import annotations

import re

import pytest
from protecting import Model, Words, translated

from specmt.protection.carriers import NUMBERS
from specmt.protection.protection import Protection


def english(text: str) -> str:
    """A model that changes dates, and knows weekdays."""
    text = re.sub(r"(\d+)\.(\d+)\.(\d+)", r"\1,\3", text)
    return re.sub("am (Dienstag|Mittwoch)", lambda day: {"Dienstag": "on Tuesday"}.get(day[1], "on Wednesday"), text)


@pytest.mark.parametrize(
    ("line", "sent", "expected"),
    [
        ("Er kam am 24.12.2022.", "Er kam am Dienstag.", "Er kam on 24.12.2022."),
        ("Montags, dann am 1.2.23", "Montags, dann am Mittwoch", "Montags, dann on 1.2.23"),
    ],
)
def test_weekdays_carry_dates_into_english(line: str, sent: str, expected: str) -> None:
    model = Model(english)
    (one,) = translated(Protection(Words(), language="de", target_language="en"), [line], model)
    assert one.text == expected and model.calls == [[line], [sent]]


@pytest.mark.parametrize(
    ("languages", "line"),
    [
        (("de", "fr"), "Er kam am 24.12.2022."),
        (("de", "en"), "Er kam am 45.12.2022."),
        (("de", "en"), "Er kam am 12.2.3."),
    ],
)
def test_nothing_else_does(languages: tuple[str, str], line: str) -> None:
    model = Model(english)
    translated(Protection(Words(), language=languages[0], target_language=languages[1]), [line], model)
    assert model.calls[1] == [f"Er kam am {NUMBERS[2]}."]


def test_weekdays_that_the_vocabulary_lacks_carry_nothing() -> None:
    model = Model(english)
    words = Words(lacking=["Monday", "Dienstag", "Wednesday", "Donnerstag", "Friday"])
    translated(Protection(words, language="de", target_language="en"), ["Er kam am 24.12.2022."], model)
    assert model.calls[1] == [f"Er kam am {NUMBERS[2]}."]
