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

What is finished is kept in the folder, and not done again; ours is the base of `ablate_drafter.py` where that has been
trained for as long.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from ablate_drafter import CORPORA, VARIANTS, Study, export, train, untrained
from bench_passes import sentences
from benchmarking import ROOT
from measure_tree import READ_TOKENS, SOURCE_TOKENS, timed
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from specmt.architecture import Architecture
from specmt.bundle import WEIGHTS, load_bundle
from specmt.decoding import Flight, Greedy, Request, Speculative, Strategy
from specmt.engines.base import AnyEngine, IntArray, Speculation
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_layers import position_table
from specmt.engines.torch_rows import TorchRows
from specmt.fairseq_backend import binarise, checkpoints  # noqa: F401  (binarise: before fairseq)
from specmt.fairseq_backend.loss import linear_cross_entropy
from specmt.files import write_json
from specmt.vocabulary import EOS_ID, MASK_ID, PAD_ID
from specmt.weights import dequantised, read_stored

from fairseq import checkpoint_utils  # isort: skip
from fairseq.data import indexed_dataset  # isort: skip

BLOCK = 25
"""`[MASK]` slots in training, as in the paper."""
DECODER_LAYERS = 6
BATCH_TOKENS = 2048
LEARNING_RATE = 6e-4
WARMUP = 0.1
"""Share of the time in which the learning rate rises; then it falls to zero."""
LABEL_SMOOTHING = 0.1
THEIR_LENGTHS = (4, 8, 12, 25)
OUR_LENGTHS = (2, 4, 6, 8, 10)
ROUNDS, COST_ROUNDS = 10, 20
TARGET_TOKENS = 13
"""Of a sentence whose time is worked out from passes; the mean of the validation lines."""


class ReferenceDrafter(nn.Module):
    """An encoder of its own, and a decoder over [prefix; masks] without causality."""

    def __init__(self, verifier: Any, from_scratch: bool) -> None:  # noqa: ANN401  (fairseq has no types)
        super().__init__()
        self.encoder = copy.deepcopy(verifier.encoder)
        theirs = verifier.decoder.layers
        self.layers = nn.ModuleList(
            copy.deepcopy(theirs[place * len(theirs) // DECODER_LAYERS]) for place in range(DECODER_LAYERS)
        )
        self.layer_norm = copy.deepcopy(verifier.decoder.layer_norm)
        self.embeddings = self.encoder.embed_tokens
        self.width = self.embeddings.weight.size(1)
        self.register_buffer("positions", position_table(1024, self.width), persistent=False)
        self.requires_grad_(True)
        if from_scratch:
            self.apply(_reset)

    def encode(self, sources: Tensor) -> dict[str, Any]:
        """What fairseq's encoder returns for ids, shape (batch, S), padded on the right."""
        encoded: dict[str, Any] = self.encoder(sources, src_lengths=(sources != PAD_ID).sum(dim=1))
        return encoded

    def decode(self, encoded: dict[str, Any], ids: Tensor) -> Tensor:
        """States of all positions, shape (batch, T, width), of decoder inputs, padded on the right."""
        positions: Any = self.positions
        x = (self.embeddings(ids) * math.sqrt(self.width) + positions[: ids.size(1)]).transpose(0, 1)
        padding = ids == PAD_ID
        source_padding = encoded["encoder_padding_mask"]
        for layer in self.layers:
            x, *_ = layer(
                x,
                encoded["encoder_out"][0],
                source_padding[0] if source_padding else None,
                self_attn_padding_mask=padding if bool(padding.any()) else None,
            )
        states: Tensor = self.layer_norm(x).transpose(0, 1)
        return states

    @torch.inference_mode()
    def draft(self, encoded: dict[str, Any], prefix: Sequence[int], draft_length: int) -> list[int]:
        """The most probable token of each slot behind a prefix that begins with end-of-sentence."""
        states = self.decode(encoded, torch.tensor([[*prefix, *[MASK_ID] * draft_length]]))
        best = functional.linear(states[0, -draft_length:], self.embeddings.weight).argmax(dim=1)
        ids: list[int] = best.tolist()
        return ids


def _reset(module: nn.Module) -> None:
    """As fairseq initialises a transformer."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.LayerNorm):
        module.reset_parameters()
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)


# -- training


def masked(targets: Sequence[Sequence[int]], starts: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Decoder inputs and gold tokens of sentences of which all before `starts` is shown, and `BLOCK` masks follow.

    Both have shape (batch, longest prefix + 1 + BLOCK), padded; gold is padding wherever no mask stands, or nothing
    is due.
    """
    longest = max(starts) + 1 + BLOCK
    inputs = np.full((len(targets), longest), PAD_ID)
    gold = np.full((len(targets), longest), PAD_ID)
    for row, (target, start) in enumerate(zip(targets, starts, strict=True)):
        inputs[row, : start + 1] = [EOS_ID, *target[:start]]
        inputs[row, start + 1 : start + 1 + BLOCK] = MASK_ID
        due = target[start : start + BLOCK]
        gold[row, start + 1 : start + 1 + len(due)] = due
    return inputs, gold


def batches(lengths: IntArray, tokens: int, random: np.random.Generator) -> Iterator[IntArray]:
    """Sentences by place, without end: as many of like length at a time as hold `tokens`, padding included."""
    while True:
        order = np.argsort(lengths + random.random(len(lengths)), kind="stable")
        cuts, start = [], 0
        while start < len(order):
            end = start + 1
            while end < len(order) and (end + 1 - start) * lengths[order[end]] <= tokens:
                end += 1
            cuts.append(order[start:end])
            start = end
        for place in random.permutation(len(cuts)):
            yield cuts[place]


def padded(rows: Sequence[Sequence[int]]) -> Tensor:
    """Ids, shape (batch, longest), padded on the right."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD_ID)


def learning_rate(progress: float) -> float:
    """At a share of the time: a linear rise, a linear fall."""
    return LEARNING_RATE * min(progress / WARMUP, (1 - progress) / (1 - WARMUP))


def loss_of(drafter: ReferenceDrafter, sources: Tensor, inputs: Tensor, gold: Tensor) -> Tensor:
    """Nats a mask, label smoothing included."""
    with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
        states = drafter.decode(drafter.encode(sources), inputs)
    due = gold != PAD_ID
    total = linear_cross_entropy(states[due].bfloat16(), drafter.embeddings.weight, gold[due], LABEL_SMOOTHING)
    return total / int(due.sum())


def train_reference(study: Study, drafter: ReferenceDrafter, seconds: float) -> int:
    """Train for so much time of the processor; updates done."""
    prefix = study.run / "distil" / f"train.{'-'.join(study.languages)}"
    sources, targets = (
        [row.tolist() for row in indexed_dataset.MMapIndexedDataset(f"{prefix}.{language}")]
        for language in study.languages
    )
    lengths = np.array([max(len(pair[0]), len(pair[1])) for pair in zip(sources, targets, strict=True)])
    random = np.random.default_rng(1)
    optimizer = torch.optim.Adam(drafter.parameters(), betas=(0.9, 0.98))
    begun = time.process_time()
    drafter.train()
    for updates, members in enumerate(batches(lengths, BATCH_TOKENS, random)):
        progress = (time.process_time() - begun) / seconds
        if progress >= 1:
            return updates
        chosen = [targets[place] for place in members]
        inputs, gold = masked(chosen, [int(random.integers(len(target))) for target in chosen])
        loss = loss_of(
            drafter, padded([sources[place] for place in members]), torch.from_numpy(inputs), torch.from_numpy(gold)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(drafter.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(progress)
        optimizer.step()
        if updates % 50 == 0:
            print(f"{updates} updates, {progress:.0%}, loss {loss.item():.3f} nats", file=sys.stderr, flush=True)
    raise AssertionError("batches have no end")


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
    """Mean emitted tokens and processor milliseconds a sentence, one sentence at a time."""
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
    if trained.get("seconds") != seconds:
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
        "| drafter | parameters | updates | k | mean emitted | draft pass, ms | ms a sentence |",
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
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "release-de-en", help="a finished run")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "release-de-en.yaml", help="its settings")
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
    for name, design in designs.items():
        if name not in rows:
            print(f"{time.strftime('%H:%M:%S')}  {name}", file=sys.stderr, flush=True)
            rows[name] = {"seconds": arguments.seconds, **design(seconds=arguments.seconds)}
            write_json(path, rows)
    costs = native_costs(load_bundle(study.run / "bundle").architecture, COST_ROUNDS)
    print("\n".join([*table(rows), *native_table(costs, TARGET_TOKENS)]))


if __name__ == "__main__":
    main()
