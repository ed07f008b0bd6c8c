"""Lines put together of the translations of their segments, each of which ends as its source does."""

from __future__ import annotations

import pytest

from specmt.assembly import Part, Rendered, join
from specmt.text.punctuation import begun, bracketed, punctuated
from specmt.text.segmentation import Segment


def joined(*parts: tuple[str, str, str]) -> str:
    """Of segments, their glue and their translations."""
    (line,) = join([Part(Segment(source, [5], glue), (Rendered(said, 0.0, (5,)),)) for source, glue, said in parts], 1)
    return line.text


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([("es regnet;", " ", "It's raining;"), ("vor dem Haus", "", "Outside")], "It's raining; outside"),
        ([("Es regnet;", " ", "It's raining;"), ("IP", "", "IP")], "It's raining; IP"),
        ([("der Mann", " ", "The man"), ("und ich", "", "And I")], "The man and I"),
        ([("Ja.", " ", "Yes."), ("er kam", "", "He came")], "Yes. He came"),
        ([("Titel", "\n", "Title"), ("ein Hund", "", "A dog")], "Title\nA dog"),
        ([("nein,", " ", ""), ("ja", "", "Yes")], "yes"),
    ],
)
def test_parts_of_a_sentence_read_on(parts: list[tuple[str, str, str]], expected: str) -> None:
    assert joined(*parts) == expected


@pytest.mark.parametrize(
    ("source", "said", "expected"),
    [
        ("Einleitung", "Introduction.", "Introduction"),
        ("Freitag, 13. Oktober", "Friday, October 13,", "Friday, October 13"),
        ("Zutaten:", "Ingredients.", "Ingredients:"),
        ("in Bonn, Köln,", "In Bonn, Cologne.", "In Bonn, Cologne,"),
        ("bis 18 Uhr", "Until 6 p.m.", "Until 6 p.m."),
        ("Er kam.", "He came.", "He came."),
        ("Wer kam?", "Who came?", "Who came?"),
        ("Komm", "Come!", "Come!"),
        ("Ich weiß nicht…", "I don't know..", "I don't know..."),
        ("Na ja... gut.", "Well.. fine.", "Well... fine."),
        ("Er kam.", "He came..", "He came."),
        ("Der Zug fährt in 5 Min. ab.", "The train leaves in 5 m..", "The train leaves in 5 m."),
        ("Er ist aus M.", "He is from M...", "He is from M."),
        ("„Er kam.“", '"He came.."', '"He came."'),
        ("Er kam..", "He came..", "He came.."),
        ("Er kam...", "He came...", "He came..."),
        ("Wer.. was.", "Who.. what..", "Who.. what.."),
        ("Und dann...?", "And then...", "And then...?"),
        ("Und dann…!", "And then..", "And then...!"),
        ("Und dann...?", "And then?", "And then?"),
        ("Wie schön!", "How nice.", "How nice."),
        ("ja,", ".", "."),
        ("", ".", "."),
    ],
)
def test_a_translation_ends_as_its_source(source: str, said: str, expected: str) -> None:
    assert punctuated(said, source) == expected


@pytest.mark.parametrize(
    ("source", "said", "expected"),
    [
        ("Datum: 3.5.", "date: 3.5.", "Date: 3.5."),
        ("Adresse:", "address:", "Address:"),
        ("Öffnen Sie die Tür.", "opening the door.", "Opening the door."),
        ("Hund", "dog", "dog"),
        ("§ 12a Kündigung und Frist", "§ 12a notice and term", "§ 12a Notice and term"),
        ("§ 3 Abs. 2 gilt", "§ 3 para. 2 applies", "§ 3 para. 2 applies"),
        ("§ 5 BGB regelt das.", "§ 5 rules that.", "§ 5 rules that."),
        ("hund: neu", "dog: new", "dog: new"),
        ("iPhone: neu", "iPhone: new", "iPhone: new"),
        ("Das iPhone ist da.", "iPhone is here.", "iPhone is here."),
        ("Um 12:30 Uhr", "at 12:30 p.m.", "at 12:30 p.m."),
        ("Ja.", "", ""),
    ],
)
def test_a_sentence_or_a_label_begins_with_a_capital_as_its_source(source: str, said: str, expected: str) -> None:
    assert begun(said, source) == expected


@pytest.mark.parametrize(
    ("source", "said", "expected"),
    [
        ("[lacht]", "(laughs)", "[laughs]"),
        ("Siehe [A] und (B).", "See [A] and (B).", "See [A] and (B)."),
        ("Siehe [A] und [B].", "See (A).", "See (A)."),
        ("Siehe [A] und [B].", "See (A) and (B).", "See [A] and [B]."),
        ("Siehe (A).", "See (A).", "See (A)."),
    ],
)
def test_what_is_read_as_parentheses_comes_out_as_the_brackets_that_it_was(
    source: str, said: str, expected: str
) -> None:
    assert bracketed(said, source) == expected
