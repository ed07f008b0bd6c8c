"""Lines as segments: nothing is lost, everything fits, sentences end where sentences end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import SENTENCES, tiny_vocabulary

from specmt.text.languages import usual_code
from specmt.text.marks import is_mark
from specmt.text.segmentation import Segment, Segmenter, whole

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
german = st.lists(
    st.sampled_from(
        [
            *SENTENCES,
            "Ja",
            "z. B.",
            "…",
            "Wie?",
            "\n",
            " ",
            "Dr.",
            "am",
            "3.",
            "-",
            "„",
            "(",
            "“",
            ")",
            "Ja.“",
            "a)",
            ">>",
        ]
    ),
    max_size=8,
).map(" ".join)


def letters(line: str) -> list[int]:
    """An encoding without surprises: a token each character that is not white space."""
    return [ord(character) for character in line if not character.isspace()]


def split(line: str, max_tokens: int = 1000) -> list[str]:
    return [segment.text for segment in Segmenter("de", letters, max_tokens).split(line)]


@given(texts | german, st.integers(1, 40))
def test_no_character_but_white_space_is_lost(line: str, max_tokens: int) -> None:
    segments = Segmenter("de", letters, max_tokens).split(line)
    joined = "".join(f"{segment.text}{segment.glue}" for segment in segments)
    assert letters(joined) == letters(line)
    assert joined.split() == line.split()


@given(texts | german, st.integers(1, 40))
def test_every_segment_fits_and_has_the_ids_of_its_text(line: str, max_tokens: int) -> None:
    for segment in Segmenter("de", letters, max_tokens).split(line):
        assert 1 <= len(segment.ids) <= max_tokens
        assert segment.ids == letters(segment.text)


@given(texts | german, st.integers(4, 40))
def test_every_segment_fits_in_the_pieces_of_a_tokenizer(line: str, max_tokens: int) -> None:
    encode = tiny_vocabulary().encode
    for segment in Segmenter("de", encode, max_tokens).split(line):
        assert len(segment.ids) <= max_tokens or len(segment.text) == 1
        assert segment.ids == encode(segment.text)


@given(german)
def test_splitting_a_segment_again_cuts_off_no_more_than_marks_that_began_no_line(line: str) -> None:
    for text in split(line, 40):
        *marks, rest = split(text, 40)
        assert text.endswith(rest)
        assert all(is_mark(mark) or not any(map(str.isalnum, mark)) for mark in marks)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", []),
        ("  \t ", []),
        ("Ein Satz.", ["Ein Satz."]),
        ("Ein Mann geht. Ein Hund bellt.", ["Ein Mann geht.", "Ein Hund bellt."]),
        ("Was?  Ja! Gut.", ["Was?", "Ja!", "Gut."]),
        ("Dr. Meier kam am 3. Mai um 5.30 Uhr.", ["Dr. Meier kam am 3. Mai um 5.30 Uhr."]),
        ("Das kostet z. B. 3.000 Euro.", ["Das kostet z. B. 3.000 Euro."]),
        ("„Komm!“, sagte er.", ["„Komm!“, sagte er."]),
        ("Eins\nzwei", ["Eins", "zwei"]),
        (
            "Im 20. Jahrhundert lebte er. Der 3. Platz ist frei.",
            ["Im 20. Jahrhundert lebte er.", "Der 3. Platz ist frei."],
        ),
        ("Er kommt am 3. Wir auch. Satz 1. Danach", ["Er kommt am 3.", "Wir auch.", "Satz 1.", "Danach"]),
        ("Er hat Zimmer 12. Peter nicht.", ["Er hat Zimmer 12.", "Peter nicht."]),
        ("Am 24. Dez. war es kalt.", ["Am 24. Dez. war es kalt."]),
        ("1. FC Köln", ["1. FC Köln"]),
        ("1. Öffnen Sie die Tür. 2. Schließen", ["1.", "Öffnen Sie die Tür.", "2.", "Schließen"]),
        ("Wie alt bist du? 12. Und du?", ["Wie alt bist du?", "12.", "Und du?"]),
        ("Das steht in Art. 5. Siehe S. 12.", ["Das steht in Art. 5.", "Siehe S. 12."]),
        ("Der Bus Nr. 7. Er kommt. Hauptstr. 12.", ["Der Bus Nr. 7.", "Er kommt.", "Hauptstr. 12."]),
        ("Ab mind. 18. Es sind insg. 30. Joh. 3.", ["Ab mind. 18.", "Es sind insg. 30.", "Joh. 3."]),
        ("Am Sonntag, 12. Mai, im 3. OG, 2. Stock", ["Am Sonntag, 12. Mai, im 3. OG, 2. Stock"]),
        ("In diesem 2. Teil, in 2. Lesung: 1. Platz", ["In diesem 2. Teil, in 2. Lesung: 1. Platz"]),
        ("Bis zum 15. Danke! Am 3. Liebe Grüße", ["Bis zum 15.", "Danke!", "Am 3.", "Liebe Grüße"]),
        ("Schluss ist am 31. Alles muss raus! Ja.", ["Schluss ist am 31.", "Alles muss raus!", "Ja."]),
        ("Das Fest ist am 3. Peter bringt Kuchen.", ["Das Fest ist am 3.", "Peter bringt Kuchen."]),
        ("Gültig bis zum 30. Kündigen Sie bald!", ["Gültig bis zum 30.", "Kündigen Sie bald!"]),
        ("Sie wird am 9. Oma freut sich.", ["Sie wird am 9.", "Oma freut sich."]),
        ("Ende am 18. Herr Meier hat Zeit.", ["Ende am 18.", "Herr Meier hat Zeit."]),
        ("Er hat am 5. Verhandlungstag gesagt", ["Er hat am 5. Verhandlungstag gesagt"]),
        ("Sie kam am 20. Deutschen Turnfest an.", ["Sie kam am 20. Deutschen Turnfest an."]),
        ("Am 3. Verhandlungstag ist nichts los.", ["Am 3. Verhandlungstag ist nichts los."]),
        ("Der 1. Vorsitzende ist krank.", ["Der 1. Vorsitzende ist krank."]),
        ("Wohnung in Köln od. Umgebung gesucht", ["Wohnung in Köln od. Umgebung gesucht"]),
        ("Die allg. Regeln, z. Hd. Herrn Meier", ["Die allg. Regeln, z. Hd. Herrn Meier"]),
        ("Betr.: 2 Zi., Kü., Bad", ["Betr.: 2 Zi., Kü., Bad"]),
        ("Sie rief: ‚Was nun?‘ Er: »Geh.« Ende.", ["Sie rief: ‚Was nun?‘", "Er: »Geh.«", "Ende."]),
        (
            "„Der Umsatz ist gestiegen. Wir sind zufrieden. So geht es weiter“, sagte er.",
            ["„Der Umsatz ist gestiegen.", "Wir sind zufrieden.", "So geht es weiter“, sagte er."],
        ),
        ("(Das ist der Anfang. Das ist das Ende.)", ["(Das ist der Anfang.", "Das ist das Ende.)"]),
        ("„Komm her. Ich warte auf dich“, sagte er.", ["„Komm her. Ich warte auf dich“, sagte er."]),
        ("Es fehlt viel (z. B. Das Buch von Kant).", ["Es fehlt viel (z. B. Das Buch von Kant)."]),
        ("Im Jahr 1421 (19. Jahr der Ära) war das.", ["Im Jahr 1421 (19. Jahr der Ära) war das."]),
        ("Es waren viele (?? Menschen und Tiere) da.", ["Es waren viele (?? Menschen und Tiere) da."]),
        ("Dipl.-Ing. Meier, inkl. Hund, im 19. Jh. war", ["Dipl.-Ing. Meier, inkl. Hund, im 19. Jh. war"]),
        ("Im 19. Jh. Das war", ["Im 19. Jh.", "Das war"]),
        ("Das steht fest.¹² Es gilt.*", ["Das steht fest.", "¹²", "Es gilt.", "*"]),
        ("**Achtung!** Es gilt 3². Ja.", ["**Achtung!", "**", "Es gilt 3².", "Ja."]),
        ("Die gesetzl. Kasse zahlt gem. Art. 3 nicht.", ["Die gesetzl. Kasse zahlt gem. Art. 3 nicht."]),
        ("Wg. Umbau: Fam. Maier zahlt mtl. Miete.", ["Wg. Umbau: Fam. Maier zahlt mtl. Miete."]),
        ("Er kommt tägl. Das ist gut. Nimm 5 ml. Luft", ["Er kommt tägl.", "Das ist gut.", "Nimm 5 ml.", "Luft"]),
        ("Wir sind am Hbf. Wo bist du?", ["Wir sind am Hbf.", "Wo bist du?"]),
        ("Der 1000. Hund, zum 10.000. Mal", ["Der 1000. Hund, zum 10.000. Mal"]),
        ("Er starb 1990. Hunde bellten bis 2010. Katzen", ["Er starb 1990.", "Hunde bellten bis 2010.", "Katzen"]),
        ("ich bin müde. ich gehe ins bett! und du? gut", ["ich bin müde.", "ich gehe ins bett!", "und du?", "gut"]),
        ("am 3. mai, nr. 5, z. b. das, ca. zwei", ["am 3. mai, nr. 5, z. b. das, ca. zwei"]),
        ("hm... ja. bis 5. dann usw. nein", ["hm... ja.", "bis 5. dann usw. nein"]),
        ("ich bin bei Tom. er schläft", ["ich bin bei Tom.", "er schläft"]),
        ("Ich war müde. er nicht", ["Ich war müde. er nicht"]),
        ("Der Stern.*de* war da.", ["Der Stern.*de* war da."]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(line: str, expected: list[str]) -> None:
    assert split(line) == expected


@pytest.mark.parametrize(
    ("language", "code"),
    [("de", "de"), ("de_DE", "de"), ("DE", "de"), ("deu", "de"), ("zh-Hant", "zh"), ("gsw", "gsw"), ("", "")],
)
def test_a_language_has_one_name_however_it_is_called(language: str, code: str) -> None:
    assert usual_code(language) == code


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ein Hund; eine Katze", ["ein Hund;", "eine Katze"]),
        ("ein Hund, eine Katze", ["ein Hund,", "eine Katze"]),
        ("ein Hund und, eine; Katze", ["ein Hund und, eine;", "Katze"]),
        ("einige Hunde Katzen", ["einige", "Hunde Katzen"]),
        ("abcdefghijklmnopqrstuvwxyz", ["abcdefghijklmnop", "qrstuvwxyz"]),
    ],
)
def test_what_is_too_long_is_cut_at_clauses_else_words_else_anywhere(line: str, expected: list[str]) -> None:
    assert split(line, 16) == expected


def test_blank_lines_between_paragraphs_stay() -> None:
    first, second = Segmenter("de", letters, 100).split("Ein Satz. \n\n\n\tZwei.")
    assert (first.text, first.glue, second.text) == ("Ein Satz.", "\n\n\n", "Zwei.")


@pytest.mark.parametrize("within", ["\v", "\f", "\x85", "\u2028"])
def test_only_line_feeds_end_a_segment(within: str) -> None:
    first, second = Segmenter("de", letters, 100).split(f"Ein{within}Satz\nZwei")
    assert (first.text, second.text) == (f"Ein{within}Satz", "Zwei")


def test_lines_without_tokens_leave_their_line_feeds() -> None:
    encode = lambda text: letters(text.replace("\u200b", ""))  # noqa: E731
    first, second = Segmenter("de", encode, 100).split("\u200b\nEin Satz.\n\u200b\n\u200b\nZwei.\n\u200b")
    assert (first.text, first.glue, second.text) == ("Ein Satz.", "\n\n\n", "Zwei.")


def test_glue_is_what_stood_between() -> None:
    segments = Segmenter("de", letters, 4).split("abcdef\ngh ij")
    assert segments == [
        Segment("abcd", letters("abcd"), ""),
        Segment("ef", letters("ef"), "\n"),
        Segment("gh", letters("gh"), " ") if len(segments) == 4 else Segment("gh ij", letters("ghij"), ""),
        *segments[3:],
    ]


@pytest.mark.parametrize(
    "between", [" ", "\u200b ", " \u200b", "\ufeff\u2009\u200b", pytest.param("\u200b\n", id="line feed")]
)
def test_characters_without_width_do_not_hide_a_blank_between_sentences(between: str) -> None:
    line = f"Der Hund schläft.{between}Die Katze spielt."
    first, second = Segmenter("de", letters, 80).split(line)
    assert first.glue.isspace()
    assert "\n" in first.glue or "\n" not in between
    assert f"{first.text} {second.text}".split() == line.split()


def test_without_a_blank_between_sentences_there_is_none_between_translations() -> None:
    first, second = Segmenter("de", letters, 80).split("Der Hund schläft.\u200bDie Katze spielt.")
    assert (first.glue, second.text) == ("", "\u200bDie Katze spielt.")


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        ".",
        " ",
        '"',
        "😀",
        "\x00",
        "a. ",
        "(Ab cd ef. ",
        "(Ab. ",
        "’",
        "- ",
        "a) ",
        "ab. ",
        "?!",
        ":) ",
        "(ab) ",
        "am 3. ",
    ],
)
def test_a_long_line_takes_time_in_proportion(unit: str) -> None:
    line = (unit * 200_000)[:200_000]
    assert letters("".join(split(line, 80))) == letters(line)


def test_unsplit_a_line_is_one_segment_as_it_stands() -> None:
    assert whole(" Eins. Zwei. ", letters) == [Segment(" Eins. Zwei. ", letters("Eins.Zwei."))]
    assert whole("  ", letters) == []
