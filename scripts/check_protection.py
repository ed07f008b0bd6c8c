"""How much of what must come out unchanged does, and how many required terms are there: `check_protection.py`.

The set, tests/data/protection.jsonl, says what each line requires. Exit code 1 unless everything is kept, 98 % of the
terms are there, and strict says what `ar` says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from specmt import BUNDLED_MODEL
from specmt.loading import load_translator
from specmt.protection.finding import KINDS
from specmt.protection.protection import Protection
from specmt.protection.terminology import read_terminology
from specmt.settings import DecodingSettings
from specmt.streams.inputs import text_parser
from specmt.streams.line_stream import LineStream
from specmt.translation import Translation
from specmt.translator import Translator

DATA = Path(__file__).parent.parent / "tests" / "data"
REQUIRED_TERMS = 0.98


@dataclass(frozen=True)
class Line:
    """A source line, the strings that its translation must hold, and terms with their required translations."""

    source: str
    kept: tuple[str, ...]
    terms: tuple[tuple[str, str], ...]
    kind: str
    """What it mostly tests."""


@dataclass
class Count:
    """How many were required and how many were found."""

    required: int = 0
    found: int = 0

    def add(self, required: int, found: int) -> None:
        """Count some more."""
        self.required += required
        self.found += min(required, found)

    def __str__(self) -> str:
        return f"{self.found} of {self.required} ({self.found / max(self.required, 1):.1%})"


def read_lines(path: Path) -> list[Line]:
    """The set: one JSON object a line."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Line(one["source"], tuple(one["kept"]), tuple(one["terms"].items()), one.get("kind") or kind_of(one["kept"]))
        for one in records
    ]


def occurrences(text: str, wanted: str) -> int:
    """How often `text` has `wanted`; a number only as a whole."""
    number = wanted[0].isdigit()
    return len(re.findall(rf"(?<!\d){re.escape(wanted)}(?!\d)" if number else re.escape(wanted), text))


def count(lines: list[Line], texts: list[str]) -> tuple[Count, Count]:
    """What was kept, and which terms are there (with any case of the first letter)."""
    kept, terms = Count(), Count()
    for line, text in zip(lines, texts, strict=True):
        for wanted in set(line.kept):
            kept.add(occurrences(line.source, wanted), occurrences(text, wanted))
        for source, target in line.terms:
            required = len(re.findall(rf"(?<!\w){source}(?!\w)", line.source))
            terms.add(required, len(re.findall(rf"(?<!\w){re.escape(target)}(?!\w)", text, flags=re.IGNORECASE)))
    return kept, terms


def translate(
    translator: Translator, lines: list[Line], settings: DecodingSettings, protected: bool
) -> list[Translation]:
    """Translations of the lines, protected or not."""
    terminology = read_terminology(DATA / "protection.terms.tsv") if protected else None
    protection = Protection(
        translator.vocabulary, KINDS if protected else (), terminology, "de", translator.target_language
    )
    text = "".join(f"{line.source}\n" for line in lines)
    stream = LineStream(BytesIO(text.encode()), str(DATA), text_parser(str(DATA)))
    return list(translator.translate_stream(stream, settings, batch_size=32, wrapper=protection))


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=BUNDLED_MODEL)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--print", action="store_true", dest="show", help="print the translations")
    arguments = parser.parse_args()
    lines = read_lines(DATA / "protection.jsonl")
    translator = load_translator(arguments.model, engine=arguments.engine)
    default = DecodingSettings.relaxed(translator.defaults)
    strategies = {"ar": replace(default, strategy="ar")}
    if translator.has_drafter:
        strategies |= {"spec-strict": default.strict(), "spec": default}
    passed, texts = True, {}
    print(f"{len(lines)} lines; kinds of lines: {dict(Counter(line.kind for line in lines))}")
    for name, settings in strategies.items():
        bare = count(lines, [one.text for one in translate(translator, lines, settings, protected=False)])
        translations = translate(translator, lines, settings, protected=True)
        texts[name] = [one.text for one in translations]
        kept, terms = count(lines, texts[name])
        unplaced = sum(len(one.unplaced) for one in translations)
        print(f"{name}: kept {kept}, terms {terms}; reported {unplaced}; without: kept {bare[0]}, terms {bare[1]}")
        passed &= kept.found == kept.required and terms.found >= REQUIRED_TERMS * terms.required
    if "spec-strict" in texts:
        same = texts["spec-strict"] == texts["ar"]
        print(f"strict is ar: {'yes' if same else 'no'}")
        passed &= same
    if arguments.show:
        for line, text in zip(lines, texts["ar"], strict=True):
            print(f"{line.source}\n    {text}")
    return 0 if passed else 1


def kind_of(kept: list[str]) -> str:
    """What a line with such strings mostly tests, where it does not say so."""
    kinds = {"<": "tag", "{": "placeholder", "%": "placeholder", "$": "placeholder", "&": "placeholder"}
    if not kept:
        return "term"
    first = kept[0]
    return "number" if first[0].isdigit() else kinds.get(first[0], "address")


if __name__ == "__main__":
    sys.exit(main())
