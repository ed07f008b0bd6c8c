"""Bullets, dialogue dashes and the letters of items stand alone, and are copied; what follows begins as without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, tiny_vocabulary

from specmt.settings import DecodingSettings
from specmt.text.marks import is_mark
from specmt.text.segmentation import Segmenter, Splitting
from specmt.translator import Translator


def split(line: str, language: str = "de") -> list[str]:
    return [segment.text for segment in Segmenter(language, tiny_vocabulary().encode, 80).split(line)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("- Käse", ["-", "Käse"]),
        ("  >> Danke", [">>", "Danke"]),
        ("• Brot • Milch", ["•", "Brot", "•", "Milch"]),
        ("→ weiter", ["→", "weiter"]),
        ("- - Ja", ["- -", "Ja"]),
        ("– Hast du Hunger? – Ja, sehr.", ["–", "Hast du Hunger?", "–", "Ja, sehr."]),
        ("Er kam. - Sie nicht.", ["Er kam.", "-", "Sie nicht."]),
        ("- 1. Brot kaufen", ["-", "1.", "Brot kaufen"]),
        ("Er kam - und ging - heim.", ["Er kam - und ging - heim."]),
        ("-5 Grad", ["-5 Grad"]),
        ("**Achtung", ["**Achtung"]),
        ("Akk. + Dat.", ["Akk.", "+ Dat."]),
        ("- [ ] Brot", ["- [ ]", "Brot"]),
        ("[ ] Ja [ ] Nein", ["[ ]", "Ja [ ] Nein"]),
        ("[x] Ja", ["[x]", "Ja"]),
        ("Er rief: „Ja.“ – „Nein.“", ["Er rief: „Ja.“", "– „Nein.“"]),
        ("-", ["-"]),
        ("- -", ["- -"]),
    ],
)
def test_bullets_and_dashes_stand_alone(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a) Lesen Sie. b) Schreiben Sie.", ["a)", "Lesen Sie.", "b)", "Schreiben Sie."]),
        ("(ii) Der Garten ist groß.", ["(ii)", "Der Garten ist groß."]),
        ("(A) Ja", ["(A)", "Ja"]),
        ("bb) Nein", ["bb)", "Nein"]),
        ("1. a) Lesen Sie", ["1. a)", "Lesen Sie"]),
        ("- a) Lesen", ["-", "a)", "Lesen"]),
        ("1) Lesen. 2) Schreiben", ["1)", "Lesen.", "2)", "Schreiben"]),
        ("(2) Der Käufer zahlt.", ["(2)", "Der Käufer zahlt."]),
        ("II. 1. a) Die Klage", ["II.", "1. a)", "Die Klage"]),
        ("siehe (2) und 3)", ["siehe (2) und 3)"]),
        ("(1) bis (3) gelten nicht.", ["(1) bis (3) gelten nicht."]),
        ("I. Einleitung", ["I.", "Einleitung"]),
        ("b. Ja.", ["b.", "Ja."]),
        ("a. Wasser kochen\nb. Nudeln kochen", ["a.", "Wasser kochen", "b.", "Nudeln kochen"]),
        ("II. Weltkrieg", ["II. Weltkrieg"]),
        ("I. und II. Weltkrieg", ["I. und II. Weltkrieg"]),
        ("I. d. R. geht das.", ["I. d. R. geht das."]),
        ("d. h. nein", ["d. h. nein"]),
        ("(zu) viele Hunde", ["(zu) viele Hunde"]),
        ("Der Hund von a. Müller", ["Der Hund von a. Müller"]),
    ],
)
def test_letters_and_roman_numbers_of_items_stand_alone(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Montag\tDienstag", ["Montag", "Dienstag"]),
        ("| Datei | Bearbeiten |", ["|", "Datei", "|", "Bearbeiten", "|"]),
        ("Extras > Konto → Hilfe", ["Extras", ">", "Konto", "→", "Hilfe"]),
        ("Start · Über uns", ["Start", "·", "Über uns"]),
        ("Name:\t- Käse. Ja.", ["Name:", "-", "Käse.", "Ja."]),
        ("Wenn a > b und 5 → 10 steigt, 3 · 4", ["Wenn a > b und 5 → 10 steigt, 3 · 4"]),
        ("„Extras > Konto“ wählen", ["„Extras > Konto“ wählen"]),
        ("a|b", ["a|b"]),
        ("Wähle a | b.", ["Wähle a | b."]),
        ("| a | b. |", ["|", "a", "|", "b.", "|"]),
    ],
)
def test_cells_and_items_of_menus_are_translated_by_themselves(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Haha :D das ist gut ;-)", ["Haha", ":D", "das ist gut", ";-)"]),
        ("Bis bald :) :*", ["Bis bald", ":) :*"]),
        ("Ich mag dich <3", ["Ich mag dich", "<3"]),
        ("Ja XD", ["Ja", "XD"]),
        ("Mein XD ist kaputt, für n <3 gilt", ["Mein XD ist kaputt, für n <3 gilt"]),
        ("Siehe a:D, Liste:(a) und x:)", ["Siehe a:D, Liste:(a) und x:)"]),
        ("Preis :Dach", ["Preis :Dach"]),
    ],
)
def test_emoticons_stand_alone(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("„Hilfe!“", ["„", "Hilfe!", "“"]),
        ("Er kam. (Sie nicht.)", ["Er kam.", "(", "Sie nicht.", ")"]),
        ("- „Wo?“", ["-", "„", "Wo?", "“"]),
        ("(geb. 1970)", ["(geb. 1970)"]),
        ("(u. a.)", ["(u. a.)"]),
        ('"Ja" und "nein"', ['"Ja" und "nein"']),
        ("„Hilfe!“, rief er.", ["„Hilfe!“, rief er."]),
        ("(5)", ["(5)"]),
        ("()", ["()"]),
    ],
)
def test_what_covers_a_whole_sentence_stands_alone(line: str, expected: list[str]) -> None:
    assert split(line) == expected
    assert "".join(split(line)).replace(" ", "") == line.replace(" ", "")


def test_german_quotation_marks_that_stand_alone_become_english_ones() -> None:
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 80))
    alone, covered = translator.translate([SENTENCES[0], f"„{SENTENCES[0]}“"])
    assert covered.text == f'"{alone.text}"'


def test_tabs_stay_between_translations() -> None:
    segments = Segmenter("de", tiny_vocabulary().encode, 80).split("Eins\t\tzwei\t drei | vier")
    assert [segment.glue for segment in segments] == ["\t\t", "\t", " ", " ", ""]


def test_it_is_so_in_every_language() -> None:
    assert split("– Ça va ? a) Oui.", "fr")[0] == "–"
    assert split("One | two", "en") == ["One", "|", "two"]
    assert split("(b) A dog", "en") == ["(b)", "A dog"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a)", True),
        ("(IV)", True),
        ("V.", True),
        ("a", False),
        ("k.", False),
        ("a) b", False),
        (":D", True),
        (":) xD", True),
        ("", False),
    ],
)
def test_what_an_item_begins_with_is_known(text: str, expected: bool) -> None:
    assert is_mark(text) is expected


@pytest.mark.parametrize("guards", [True, False])
def test_it_is_copied_and_what_follows_translated_as_without(guards: bool) -> None:
    settings = replace(DecodingSettings.from_defaults(DEFAULTS), guards=guards)
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 80))
    alone, item = translator.translate([SENTENCES[0], f"a) {SENTENCES[0]}"], settings)
    assert item.text == f"a) {alone.text}"
    assert item.ids == alone.ids
