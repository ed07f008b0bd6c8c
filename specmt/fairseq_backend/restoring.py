"""A bundle's models as fairseq's checkpoints, for training that goes on from them and for other tools of fairseq's.

The weights are the bundle's 8-bit numbers in float32; the optimizer's state is not in a bundle.
"""

from __future__ import annotations

import warnings
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import Bundle
from specmt.bundles.tensors import DRAFTER_OUTPUT
from specmt.bundles.weights import load_weights
from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, compat  # noqa: F401  (before fairseq)
from specmt.fairseq_backend.driver import verifier_shape

from fairseq import options  # isort: skip
from fairseq.dataclass.utils import convert_namespace_to_omegaconf  # isort: skip
from omegaconf import OmegaConf  # isort: skip

_SHARED = ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection")
_VERSION = 3.0
"""Of fairseq's layers, which its models keep among their weights."""


def check_kind(bundle: Bundle) -> None:
    """Refuse a verifier that `specmt train` would not have trained.

    Raises:
        TrainingError: it was converted, and has another tokenizer or other layers.
    """
    shape = bundle.architecture
    plain = Architecture(
        vocabulary_size=shape.vocabulary_size,
        width=shape.width,
        heads=shape.heads,
        feed_forward_width=shape.feed_forward_width,
        encoder_layers=shape.encoder_layers,
        decoder_layers=shape.decoder_layers,
        drafter_layers=shape.drafter_layers,
        draft_length=shape.draft_length,
        bigram_rank=shape.bigram_rank,
        target_vocabulary_size=shape.target_vocabulary_size,
        draft_vocabulary_size=shape.draft_vocabulary_size,
    )
    if plain != shape or not bundle.has_own_tokenizer:
        raise TrainingError(
            f"{bundle.path}: its verifier was converted, and is not of the kind that is trained here; without a "
            "`verifier` section, a drafter is trained for it as it is"
        )


def write_verifier(bundle: Bundle, path: Path) -> None:
    """Write a bundle's verifier as a checkpoint of fairseq's `transformer`. Written atomically.

    Raises:
        TrainingError: see `check_kind`.
    """
    check_kind(bundle)
    tensors = _tensors(bundle)
    weights = _named(tensors, "verifier.")
    weights |= {f"{name}.weight": tensors["embeddings.weight"] for name in _SHARED}
    weights |= {f"{side}.version": torch.tensor([_VERSION]) for side in ("encoder", "decoder")}
    _save(weights, _settings(bundle), path)


def write_drafter(bundle: Bundle, path: Path) -> None:
    """Write a bundle's drafter as a checkpoint to begin training with. Written atomically."""
    tensors = _tensors(bundle)
    tensors.pop(f"{DRAFTER_OUTPUT}.weight", None)  # rows of the verifier's embeddings
    _save(_named(tensors, "drafter."), _settings(bundle), path)


def _tensors(bundle: Bundle) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _settings(bundle: Bundle) -> Any:
    """What fairseq says of a verifier of this shape."""
    languages = ("--source-lang", bundle.source_language, "--target-lang", bundle.target_language)
    arguments = ["data", *verifier_shape(bundle.architecture), *languages]
    args: Namespace = options.parse_args_and_arch(options.get_training_parser(), arguments)
    with warnings.catch_warnings():  # hydra's, on how fairseq calls it
        warnings.simplefilter("ignore")
        settings = convert_namespace_to_omegaconf(args)
    return OmegaConf.to_container(settings, resolve=True, enum_to_str=True)


def _save(weights: dict[str, Tensor], settings: Any, path: Path) -> None:
    """As fairseq saves a checkpoint, with no state of an optimizer."""
    optimizer = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}, "num_updates": 0}
    state = {
        "args": None,
        "cfg": settings,
        "model": weights,
        "criterion": None,
        "optimizer_history": [optimizer],
        "task_state": {},
        "extra_state": {"train_iterator": {"version": 2, "epoch": 1, "iterations_in_epoch": 0, "shuffle": True}},
    }
    checkpoints.save(state, path)
