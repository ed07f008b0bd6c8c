"""Sequence-level distillation: the verifier's greedy output for many sources (Kim and Rush 2016).

A drafter is as good as it predicts *its* verifier, so it learns from what that verifier says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from specmt.config import RuntimeConfig
from specmt.decoding import Greedy, Request, RequestQueue, decode
from specmt.engines.base import AnyEngine
from specmt.files import write_json
from specmt.vocabulary import EOS_ID

SHARD_SENTENCES = 5000
"""Sentences translated between two points from which a killed run can go on."""
_EXTRA_TOKENS = 10


def translate_in_shards(
    verifier: Mapping[str, Any], sources: Sequence[Sequence[int]], folder: Path, batch_size: int, runtime: RuntimeConfig
) -> list[list[int]]:
    """The verifier's greedy translation of each source; ids without end-of-sentence on both sides.

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
            write_json(path, _translate(engine, sources[start : start + SHARD_SENTENCES], batch_size))
        translations += json.loads(path.read_text())
    return translations


def _translate(engine: AnyEngine, sources: Sequence[Sequence[int]], batch_size: int) -> list[list[int]]:
    requests = [
        Request(index, [*source, EOS_ID], 2 * len(source) + _EXTRA_TOKENS) for index, source in enumerate(sources)
    ]
    translations: list[list[int]] = [[] for _ in sources]
    for hypothesis in decode(engine, RequestQueue(requests, batch_size), Greedy(), batch_size):
        translations[hypothesis.request.index] = [id_ for id_ in hypothesis.ids if id_ != EOS_ID]
    return translations
