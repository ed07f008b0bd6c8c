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

import ctranslate2

from specmt.corpus import read_lines
from specmt.decoding import Greedy, Request, RequestQueue, decode
from specmt.engines.torch_engine import TorchEngine
from specmt.fairseq_backend import checkpoints
from specmt.vocabulary import EOS_ID, Vocabulary


def our_translations(run: Path, sources: list[list[int]]) -> list[list[int]]:
    """Greedy ids without end-of-sentence, by our torch engine in float32."""
    verifier = checkpoints.load(run / "verifier" / "verifier.pt")
    weights = checkpoints.bundle_weights(verifier["model"], {})
    engine = TorchEngine(checkpoints.verifier_architecture(verifier), weights)
    requests = [Request(index, [*ids, EOS_ID], 2 * len(ids) + 10) for index, ids in enumerate(sources)]
    done = {
        hypothesis.request.index: hypothesis.ids
        for hypothesis in decode(engine, RequestQueue(requests, 16), Greedy(), 16)
    }
    return [[id_ for id_ in done[index] if id_ != EOS_ID] for index in range(len(sources))]


def their_translations(run: Path, vocabulary: Vocabulary, sources: list[list[int]]) -> list[list[str]]:
    """Greedy pieces by CTranslate2, from the same checkpoint through its own converter."""
    with tempfile.TemporaryDirectory() as folder:
        converter = ctranslate2.converters.FairseqConverter(
            str(run / "verifier" / "verifier.pt"), str(run / "binarise"), source_lang="de", target_lang="en"
        )
        converter.convert(f"{folder}/model")
        translator = ctranslate2.Translator(f"{folder}/model", compute_type="float32")
        pieces = [[vocabulary.piece(id_) for id_ in ids] for ids in sources]
        limits = [2 * len(ids) + 10 for ids in sources]
        results = [
            translator.translate_batch([source], beam_size=1, max_decoding_length=limit)[0]
            for source, limit in zip(pieces, limits, strict=True)
        ]
        return [result.hypotheses[0] for result in results]


def main() -> int:
    """Compare, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a training run")
    parser.add_argument("source", type=Path, help="text to translate")
    parser.add_argument("--lines", type=int, default=200)
    arguments = parser.parse_args()
    vocabulary = Vocabulary((arguments.run / "tokenizer" / "tokenizer.model").read_bytes())
    sources = [vocabulary.encode(line) for line in read_lines(arguments.source)[: arguments.lines]]
    ours = [[vocabulary.piece(id_) for id_ in ids] for ids in our_translations(arguments.run, sources)]
    theirs = their_translations(arguments.run, vocabulary, sources)
    different = [number for number, pair in enumerate(zip(ours, theirs, strict=True), start=1) if pair[0] != pair[1]]
    for number in different:
        print(
            f"line {number}\n  specmt      {' '.join(ours[number - 1])}\n  CTranslate2 {' '.join(theirs[number - 1])}"
        )
    print(f"{len(sources) - len(different)} of {len(sources)} lines have the same tokens")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
