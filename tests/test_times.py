"""Times of day, which English says by the twelve-hour clock."""

from __future__ import annotations

import pytest
from protecting import Model, Words, translated

from specmt.protection import times
from specmt.protection.protection import Protection


@pytest.mark.parametrize(
    ("number", "behind", "expected"),
    [
        ("18", " Uhr", True),
        ("14.30", " Uhr im Rathaus", True),
        ("9", " bis 17 Uhr", True),
        ("8", "-18:00 Uhr", True),
        ("25", " Uhr", False),
        ("1.430", " Uhr", False),
        ("18", " Uhren", False),
        ("12", " Uhr nachts", False),
        ("18", " Gäste um 9 Uhr", False),
    ],
)
def test_a_number_before_the_hour_is_a_time(number: str, behind: str, expected: bool) -> None:
    assert times.is_time(number, behind) is expected


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("18", "at 6 p.m.", True),
        ("18", "at 6pm", True),
        ("18", "at 6 a.m.", False),
        ("18", "6 guests", False),
        ("18", "at 16 p.m.", False),
        ("13", "between 1 and 3 p.m.", True),
        ("14.30", "at 2:30 p.m.", True),
        ("14.30", "at 2 p.m.", False),
        ("20:00", "at 8 p.m.", True),
        ("20:00", "at 8:00 p.m.", True),
        ("12", "at noon", True),
        ("0", "at midnight", True),
        ("24", "until 12 a.m.", True),
        ("9", "9 a.m.", True),
    ],
)
def test_it_may_stand_by_the_twelve_hour_clock(number: str, text: str, expected: bool) -> None:
    assert times.is_said(number, text) is expected


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("18", "It closes at 18 a.m.", "It closes at 6 p.m."),
        ("21.30", "at 21.30 a.m. yesterday", "at 9:30 p.m. yesterday"),
        ("12", "at 12 a.m.", "at 12 p.m."),
        ("0.15", "at 0.15 p.m.", "at 12:15 a.m."),
        ("9", "at 9 p.m.", "at 9 p.m."),
        ("18", "at 18, 118 am, 18 amps", "at 18, 118 am, 18 amps"),
    ],
)
def test_with_half_of_the_day_it_is_one_of_the_twelve_hour_clock(number: str, text: str, expected: str) -> None:
    assert times.set_right([number], text) == expected


def test_each_time_is_set_right_once() -> None:
    assert times.set_right(["12", "24"], "from 12 a.m. to 24 p.m.") == "from 12 p.m. to 12 a.m."


def test_a_line_with_a_time_is_not_tried_again_for_it() -> None:
    model = Model(lambda text: text.replace("um 18 Uhr", "at 6 p.m."))
    (one,) = translated(Protection(Words()), ["um 18 Uhr kommen 18"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("at 6 p.m. kommen 18", (), 1)
    (one,) = translated(Protection(Words()), ["um 18 Uhr"], Model(lambda text: text.replace("um 18 Uhr", "18 a.m.")))
    assert one.text == "6 p.m."
