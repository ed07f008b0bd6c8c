"""Numbers that a model writes in the way of its language, and ordinals' endings behind carriers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pytest
from protecting import Model, Words, protected, translated

from specmt.protection import numbers, ordinals
from specmt.protection.carriers import NUMBERS
from specmt.protection.protection import Protection
from specmt.translation import Alternative, Translation


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (["850,00", "1.000,00"], "€850.00 of 1,000.00", "€850,00 of 1.000,00"),
        (["1.000"], "1,000 or 1000 of 1000.5", "1.000 or 1.000 of 1000.5"),
        (["3:1"], "won 3-1, not 13-1, 3-10", "won 3:1, not 13-1, 3-10"),
        (["10:30"], "at 10.30.", "at 10:30."),
        (["24.12", "3.5.2021"], "on 24.12th and 3.5.2021st", "on 24.12 and 3.5.2021"),
        (["3,5", "3.5"], "3.5 and 3,5", "3.5 and 3,5"),
        (["20", "10²"], "20th, 10²", "20th, 10²"),
        (["3,5"], "13.5 3.50 a3.5 3.5kg", "13.5 3.50 a3.5 3.5kg"),
        (["3,5"], "-3.5, 3.5", "-3,5, 3,5"),
    ],
)
def test_a_number_stands_as_in_the_source(source: list[str], text: str, expected: str) -> None:
    assert numbers.as_written(source, text) == expected


@pytest.mark.parametrize(
    ("ordinal", "expected"), [("1", "1st"), ("2", "2nd"), ("13", "13th"), ("23", "23rd"), ("111", "111th")]
)
def test_an_ordinal_has_its_ending(ordinal: str, expected: str) -> None:
    assert ordinals.with_ending(ordinal) == expected


def test_a_line_is_not_tried_again_for_another_spelling() -> None:
    model = Model(lambda text: text.replace("3,5", "3.5"))
    (one,) = translated(Protection(Words()), ["um 3,5 Grad"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("um 3,5 Grad", (), 1)


@pytest.mark.parametrize(
    ("line", "expected"), [("Am 31. bin ich da", "Am 31st bin ich da"), ("Am 3.5. bin ich da", "Am 3.5 bin ich da")]
)
def test_the_ending_behind_a_carrier_becomes_that_of_the_number(line: str, expected: str) -> None:
    """The model loses the number, and says its carrier as an ordinal."""
    rule = lambda text: text.replace("31.", "that").replace("3.5.", "that").replace("47.", "47th")  # noqa: E731
    assert protected([line], rule) == [expected]


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("um 09:15 schrieb", "at 09:15 wrote:15", {"15"}),
        ("12 Monate", "12 months of 12", {"12"}),
        ("acht Hunde", "8 dogs, 8 cats", set()),
        ("6:3 und 6:4", "6:3, 6:4", set()),
        ("6:3 und 6:4", "6:4", set()),
    ],
)
def test_what_is_said_more_often_is_found(source: str, translation: str, expected: set[str]) -> None:
    assert numbers.surplus(source, translation) == expected


def test_a_number_that_is_said_twice_is_tried_again_with_a_carrier() -> None:
    model = Model(lambda text: f"every {text} of 12" if "12" in text else f"every {text}")
    (one,) = translated(Protection(Words()), ["12 Monate"], model)
    carrier = NUMBERS[2]
    assert one.text == "every 12 Monate" and model.calls == [["12 Monate"], [f"{carrier} Monate"]]


def test_where_that_does_not_help_the_first_translation_stays() -> None:
    model = Model(lambda text: f"{text} of {text.split()[0]}")
    (one,) = translated(Protection(Words()), ["12 Monate"], model)
    assert one.text == "12 Monate of 12" and len(model.calls) == 3


def test_alternatives_that_became_the_same_stand_once() -> None:
    def run(chunks: Iterable[Sequence[str]]) -> Iterator[Translation]:
        for (line,) in chunks:
            ways = tuple(map(Alternative, ("3.5 km", "3,5 km", "3,5"), (-1.0, -2.0, -3.0)))
            yield Translation(0, line, ways[0].text, -1.0, (7, 2), (), ways, (8,))

    (one,) = translated(Protection(Words()), ["3,5 km"], run)
    assert [other.text for other in one.n_best] == ["3,5 km", "3,5"]
