"""SpecDec's drafter (Xia et al. 2023, arXiv 2203.16487) and its training, for `compare_reference_design.py`."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from drafter_study import Study
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from specmt.arrays import IntArray
from specmt.engines.torch_layers import position_table
from specmt.fairseq_backend import binarise, checkpoints  # noqa: F401  (binarise: before fairseq)
from specmt.fairseq_backend.loss import linear_cross_entropy
from specmt.text.vocabulary import EOS_ID, MASK_ID, PAD_ID

from fairseq.data import indexed_dataset  # isort: skip

BLOCK = 25
"""`[MASK]` slots in training, as in the paper."""
DECODER_LAYERS = 6
BATCH_TOKENS = 2048
LEARNING_RATE = 6e-4
WARMUP = 0.1
"""Share of the time in which the learning rate rises; then it falls to zero."""
LABEL_SMOOTHING = 0.1


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
