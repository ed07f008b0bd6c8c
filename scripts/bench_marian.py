"""A Marian model of OPUS-MT's size in specmt and in CTranslate2: seconds for the same tokens, on one core.

No published model is needed, as the cost of a pass does not depend on the weights. They are random, as transformers
makes them; end-of-sentence is never said, so that all translations are as long. Who is first alternates.

    taskset 2 python scripts/bench_marian.py [--lines N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import ctranslate2
import sentencepiece
import torch
from benchmarking import ROOT, with_range
from ctranslate2.converters.transformers import MarianMTLoader, TransformersConverter, register_loader
from transformers import MarianConfig, MarianMTModel

from specmt.bundle import load_bundle
from specmt.conversion import Conversion, convert
from specmt.decoding import Greedy, Request, RequestQueue, decode
from specmt.loading import load_translator
from specmt.vocabulary import EOS_ID, AnyVocabulary

PIECES = 58100
"""As opus-mt-de-en has, padding not counted."""
TOKENS = 24
"""Of a translation."""
BATCH_SIZES = (1, 32)
SMOKE = ROOT / "data" / "smoke"
Pieces = list[list[str]]


def main() -> None:
    """Make the model, convert it for both, time both, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    lines = (SMOKE / "valid.de").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        model, bundle, converted = (Path(folder) / name for name in ("model", "bundle", "ctranslate2"))
        pieces = write_model(model)
        convert(Conversion(model, ("de", "en")), bundle, lines)
        convert_for_ctranslate2(model, converted, pieces)
        vocabulary = load_bundle(bundle).vocabulary()
        sources = [vocabulary.encode(line) for line in lines[: options.lines]]
        systems = (ours(bundle, vocabulary, sources), theirs(converted, vocabulary, sources))
        said = [system(1) for system in systems]
        same = sum(map(list.__eq__, *said))
        print(f"the same translation of {same} of {len(sources)} lines, {TOKENS} tokens each")
        for batch_size in BATCH_SIZES:
            report(batch_size, systems, len(sources), options.rounds)


def write_model(folder: Path) -> list[str]:
    """A folder as transformers reads it, and the pieces of its vocabulary; padding is the last."""
    folder.mkdir()
    for name, language in (("source", "de"), ("target", "en")):
        sentencepiece.SentencePieceTrainer.train(
            input=str(SMOKE / f"train.{language}"),
            model_prefix=str(folder / name),
            vocab_size=150,
            bos_id=-1,
            eos_id=0,
            unk_id=1,
            pad_id=-1,
            minloglevel=2,
        )
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    real = [processor.id_to_piece(id_) for id_ in range(len(processor))]
    pieces = [*real, *(f"x{number}" for number in range(PIECES - len(real))), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}), encoding="utf-8")
    sizes: dict[str, Any] = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}
    config = MarianConfig(
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
        vocab_size=len(pieces),
        d_model=512,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=PIECES,
        decoder_start_token_id=PIECES,
        eos_token_id=0,
        forced_eos_token_id=None,
    )
    torch.manual_seed(0)
    model = MarianMTModel(config)
    model.final_logits_bias[0, 0] = -100.0
    model.save_pretrained(folder)
    return pieces


def convert_for_ctranslate2(model: Path, folder: Path, pieces: Sequence[str]) -> None:
    """By its own converter, which is told the vocabulary: it cannot read transformers 5's tokenizers."""

    @register_loader("MarianConfig")
    class Loader(MarianMTLoader):  # type: ignore[misc,unused-ignore]
        def get_vocabulary(self, model: object, tokenizer: object) -> list[str]:
            return list(pieces[:-1])

    TransformersConverter(str(model)).convert(str(folder), quantization="int8")


System = Callable[[int], Pieces]
"""A batch size to the translations of all sources."""


def ours(bundle: Path, vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> System:
    """specmt's native engine, token by token."""
    engine = load_translator(bundle, engine="native").engine
    requests = [Request(index, [*source, EOS_ID], TOKENS) for index, source in enumerate(sources)]

    def run(batch_size: int) -> Pieces:
        found: Pieces = [[] for _ in requests]
        parts = [requests] if batch_size > 1 else [[request] for request in requests]
        for part in parts:
            for done in decode(engine, RequestQueue(part, batch_size), Greedy(), batch_size):
                found[done.request.index] = [vocabulary.piece(id_) for id_ in done.ids]
        return found

    return run


def theirs(folder: Path, vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> System:
    """CTranslate2's greedy decoding in 8 bits."""
    translator = ctranslate2.Translator(str(folder), compute_type="int8", inter_threads=1, intra_threads=1)
    tokens = [[vocabulary.source_piece(id_) for id_ in [*source, EOS_ID]] for source in sources]

    def run(batch_size: int) -> Pieces:
        parts = [tokens] if batch_size > 1 else [[line] for line in tokens]
        results = (
            result
            for part in parts
            for result in translator.translate_batch(
                part, beam_size=1, max_decoding_length=TOKENS, max_batch_size=batch_size
            )
        )
        return [result.hypotheses[0] for result in results]

    return run


def report(batch_size: int, systems: Sequence[System], lines: int, rounds: int) -> None:
    """Time both in turn, and print a line."""
    times: list[list[float]] = [[] for _ in systems]
    for number in range(rounds + 1):  # the first warms up
        for place in (0, 1) if number % 2 else (1, 0):
            begin = time.perf_counter()
            systems[place](batch_size)
            if number:
                times[place].append(time.perf_counter() - begin)
    ratios = [other / own for own, other in zip(*times, strict=True)]
    own, other = (f"{median(part) / lines * 1000:.1f}" for part in times)
    print(f"batch size {batch_size}: specmt {own} ms a line, CTranslate2 {other} ms, {with_range(ratios, 2)} times")


if __name__ == "__main__":
    main()
