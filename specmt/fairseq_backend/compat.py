"""Makes fairseq 0.12.2 work on today's Python and torch, without editing it. Import this before fairseq.

Every workaround for fairseq lives here, each with the failure it prevents.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from specmt.fairseq_backend.safe_types import settings_types

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


# On import a speech task of fairseq's asks for a package that nothing here needs.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

with _hashable_fairseq_dataclasses():
    import fairseq  # noqa: F401

_allow_checkpoint_types()
_drop_better_transformer()
