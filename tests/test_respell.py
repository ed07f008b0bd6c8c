"""Pairs in other spellings: the checked-in ones are what the script makes of the sentences."""

from __future__ import annotations

from pathlib import Path

from respell import ascii_only, ascii_quotes, english_quotes, respelt, swiss, typographic

from specmt.corpus import Pair, read_tsv

DATA = Path(__file__).parent.parent / "data"


def test_german_is_spelt_in_other_ways() -> None:
    assert swiss("Die Füße der Straße") == "Die Füsse der Strasse"
    assert ascii_only("Äußere Größe, Öl übt") == "Aeussere Groesse, Oel uebt"
    quoted = 'Er sagt: "Ist\'s gut?" und "ja"'
    assert typographic(quoted) == "Er sagt: „Ist’s gut?“ und „ja“"
    assert english_quotes(quoted) == english_quotes(typographic(quoted).replace("’", "'"))
    assert english_quotes('"ja"') == "“ja”"
    assert ascii_quotes(typographic(quoted)) == quoted


def test_only_pairs_that_change_are_taken_once_and_their_english_stays() -> None:
    pairs = [Pair("ohne", "without"), *(Pair(f"heiß {n}", f"hot {n}") for n in range(5)), Pair("geht's", "ok")]
    expected = [("heiss 0", "hot 0"), ("heiss 3", "hot 3"), ("geht’s", "ok")]
    assert list(respelt(pairs)) == [Pair(*pair) for pair in expected]


def test_the_checked_in_pairs_are_those_of_the_sentences() -> None:
    assert list(respelt(read_tsv(DATA / "sentences.de-en.tsv"))) == read_tsv(DATA / "spellings.de-en.tsv")
