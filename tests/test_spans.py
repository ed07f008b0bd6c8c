"""Which parts of a line are spans, and which of them a translation lacks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specmt.errors import InputError, UsageError
from specmt.protection.finding import PATTERNS, SpanFinder
from specmt.protection.lines import ProtectedLine
from specmt.protection.spans import Number, Parts, Span, lacking, source
from specmt.protection.terminology import Terminology, read_terminology


@pytest.mark.parametrize(
    ("line", "spans"),
    [
        ("{name} {0} {} {a.b} {x:>3}", ["{name}", "{0}", "{}", "{a.b}", "{x:>3}"]),
        ("{{x}} {{ y }} ${z} %{w} $HOME", ["{{x}}", "{{ y }}", "${z}", "%{w}", "$HOME"]),
        ("%s %d %1$s %(n)s %.2f %ld %@ %1 %NAME%", ["%s", "%d", "%1$s", "%(n)s", "%.2f", "%ld", "%@", "%1", "%NAME%"]),
        ("%(n)sx %1$sx %sMB %dx%d %2dpx %ds", ["%(n)s", "%1$s", "%s", "%d", "%d", "%2d", "%d"]),
        ("50 % der", ["50"]),
        ("50 %ige 5 %im %sagt", ["50", "5"]),
        ("100%ig sicher 5%", ["100", "5"]),
        (
            "firma.de/kontakt. Auf a-b.co.uk, (gmx.at) x.de:80/?y=1!",
            ["firma.de/kontakt", "a-b.co.uk", "gmx.at", "x.de:80/?y=1"],
        ),
        ("z.B. war.es, gemacht.Die Tür.", []),
        ("http://a.de/x?y=1&z=2. (www.b.de) ftp://c.d!", ["http://a.de/x?y=1&z=2", "www.b.de", "ftp://c.d"]),
        ("a.b+c@d-e.org, f@g.de.", ["a.b+c@d-e.org", "f@g.de"]),
        (
            '<b>x</b> <br/> <a href="https://x.de/1">y</a>',
            ["<b>", "</b>", "<br/>", '<a href="https://x.de/1">', "</a>"],
        ),
        ("3 < 4 und 5 > 2", ["3", "4", "5", "2"]),
        ("3,5 1.250.000 10:30 24.12.2021. 2/3 -7", ["3,5", "1.250.000", "10:30", "24.12.2021", "2/3", "7"]),
        ("A380 44jährige U2 x3y 2.500jährige", []),
        ("IPv4/6 DDR4/5 Windows7/8/10 Psalm23:4 U17/19", []),
        ("10:30Uhr 3,5kg, 20.000km. 1.5GB 3.5.2021er", ["10:30Uhr", "3,5kg", "20.000km", "1.5GB", "3.5.2021er"]),
        ("3½ ½ 10² 20 m², 1,5km²", ["3½", "½", "10²", "20 m²", "1,5km²"]),
        ("%d%% 50%% %% { name } {% if x %} {:d}", ["%d%%", "50%%", "%%", "{ name }", "{% if x %}", "{:d}"]),
        (
            "https://b.de/c_(d) (http://e.de/f) http://g.de/(h",
            ["https://b.de/c_(d)", "http://e.de/f", "http://g.de/(h"],
        ),
        ("Https://a.de WWW.b.de mailto:c@d.de", ["Https://a.de", "WWW.b.de", "mailto:c@d.de"]),
        ('<a title="b > c"> <a title=d\'s>', ['<a title="b > c">', "<a title=d's>"]),
        ("&amp; &#39; & Co.", ["&amp;", "&#39;"]),
        ("fest.[1][2, 3] x[0] [4–6] [2024] [12, [a1] [3.5]", ["[1]", "[2, 3]", "[0]", "[4–6]", "[2024]", "12", "3.5"]),
        ("DE123456789, #FFCC00 #12 AB12CD34. A380 CO2 ABCDEF WW2s", ["DE123456789", "#FFCC00", "12", "AB12CD34"]),
        ("ab12cd 9f86d081884c 12monatige Covid19 a1b2", ["ab12cd", "9f86d081884c"]),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", ["3f2504e0-4f89-11d3-9a0c-0305e82c3301"]),
        ("MAX_SIZE get_user() f(x)", ["MAX_SIZE", "get_user()"]),
        (
            "String.format() std::vector :warning: um 10:30:a $HOME/.config/a.toml",
            ["String.format()", "std::vector", ":warning:", "10:30", "$HOME/.config/a.toml"],
        ),
        (
            "C:\\Eigene Dateien\\Neuer Text\\brief.docx und C:\\a",
            ["C:\\Eigene Dateien\\Neuer Text\\brief.docx", "C:\\a"],
        ),
        ("Kunden_innen Leser_in ein_e jede_m Der_die Mitarbeiter_innenversammlung", []),
        ("iPhone eBay mRNA macOS getName aLongName", ["iPhone", "eBay", "mRNA", "macOS", "getName", "aLongName"]),
        ("eMail GmbH pH kollegInnen lehrerIn amMontag gingNach", []),
        ("--verbose, --dry-run=1 -- und --und --ohne", ["--verbose", "--dry-run", "1"]),
        ("v3.0.0-beta.2 V1.2. 3.0.0-rc1 Version 2.0", ["v3.0.0-beta.2", "V1.2", "3.0.0-rc1", "2.0"]),
        ("Q3/2022 KW12/2023 H1/24", ["Q3/2022", "KW12/2023", "H1/24"]),
        (
            "a² + CO₂, H₂O, 10⁻³, 80m², 50 Hz, 3,2 GHz, 2 bar",
            ["a²", "CO₂", "H₂O", "10⁻³", "80m²", "50 Hz", "3,2 GHz", "2"],
        ),
        ("500 bar bezahlt, 5 Hzo", ["500", "5"]),
        ("brief.txt, Bericht.DOCX. Node.js index.html.", ["brief.txt", "Bericht.DOCX", "Node.js", "index.html"]),
        (
            "/etc/nginx/nginx.conf ~/.bashrc ./a.sh ../b/c src/d.py",
            ["/etc/nginx/nginx.conf", "~/.bashrc", "./a.sh", "../b/c", "src/d.py"],
        ),
        ("C:\\Benutzer\\Anna. \\\\nas\\daten (D:\\)", ["C:\\Benutzer\\Anna", "\\\\nas\\daten", "D:\\"]),
        ("und/oder km/h er/sie/es a / b Müller/-in /Vater/Kind-Kur /Monat/Person", []),
        ("{\\an8}Ja {\\i1}", ["{\\an8}", "{\\i1}"]),
        ("Grün ist #FFFFFF, nicht #abcdef.", ["#FFFFFF", "#abcdef"]),
        ("1’450 und 1'250'000, 1'45", ["1’450", "1'250'000", "1", "45"]),
        ("eins.\\nZwei\\r\\n\\r\\ndrei\\tVier C:\\neu\\\\nA", ["\\n", "\\r\\n\\r\\n", "\\t", "C:\\neu\\"]),
        ("Ein Mann spielt Gitarre.", []),
    ],
)
def test_spans_are_found(line: str, spans: list[str]) -> None:
    finder = SpanFinder()
    parts = finder.parts(line)
    assert [part.text for part in parts if isinstance(part, Span)] == spans
    assert "".join(part.text if isinstance(part, Span) else part for part in parts) == line
    assert finder.any_in(line) is bool(spans)
    assert [span for span in spans if not finder.any_in(span)] == [], "each makes a line worth a look"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "line",
    [
        "QUJD" * 50_000 + "@",
        "%" + "0" * 100_000,
        "<!-- " * 40_000,
        "<b>x " * 20_000,
        "1." * 50_000 + "x",
        "1:" * 50_000 + "1abcdef",
        "{{" * 50_000,
        "[1" + ", 1" * 60_000,
        "[1" * 60_000,
        "\\n" * 60_000 + "a",
        "A1" * 60_000 + "a",
        "1A" + "0" * 100_000 + "a",
        "http://" + "(a." * 50_000,
        "a.de." * 40_000,
        "a.de/(a." * 30_000,
        "<a '\"" * 40_000,
    ],
    ids=lambda line: line[:6],
)
def test_long_lines_take_no_more_than_their_length(line: str) -> None:
    """In quadratic time these would take minutes."""
    parts = SpanFinder().parts(line)
    assert "".join(map(source, parts)) == line
    assert list(ProtectedLine(line, parts).elements()) == []


@pytest.mark.timeout(60)
def test_tags_at_the_ends_of_a_line_take_no_more_than_their_length() -> None:
    """In quadratic time this would take minutes."""
    tags: Parts = [Span("<br>", "<br>", "tag")] * 300_000
    line = ProtectedLine("", [*tags, " Ein Hund", *tags])
    line.cut_edges()
    assert (line.before, line.parts, line.behind) == ([*tags, " "], ["Ein Hund"], ["", *tags])


@pytest.mark.parametrize(
    ("number", "said", "kept"),
    [
        *(("3,5", said, kept) for said, kept in [("3.5", False), ("3,5", True), ("13,5", False), ("3,50", False)]),
        ("3,5", "3,5.", True),
        ("30", "4:30", False),
        ("30", "30:4", False),
        ("30", "30th", True),
        ("19", "Covid19", True),
        ("30", "at 30, 30/7", True),
        ("3,5k", "3,5kg", False),
    ],
)
def test_a_number_is_found_only_as_it_was(number: str, said: str, kept: bool) -> None:
    assert bool(Number(number, number).taken_from(f"it is {said}", 1)[1]) is kept


@pytest.mark.parametrize(
    ("line", "said", "lost"),
    [
        ("Der Hund und der Köter", "the dog and the bell", {"Hund", "Köter"}),
        ("Der Hund und der Köter", "the dog and the dog", set()),
        ("Ein Welpe, ein Polizeihund", "a puppy, a police dog", {"Welpe"}),
        ("Ein Welpe, ein Polizeihund", "a dog, a police dog", set()),
        ("Ein Hund, {name}", "{name} and {name}", {"Hund"}),
        ("Ein Platz, {name}", "{name} and {name}", set()),
        ("Ein Platz, {name}", "{name}", {"Platz"}),
        ('<a href="30">30</a>', '<a href="30">thirty</a>', {"30"}),
        ("DE12 und DE12", "DE12, DE123", {"DE12"}),
        ("Fest [2, 3].", "Firm [2, ]3.", {"[2, 3]"}),
        ("Fest [2, 3] 2", "Firm [2, 3]", {"2"}),
        ("Fest [2, 3] 2", "2 firm[2, 3].", set()),
    ],
)
def test_what_stands_once_is_not_found_twice(line: str, said: str, lost: set[str]) -> None:
    pairs = [("Hund", "dog"), ("Köter", "dog"), ("Polizeihund", "police dog"), ("Welpe", "dog"), ("Platz", "{name}")]
    spans = [part for part in SpanFinder(terminology=Terminology(pairs)).parts(line) if isinstance(part, Span)]
    assert {span.text for span in lacking(said, spans, spans)} == lost


@pytest.mark.timeout(60)
@pytest.mark.parametrize("rest", ["", ",5", ":30 Uhr", " m²"])
def test_thousands_of_numbers_take_no_more_than_their_length(rest: str) -> None:
    """In quadratic time this would take minutes."""
    numbers = [f"{number}{rest}" for number in [*range(100_000, 160_000), 100_000]]
    spans = [Number(number, number) for number in numbers]
    said = " ".join(numbers[1:]).replace("123456", "123.456")
    assert [span.text for span in lacking(said, spans, spans)] == [f"100000{rest}", f"123456{rest}"]


@pytest.mark.timeout(60)
def test_thousands_of_codes_take_no_pattern_each() -> None:
    """With one each they would take minutes."""
    codes = [f"AB{number:05d}C7" for number in range(8_000)]
    spans = [Span(code, code, "code") for code in codes]
    assert [span.text for span in lacking(" ".join(codes[1:]), spans, spans)] == codes[:1]


TERMS = Terminology(
    [
        ("Hund", "hound"),
        ("Hund und Katze", "pets"),
        ("rot", "crimson"),
        ("Stufe 3", "level three"),
        ("10 Euro", "ten euros"),
        ("Glück", "luck"),
    ]
)


@pytest.mark.parametrize(
    ("line", "terms"),
    [
        ("Hund und Katze", ["pets"]),
        ("Hunde", []),
        ("Ein Hund, rot", ["hound", "crimson"]),
        ("Rot ist er", ["crimson"]),
        ("Stufe 3, 1,10 Euro, Stufe 3,5", ["level three"]),
        ("Viel Glu\u0308ck", ["luck"]),
    ],
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


def test_no_group_is_repeated_possessively() -> None:
    """That is wrong in some releases of Python, whichever runs the tests."""
    for pattern in PATTERNS.values():
        assert not re.search(r"\)(?:[*+?]|\{[\d,]+\})\+", pattern)


def test_a_kind_that_is_none_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"^--protect names: expected none, or some of url,email"):
        SpanFinder(["url", "names"])
