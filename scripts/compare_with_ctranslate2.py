"""Does another tool accept the trained verifier, and say the same?

Converts a run's `verifier.pt` with CTranslate2's own fairseq converter and compares greedy translations, token by
token, with our torch engine in float32, on the first lines of a file.

    python scripts/compare_with_ctranslate2.py RUN SOURCE [--lines 200]

Needs `pip install ctranslate2`. Prints a summary and each line that differs; exits with 1 if any does.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import peers

from specmt.fairseq_backend import checkpoints
from specmt.text.vocabulary import Vocabulary
from specmt.text_files import read_lines


def main() -> int:
    """Compare, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("source", type=Path, help="text to translate")
    parser.add_argument("--lines", type=int, default=200)
    arguments = parser.parse_args()
    vocabulary = Vocabulary((arguments.run / "tokenizer" / "tokenizer.model").read_bytes())
    sources = [vocabulary.encode(line) for line in read_lines(arguments.source)[: arguments.lines]]
    checkpoint = arguments.run / "verifier" / "verifier.pt"
    ours = peers.our_pieces(checkpoints.load(checkpoint), vocabulary, sources)
    with tempfile.TemporaryDirectory() as folder:
        converted = Path(folder) / "model"
        peers.convert(checkpoint, arguments.run / "binarise", converted, None)
        theirs = peers.their_pieces(converted, vocabulary, sources)
    different = [number for number, pair in enumerate(zip(ours, theirs, strict=True), start=1) if pair[0] != pair[1]]
    for number in different:
        print(
            f"line {number}\n  specmt      {' '.join(ours[number - 1])}\n  CTranslate2 {' '.join(theirs[number - 1])}"
        )
    print(f"{len(sources) - len(different)} of {len(sources)} lines have the same tokens")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
