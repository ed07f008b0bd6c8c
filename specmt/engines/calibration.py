"""What range each product of matrices reads, seen by running the fp32 torch engine over sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from specmt.architecture import Architecture
from specmt.engines.base import FloatArray, step
from specmt.engines.torch_engine import TorchEngine
from specmt.vocabulary import EOS_ID

Ranges = dict[str, tuple[float, float]]
"""Smallest and largest input of a product, by the name of the (first) matrix that it is multiplied with."""

_BATCH_SIZE = 64


@dataclass(frozen=True)
class Calibration:
    """What was seen: the ranges, and the largest attention score (of either sign)."""

    ranges: Ranges
    largest_score: float


class _Observer(TorchFunctionMode):
    """Sees every product with a weight, and every softmax."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._weights = weights
        self._names: dict[int, str] = {}
        self.ranges: Ranges = {}
        self.largest_score = 0.0

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if function is functional.linear:
            self._see_product(args[0], args[1])
        elif function is Tensor.softmax:
            best = args[0].amax(dim=-1)
            self.largest_score = max(self.largest_score, float(best[best.isfinite()].abs().max()))
        return function(*args, **(kwargs or {}))

    def _see_product(self, x: Tensor, weight: Tensor) -> None:
        key = weight.data_ptr()
        if key not in self._names:
            named = set(self._names.values())  # layers may be equal: in their order, each has a name of its own
            parts = ((name, part) for name, part in self._weights.items() if name not in named)
            self._names[key] = next(name for name, part in parts if _begins_with(weight, part))
        name = self._names[key]
        low, high = self.ranges.get(name, (0.0, 0.0))
        self.ranges[name] = (min(low, float(x.min())), max(high, float(x.max())))


def _begins_with(weight: Tensor, part: Tensor) -> bool:
    return weight.shape[1:] == part.shape[1:] and torch.equal(weight[: len(part)], part)


def calibrate(
    architecture: Architecture, weights: Mapping[str, FloatArray], sources: Sequence[Sequence[int]]
) -> Calibration:
    """Translate `sources` greedily, drafting at every step where a drafter is, and keep what was seen.

    Of sources that are longer than the model has positions for, as many tokens are read as it has.
    """
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    engine = TorchEngine(architecture, tensors)
    observer = _Observer(tensors)
    with observer:
        for first in range(0, len(sources), _BATCH_SIZE):
            _translate(engine, [_fitting(source, architecture) for source in sources[first : first + _BATCH_SIZE]])
    return Calibration(observer.ranges, observer.largest_score)


def _fitting(source: Sequence[int], architecture: Architecture) -> Sequence[int]:
    """The beginning of a source that ends with end-of-sentence, with that."""
    return [*source[:-1][: architecture.max_source_tokens], EOS_ID]


def _translate(engine: TorchEngine, sources: Sequence[Sequence[int]]) -> None:
    rows = engine.encode(sources)
    last_ids = np.full(len(sources), EOS_ID)
    limit = max(map(len, sources)) + 10
    for _ in range(min(limit, engine.architecture.max_target_tokens or limit)):
        if engine.max_draft_length:
            engine.draft(rows, last_ids, engine.max_draft_length)
        last_ids = step(engine, rows, last_ids, beta=1).ids[:, 0, 0]
        unfinished = np.flatnonzero(last_ids != EOS_ID)
        if not len(unfinished):
            return
        rows, last_ids = engine.select(rows, unfinished), last_ids[unfinished]
