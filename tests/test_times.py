"""Times of day, which English says by the twelve-hour clock."""

from __future__ import annotations

import pytest
from protecting import Model, Words, translated

from specmt.protection.clock import set_right
from specmt.protection.finding import SpanFinder
from specmt.protection.protection import Protection
from specmt.protection.spans import Number
from specmt.protection.times import Time, time_of


def times_in(line: str) -> list[Time]:
    """The times that are found in a line."""
    return [part.time for part in SpanFinder().parts(line) if isinstance(part, Number) and part.time]


@pytest.mark.parametrize(
    ("number", "behind", "expected"),
    [
        ("18", " Uhr", True),
        ("14.30", " Uhr im Rathaus", True),
        ("9", " bis 17 Uhr", True),
        ("8", "-18:00 Uhr", True),
        ("20", "-Uhr-Nachrichten", True),
        ("17:45", " auf Gleis 3", False),
        ("3", " am Nachmittag", True),
        ("25", " Uhr", False),
        ("9.75", " Uhr", False),
        ("1.430", " Uhr", False),
        ("18", " Uhren", False),
        ("18", " Gäste um 9 Uhr", False),
        ("9", " Gäste am Abend", False),
    ],
)
def test_a_number_before_the_hour_is_a_time(number: str, behind: str, expected: bool) -> None:
    assert (time_of(number, "", behind) is not None) is expected


def test_with_a_colon_it_is_one_only_where_times_stand() -> None:
    assert [time.number for time in times_in("Ab 17:45 steht es 15:12, um 18:30")] == ["17:45", "18:30"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("um 7 Uhr abends", [19]),
        ("um 4 Uhr nachmittags", [16]),
        ("um 3 Uhr am späten Nachmittag", [15]),
        ("um 8 Uhr heute Abend", [20]),
        ("um 1 Uhr mittags, um 11 Uhr mittags", [13, None]),
        ("um 12 Uhr mittags, um 12 Uhr nachts", [12, 0]),
        ("um 11 Uhr nachts, um 2 Uhr nachts", [23, 2]),
        ("um 9 Uhr morgens, um 5 Uhr früh, um 10 Uhr vormittags, um 4 Uhr in der Früh", [9, 5, 10, 4]),
        ("Heute Abend um 8 Uhr", [20]),
        ("Gestern Nachmittag kam sie gegen 3 Uhr", [15]),
        ("Am Freitagabend um 7 Uhr", [19]),
        ("Am Morgen um 7 Uhr", [7]),
        ("In der Nacht um 11 Uhr", [23]),
        ("Heute Abend um 8 kommt er", [20]),
        ("Heute Abend bis 10 Uhr", [22]),
        ("Von 6 bis 9 Uhr abends", [18, 21]),
        ("Abends von 6 bis 9 Uhr", [18, 21]),
        ("Nachts von 11 bis 5 Uhr", [23, None]),
        ("Von 8 Uhr morgens bis 6 Uhr abends", [8, 18]),
        ("um 18 Uhr, um 0:15 Uhr, um 24 Uhr, um 12 Uhr", [18, 0, 0, 12]),
        ("um 9.30 Uhr, um 9 Uhr, um 9:30", [9, None, None]),
        # Words that look like parts of the day, or are those of something else
        ("Morgen um 8 Uhr", [None]),
        ("Am Sonnabend um 9 Uhr", [None]),
        ("Kurz nach Mitternacht um 8 Uhr", [None]),
        ("Gestern Abend sagte er, dass er um 8 Uhr kommt", [None]),
        ("Am Abend schlief er und um 6 Uhr stand er auf", [None]),
        ("Von gestern Abend bis 8 Uhr", [None]),
    ],
)
def test_words_around_a_time_tell_the_half_of_the_day(line: str, expected: list[int | None]) -> None:
    assert [time.hour if time.is_certain else None for time in times_in(line)] == expected


@pytest.mark.parametrize(
    ("number", "text", "expected"),
    [
        ("18", "at 6 p.m.", True),
        ("18", "at 6pm", True),
        ("18", "at 6 PM", True),
        ("18", "at 6 a.m.", False),
        ("18", "6 guests", False),
        ("18", "at 16 p.m.", False),
        ("13", "between 1 and 3 p.m.", True),
        ("14.30", "at 2:30 p.m.", True),
        ("14.30", "at 14:30", True),
        ("14.30", "at 14:30.5", False),
        ("14.30", "at 2 p.m.", False),
        ("8.00", "8:00-12 p.m.", True),
        ("20:00", "at 8 p.m.", True),
        ("20:00", "at 8:00 p.m.", True),
        ("12", "at noon", True),
        ("0", "at midnight", True),
        ("0", "at noon", False),
        ("24", "until 12 a.m.", True),
        ("9", "9 a.m.", True),
    ],
)
def test_it_may_stand_by_the_twelve_hour_clock(number: str, text: str, expected: bool) -> None:
    time = time_of(number, "", " Uhr")
    assert time and time.is_said(text) is expected


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("18 Uhr", "It closes at 18 a.m.", "It closes at 6 p.m."),
        ("21.30 Uhr", "at 21.30 a.m. yesterday", "at 9:30 p.m. yesterday"),
        ("12 Uhr", "at 12 a.m.", "at 12 p.m."),
        ("0.15 Uhr", "at 0.15 p.m.", "at 12:15 a.m."),
        ("9 Uhr", "at 9 p.m.", "at 9 p.m."),
        ("18 Uhr", "at 18, 118 am, 18 amps", "at 18, 118 am, 18 amps"),
        ("7 Uhr abends", "at 7 a.m.", "at 7 p.m."),
        ("7 Uhr abends", "at 7am, at 7 AM, at 7:00 a.m.", "at 7pm, at 7 PM, at 7:00 p.m."),
        ("2.30 Uhr nachts", "at 2.30 p.m.", "at 2:30 a.m."),
        ("6.30 Uhr", "It's 6.30 o'clock.", "It's 6:30."),
        ("die 20-Uhr-Nachrichten", "the 20 o'clock news", "the 8 p.m. news"),
        ("14:00 Uhr", "14:00 clock, 15:00 clock", "2:00 p.m., 15:00 clock"),
        ("um 8 Uhr", "at 8 o'clock", "at 8 o'clock"),
        ("um 8 Uhr", "<b>at 8 a.m</b>, at 8 a.m.. Then", "<b>at 8 a.m.</b>, at 8 a.m. Then"),
        ("von 22 Uhr bis 6 Uhr", "from 10 p.m. to 6 p.m.", "from 10 p.m. to 6 a.m."),
        ("von 8 bis 20 Uhr", "from 8 p.m. to 8 p.m.", "from 8 a.m. to 8 p.m."),
        ("8 Uhr morgens, 8 Uhr abends", "8 p.m. and 8 a.m.", "8 p.m. and 8 a.m."),
        ("8 Uhr morgens, 8 Uhr abends", "8 a.m., 8 a.m. and 8 a.m.", "8 a.m., 8 a.m. and 8 a.m."),
    ],
)
def test_with_half_of_the_day_it_is_one_of_the_twelve_hour_clock(line: str, text: str, expected: str) -> None:
    assert set_right(times_in(line), text) == expected


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        ("9–18 Uhr", "9-6 p.m.", "9 a.m.-6 p.m."),
        ("9.00–13.00 Uhr", "Open 9.00-1 p.m.", "Open 9:00 a.m.-1 p.m."),
        ("8–12 Uhr", "8 to 12 p.m.", "8 a.m. to 12 p.m."),
        ("15–18 Uhr", "15-6 p.m.", "3-6 p.m."),
        ("22–6 Uhr", "10-6 PM", "10 PM-6 AM"),
        ("9–11 Uhr", "9-11 a.m.", "9-11 a.m."),
        ("6 bis 9 Uhr", "6 to 9 p.m.", "6 to 9 p.m."),
    ],
)
def test_the_first_of_two_times_has_the_half_that_it_is_in(line: str, text: str, expected: str) -> None:
    assert set_right(times_in(line), text) == expected


def test_each_time_is_set_right_once() -> None:
    assert set_right(times_in("12 bis 24 Uhr"), "from 12 a.m. to 24 p.m.") == "from 12 p.m. to 12 a.m."


def test_a_line_with_a_time_is_not_tried_again_for_it() -> None:
    model = Model(lambda text: text.replace("um 18 Uhr", "at 6 p.m."))
    (one,) = translated(Protection(Words()), ["um 18 Uhr kommen 18"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("at 6 p.m. kommen 18", (), 1)
    (one,) = translated(Protection(Words()), ["um 18 Uhr"], Model(lambda text: text.replace("um 18 Uhr", "18 a.m.")))
    assert one.text == "6 p.m."
    model = Model(lambda text: text.replace("um 4 Uhr nachmittags", "at 4:00 a.m."))
    (one,) = translated(Protection(Words()), ["um 4 Uhr nachmittags"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("at 4:00 p.m.", (), 1)


def test_ranges_are_not_reported() -> None:
    model = Model(lambda text: text.replace("8.00–12.00 Uhr", "8:00-12 p.m."))
    (one,) = translated(Protection(Words()), ["Offen 8.00–12.00 Uhr"], model)
    assert (one.text, one.unplaced, len(model.calls)) == ("Offen 8:00 a.m.-12 p.m.", (), 1)
