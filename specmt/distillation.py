"""Sequence-level distillation: the verifier's own output for many sources (Kim and Rush 2016).

A drafter is as good as it predicts *its* verifier, so it learns from what that verifier says. A verifier that learns
from its own beam output says greedily what it would otherwise have to search for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from specmt.beam import beam_search
from specmt.config import RuntimeConfig
from specmt.decoding import Greedy, Hypothesis, Request, RequestQueue, decode
from specmt.engines.base import AnyEngine
from specmt.files import write_json
from specmt.vocabulary import EOS_ID

SHARD_SENTENCES = 5000
"""Sentences translated between two points from which a killed run can go on."""
_EXTRA_TOKENS = 10


@dataclass(frozen=True)
class Decoding:
    """How sources are translated: `batch_size` sentences at once, greedily where `beam` is 1."""

    batch_size: int
    beam: int = 1
    length_penalty: float = 1.0


def translate_in_shards(
    verifier: Mapping[str, Any],
    sources: Sequence[Sequence[int]],
    folder: Path,
    decoding: Decoding,
    runtime: RuntimeConfig,
) -> list[list[int]]:
    """The verifier's translation of each source; ids without end-of-sentence on both sides.

    Each shard is written to `folder` as it is finished, and read from there if it stands.

    Args:
        verifier: a fairseq checkpoint's content.
    """
    from specmt.engines.torch_engine import TorchEngine
    from specmt.fairseq_backend import checkpoints

    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(runtime.threads)
    weights = checkpoints.bundle_weights(verifier["model"], {})
    engine = TorchEngine(checkpoints.verifier_architecture(verifier), weights, bf16=runtime.bf16)
    translations: list[list[int]] = []
    for start in range(0, len(sources), SHARD_SENTENCES):
        path = folder / f"{start:08}.json"
        if not path.exists():
            write_json(path, _translate(engine, sources[start : start + SHARD_SENTENCES], decoding))
        translations += json.loads(path.read_text())
    return translations


def _translate(engine: AnyEngine, sources: Sequence[Sequence[int]], decoding: Decoding) -> list[list[int]]:
    requests = [
        Request(index, [*source, EOS_ID], 2 * len(source) + _EXTRA_TOKENS) for index, source in enumerate(sources)
    ]
    translations: list[list[int]] = [[] for _ in sources]
    for hypothesis in _decoded(engine, RequestQueue(requests, decoding.batch_size), decoding):
        translations[hypothesis.request.index] = [id_ for id_ in hypothesis.ids if id_ != EOS_ID]
    return translations


def _decoded(engine: AnyEngine, queue: RequestQueue, decoding: Decoding) -> Iterator[Hypothesis]:
    if decoding.beam == 1:
        yield from decode(engine, queue, Greedy(), decoding.batch_size)
        return
    while requests := queue.take(decoding.batch_size, wait=True):
        for hypotheses in beam_search(engine, requests, decoding.beam, decoding.length_penalty):
            yield hypotheses[0]
