"""The drafter of SpecDec (Xia et al. 2023, arXiv 2203.16487) beside ours: same data, verifier and processor time.

    python scripts/compare_reference_design.py [--run DIR] [--seconds 60] [--lines 50]

Its drafter has an encoder of its own (6 layers) and a mask-predict decoder (6 layers) that reads [prefix; k masks] anew
in every iteration, all positions seeing one another, and says every token of the vocabulary. It is trained as the paper
says: a random prefix, 25 masks after it. It is trained twice: from random weights as in the paper, and from the
verifier's own weights (encoder; each decoder layer twice), which is the best start that it can have here. Ours is the
run's own design, trained anew for as many seconds. All start from the same finished run.

Both then draft for the same verifier in torch, one sentence at a time, on one thread: mean emitted tokens, strict, and
the processor's time a sentence, by draft length. The native engine does not run their design, but passes of its shape
are timed there: how many tokens it would have to emit to be as fast as `ar`.

What is finished is kept in the folder, and not done again for the same seconds, lines and run; ours is the base of
`ablate_drafter.py` where that has been trained for as long in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from ablate_drafter import export, untrained
from bench_passes import sentences
from benchmarking import ROOT
from drafter_study import VARIANTS, Study, train
from measure_tree import CORPORA, READ_TOKENS, SOURCE_TOKENS, timed
from reference_drafter import DECODER_LAYERS, ReferenceDrafter, train_reference
from torch import Tensor

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS, load_bundle
from specmt.bundles.weights import dequantised, read_stored
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Flight, Greedy, Speculative, Strategy
from specmt.engines.base import AnyEngine, Speculation
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_rows import TorchRows
from specmt.fairseq_backend import binarise, checkpoints  # noqa: F401  (binarise: before fairseq)
from specmt.files import write_json
from specmt.text.vocabulary import EOS_ID

from fairseq import checkpoint_utils  # isort: skip

THEIR_LENGTHS = (4, 8, 12, 25)
OUR_LENGTHS = (2, 4, 6, 8, 10)
ROUNDS, COST_ROUNDS = 10, 20
TARGET_TOKENS = 13
"""Of a sentence whose time is worked out from passes; the mean of the validation lines."""


# -- decoding


class ReferenceEngine(TorchEngine):
    """The verifier in torch, with a drafter that reads the whole prefix in every iteration; one row at a time."""

    def __init__(self, architecture: Architecture, weights: dict[str, Tensor], drafter: ReferenceDrafter) -> None:
        super().__init__(architecture, weights)
        self._drafter = drafter.eval()
        self._encoded: dict[str, Any] = {}
        self._read: list[int] = []

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]]) -> TorchRows:
        """See `Engine.encode`."""
        self._encoded, self._read = self._drafter.encode(torch.tensor(sources)), []
        return super().encode(sources)

    def draft_and_verify(self, rows: TorchRows, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """See `base.Fused`."""
        prefix = [*self._read[: int(rows.lengths[0])], int(last_ids[0])]
        draft = self._drafter.draft(self._encoded, prefix, draft_length)
        self._read = [*prefix, *draft]
        candidates = self.verify(rows, np.array([[int(last_ids[0]), *draft]]), beta)
        return Speculation(np.array([draft]), candidates)


def decoded(engine: AnyEngine, requests: Sequence[Request], strategy: Strategy) -> dict[str, float]:
    """Mean emitted tokens and processor milliseconds per sentence, one sentence at a time."""
    emitted: list[int] = []
    begun = time.process_time()
    for request in requests:
        flight = Flight(engine)
        flight.admit([request])
        while flight.hypotheses:
            strategy.advance(flight)
            emitted += [len(one.emitted) for done in flight.land() for one in done.iterations]
    seconds = time.process_time() - begun
    return {"emitted": fmean(emitted), "milliseconds": seconds / len(requests) * 1e3}


def by_length(engine: AnyEngine, requests: Sequence[Request], lengths: Sequence[int]) -> dict[str, Any]:
    """`decoded`, strict, by draft length."""
    decoded(engine, requests[:4], Speculative(lengths[0], beta=1, tau=0.0))
    return {str(k): decoded(engine, requests, Speculative(k, beta=1, tau=0.0)) for k in lengths}


# -- the two designs


def requests(study: Study) -> list[Request]:
    """Validation lines."""
    vocabulary = load_bundle(study.run / "bundle").vocabulary()
    sources = [vocabulary.encode(pair.source) for name in CORPORA for pair in study.pairs(name)]
    return [Request(place, [*ids, EOS_ID], 2 * len(ids) + 10) for place, ids in enumerate(sources)]


def ours(study: Study, seconds: float) -> dict[str, Any]:
    """Our design, trained anew."""
    base = VARIANTS[0]
    folder, kept = study.folder / base.name, study.folder / f"{base.name}.json"
    trained: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    known, about = trained.get("about", {}), study.about(seconds)
    if any(known.get(name) != about[name] for name in ("seconds", "run")):
        folder = study.folder / "ours"
        trained = train(study, replace(base, name=folder.name), seconds)
    architecture = export(study, folder / "drafter.pt", folder)
    engine = TorchEngine(architecture, _weights(folder, architecture))
    lines = requests(study)
    rows = engine.encode([_source(lines)])
    engine.draft(rows, np.array([7]), 1)
    engine.verify(rows, np.full((1, READ_TOKENS), 9), 1)
    engine.commit(rows, np.full(1, READ_TOKENS))
    calls = {str(k): partial(engine.draft, rows, np.array([7]), k) for k in OUR_LENGTHS}
    state = checkpoints.load(folder / "drafter.pt")["model"]
    return {
        "updates": trained["updates"],
        "parameters": sum(tensor.numel() for tensor in state.values() if tensor.is_floating_point()),
        "draft_milliseconds": timed(calls, ROUNDS),
        "by_draft_length": by_length(engine, lines, OUR_LENGTHS),
        "ar": decoded(engine, lines, Greedy()),
    }


def theirs(study: Study, seconds: float, from_scratch: bool) -> dict[str, Any]:
    """SpecDec's design."""
    torch.manual_seed(1)
    (verifier,), _ = checkpoint_utils.load_model_ensemble([str(study.verifier())])
    drafter = ReferenceDrafter(verifier, from_scratch)
    updates = train_reference(study, drafter, seconds)
    bundle = load_bundle(study.run / "bundle")
    weights = _weights(bundle.path, bundle.architecture)
    engine = ReferenceEngine(_alone(bundle.architecture), weights, drafter)
    lines = requests(study)
    encoded = drafter.encode(torch.tensor([_source(lines)]))
    calls = {str(k): partial(drafter.draft, encoded, [9] * (READ_TOKENS + 1), k) for k in THEIR_LENGTHS}
    return {
        "updates": updates,
        "parameters": sum(parameter.numel() for parameter in drafter.parameters()),
        "draft_milliseconds": timed(calls, ROUNDS),
        "by_draft_length": by_length(engine, lines, THEIR_LENGTHS),
    }


def _alone(architecture: Architecture) -> Architecture:
    """The verifier without a drafter."""
    return replace(architecture, drafter_layers=0, draft_length=0, bigram_rank=0, draft_vocabulary_size=0)


def _source(lines: Sequence[Request]) -> list[int]:
    """A source of the length at which passes are timed."""
    return [id_ for line in lines for id_ in line.source_ids][:SOURCE_TOKENS]


def _weights(folder: Path, architecture: Architecture) -> dict[str, Tensor]:
    stored = dequantised(read_stored(folder / WEIGHTS, architecture))
    return {name: torch.from_numpy(array) for name, array in stored.items()}


# -- the time of its passes in the native engine, which does not run it


def native_costs(architecture: Architecture, rounds: int) -> dict[str, float]:
    """Processor milliseconds of both designs' passes in the native engine, of random weights.

    Theirs are those of a verifier of that shape that reads prefix and slots. It says 3,072 tokens at every position of
    both: about the work of all 8,000 at the slots alone.
    """
    shape = replace(_alone(architecture), decoder_layers=DECODER_LAYERS, target_vocabulary_size=3072)
    source, last = sentences(architecture, 1, SOURCE_TOKENS), np.full(1, 7)
    with TemporaryDirectory() as name:
        own, other = untrained(architecture, Path(name) / "ours"), untrained(shape, Path(name) / "theirs")
        rows, others = own.encode(source), other.encode(source)
        own.draft(rows, last, 1)
        own.verify(rows, np.full((1, READ_TOKENS), 9), 1)
        own.commit(rows, np.full(1, READ_TOKENS))
        calls: dict[str, Callable[[], object]] = {
            "encode": partial(own.encode, source),
            "step": partial(own.verify, rows, last[:, None], 1),
            "their encode": partial(other.encode, source),
        }
        for k in THEIR_LENGTHS:
            calls[f"verify {k}"] = partial(own.verify, rows, np.full((1, k + 1), 7), 1)
            calls[f"their draft {k}"] = partial(other.verify, others, np.full((1, READ_TOKENS + 1 + k), 7), 1)
        for k in (k for k in OUR_LENGTHS if k <= architecture.draft_length):
            calls[f"iteration {k}"] = partial(own.draft_and_verify, rows, last, k, 1)
        return timed(calls, rounds)


def needed(costs: Mapping[str, float], tokens: float, milliseconds: float, k: int) -> float:
    """Mean emitted tokens with which their drafter takes so long a sentence; infinite where its encoder alone does.

    Args:
        costs: see `native_costs`.
        tokens: of the sentence.
    """
    left = milliseconds - costs["encode"] - costs["their encode"]
    return tokens * (costs[f"their draft {k}"] + costs[f"verify {k}"]) / left if left > 0 else math.inf


def native_table(costs: Mapping[str, float], tokens: float) -> list[str]:
    """Their passes, and the mean emitted tokens that they need to be as fast as `ar`."""
    plain = costs["encode"] + tokens * costs["step"]
    lines = [
        "| k | their draft, ms | the verifier's pass, ms | emitted tokens to be as fast as `ar` |",
        "| --- | --- | --- | --- |",
    ]
    for k in THEIR_LENGTHS:
        draft, verify = costs[f"their draft {k}"], costs[f"verify {k}"]
        lines += [f"| {k} | {draft:.2f} | {verify:.2f} | {needed(costs, tokens, plain, k):.1f} |"]
    own = ", ".join(f"k = {k}: {costs[f'iteration {k}']:.2f}" for k in OUR_LENGTHS if f"iteration {k}" in costs)
    encoders = f"encoder {costs['encode']:.2f}, theirs {costs['their encode']:.2f}, step {costs['step']:.2f} ms"
    return [*lines, f"{encoders}; `ar` {plain:.2f} ms for {tokens:.0f} tokens; our iterations {own} ms"]


# -- tables


def table(rows: dict[str, dict[str, Any]]) -> list[str]:
    """A Markdown table: a line for each design and draft length."""
    lines = [
        "| drafter | parameters | updates | k | mean emitted | draft pass, ms | ms per sentence |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in rows.items():
        for length, found in row["by_draft_length"].items():
            lines.append(
                f"| {name} | {row['parameters'] / 1e6:.1f} M | {row['updates']} | {length} | {found['emitted']:.2f} "
                f"| {row['draft_milliseconds'][length]:.1f} | {found['milliseconds']:.1f} |"
            )
        if "ar" in row:
            lines.append(f"| none: `ar` | | | | 1.00 | | {row['ar']['milliseconds']:.1f} |")
    return lines


def main() -> None:
    """Train what has not been, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "narrow-de-en", help="a finished run")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "narrow-de-en.yaml", help="its settings")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablations", help="where results are kept")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of each training (default: 60)")
    parser.add_argument("--lines", type=int, default=50, help="of each validation file (default: 50)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    study = Study(arguments.config, arguments.run, arguments.folder, arguments.lines)
    designs = {
        "ours": partial(ours, study),
        "SpecDec, from the verifier": partial(theirs, study, from_scratch=False),
        "SpecDec, from scratch": partial(theirs, study, from_scratch=True),
    }
    path = study.folder / "reference_design.json"
    study.folder.mkdir(parents=True, exist_ok=True)
    rows: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    about = study.about(arguments.seconds)
    for name, design in designs.items():
        if rows.get(name, {}).get("about") != about:
            print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
            rows[name] = {"about": about, **design(seconds=arguments.seconds)}
            write_json(path, rows)
    costs = native_costs(load_bundle(study.run / "bundle").architecture, COST_ROUNDS)
    print("\n".join([*table(rows), *native_table(costs, TARGET_TOKENS)]))


if __name__ == "__main__":
    main()
