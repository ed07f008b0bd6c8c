"""Types of the arrays that modules hand one another: numpy's, which short translations do without."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IntArray: TypeAlias = "NDArray[np.int64]"
"""Ids, lengths and the like."""
FloatArray: TypeAlias = "NDArray[np.float32]"
"""Log-probabilities in nats, weights and states."""
