"""Is strict speculation lossless? Compares it with greedy decoding, line by line, over whole files.

    python scripts/check_strict.py FILE... [--model DIR] [--engine E] [--batch-sizes 1,32] [--draft-lengths 8]

Prints one row for each file, batch size and draft length: how many lines differ, in text or tokens, from `ar` greedy of
the same engine at batch size 1. Exits with 1 if any does. Of a drafter that drafts less, its longest is taken.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarking import BUNDLED, ended

from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text_files import read_lines
from specmt.translator import Translator


def translations(
    translator: Translator, lines: list[str], settings: DecodingSettings, batch_size: int
) -> list[tuple[str, tuple[int, ...]]]:
    """Of each line's translation text and tokens."""
    return [(translation.text, translation.ids) for translation in translator.translate(lines, settings, batch_size)]


def main() -> int:
    """Compare, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="text to translate")
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--engine", default="auto", help="auto, native, onnx or torch")
    parser.add_argument("--batch-sizes", default="1,32")
    parser.add_argument("--draft-lengths", default="8")
    arguments = parser.parse_args()
    translator = load_translator(arguments.model, engine=arguments.engine)
    longest = translator.engine.max_draft_length
    lengths = sorted({min(int(length), longest) for length in arguments.draft_lengths.split(",")}) if longest else []
    greedy = replace(DecodingSettings.relaxed(translator.defaults), strategy="ar")
    print(f"{translator.engine.name}: lines that differ from greedy with scores at batch size 1")
    differing = 0
    for path in arguments.files:
        lines = read_lines(path)
        expected = translations(translator, lines, greedy, batch_size=1)
        for batch_size in map(int, arguments.batch_sizes.split(",")):
            runs = {"ar": replace(greedy, scored=False)}
            for draft_length in lengths:
                settings = replace(runs["ar"], strategy="spec", beta=1, draft_length=draft_length)
                runs[f"strict, draft length {draft_length}"] = settings
            for name, settings in runs.items():
                found = translations(translator, lines, settings, batch_size)
                different = sum(pair[0] != pair[1] for pair in zip(found, expected, strict=True))
                differing += different
                print(f"{path.name}: batch size {batch_size}, {name}: {different} of {len(lines)}", flush=True)
    return 1 if differing else 0


if __name__ == "__main__":
    ended(main)
