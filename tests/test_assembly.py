"""Lines put together of the translations of their segments."""

from __future__ import annotations

import pytest

from specmt.assembly import Part, Rendered, join
from specmt.segmentation import Segment


def joined(*parts: tuple[str, str, str]) -> str:
    """Of segments, their glue and their translations."""
    (line,) = join([Part(Segment(source, [5], glue), (Rendered(said, 0.0, (5,)),)) for source, glue, said in parts], 1)
    return line.text


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("in Bonn, Köln,", " ", "In Bonn, Cologne."), ("Aachen.", "", "Aachen.")], "In Bonn, Cologne, Aachen."),
        ([("es regnet;", " ", "It's raining."), ("vor dem Haus", "", "Outside.")], "It's raining; outside."),
        ([("Es regnet;", " ", "It's raining;"), ("IP", "", "IP.")], "It's raining; IP."),
        ([("der Mann", " ", "The man."), ("und ich", "", "And I")], "The man and I"),
        ([("um 18 Uhr", " ", "At 6 p.m."), ("kam er", "", "He came.")], "At 6 p.m. he came."),
        ([("Ja.", " ", "Yes."), ("er kam", "", "He came.")], "Yes. He came."),
        ([("Titel", "\n", "Title."), ("ein Hund", "", "A dog.")], "Title.\nA dog."),
        ([("…,", " ", "…"), ("ja", "", "Yes")], "…, yes"),
        ([("nein,", " ", "."), ("ja", "", "Yes")], ". yes"),
        ([("nein,", " ", ""), ("ja", "", "Yes")], "yes"),
    ],
)
def test_parts_of_a_sentence_read_on(parts: list[tuple[str, str, str]], expected: str) -> None:
    assert joined(*parts) == expected
