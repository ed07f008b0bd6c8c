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
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, scripted_translator

from specmt.bundle import BUNDLED_MODEL
from specmt.errors import InputError, UsageError
from specmt.loading import load_translator
from specmt.protection.carriers import NAMES, NUMBERS
from specmt.protection.protection import Protection
from specmt.protection.spans import KINDS, Span, SpanFinder
from specmt.protection.terminology import Terminology, read_terminology
from specmt.settings import DecodingSettings
from specmt.translation import Alternative, Translation

STRICT = DecodingSettings.from_defaults(DEFAULTS).strict()
AR = replace(STRICT, strategy="ar")


class Words:
    """A vocabulary that has every word but those it is told to lack."""

    def __init__(self, lacking: Iterable[str] = ()) -> None:
        self.lacking = set(lacking)

    def encode(self, text: str) -> list[int]:
        return [3 if word in self.lacking else 9 for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(self.piece, ids))

    def piece(self, id_: int) -> str:
        return "word" if id_ == 9 else "<unk>"

    source_piece = piece
    source_size = 10

    def __len__(self) -> int:
        return 10


class Model:
    """Translates lines by a rule, and remembers what it was asked in each call."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule = rule
        self.calls: list[list[str]] = []

    def __call__(self, chunks: Iterable[Sequence[str]]) -> Iterator[Translation]:
        index = 0
        for chunk in chunks:
            self.calls.append(list(chunk))
            for line in chunk:
                yield Translation(index, line, self.rule(line), -0.5, (7, 2))
                index += 1


def protected(lines: Sequence[str], rule: Callable[[str], str] = str.upper, **how: object) -> list[str]:
    translations = list(Protection(Words(), **how).translate([lines], Model(rule)))  # type: ignore[arg-type]
    assert [one.source for one in translations] == list(lines)
    assert [one.index for one in translations] == list(range(len(lines)))
    return [one.text for one in translations]


def keeps_carriers(text: str) -> str:
    """Everything in capitals but the words that models copy."""
    return " ".join(word if word.strip(".,!?:()") in {*NAMES, *NUMBERS} else word.upper() for word in text.split(" "))


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("{name} {0} {} {a.b} {x:>3}", ["{name}", "{0}", "{}", "{a.b}", "{x:>3}"]),
        ("{{x}} {{ y }} ${z} %{w} $HOME", ["{{x}}", "{{ y }}", "${z}", "%{w}", "$HOME"]),
        ("%s %d %1$s %(n)s %.2f %ld %@ %1 %NAME%", ["%s", "%d", "%1$s", "%(n)s", "%.2f", "%ld", "%@", "%1", "%NAME%"]),
        ("50 % der", ["50"]),
        ("100%ig sicher 5%", ["100", "5"]),
        ("http://a.de/x?y=1&z=2. (www.b.de) ftp://c.d!", ["http://a.de/x?y=1&z=2", "www.b.de", "ftp://c.d"]),
        ("a.b+c@d-e.org, f@g.de.", ["a.b+c@d-e.org", "f@g.de"]),
        (
            '<b>x</b> <br/> <a href="https://x.de/1">y</a>',
            ["<b>", "</b>", "<br/>", '<a href="https://x.de/1">', "</a>"],
        ),
        ("3 < 4 und 5 > 2", ["3", "4", "5", "2"]),
        ("3,5 1.250.000 10:30 24.12.2021. 2/3 -7", ["3,5", "1.250.000", "10:30", "24.12.2021", "2/3", "7"]),
        ("A380 44jährige U2 x3y", []),
        ("&amp; &#39; & Co.", ["&amp;", "&#39;"]),
        ("Ein Mann spielt Gitarre.", []),
    ],
)
def test_spans_are_found(line: str, spans: list[str]) -> None:
    parts = SpanFinder().parts(line)
    assert [part.text for part in parts if isinstance(part, Span)] == spans
    assert "".join(part.text if isinstance(part, Span) else part for part in parts) == line


def test_a_chunk_without_spans_is_handed_on_as_it_is() -> None:
    model = Model(str.upper)
    chunks = [["ein mann", ""], ["eine frau"], ["{x} hier"], ["ein hund"], ["ein kind"]]
    translations = list(Protection(Words()).translate(chunks, model))
    assert [one.index for one in translations] == list(range(6))
    assert model.calls[:2] == chunks[:2] and model.calls[-2:] == chunks[-2:]


def test_chunks_without_spans_are_asked_for_one_by_one() -> None:
    asked: list[int] = []

    def chunks() -> Iterator[list[str]]:
        for number in range(3):
            asked.append(number)
            yield [f"zeile {'abc'[number]}"]

    translations = Protection(Words()).translate(chunks(), Model(str.upper))
    assert next(translations).text == "ZEILE A"
    assert asked == [0]


def test_a_span_travels_as_a_carrier_and_comes_back() -> None:
    model = Model(keeps_carriers)
    (one,) = Protection(Words()).translate([["hallo {name}, da ist %s!"]], model)
    assert model.calls == [[f"hallo {NAMES[0]}, da ist {NAMES[1]}!"]]
    assert one.text == "HALLO {name}, DA IST %s!"
    assert one.unplaced == ()


def test_spans_may_change_places() -> None:
    swapped = lambda text: " ".join(reversed(text.split()))  # noqa: E731
    assert protected(["{a} vor {b}"], swapped) == ["{b} vor {a}"]


def test_a_carrier_is_neither_in_the_line_nor_out_of_the_vocabulary() -> None:
    model = Model(keeps_carriers)
    words = Words(lacking=[NAMES[1]])
    list(Protection(words).translate([[f"{NAMES[0]} sieht {{name}}"]], model))
    assert model.calls == [[f"{NAMES[0]} sieht {NAMES[2]}"]]


@pytest.mark.parametrize("fault", ["lost", "doubled"])
def test_another_carrier_is_tried_where_one_is_lost_or_doubled(fault: str) -> None:
    def rule(text: str) -> str:
        return text.upper() if fault == "lost" else text.replace(NAMES[0], f"{NAMES[0]} {NAMES[0]}")

    model = Model(lambda text: rule(text) if NAMES[0] in text else keeps_carriers(text))
    (one,) = Protection(Words()).translate([["da ist {name} heute"]], model)
    assert model.calls == [[f"da ist {NAMES[0]} heute"], [f"da ist {NAMES[1]} heute"]]
    assert one.text == "DA IST {name} HEUTE"


def test_only_lines_that_failed_are_tried_again() -> None:
    model = Model(lambda text: keeps_carriers(text) if "gut" in text else text.upper())
    found = [one.text for one in Protection(Words()).translate([["gut {a}", "schlecht {b} da", "nichts"]], model)]
    assert [len(call) for call in model.calls] == [3, 1, 1, 1, 2]
    assert found == ["GUT {a}", "SCHLECHT {b} DA", "NICHTS"]


def test_at_last_the_text_between_is_translated_in_pieces() -> None:
    model = Model(lambda text: "Etwas Anderes.")
    (one,) = Protection(Words()).translate([["Hallo {name}, wie geht's? (%s)"]], model)
    assert model.calls[-1] == ["Hallo", "wie geht's? ("]
    assert one.text == "Etwas Anderes {name}, etwas Anderes%s)"
    assert one.ids == (7, 2, 7, 2) and one.score == -0.5


def test_more_spans_than_carriers_go_in_pieces() -> None:
    line = " ".join(f"{{a{i}}} und" for i in range(len(NAMES) + 1))
    (text,) = protected([line], lambda text: text.upper())
    assert text == line.replace("und", "UND")


@pytest.mark.parametrize("line", ["https://a.de", "{x}", "%s, %d!", "<br/>", "<b></b>", "12", "  {x}  "])
def test_a_line_of_spans_alone_is_not_translated(line: str) -> None:
    model = Model(lambda text: "nonsense")
    (one,) = Protection(Words()).translate([[line]], model)
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
        ("<b>a <b>c</b> d</b> e", "<b>A <b>C</b> D</b> E"),
        ("offen <b> bleibt", "OFFEN <b> BLEIBT"),
        ("zu </b> viel", "ZU </b> VIEL"),
    ],
)
def test_tags_keep_their_nesting_and_spaces(line: str, text: str) -> None:
    def rule(text: str) -> str:
        return keeps_carriers(text).strip()

    assert protected([line], rule) == [text]


def test_a_number_is_left_to_the_model_and_carried_only_when_it_is_lost() -> None:
    model = Model(lambda text: text.upper().replace("2", "TWO") if "12" not in text else text.upper())
    texts = [one.text for one in Protection(Words()).translate([["die 3 da", "die 2 da"]], model)]
    assert texts == ["DIE 3 DA", "DIE 2 DA"]
    assert model.calls == [["die 3 da", "die 2 da"], [f"die {NUMBERS[1]} da"]]


@pytest.mark.parametrize(
    ("said", "kept"), [("3.5", False), ("3,5", True), ("13,5", False), ("3,50", False), ("3,5.", True)]
)
def test_a_number_is_found_only_as_it_was(said: str, kept: bool) -> None:
    assert bool(Span("number", "3,5", "3,5").found(f"it is {said}")) is kept


TERMS = Terminology([("Hund", "hound"), ("Hund und Katze", "pets"), ("rot", "crimson")])


def test_a_term_that_comes_out_by_itself_costs_nothing() -> None:
    model = Model(lambda text: "The hound sleeps.")
    (one,) = Protection(Words(), terminology=TERMS).translate([["Der Hund schläft."]], model)
    assert one.text == "The hound sleeps."
    assert model.calls == [["Der Hund schläft."]]


def test_a_term_is_carried_where_the_model_says_something_else() -> None:
    model = Model(lambda text: text.replace("Der", "The").replace("Hund", "dog").replace("schläft", "sleeps"))
    (one,) = Protection(Words(), terminology=TERMS).translate([["Der Hund schläft."]], model)
    assert one.text == "The hound sleeps."
    assert model.calls == [["Der Hund schläft."], [f"Der {NAMES[1]} schläft."]]


@pytest.mark.parametrize(
    ("line", "terms"),
    [("Hund und Katze", ["pets"]), ("Hunde", []), ("Ein Hund, rot", ["hound", "crimson"]), ("Rot ist er", ["crimson"])],
)
def test_terms_are_whole_words_the_longest_first(line: str, terms: list[str]) -> None:
    parts = SpanFinder(kinds=(), terminology=TERMS).parts(line)
    assert [part.target for part in parts if isinstance(part, Span)] == terms


def test_a_term_inside_a_protected_span_is_part_of_it() -> None:
    parts = SpanFinder(terminology=TERMS).parts("https://a.de/Hund")
    assert [part.kind for part in parts if isinstance(part, Span)] == ["url"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Hund\n", "line 1: expected a source term, a tab, and its translation"),
        ("\n\tx\n", "line 2: expected a source term, a tab, and its translation"),
        ("a\tb\tc\n", "line 1: expected"),
        ("a\tb\na\tc\n", "line 2: 'a' has another translation before"),
    ],
)
def test_a_terminology_that_is_none_is_one_line(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text(content)
    with pytest.raises(InputError) as caught:
        read_terminology(tmp_path / "t.tsv")
    assert message in str(caught.value) and str(tmp_path / "t.tsv") in str(caught.value)


def test_a_kind_that_is_none_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^--protect names: expected none, or some of url,email"):
        Protection(Words(), ["url", "names"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_not_asked_for_is_text(kind: str) -> None:
    line = "https://a.de b@c.de <b>x</b> {y} 12"
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
            Alternative(f"see {NAMES[0]}", -1.0),
            Alternative("see him", -2.0),
            Alternative(f"{NAMES[0]} seen", -3.0),
        ]
        yield Translation(0, lines[0], best[0].text, -1.0, (7, 2), (), tuple(best))

    (one,) = Protection(Words()).translate([["sieh {x}"]], run)
    assert [each.text for each in one.n_best] == ["see {x}", "{x} seen"]


def test_what_is_lost_all_the_same_is_reported() -> None:
    """A term whose place is inside a longer word of the translation."""
    terms = Terminology([("da", "there")])
    (one,) = Protection(Words(), ["placeholder"], terms).translate([["hundert%da%"]], Model(lambda text: "x"))
    assert (one.text, one.unplaced) == ("xthere%", ("da",))
    (one,) = Protection(Words(), terminology=terms).translate([["_(da)_{q}"]], Model(lambda text: "x"))
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
    translations = list(Protection(Words()).translate([texts], model))
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
        run = lambda chunks, t=translator, s=settings: t.translate_chunks(chunks, s, 3)  # noqa: E731
        found.append([(one.text, one.ids, one.unplaced) for one in protection.translate([lines], run)])
    assert found[0] == found[1]
    assert all("{x}" in text for text, _, _ in found[0][: len(SENTENCES)])


@pytest.mark.slow
def test_the_bundled_model_keeps_everything_and_says_the_terms() -> None:
    """Every fifth line of the set; `scripts/check_protection.py` takes all."""
    lines = check_protection.read_lines(check_protection.DATA / "protection.jsonl")
    assert len(lines) == 200
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

    kept, plain = run("--terminology", str(tmp_path / "terms.tsv")), run("--protect", "none")
    assert "hound" in kept[0]["translation"] and "{name}" in kept[0]["translation"]
    assert "hound" not in plain[0]["translation"]
    assert kept[1] == plain[1]
