"""What a Python program imports from `specmt`."""

from __future__ import annotations

import subprocess
import sys

import pytest

import specmt
from specmt import DecodingSettings, InputLine, Protection, Terminology, load_translator
from specmt.errors import InputError

LINES = ["Ein Hund schläft.", "", "Siehe https://a.de/b, 3,5 {name}.", "Zwei Katzen spielen."]


def test_what_it_offers_is_there() -> None:
    assert [getattr(specmt, name).__name__ for name in ("Protection", "load_translator")] == [
        "Protection",
        "load_translator",
    ]
    assert set(specmt.__all__) <= set(dir(specmt))
    assert {name for name in specmt.__all__ if not hasattr(specmt, name)} == set()
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = specmt.nothing


def test_nothing_is_imported_before_it_is_used() -> None:
    program = "import sys, specmt; print(sorted(name for name in sys.modules if name.startswith('specmt')))"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"['specmt']\n"


def test_lines_are_translated_as_by_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specmt", "translate"],
        input="\n".join(LINES),
        capture_output=True,
        text=True,
        check=True,
    )
    translator = load_translator()
    found = [one.text for one in translator.translate(LINES, wrapper=Protection(translator.vocabulary))]
    assert found == done.stdout.splitlines()
    assert found != [one.text for one in translator.translate(LINES)]


def test_fields_pass_through_and_what_a_wrapper_makes_is_aligned() -> None:
    translator = load_translator()
    settings = DecodingSettings.from_defaults(translator.defaults)
    protection = Protection(translator.vocabulary, terminology=Terminology([("Hund", "hound")]))
    given = [InputLine("Ein Hund sieht {x}.", fields={"id": 7}, options={"reproducible": True}), "Der Hund schläft."]
    aligning = DecodingSettings(**{**vars(settings), "align": True})
    first, second = translator.translate(given, aligning, batch_size=1, wrapper=protection)
    assert (first.index, first.source, first.fields) == (0, "Ein Hund sieht {x}.", {"id": 7})
    assert "hound" in first.text and "{x}" in first.text and second.text == "The hound is sleeping."
    assert dict(second.alignment)[1] == 1 and max(target for _, target in first.alignment) < len(first.text.split())


@pytest.mark.parametrize("line", [3, b"Ein Hund.", "\udc80", InputLine("\udc80")], ids=repr)
def test_what_is_no_text_is_named(line: object) -> None:
    with pytest.raises(InputError, match="line 2: not a text"):
        list(load_translator().translate(["Ein Hund.", line]))  # type: ignore[list-item]
