"""Sentences in capitals: read as they are ordinarily written, translated into capitals."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt import BUNDLED_MODEL
from specmt.loading import load_translator
from specmt.protection.protection import Protection
from specmt.reading import has_no_capitals
from specmt.settings import DecodingSettings
from specmt.text.capitals import with_capitals_of, without_capital
from specmt.text.nouns import Nouns
from specmt.text.ordinary import Ordinary
from specmt.text.segmentation import Segment, whole
from specmt.text.vocabulary import Vocabulary
from specmt.translator import Translator


@pytest.fixture(scope="module")
def translator() -> Translator:
    return load_translator(BUNDLED_MODEL)


@pytest.fixture(scope="module")
def vocabulary(translator: Translator) -> Vocabulary:
    assert isinstance(translator.vocabulary, Vocabulary)
    return translator.vocabulary


@pytest.fixture(scope="module")
def settings(translator: Translator) -> DecodingSettings:
    return DecodingSettings.from_defaults(translator.defaults).strict()


def spelt(text: str, vocabulary: Vocabulary, language: str = "de") -> str:
    """What is encoded for a sentence, if it is not the sentence."""
    (segment,) = Ordinary(language, vocabulary).segments(whole(text, vocabulary.encode))
    assert segment.text == text
    assert segment.ids == vocabulary.encode(segment.ordinary or text)
    return segment.ordinary


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        ("EIN MANN SPIELT GITARRE.", "Ein Mann spielt Gitarre."),
        ("BITTE SCHLIESSEN SIE DIE TÜR!", "Bitte schließen sie die Tür!"),
        ("DER FUßBALL LIEGT AUF DER STRASSE.", "Der Fußball liegt auf der Straße."),
        ("„WO IST DIE KATZE?“", "„Wo ist die Katze?“"),
        ("DIE KINDER SPIELEN MIT Tom.", "Die Kinder spielen mit Tom."),
        ("SIE KOMMT AUS DEN USA.", "Sie kommt aus den USA."),
        ("IM BUNDESGESUNDHEITSBLATT", "Im Bundesgesundheitsblatt"),
        ("EINGANG", "Eingang"),
        ("LOS!", "Los!"),
        ("WIE GEHT'S DIR?", "Wie geht's dir?"),
        (unicodedata.normalize("NFD", "MÜNCHEN IST SCHÖN."), "München ist schön."),
        ("DER II. WELTKRIEG", "Der II. Weltkrieg"),
        ("BITTE ÖFFNEN SIE Tom.", "Bitte öffnen sie Tom."),
        ("KEINE Panik!", "Keine Panik!"),
        ("ACHTUNG: Bitte nicht öffnen.", "Achtung: Bitte nicht öffnen."),
        ("BETREFF", "Betreff"),
        ("HINWEIS: Es ist zu.", "Hinweis: Es ist zu."),
        ("WICHTIGE REGEL: Das ist NICHT gut.", "Wichtige Regel: Das ist nicht gut."),
        (
            "Bitte NICHT auf diese E-Mail antworten, das ist SEHR WICHTIG!",
            "Bitte nicht auf diese E-Mail antworten, das ist sehr wichtig!",
        ),
        ("Ich habe NIE gesagt, dass DU kommst.", "Ich habe nie gesagt, dass du kommst."),
        ("NEIN, das ist GAR NICHT wahr.", "Nein, das ist gar nicht wahr."),
        ("Rufen SIE uns an, wenn SIE da ist.", "Rufen Sie uns an, wenn sie da ist."),
        ("HINWEIS: Das gilt NUR heute.", "Hinweis: Das gilt nur heute."),
    ],
)
def test_capitals_are_read_as_they_are_ordinarily_written(text: str, ordinary: str, vocabulary: Vocabulary) -> None:
    assert spelt(text, vocabulary) == ordinary


@pytest.mark.parametrize(
    "text",
    [
        "Ein Mann spielt Gitarre.",
        "Die NATO und die USA",
        "Der ICE nach Berlin",
        "Das steht im SPIEGEL und bei der UNESCO.",
        "Das CARE-Paket",
        unicodedata.normalize("NFD", "Zwei Hunde rennen über eine Wiese."),
        "Was NICHT3 und WICHTIG_2 sind",
        "Er studiert am MIT und arbeitet für BIS.",
        "Das ist eine ICH-AG, NUR3 und DAS_2.",
        "NATO",
        "UNESCO",
        "ARD, ZDF und RTL",
        "USA: Der Präsident reist ab.",
        "A, B, C",
        "12:30",
        "他说NATO很好。",
        "北约和 NATO",
    ],
)
def test_others_are_read_as_they_are(text: str, vocabulary: Vocabulary) -> None:
    assert spelt(text, vocabulary) == ""


def test_only_german_makes_nouns_of_rare_words_and_a_sharp_s(vocabulary: Vocabulary) -> None:
    assert spelt("DIE WXYZQJK STRASSE", vocabulary) == "Die Wxyzqjk Straße"
    assert spelt("DIE WXYZQJK STRASSE", vocabulary, "en").startswith("Die wxyzqjk Stras")


def test_the_translation_is_the_ordinary_sentences_in_capitals(
    translator: Translator, settings: DecodingSettings
) -> None:
    ordinary = ["Ein Mann spielt Gitarre.", "Wo ist der Bahnhof? Zwei Hunde rennen über eine Wiese."]
    for how in (settings, replace(settings, strategy="ar"), replace(settings, strategy="ar", beam=3, n_best=2)):
        expected = [one.text.upper() for one in translator.translate(ordinary, how)]
        found = list(translator.translate([line.upper() for line in ordinary], how))
        assert [one.text for one in found] == expected
        assert [one.source for one in found] == [line.upper() for line in ordinary]
        assert all(other.text == other.text.upper() for one in found for other in one.n_best)
    assert "GUITAR" in expected[0]


def test_capitals_and_other_sentences_of_a_line_go_their_own_ways(translator: Translator) -> None:
    (found,) = translator.translate(["DIE STRASSE IST NASS. Das Haus ist alt."])
    assert found.text == "THE ROAD IS WET. The house is old."


def test_a_stressed_word_is_translated(translator: Translator) -> None:
    plain, found = translator.translate(
        ["Bitte nicht auf diese E-Mail antworten.", "Bitte NICHT auf diese E-Mail antworten."]
    )
    assert found.text == plain.text
    assert found.text.startswith("Please do not reply to this ")


def test_a_stressed_word_that_is_the_same_in_english_keeps_its_capitals(vocabulary: Vocabulary) -> None:
    (segment,) = Ordinary("de", vocabulary).segments(whole("Das Wasser ist WARM.", vocabulary.encode))
    assert segment.ordinary == "Das Wasser ist warm."
    assert with_capitals_of(segment, "The water is warm.") == "The water is WARM."


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Caution: Do not open Tom.", "CAUTION: Do not open Tom."),
        ("Tom, caution: do not open.", "Tom, CAUTION: do not open."),
        ("Do not open.", "Do not open."),
    ],
)
def test_a_label_in_capitals_stays_one(said: str, expected: str, vocabulary: Vocabulary) -> None:
    (segment,) = Ordinary("de", vocabulary).segments(whole("ACHTUNG: Nicht Tom öffnen.", vocabulary.encode))
    assert with_capitals_of(segment, said) == expected


def test_a_long_sentence_in_capitals_is_not_cut(translator: Translator) -> None:
    line = (
        "DIE BUNDESREGIERUNG HAT AM MITTWOCH IN BERLIN BESCHLOSSEN, DASS DIE NEUEN REGELN FÜR UNTERNEHMEN ERST IM "
        "NÄCHSTEN JAHR IN KRAFT TRETEN SOLLEN, WEIL VIELE BETRIEBE MEHR ZEIT BRAUCHEN."
    )
    assert len(translator.vocabulary.encode(line)) > 100
    (found,) = translator.translate([line])
    assert found.segments == 1


def test_what_is_protected_stays_as_it_is(translator: Translator, vocabulary: Vocabulary) -> None:
    lines = ["BITTE ÖFFNEN https://example.org/Ab.", "EINE <b>KATZE</b> SCHLÄFT IM GARTEN."]
    found = [one.text for one in translator.translate(lines, wrapper=Protection(vocabulary))]
    assert "https://example.org/Ab" in found[0]
    assert "<b>CAT</b>" in found[1]
    for text in found:
        rest = text.replace("https://example.org/Ab", "").replace("<b>", "").replace("</b>", "")
        assert rest == rest.upper()


def test_without_guards_a_model_reads_what_is_given(translator: Translator, settings: DecodingSettings) -> None:
    line = "EIN MANN SPIELT GITARRE."
    raw, guarded = (next(translator.translate([line], how)) for how in (replace(settings, guards=False), settings))
    assert list(raw.source_ids) == translator.vocabulary.encode(line)
    assert list(guarded.source_ids) == translator.vocabulary.encode("Ein Mann spielt Gitarre.")


TEXTS = st.one_of(st.text(max_size=40), st.text("AÄBßSTaäbst 'x1.:", max_size=40))


@given(text=TEXTS, source=TEXTS)
def test_capitals_change_letters_and_nothing_else(text: str, source: str, vocabulary: Vocabulary) -> None:
    assert with_capitals_of(Segment(source, [], ordinary="x"), text).upper() == text.upper()
    composed = unicodedata.normalize("NFC", text)
    assert Ordinary("de", vocabulary).text(text).casefold() in {text.casefold(), composed.casefold()}


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        ("meine mutter ist im krankenhaus", "Meine Mutter ist im Krankenhaus"),
        ("hast du lust auf kino heute abend", "Hast du Lust auf Kino heute Abend"),
        ("zwei junge frauen sehen einen jungen.", "Zwei junge Frauen sehen einen Jungen."),
        ("die regelungen sind misslungen", "Die Regelungen sind misslungen"),
        ("er fliegt in die usa und nach berlin", "Er fliegt in die USA und nach Berlin"),
        ("wo ist mein t-shirt?", "Wo ist mein T-Shirt?"),
        ("kannst du mir sagen, ob er das kann?", "Kannst du mir sagen, ob er das kann?"),
        ("„das wetter ist unglaublich schön“", "„Das Wetter ist unglaublich schön“"),
        ("12 kinder spielen mit Tom.", "12 Kinder spielen mit Tom."),
    ],
)
def test_nouns_and_sentences_get_their_capitals(text: str, ordinary: str, vocabulary: Vocabulary) -> None:
    assert Nouns(vocabulary).with_capitals(text) == ordinary


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("meine mutter schläft", True),
        ("ich war da. wo warst du?", True),
        ("öffne bitte https://Example.org/A oder {Name}", True),
        ("meine <B>mutter</B> schläft", True),
        ("Meine mutter schläft", False),
        ("meine mutter mag Tom", False),
        ("mutter schläft", False),
        ("a b c", False),
        ("www.example.de/a b_c d.py e", False),
        ("git commit --amend now please", False),
        ("x² + y² = z²", False),
        ("北约 和 12", False),
        ("", False),
    ],
)
def test_what_a_line_without_capitals_is(line: str, expected: bool) -> None:
    assert has_no_capitals(line) is expected


def test_lines_without_capitals_are_read_as_they_are_ordinarily_written(
    translator: Translator, settings: DecodingSettings
) -> None:
    line, ordinary = "meine mutter schläft schon. wann kommst du?", "Meine Mutter schläft schon. Wann kommst du?"
    for how in (settings, replace(settings, strategy="ar"), replace(settings, strategy="ar", beam=3)):
        found, expected = translator.translate([line, ordinary], how)
        assert (found.source, found.text, found.source_ids) == (line, expected.text, expected.source_ids)
        assert found.segments == 2


def test_what_is_no_word_begins_no_sentence(vocabulary: Vocabulary) -> None:
    assert Nouns(vocabulary).with_capitals("@user hat die #katze") == "@user hat die #katze"


def test_abbreviations_get_no_capitals(vocabulary: Vocabulary) -> None:
    assert Nouns(vocabulary).with_capitals("es sind ca. 20 bücher usw.") == "Es sind ca. 20 Bücher usw."


def test_a_line_without_capitals_is_read_so_too_where_lines_are_not_split(
    translator: Translator, settings: DecodingSettings
) -> None:
    (found,) = translator.translate(["meine mutter ist im krankenhaus"], replace(settings, split=False))
    assert found.text == "My mother is in the hospital"


def test_without_guards_a_line_without_capitals_is_read_as_given(
    translator: Translator, settings: DecodingSettings
) -> None:
    line = "meine mutter ist im krankenhaus"
    (raw,) = translator.translate([line], replace(settings, guards=False))
    assert list(raw.source_ids) == translator.vocabulary.encode(line)


def test_parts_of_a_line_are_spelt_as_the_line_is(translator: Translator, vocabulary: Vocabulary) -> None:
    """Pieces between tags that have no pair are translated one by one."""
    lines = ["meine mutter<br/>ist im krankenhaus hier<br/>{x}", "Meine Mutter<br/>von unten nach oben<br/>{x}"]
    small, usual = translator.translate(lines, wrapper=Protection(vocabulary))
    encode = vocabulary.encode
    assert list(small.source_ids) == [*encode("Meine Mutter"), *encode("Ist im Krankenhaus hier")]
    assert list(usual.source_ids) == [*encode("Meine Mutter"), *encode("von unten nach oben")]
    assert small.text.startswith("My mother<br/>is in")


def test_a_line_with_capitals_keeps_its_sentences_without(translator: Translator, vocabulary: Vocabulary) -> None:
    (found,) = translator.translate(["Das ist alles!\nund dann nach hause"])
    assert list(found.source_ids) == [*vocabulary.encode("Das ist alles!"), *vocabulary.encode("und dann nach hause")]


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("eine Katze", "A cat", "a cat"),
        ("das Haus", "The house", "the house"),
        ("ich bin", "I am", "I am"),
        ("die IP", "IP address", "IP address"),
        ("Das Haus", "The house", "The house"),
        ("so", "", ""),
    ],
)
def test_what_begins_in_small_letters_does_so_in_english(source: str, text: str, expected: str) -> None:
    assert without_capital(source, text) == expected


def test_endless_words_take_no_time_and_stay(vocabulary: Vocabulary) -> None:
    assert Nouns(vocabulary).with_capitals("so " + "zu" * 50_000) == "So " + "zu" * 50_000


@given(text=TEXTS)
def test_capitals_for_nouns_change_letters_and_nothing_else(text: str, vocabulary: Vocabulary) -> None:
    assert Nouns(vocabulary).with_capitals(text).casefold() == text.casefold()
