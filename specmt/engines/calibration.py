"""What each product of matrices reads, seen by running the fp32 torch engine over sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from specmt.arrays import FloatArray
from specmt.bundles.architecture import Architecture
from specmt.engines.base import step
from specmt.engines.torch_engine import TorchEngine
from specmt.text.vocabulary import EOS_ID

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
        self.weights = weights
        self._names: dict[int, list[str]] = {}
        self.ranges: Ranges = {}
        self.largest_score = 0.0
        self.moments: dict[str, Tensor] | None = None
        """If they are wanted."""

    @property
    def names(self) -> Iterable[list[str]]:
        """Matrices that were multiplied at once."""
        return self._names.values()

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
            self._names[key] = self._parts(weight)
        name = self._names[key][0]
        low, high = self.ranges.get(name, (0.0, 0.0))
        self.ranges[name] = (min(low, float(x.min())), max(high, float(x.max())))
        if self.moments is not None:
            inputs = x.flatten(end_dim=-2)
            moments = inputs.T @ inputs
            self.moments[name] = self.moments[name] + moments if name in self.moments else moments

    def _parts(self, weight: Tensor) -> list[str]:
        named = {name for names in self._names.values() for name in names}
        parts: list[str] = []
        while len(weight):  # layers may be equal: in their order, each has a name of its own
            unnamed = (name for name in self.weights if name not in named)
            parts.append(next(name for name in unnamed if _begins_with(weight, self.weights[name])))
            named.add(parts[-1])
            weight = weight[len(self.weights[parts[-1]]) :]
        return parts


def _begins_with(weight: Tensor, part: Tensor) -> bool:
    return weight.shape[1:] == part.shape[1:] and torch.equal(weight[: len(part)], part)


def calibrate(
    architecture: Architecture, weights: Mapping[str, FloatArray], sources: Sequence[Sequence[int]]
) -> Calibration:
    """Translate `sources` greedily, drafting at every step where a drafter is, and keep what was seen.

    Of sources that are longer than the model has positions for, as many tokens are read as it has.
    """
    observer = _Observer({name: torch.from_numpy(array) for name, array in weights.items()})
    _observe(observer, architecture, sources)
    return Calibration(observer.ranges, observer.largest_score)


def input_moments(
    architecture: Architecture, weights: Mapping[str, FloatArray], sources: Sequence[Sequence[int]]
) -> dict[str, FloatArray]:
    """Of every matrix that a product reads, sums of products of two inputs, shape (inputs, inputs).

    Seen as by `calibrate`.
    """
    observer = _Observer({name: torch.from_numpy(array) for name, array in weights.items()})
    observer.moments = {}
    _observe(observer, architecture, sources)
    return {name: observer.moments[names[0]].numpy() for names in observer.names for name in names}


def _observe(observer: _Observer, architecture: Architecture, sources: Sequence[Sequence[int]]) -> None:
    engine = TorchEngine(architecture, observer.weights)
    with observer:
        for first in range(0, len(sources), _BATCH_SIZE):
            _translate(engine, [_fitting(source, architecture) for source in sources[first : first + _BATCH_SIZE]])


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
