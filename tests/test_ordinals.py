"""Ordinals, which English may spell out."""

from __future__ import annotations

import pytest
from protecting import Model, Words, translated

from specmt.protection import ordinals
from specmt.protection.protection import Protection


@pytest.mark.parametrize(
    ("number", "behind", "expected"),
    [
        ("2", ". Weltkrieg", True),
        ("1", ".\u00a0FC Köln", True),
        ("20", ". sein", True),
        ("21", ". Jahrhundert", False),
        ("0", ". Liga", False),
        ("02", ". Mai", False),
        ("2", " Kinder", False),
        ("2", ".", False),
        ("2", ". 3 Kinder", False),
    ],
)
def test_a_number_with_a_full_stop_before_a_word_is_an_ordinal(number: str, behind: str, expected: bool) -> None:
    assert ordinals.is_ordinal(number, behind) is expected


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("2", "the Second World War", True),
        ("2", "World War II", True),
        ("2", "World War III", False),
        ("2", "the seconds", False),
        ("1", "World War I", True),
        ("1", "But I was in the war.", False),
        ("10", "Project X", False),
        ("1", "He came in first.", True),
        ("20", "in the twentieth century", True),
    ],
)
def test_it_may_be_a_word_or_the_number_of_a_war(number: str, text: str, expected: bool) -> None:
    assert ordinals.is_said(number, text) is expected


def test_a_line_with_an_ordinal_is_not_tried_again_for_it() -> None:
    model = Model(lambda text: text.replace("Der 2. Weltkrieg", "World War II"))
    (one,) = translated(Protection(Words()), ["Der 2. Weltkrieg und 2 Orte"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("World War II und 2 Orte", (), 1)


def test_a_number_beside_it_is_missed_and_the_line_tried_again() -> None:
    model = Model(lambda text: "In the second year")
    (one,) = translated(Protection(Words()), ["Im 2. Jahr 3 Orte"], model)
    assert "3" in one.text.split()
    assert len(model.calls) > 1
