"""A Marian model of OPUS-MT's size in specmt and in CTranslate2: seconds for the same tokens, on one core.

No published model is needed, as the cost of a pass does not depend on the weights. They are random, as transformers
makes them; end-of-sentence is never said, so that all translations are as long. CTranslate2 runs in a process for each
of its instruction sets, the fastest of which counts at a batch size. All take turns.

    taskset 2 python scripts/bench_marian.py [--lines N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch and CTranslate2 are imported

import peers
import sentencepiece
import torch
from benchmark_systems import Setup, Worker
from benchmarking import ROOT, last_cores, rotated, with_range
from ctranslate2.converters.transformers import MarianMTLoader, TransformersConverter, register_loader
from transformers import MarianConfig, MarianMTModel

from specmt.bundles.bundle import load_bundle
from specmt.conversion.converting import Conversion, convert
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.loading import load_translator
from specmt.text.vocabulary import EOS_ID, AnyVocabulary

PIECES = 58100
"""As opus-mt-de-en has, padding not counted."""
TOKENS = 24
"""Of a translation."""
BATCH_SIZES = (1, 32)
SMOKE = ROOT / "data" / "smoke"
Texts = list[str]
"""Pieces with spaces between them."""
System = Callable[[int], tuple[Texts, float]]
"""A batch size to the translations of all sources and seconds."""
OURS = "specmt"


def main() -> None:
    """Make the model, convert it for both, time both, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    os.sched_setaffinity(0, last_cores(1))
    lines = (SMOKE / "valid.de").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        model, bundle, converted = (Path(folder) / name for name in ("model", "bundle", "ctranslate2"))
        pieces = write_model(model)
        convert(Conversion(model, ("de", "en")), bundle, lines)
        convert_for_ctranslate2(model, converted, pieces)
        vocabulary = load_bundle(bundle).vocabulary()
        sources = [vocabulary.encode(line) for line in lines[: options.lines]]
        workers = started(converted)
        systems = {OURS: ours(bundle, vocabulary, sources)}
        systems |= {name: theirs(worker, vocabulary, sources) for name, worker in workers.items()}
        own, other, *_ = (system(1)[0] for system in systems.values())
        same = sum(map(str.__eq__, own, other))
        print(f"the same translation of {same} of {len(sources)} lines, {TOKENS} tokens each")
        for batch_size in BATCH_SIZES:
            report(batch_size, systems, len(sources), options.rounds)
        for worker in workers.values():
            worker.close()


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


def ours(bundle: Path, vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> System:
    """specmt's native engine, token by token."""
    engine = load_translator(bundle, engine="native").engine
    requests = [Request(index, [*source, EOS_ID], TOKENS) for index, source in enumerate(sources)]

    def run(batch_size: int) -> tuple[Texts, float]:
        found = [""] * len(requests)
        parts = [requests] if batch_size > 1 else [[request] for request in requests]
        begun = time.perf_counter()
        for part in parts:
            for done in decode(engine, RequestQueue(part, batch_size), Greedy(), batch_size):
                found[done.request.index] = " ".join(vocabulary.piece(id_) for id_ in done.ids)
        return found, time.perf_counter() - begun

    return run


def started(folder: Path) -> dict[str, Worker]:
    """CTranslate2's greedy decoding in 8 bits: a process for each way to multiply, by its name."""
    settings, cores = {"model": str(folder), "tokens": TOKENS}, tuple(last_cores(1))
    return {
        f"CTranslate2{note}": Worker(Setup("pieces", settings, cores, environment))
        for note, environment in peers.instructions().items()
    }


def theirs(worker: Worker, vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> System:
    """What a worker says of the sources."""
    lines = [" ".join(vocabulary.source_piece(id_) for id_ in [*source, EOS_ID]) for source in sources]

    def run(batch_size: int) -> tuple[Texts, float]:
        done = worker.run(lines, batch_size)
        return done.texts, done.seconds

    return run


def report(batch_size: int, systems: Mapping[str, System], lines: int, rounds: int) -> None:
    """Time all in turn, and print a line: ours beside the fastest of the others."""
    times: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):  # the first warms up
        for name in rotated(list(systems), number):
            _, seconds = systems[name](batch_size)
            if number:
                times[name].append(seconds)
    own = times.pop(OURS)
    name, other = min(times.items(), key=lambda item: median(item[1]))
    ratios = [one / mine for mine, one in zip(own, other, strict=True)]
    ours_took, theirs_took = (f"{median(part) / lines * 1000:.1f} ms" for part in (own, other))
    print(f"batch size {batch_size}: {OURS} {ours_took} a line, {name} {theirs_took}, {with_range(ratios, 2)} times")


if __name__ == "__main__":
    main()
