"""The types that fairseq's checkpoints may hold beside tensors, for safe loading. Imports no fairseq."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

_METERS = ("AverageMeter", "TimeMeter", "StopwatchMeter", "MetersDict", "SumMeter")


class Meter:
    """Stands in for the meters of a training run, which checkpoints of old hold. Keeps nothing and does nothing."""

    def __new__(cls, *args: Any) -> Meter:  # noqa: ANN401 - whatever it was made of
        """Take whatever a meter was made of."""
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:  # noqa: ANN401
        """Forget a meter's values."""


def settings_types() -> list[Any]:
    """A Namespace, and numpy's numbers and arrays: no code of anyone's runs when these are read."""
    numpy_types: list[Any] = [np.dtype, np.ndarray, *{type(np.dtype(code)) for code in "?bhilBHILefd"}]
    scalar, reconstruct = np._core.multiarray.scalar, np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    before_numpy_2 = [(scalar, "numpy.core.multiarray.scalar"), (reconstruct, "numpy.core.multiarray._reconstruct")]
    return [argparse.Namespace, scalar, reconstruct, *before_numpy_2, *numpy_types]


def meter_types() -> list[Any]:
    """Stand-ins for fairseq's meters under the names that they had."""
    return [(Meter, f"{module}.{name}") for module in ("fairseq.meters", "fairseq.logging.meters") for name in _METERS]
