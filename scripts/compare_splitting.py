"""BLEU with lines split at sentence ends and left whole, on test sets as they are and with lines put together.

Run as `python scripts/compare_splitting.py` where data/corpora stands (scripts/fetch_corpora.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import sacrebleu

from specmt.corpus import Pair, read_corpus
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.translation import Translation
from specmt.translator import Translator

ROOT = Path(__file__).parent.parent
SETS = ("multi30k.test2016", "tatoeba.test", "newstest2021")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=ROOT / "specmt/models/de-en")
    parser.add_argument("--lines", type=int, default=1000, help="of each set")
    parser.add_argument("--engine", default="auto")
    options = parser.parse_args()
    translator = load_translator(options.model, engine=options.engine)
    settings = DecodingSettings.relaxed(translator.defaults)
    print("| test set | lines | split into | BLEU whole | BLEU split | repeated, whole / split |")
    print("|---|---|---|---|---|---|")
    for name in SETS:
        pairs = read_corpus(ROOT / "data/corpora" / name, "de", "en")[: options.lines]
        joined_lines = {together: joined(pairs, together) for together in (1, 2, 4)}
        texts = {name if n == 1 else f"{name}, {n} lines as one": lines for n, lines in joined_lines.items()}
        for label, lines in {**texts, f"{name}, 4 lines in quotation marks": quoted(joined_lines[4])}.items():
            whole = run(translator, lines, replace(settings, split=False, max_source_tokens=100_000))
            split = run(translator, lines, settings)
            segments = sum(translation.segments for translation in split)
            scores = " | ".join(f"{bleu(translations, lines):.1f}" for translations in (whole, split))
            repeated = " / ".join(str(repetitions(translations)) for translations in (whole, split))
            print(f"| {label} | {len(lines)} | {segments} | {scores} | {repeated} |", flush=True)


def joined(pairs: Sequence[Pair], together: int) -> list[Pair]:
    """Every `together` lines as one, on both sides."""
    groups = [pairs[first : first + together] for first in range(0, len(pairs), together)]
    return [Pair(" ".join(pair.source for pair in group), " ".join(pair.target for pair in group)) for group in groups]


def quoted(pairs: Sequence[Pair]) -> list[Pair]:
    """Those in which nothing is in quotation marks or parentheses, in quotation marks."""
    return [
        Pair(f"„{pair.source}“", f'"{pair.target}"')
        for pair in pairs
        if not any(mark in pair.source for mark in '„“”"(')
    ]


def run(translator: Translator, lines: Sequence[Pair], settings: DecodingSettings) -> list[Translation]:
    """Translate the sources."""
    return list(translator.translate([pair.source for pair in lines], settings, batch_size=32))


def bleu(translations: Sequence[Translation], lines: Sequence[Pair]) -> float:
    """BLEU, 0 to 100."""
    hypotheses = [translation.text for translation in translations]
    return float(sacrebleu.corpus_bleu(hypotheses, [[pair.target for pair in lines]]).score)


def repetitions(translations: Sequence[Translation]) -> int:
    """Lines that a guard stopped."""
    return sum("repetition" in translation.warnings for translation in translations)


if __name__ == "__main__":
    main()
