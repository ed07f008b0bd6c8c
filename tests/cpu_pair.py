"""A tiny pair with random weights for tests of the engines on CPUs, and decoding with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS
from specmt.bundles.tensors import expected_shapes, ids_name
from specmt.bundles.weights import save_weights
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Strategy, decode
from specmt.engines.base import AnyEngine, Rows, step
from specmt.exporting import write_cpu_files
from specmt.text.vocabulary import EOS_ID

ARCHITECTURE = Architecture(
    vocabulary_size=160,
    width=32,
    heads=2,
    feed_forward_width=64,
    encoder_layers=2,
    decoder_layers=2,
    drafter_layers=2,
    draft_length=8,
    bigram_rank=8,
    target_vocabulary_size=128,
    draft_vocabulary_size=72,
)
FOREIGN = replace(
    ARCHITECTURE,
    source_vocabulary_size=168,
    tied_output=False,
    encoder_heads=4,
    encoder_feed_forward_width=48,
    encoder_pre_norm=False,
    decoder_pre_norm=False,
    scaled_embeddings=False,
    activation="gelu",
)
"""Post-norm and a norm after the last layer, three matrices, another encoder, gelu: what a verifier may be."""
MARIAN = replace(
    ARCHITECTURE,
    target_vocabulary_size=0,
    encoder_pre_norm=False,
    decoder_pre_norm=False,
    encoder_final_norm=False,
    decoder_final_norm=False,
    activation="swish",
    source_positions=64,
    target_positions=64,
    scaled_embeddings=False,
    output_bias=True,
    starts_from_padding=True,
)
"""As Marian trains them: swish, a bias of the output, and a decoder that starts from padding."""
WIDE = replace(ARCHITECTURE, width=128, heads=2, feed_forward_width=200)
"""Heads of 64 units, as the bundled pair has, and a width that fills no group."""


def random_weights(seed: int, architecture: Architecture = ARCHITECTURE) -> dict[str, NDArray[Any]]:
    """Large enough that what was read matters for what comes next."""
    random = np.random.default_rng(seed)
    weights: dict[str, NDArray[Any]] = {}
    for name, shape in expected_shapes(architecture).items():
        if name.endswith(ids_name("")):
            said = np.arange(EOS_ID + 1, architecture.vocabulary_size)
            weights[name] = np.sort([EOS_ID, *random.choice(said, shape[0] - 1, replace=False)])
            continue
        values = random.standard_normal(shape) * (2 * shape[-1] ** -0.5 if len(shape) == 2 else 0.1)
        weights[name] = (values + ("norm.weight" in name)).astype(np.float32)
    return weights


def sentences(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(5, ARCHITECTURE.vocabulary_size, length).tolist(), EOS_ID] for length in lengths]


def write_pair(folder: Path, architecture: Architecture = ARCHITECTURE) -> Path:
    """Weights, graphs and ranges."""
    save_weights(random_weights(1, architecture), folder / WEIGHTS)
    write_cpu_files(folder, architecture, sentences(range(3, 43), seed=2))
    return folder


class Queue:
    """Requests in memory, handed out in their order."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)

    def take(self, count: int, wait: bool) -> list[Request]:
        return list(islice(self._requests, count))


def decoded(
    engine: AnyEngine, strategy: Strategy, sources: Sequence[Sequence[int]], batch_size: int
) -> list[list[int]]:
    requests = [Request(index, source, 2 * len(source)) for index, source in enumerate(sources)]
    hypotheses = decode(engine, Queue(requests), strategy, batch_size)
    return [hypothesis.ids for hypothesis in sorted(hypotheses, key=lambda done: done.request.index)]


def read(engine: AnyEngine, rows: Rows, ids: Iterable[int]) -> None:
    for token in ids:
        step(engine, rows, np.full(len(rows.lengths), token), beta=1)
