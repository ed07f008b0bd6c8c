"""Makes fairseq 0.12.2 work on today's Python and torch, without editing it. Import this before fairseq.

Every workaround for fairseq lives here, each with the failure it prevents.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import torch

from specmt.conversion.safe_types import settings_types

_SHADOW_PARAMETERS = tuple(
    f"{name}_{kind}" for name in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)


@contextmanager
def _hashable_fairseq_dataclasses() -> Iterator[None]:
    """Prevents `ValueError: mutable default CommonConfig`.

    Since Python 3.11 a dataclass field may not default to an unhashable instance, and a dataclass with `__eq__`
    is unhashable. While fairseq is imported, its dataclasses keep the identity hash.
    """
    original = dataclasses._process_class  # type: ignore[attr-defined]

    def process(cls: type, *args: Any, **kwargs: Any) -> type:
        made: type = original(cls, *args, **kwargs)
        if made.__module__.startswith("fairseq.") and vars(made).get("__hash__", 0) is None:
            type.__setattr__(made, "__hash__", object.__hash__)
        return made

    dataclasses._process_class = process  # type: ignore[attr-defined]
    try:
        yield
    finally:
        dataclasses._process_class = original  # type: ignore[attr-defined]


def _allow_checkpoint_types() -> None:
    """Prevents `Weights only load failed`: checkpoints hold a Namespace and numpy scalars, and no code."""
    torch.serialization.add_safe_globals(settings_types())


def _drop_better_transformer() -> None:
    """Prevents `Mask Type should be defined`, and eight dead parameters a layer in every optimizer state.

    The encoder layer's BetterTransformer fast path calls a torch function whose signature has changed.
    """
    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase as Layer

    original_init = Layer.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        for name in _SHADOW_PARAMETERS:
            del self._parameters[name]
        self.can_use_fastpath = False

    Layer.__init__ = init
    Layer._load_from_state_dict = torch.nn.Module._load_from_state_dict


def _batch_without_extension() -> None:
    """Prevents `Please build Cython components` where fairseq was installed without a compiler."""
    name = "fairseq.data.data_utils_fast"
    if importlib.util.find_spec(name) is None:
        replacement: Any = ModuleType(name)
        replacement.batch_by_size_vec = batch_by_size
        replacement.batch_by_size_fn = replacement.batch_fixed_shapes_fast = None  # for datasets that are not ours
        sys.modules[name] = replacement


def batch_by_size(
    indices: np.ndarray, sizes: np.ndarray, max_tokens: int, max_sentences: int, multiple: int
) -> list[np.ndarray]:
    """As many neighbours to a batch as it bears; of more than `multiple` rows, a multiple of that.

    Args:
        indices: sentences in their order, shape (sentences,).
        sizes: tokens of each of them.
        max_tokens: of a batch, padding included; below 1: any number.
        max_sentences: of a batch; below 1: any number.
    """
    batches, start, longest = [], 0, 0
    for end, size in enumerate(sizes.tolist()):
        longest, rows = max(longest, size), end + 1 - start
        if 0 < max_tokens < rows * longest or 0 < max_sentences < rows:
            taken = end - start
            taken -= taken % multiple if taken > multiple else 0
            batches.append(indices[start : start + taken])
            start += taken
            longest = int(sizes[start : end + 1].max())
    rest = indices[start:]
    even = len(rest) - len(rest) % multiple if len(rest) > multiple else 0
    return [*batches, *(part for part in (rest[:even], rest[even:]) if len(part))]


# On import a speech task of fairseq's asks for a package that nothing here needs.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

with _hashable_fairseq_dataclasses():
    import fairseq  # noqa: F401

_allow_checkpoint_types()
_drop_better_transformer()
_batch_without_extension()
