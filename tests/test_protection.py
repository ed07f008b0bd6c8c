"""What must not change comes out unchanged, in place, in every strategy; the rest of the text is not touched."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import check_protection
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protecting import Model, Words, keeps_carriers, protected, stream_of, translated
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, scripted_translator

from specmt import BUNDLED_MODEL
from specmt.errors import InputError
from specmt.loading import load_translator
from specmt.protection.carriers import NUMBERS
from specmt.protection.finding import KINDS, SpanFinder
from specmt.protection.pieces import Piece
from specmt.protection.protection import ATTEMPTS, Protection
from specmt.protection.spans import Span
from specmt.protection.terminology import Terminology
from specmt.settings import DecodingSettings
from specmt.text.sentences import CARRIER_NAMES
from specmt.translation import Alternative, Translation

STRICT = DecodingSettings.from_defaults(DEFAULTS).strict()
AR = replace(STRICT, strategy="ar")


@pytest.mark.parametrize("line", ["ein mann", " ein  mann ", "", "…"])
def test_a_line_without_spans_is_handed_on_as_it_is(line: str) -> None:
    assert Protection(Words()).before(line) == (line, None)


@pytest.mark.timeout(60)
def test_a_run_of_blanks_takes_no_more_than_its_length() -> None:
    """In quadratic time this would take an hour."""
    blanks = " " * 1_000_000
    assert Piece.of(f"{blanks}a{blanks}b{blanks}") == Piece(blanks, f"a{blanks}b", blanks)


def test_a_span_travels_as_a_carrier_and_comes_back() -> None:
    model = Model(keeps_carriers)
    (one,) = translated(Protection(Words()), ["hallo {name}, da ist %s!"], model)
    assert model.calls == [[f"hallo {CARRIER_NAMES[0]}, da ist {CARRIER_NAMES[1]}!"]]
    assert one.text == "HALLO {name}, DA IST %s!"
    assert one.unplaced == ()


def test_spans_may_change_places() -> None:
    swapped = lambda text: " ".join(reversed(text.split()))  # noqa: E731
    assert protected(["{a} vor {b}"], swapped) == ["{b} vor {a}"]


def test_placeholders_that_only_their_order_tells_apart_keep_it() -> None:
    swapped = lambda text: " ".join(reversed(text.split()))  # noqa: E731
    assert protected(["%s vor %d"], swapped) == ["%s vor %d"]
    assert protected(["{} vor {}"], swapped) == ["{} vor {}"]
    assert protected(["%s vor {b}"], swapped) == ["{b} vor %s"]


@pytest.mark.parametrize(
    ("line", "carriers"),
    [
        ("vor %d Tagen", ["12"]),
        ("noch {count} übrig", ["12"]),
        ("%s Dateien, {0} € für {name}", ["12", "47", "Tom"]),
        ("{name} hat 12 von %2$d {n}", ["Tom", "47", "17"]),
        ("&amp; Wagen, 5%% Rabatt", ["Tom", "Mary"]),
        ("{name} Müller, {0} Tage", ["Tom", "12"]),
    ],
)
def test_placeholders_for_numbers_travel_as_numbers_first(line: str, carriers: list[str]) -> None:
    model = Model(str.upper)
    translated(Protection(Words()), [line], model)
    sent = [word for word in model.calls[0][0].split() if word in {*CARRIER_NAMES, *NUMBERS} and word not in line]
    assert sent == carriers


def test_a_carrier_is_neither_in_the_line_nor_out_of_the_vocabulary() -> None:
    model = Model(keeps_carriers)
    words = Words(lacking=[CARRIER_NAMES[1]])
    translated(Protection(words), [f"{CARRIER_NAMES[0]} sieht {{name}}"], model)
    assert model.calls == [[f"{CARRIER_NAMES[0]} sieht {CARRIER_NAMES[2]}"]]


@pytest.mark.parametrize("fault", ["lost", "doubled"])
def test_another_carrier_is_tried_where_one_is_lost_or_doubled(fault: str) -> None:
    def rule(text: str) -> str:
        return (
            text.upper()
            if fault == "lost"
            else text.replace(CARRIER_NAMES[0], f"{CARRIER_NAMES[0]} {CARRIER_NAMES[0]}")
        )

    model = Model(lambda text: rule(text) if CARRIER_NAMES[0] in text else keeps_carriers(text))
    (one,) = translated(Protection(Words()), ["da ist {name} heute"], model)
    assert model.calls == [[f"da ist {CARRIER_NAMES[0]} heute"], [f"da ist {CARRIER_NAMES[1]} heute"]]
    assert one.text == "DA IST {name} HEUTE"


@pytest.mark.parametrize("longer", ["{}s", "un{}", "{}2", "3{}"])
def test_a_carrier_within_a_longer_word_is_none(longer: str) -> None:
    model = Model(lambda text: keeps_carriers(text).replace(CARRIER_NAMES[0], longer.format(CARRIER_NAMES[0])))
    (one,) = translated(Protection(Words()), ["da ist {name} heute"], model)
    assert model.calls == [[f"da ist {CARRIER_NAMES[0]} heute"], [f"da ist {CARRIER_NAMES[1]} heute"]]
    assert one.text == "DA IST {name} HEUTE"


@pytest.mark.parametrize(
    "line", ["%s vor <b>%d</b>", "<b>{}</b> vor <i>das {}</i>", "<p>%s</p> vor <b>ein <i>%s</i></b>"]
)
def test_placeholders_in_elements_keep_their_order_too(line: str) -> None:
    swapped = lambda text: " ".join(reversed(text.split()))  # noqa: E731
    placeholders = [part.text for part in SpanFinder(["placeholder"]).parts(line) if isinstance(part, Span)]
    (said,) = protected([line], swapped)
    assert [part.text for part in SpanFinder(["placeholder"]).parts(said) if isinstance(part, Span)] == placeholders


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('der <a title="hund">hund</a> bellt', 'DER <a title="hund">HUND</a> BELLT'),
        ("<a href='/a'>a</a> ist neu", "<a href='/a'>A</a> IST NEU"),
        ("siehe <b> b </b>", "SIEHE <b> B </b>"),
    ],
)
def test_the_translation_of_an_elements_text_stands_between_its_tags(line: str, text: str) -> None:
    model = Model(str.upper)
    (one,) = translated(Protection(Words()), [line], model)
    assert (one.text, one.unplaced) == (text, ())
    assert len(model.calls) == 2, "the elements, then the line, in no pieces"


def test_a_span_alone_in_an_element_is_not_capitalised() -> None:
    (one,) = translated(Protection(Words()), ["<b>a@b.de</b> ist neu"], Model(lambda text: text[:1].upper() + text[1:]))
    assert (one.text, one.unplaced) == ("<b>a@b.de</b> ist neu", ())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("<b>GmbH</b> und so", "<b>Ltd.</b> und so"),
        ("die <b>rote GmbH </b> da", "die <b>rote Ltd. </b> da"),
        ("das <i>Auto fährt</i> da", "das <i>Car fährt</i> da"),
        ("das <i>fährt so</i> da", "das <i>fährt so</i> da"),
    ],
)
def test_a_term_in_an_element_keeps_its_full_stop_and_its_capital(line: str, text: str) -> None:
    pairs = [("GmbH", "Ltd."), ("Auto", "Car")]
    rule = lambda text: text[:1].upper() + text[1:].removesuffix(".") + "."  # noqa: E731
    protection = Protection(Words(), terminology=Terminology(pairs))
    (one,) = translated(protection, [line], Model(rule))
    assert one.text.removesuffix(".").replace("Die", "die").replace("Das", "das") == text
    assert one.unplaced == ()


def test_elements_with_one_translation_are_carried_by_words_that_differ() -> None:
    model = Model(lambda text: "ES" if text == "das" else keeps_carriers(text))
    (one,) = translated(Protection(Words()), ["nimm <b>das</b> und <b>das</b> mit"], model)
    assert one.text == "NIMM <b>ES</b> UND <b>ES</b> MIT"
    assert [len(call) for call in model.calls] == [2, 1], "both elements, then the line, in no pieces"


def test_only_lines_that_failed_are_tried_again() -> None:
    model = Model(lambda text: keeps_carriers(text) if "gut" in text else text.upper())
    found = [one.text for one in translated(Protection(Words()), ["gut {a}", "schlecht {b} da", "nichts"], model)]
    assert [len(call) for call in model.calls] == [1, *[1] * ATTEMPTS, 2, 1]
    assert found == ["GUT {a}", "SCHLECHT {b} DA", "NICHTS"]


def test_no_attempt_is_made_twice() -> None:
    """The models' answers do not change: what failed among the lines of the stream would fail again."""
    model = Model(str.upper)
    (one,) = translated(Protection(Words()), ["schlecht {b} da"], model)
    *attempts, pieces = model.calls
    assert len(attempts) == len({text for (text,) in attempts}) == ATTEMPTS
    assert pieces == ["schlecht", "da"]
    assert one.text == "SCHLECHT {b} DA"


def test_a_line_that_is_too_long_only_with_other_carriers_goes_in_pieces() -> None:
    """Where lines are not split."""

    def rule(text: str) -> str:
        if len(text) > len(f"da ist {CARRIER_NAMES[0]} heute"):
            raise InputError("too long")
        return text.upper()

    model = Model(rule)
    (one,) = translated(Protection(Words()), ["da ist {name} heute"], model)
    assert [len(call) for call in model.calls] == [*[1] * ATTEMPTS, 2]
    assert one.text == "DA IST {name} HEUTE"
    with pytest.raises(InputError, match="too long"):
        translated(Protection(Words()), ["<b>da ist</b> {name} heute, heute"], model)


def test_at_last_the_text_between_is_translated_in_pieces() -> None:
    model = Model(lambda text: "Etwas Anderes.")
    (one,) = translated(Protection(Words()), ["Hallo {name}, wie geht's (%s)"], model)
    assert model.calls[-1] == ["Hallo", "wie geht's ("]
    assert one.text == "Etwas Anderes {name}, etwas Anderes%s)"
    assert one.ids == (7, 2, 7, 2) and one.score == -0.5


@pytest.mark.parametrize("ending", [".", "!", "?", "…", "?!", "..."])
def test_a_piece_ends_as_a_sentence_where_its_source_does_and_nowhere_else(ending: str) -> None:
    """The model ends everything so."""
    rule = lambda text: text.upper().rstrip(".!?…") + ending  # noqa: E731
    assert protected(["ein <br/> hund", f"ein{ending} <br/> hund{ending}"], rule) == [
        "EIN <br/> HUND",
        f"EIN{ending} <br/> HUND{ending}",
    ]


def test_more_spans_than_carriers_go_in_pieces() -> None:
    line = " ".join(f"{{a{i}}} und" for i in range(len(CARRIER_NAMES) + 1))
    (text,) = protected([line], lambda text: text.upper())
    assert text == line.replace("und", "UND")


@pytest.mark.parametrize("line", ["https://a.de", "{x}", "%s, %d!", "<br/>", "<b></b>", "12", "  {x}  "])
def test_a_line_of_spans_alone_is_not_translated(line: str) -> None:
    model = Model(lambda text: "nonsense")
    (one,) = translated(Protection(Words()), [line], model)
    assert one.text.strip() == line.strip()
    assert [text for call in model.calls for text in call if text.strip()] == []


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("<p>ein satz</p>", "<p>EIN SATZ</p>"),
        ("<p> ein satz </p>", "<p> EIN SATZ </p>"),
        ("<div><p>ein <b>satz</b></p></div>", "<div><p>EIN <b>SATZ</b></p></div>"),
        ("klicke <b>hier</b>, jetzt", "KLICKE <b>HIER</b>, JETZT"),
        ("eins<br/>zwei", "EINS<br/>ZWEI"),
        ("<li>a</li><li>b</li>", "<li>A</li><li>B</li>"),
        ("<b>x <b>c</b> d</b> e", "<b>X <b>C</b> D</b> E"),
        ("offen <b> bleibt", "OFFEN <b> BLEIBT"),
        ("zu </b> viel", "ZU </b> VIEL"),
    ],
)
def test_tags_keep_their_nesting_and_spaces(line: str, text: str) -> None:
    def rule(text: str) -> str:
        return keeps_carriers(text).strip()

    assert protected([line], rule) == [text]


def test_elements_in_one_another_are_kept_however_deep() -> None:
    """At a great depth tags part the text, whether or not they are pairs."""
    line = "<b>" * 600 + "ein <i>satz</i>" + "</b>" * 600
    assert protected([line]) == [line.replace("ein", "EIN").replace("satz", "SATZ")]


def test_a_number_is_left_to_the_model_and_carried_only_when_it_is_lost() -> None:
    model = Model(lambda text: text.upper().replace("2", "TWO") if "12" not in text else text.upper())
    texts = [one.text for one in translated(Protection(Words()), ["die 3 da", "die 2 da"], model)]
    assert texts == ["DIE 3 DA", "DIE 2 DA"]
    assert model.calls == [["die 3 da"], ["die 2 da"], [f"die {NUMBERS[1]} da"]]


TERMS = Terminology([("Hund", "hound")])


def test_a_term_that_comes_out_by_itself_costs_nothing() -> None:
    model = Model(lambda text: "The hound sleeps.")
    (one,) = translated(Protection(Words(), terminology=TERMS), ["Der Hund schläft."], model)
    assert one.text == "The hound sleeps."
    assert model.calls == [["Der Hund schläft."]]


def test_a_term_is_carried_where_the_model_says_something_else() -> None:
    model = Model(lambda text: text.replace("Der", "The").replace("Hund", "dog").replace("schläft", "sleeps"))
    (one,) = translated(Protection(Words(), terminology=TERMS), ["Der Hund schläft."], model)
    assert one.text == "The hound sleeps."
    assert model.calls == [["Der Hund schläft."], [f"Der {CARRIER_NAMES[1]} schläft."]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_not_asked_for_is_text(kind: str) -> None:
    line = "https://a.de b@c.de <b>x</b> {y} a.txt 12 DE12"
    kinds = {
        part.kind for part in SpanFinder([one for one in KINDS if one != kind]).parts(line) if isinstance(part, Span)
    }
    assert kinds == set(KINDS) - {kind}


def test_alternatives_that_lost_something_are_left_out() -> None:
    def run(chunks: Iterable[Sequence[str]]) -> Iterator[Translation]:
        lines = next(iter(chunks), None)
        if lines is None:
            return
        best = [
            Alternative(f"see {CARRIER_NAMES[0]}", -1.0, (7, 2), (-0.5, -0.5)),
            Alternative("see him", -2.0, (8, 2), (-1.0, -1.0)),
            Alternative(f"{CARRIER_NAMES[0]} seen", -3.0, (9, 2), (-1.5, -1.5)),
        ]
        yield Translation(0, lines[0], best[0].text, -1.0, (7, 2), (), tuple(best), (8,), (-0.5, -0.5))

    (one,) = translated(Protection(Words()), ["sieh {x}"], run)
    assert one.n_best == (
        Alternative("see {x}", -1.0, (7, 2), (-0.5, -0.5)),
        Alternative("{x} seen", -3.0, (9, 2), (-1.5, -1.5)),
    )


def test_what_is_lost_all_the_same_is_reported() -> None:
    """A term whose place is inside a longer word of the translation."""
    terms = Terminology([("da", "there")])
    (one,) = translated(Protection(Words(), ["placeholder"], terms), ["hundert%da%"], Model(lambda text: "x"))
    assert (one.text, one.unplaced) == ("xthere%", ("da",))
    (one,) = translated(Protection(Words(), terminology=terms), ["_(da)_{q}"], Model(lambda text: "x"))
    assert (one.text, one.unplaced) == ("_(there)_{q}", ())


@given(
    st.lists(
        st.lists(
            st.sampled_from(["{a}", "%s", "<b>", "</b>", "<br/>", "12", "x@y.de", "wort", ",", " ", "Tom", "3,5"])
        ),
        max_size=4,
    ),
    st.sampled_from([str.upper, str.lower, lambda text: "", lambda text: text * 2, keeps_carriers]),
)
def test_any_line_keeps_its_spans_whatever_the_model_says(lines: list[list[str]], rule: Callable[[str], str]) -> None:
    texts = [" ".join(parts) for parts in lines]
    model = Model(rule)
    translations = translated(Protection(Words()), texts, model)
    assert [one.source for one in translations] == texts
    for line, one in zip(texts, translations, strict=True):
        for span in ("{a}", "%s", "<b>", "</b>", "<br/>", "x@y.de"):
            assert one.text.count(span) >= line.count(span)
        assert one.unplaced == ()


# -- with models


def test_strict_and_ar_give_the_same_lines_whatever_is_protected() -> None:
    lines = [f"{sentence} {{x}} 12 {sentence}" for sentence in SENTENCES] + list(SENTENCES)
    terms = Terminology([(SENTENCES[0].split()[0], "ab")])
    found = []
    for settings in (STRICT, AR):
        translator = scripted_translator(ScriptedEngine())
        protection = Protection(translator.vocabulary, terminology=terms)
        stream = stream_of(*lines)
        translations = translator.translate_stream(stream, settings, batch_size=3, wrapper=protection)
        found.append([(one.text, one.ids, one.unplaced) for one in translations])
    assert found[0] == found[1]
    assert all("{x}" in text for text, _, _ in found[0][: len(SENTENCES)])


@pytest.mark.slow
def test_the_bundled_model_keeps_everything_and_says_the_terms() -> None:
    """Every fifth line of the set; `scripts/check_protection.py` takes all."""
    lines = check_protection.read_lines(check_protection.DATA / "protection.jsonl")
    assert len(lines) == 240
    sample = lines[::5]
    translator = load_translator(BUNDLED_MODEL)
    strict = DecodingSettings.from_defaults(translator.defaults).strict()
    texts = {}
    for settings in (strict, replace(strict, strategy="ar")):
        translations = check_protection.translate(translator, sample, settings, protected=True)
        texts[settings.strategy] = [one.text for one in translations]
        kept, terms = check_protection.count(sample, texts[settings.strategy])
        assert (kept.found, terms.found) == (kept.required, terms.required)
        assert min(kept.required, terms.required) > 10
    assert texts["spec"] == texts["ar"]


@pytest.mark.slow
def test_the_command_keeps_spans_and_takes_terms(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("Hund\thound\n")
    text = "Ein Hund sieht {name}.\nEin Mann spielt Gitarre.\n"
    command = [sys.executable, "-m", "specmt", "translate", "--format", "jsonl"]
    root = Path(__file__).parent.parent

    def run(*options: str) -> list[dict[str, str]]:
        done = subprocess.run([*command, *options], input=text, capture_output=True, text=True, check=True, cwd=root)
        assert done.stderr == ""
        return [json.loads(line) for line in done.stdout.splitlines()]

    kept = run("--terminology", str(tmp_path / "terms.tsv"))
    plain = run("--protect", "none")
    assert "hound" in kept[0]["translation"] and "{name}" in kept[0]["translation"]
    assert "hound" not in plain[0]["translation"]
    assert kept[1] == plain[1]
