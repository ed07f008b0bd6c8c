"""fairseq's checkpoints: which are the last, their average, and their weights under the bundle's names."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import DRAFTER_OUTPUT, VERIFIER_OUTPUT, ids_name
from specmt.errors import TrainingError
from specmt.fairseq_backend import compat  # noqa: F401  (allows its types on load)
from specmt.files import atomic_path, write_json
from specmt.text.vocabulary import UNK_ID

DAMAGED = (EOFError, KeyError, OSError, RuntimeError, TypeError, ValueError, pickle.UnpicklingError)
"""What readers of checkpoints, JSON and SentencePiece models raise."""

_EMBEDDINGS = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"}
"""A verifier's matrices with a row for each token; they are one."""
_OF_DRAFTED_TOKENS = {"bigram_right.weight"}
"""With a row for each token that a drafter can say."""
_OF_TOKENS = _EMBEDDINGS | _OF_DRAFTED_TOKENS | {"bigram_left.weight"}
LAST = "checkpoint_last.pt"
"""What training goes on from."""
_END = "end.json"
"""At which update training has ended."""
_INTERVAL_NAME = re.compile(r"checkpoint_\d+_(\d+)\.pt")


def last_checkpoints(folder: Path, count: int) -> list[Path]:
    """The last `count` checkpoints by update, oldest first; the one at the very end of training included.

    fairseq calls that one `checkpoint_last.pt`, and keeps it under a number as well only if an interval ends there.

    Raises:
        TrainingError: there is none, or the last one is damaged.
    """
    by_update = numbered(folder)
    if reached := last_update(folder):
        by_update.setdefault(reached, folder / LAST)
    if not by_update:
        raise TrainingError(f"{folder}: no checkpoint")
    return [by_update[update] for update in sorted(by_update)][-count:]


def numbered(folder: Path) -> dict[int, Path]:
    """The checkpoints of ends of intervals, by update."""
    return {int(match[1]): path for path in folder.iterdir() if (match := _INTERVAL_NAME.fullmatch(path.name))}


def last_update(folder: Path) -> int:
    """The update at which training can go on; 0 before its first checkpoint.

    Raises:
        TrainingError: that checkpoint is damaged.
    """
    last = folder / LAST
    if not last.is_file():
        return 0
    try:
        return int(load(last)["optimizer_history"][-1]["num_updates"])
    except DAMAGED as error:
        why = f"{last}: damaged ({type(error).__name__})"
        raise TrainingError(f"{why}; put an earlier one in its place, or train the stage anew with --restart") from None


def write_end(folder: Path) -> None:
    """Remember that training has ended at its last checkpoint, whatever updates are left. Written atomically."""
    write_json(folder / _END, {"update": last_update(folder)})


def has_ended(folder: Path, max_updates: int) -> bool:
    """Whether there is nothing left to train: the last update is reached, or training ended where it is.

    Raises:
        TrainingError: see `last_update`.
    """
    reached = last_update(folder)
    try:
        end = json.loads((folder / _END).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        end = None
    return reached >= max_updates or end == {"update": reached}


def load(path: Path) -> dict[str, Any]:
    """A checkpoint's content; nothing but tensors, numbers and settings is ever unpickled."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def _whole(path: Path) -> dict[str, Any]:
    try:
        return load(path)
    except DAMAGED as error:
        raise TrainingError(f"{path}: damaged ({type(error).__name__}); train the stage anew with --restart") from None


def write_average(checkpoints: Sequence[Path], path: Path, shares: Sequence[float] | None = None) -> None:
    """Average the weights; the result is a fairseq checkpoint without optimizer state. Written atomically.

    Args:
        shares: of each checkpoint, together 1; without them all count the same.

    Raises:
        TrainingError: one is damaged; it is named.
    """
    states = [_whole(checkpoint) for checkpoint in checkpoints]
    weights = torch.tensor(shares or [1 / len(states)] * len(states))
    averaged = states[-1]
    for name, tensor in averaged["model"].items():
        if tensor.is_floating_point():
            stacked = torch.stack([state["model"][name] for state in states])
            averaged["model"][name] = torch.tensordot(weights.to(stacked.dtype), stacked, dims=1)
    averaged.pop("last_optimizer_state", None)
    save(averaged, path)


def write_grown(model: Path, path: Path, vocabulary_size: int) -> bool:
    """Write a verifier or drafter with more tokens, each as `<unk>` is. Written atomically.

    Returns:
        Whether there were any to add; if not, nothing is written.
    """
    state = load(model)
    weights = state["model"]
    grown: dict[int, Tensor] = {}
    for name in _OF_TOKENS & weights.keys() - (_OF_DRAFTED_TOKENS if "output.ids" in weights else set()):
        matrix = weights[name]
        if more := vocabulary_size - len(matrix):
            longer = torch.cat([matrix, matrix[UNK_ID].expand(more, -1)])
            weights[name] = grown.setdefault(matrix.data_ptr(), longer)
    if grown:
        save(state, path)
    return bool(grown)


def save(state: Mapping[str, Any], path: Path) -> None:
    """Write a checkpoint atomically.

    Raises:
        OSError: it cannot be written; where there is no room, torch by itself would raise an error of another kind.
    """
    content = io.BytesIO()
    torch.save(state, content)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def bundle_weights(verifier: Mapping[str, Tensor], drafter: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Both models' weights under a bundle's names; the shared embedding matrix stands once, the verifier says all."""
    no_weight = {"encoder.version", "decoder.version"}
    positions = {"encoder.embed_positions._float_tensor", "decoder.embed_positions._float_tensor"}
    weights = {"embeddings.weight": verifier["decoder.embed_tokens.weight"]}
    for name, tensor in verifier.items():
        if name not in _EMBEDDINGS | no_weight | positions:
            weights[f"verifier.{name}"] = tensor
    weights |= {f"drafter.{name}": tensor for name, tensor in drafter.items()}
    if ids_name(DRAFTER_OUTPUT) in weights:
        weights[f"{DRAFTER_OUTPUT}.weight"] = weights["embeddings.weight"][weights[ids_name(DRAFTER_OUTPUT)]]
    return weights


def limit_targets(
    weights: dict[str, Tensor], architecture: Architecture, target_ids: IntArray
) -> tuple[dict[str, Tensor], Architecture]:
    """The same pair with a verifier that says the tokens `target_ids` (ascending) only."""
    ids = torch.from_numpy(target_ids)
    output = {f"{VERIFIER_OUTPUT}.weight": weights["embeddings.weight"][ids], ids_name(VERIFIER_OUTPUT): ids}
    return weights | output, replace(architecture, target_vocabulary_size=len(ids))


def verifier_architecture(verifier: Mapping[str, Any]) -> Architecture:
    """The shape of a verifier without a drafter, from its checkpoint's content."""
    args = verifier["cfg"]["model"]
    size, width = verifier["model"]["decoder.embed_tokens.weight"].shape
    return Architecture(
        vocabulary_size=size,
        width=width,
        heads=args.decoder_attention_heads,
        feed_forward_width=args.decoder_ffn_embed_dim,
        encoder_layers=args.encoder_layers,
        decoder_layers=args.decoder_layers,
        drafter_layers=0,
        draft_length=0,
        bigram_rank=0,
    )


def drafter_shape(drafter: Mapping[str, Any]) -> tuple[int, int, int, int]:
    """Of a drafter's checkpoint: layers, draft length, rank of the bigram term, tokens that it can say (0: all)."""
    weights = drafter["model"]
    layers = sum(name.endswith(".fc1.bias") for name in weights)
    rank = weights["bigram_gate.weight"].size(0)
    return layers, weights["slots.weight"].size(0), rank, len(weights.get("output.ids", ()))


def pair_architecture(verifier: Mapping[str, Any], drafter: Mapping[str, Any]) -> Architecture:
    """The shape of a pair, from its two checkpoints' content."""
    return verifier_architecture(verifier).with_drafter(*drafter_shape(drafter))
