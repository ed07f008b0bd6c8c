"""Transformers that fairseq trained elsewhere: a checkpoint as a verifier. Imports no fairseq.

Names of old versions are brought up to date by fairseq's own rules (`upgrade_state_dict_named`). What the engines do
not compute is refused: by its setting where it leaves no tensor, and else because every tensor must find its place.
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmt.architecture import Architecture
from specmt.errors import InputError, reason
from specmt.fairseq_backend.safe_types import meter_types, settings_types
from specmt.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.vocabulary import PAD_ID

Tensors = dict[str, Tensor]

_TASKS = {"translation", "specmt_drafting", None}
_UNSUPPORTED = {
    "adaptive_input": "adaptive input",
    "adaptive_softmax_cutoff": "adaptive softmax",
    "char_inputs": "character inputs",
    "cross_self_attention": "cross-self-attention",
    "layernorm_embedding": "layer norm of embeddings",
    "no_cross_attention": "a decoder that does not read the source",
    "no_token_positional_embeddings": "no positions",
    "quant_noise_pq": "product quantisation",
    "scale_attn": "scaled attention (NormFormer)",
    "scale_fc": "scaled feed-forward layers (NormFormer)",
    "scale_heads": "scaled heads (NormFormer)",
    "scale_resids": "scaled residuals (NormFormer)",
    "xformers_att_config": "xformers attention",
}
"""Settings that must be off, and what they are called."""
_ACTIVATIONS = ("relu", "gelu")
"""Not swish, which fairseq 0.12 lists and cannot run."""
_OTHER_MODELS = re.compile(
    r"(?:^|_)(?:lm|lev|nonautoregressive|nat|cmlm|moe|align|pointer|multilingual|s2t|ulm|monotonic|from_pretrained)"
)
_SHADOW = re.compile(r"encoder\.layers\.\d+\.(?:in_proj|out_proj|fc1|fc2)_(?:weight|bias)")
"""Parameters without a use, which fairseq 0.12 has in each layer of an encoder."""
_NO_WEIGHT = re.compile(
    r"(?:encoder|decoder)\.(?:version|embed_positions\.(?:_float_tensor|weights))"
    r"|decoder\.layers\.\d+\.(?:self_attn|encoder_attn)\._?future_mask|" + _SHADOW.pattern
)
_NO_POSITIONS = PAD_ID + 1
"""Rows at the head of a table of learned positions that stand for no token."""
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


@dataclass(frozen=True)
class Checkpoint:
    """What is read of a fairseq checkpoint."""

    path: Path
    settings: Mapping[str, Any]
    """Of the model, by fairseq's names."""
    task: Mapping[str, Any]
    tensors: Tensors


@dataclass(frozen=True)
class Verifier:
    """A verifier under a bundle's names."""

    architecture: Architecture
    weights: Tensors


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of any version; nothing but tensors, numbers and settings is ever unpickled.

    Raises:
        InputError: no checkpoint, or one that holds anything else.
    """
    try:
        known = torch.serialization.get_safe_globals()
        # What is allowed already must stay so: leaving the context forbids what it allowed.
        allowed = [type_ for type_ in [*settings_types(), *meter_types()] if type_ not in known]
        with torch.serialization.safe_globals(allowed):
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        what = f"it holds {found[1]}" if found else "it is damaged, or no checkpoint"
        raise InputError(f"{path}: not read: only tensors, numbers and settings are, and {what}") from None
    except Exception:  # of a file that is something else, torch says whatever it stumbles over
        raise InputError(f"{path}: not a checkpoint of fairseq, or a damaged one") from None
    if not isinstance(state, dict) or not isinstance(state.get("model"), Mapping):
        raise InputError(f"{path}: not a checkpoint of fairseq: no model in it")
    tensors = {
        name: part for name, part in state["model"].items() if isinstance(part, Tensor) and isinstance(name, str)
    }
    configured = _as_mapping(state.get("cfg"))
    model = _as_mapping(state.get("args")) or _as_mapping(configured.get("model"))
    if not model:
        raise InputError(f"{path}: not a checkpoint of fairseq: no settings of the model (args or cfg.model) in it")
    return Checkpoint(path, model, _as_mapping(configured.get("task")) or model, tensors)


def _as_mapping(value: object) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        return vars(value)
    return dict(value) if isinstance(value, Mapping) else {}


def verifier_of(checkpoint: Checkpoint) -> Verifier:
    """Take a checkpoint's model as a verifier.

    Raises:
        InputError: a model that the engines do not compute, or settings and tensors that are not what they should be.
    """
    try:
        _refuse_other_models(checkpoint)
        return _Reader(checkpoint, _renamed(checkpoint.tensors)).verifier()
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{checkpoint.path}: not a checkpoint of a plain transformer, or a damaged one: {error}"
        ) from None


def _refuse_other_models(checkpoint: Checkpoint) -> None:
    settings, path = checkpoint.settings, checkpoint.path
    task = checkpoint.task.get("_name") or checkpoint.task.get("task")
    if task not in _TASKS:
        raise InputError(f"{path}: trained for the task {task}; only models for translation are converted")
    name = str(settings.get("arch") or settings.get("_name") or "transformer")
    if not name.startswith("transformer") or _OTHER_MODELS.search(name.removeprefix("transformer")):
        raise InputError(f"{path}: a model of architecture {name}; only fairseq's transformer is converted")
    for setting, what in _UNSUPPORTED.items():
        if settings.get(setting):
            raise InputError(f"{path}: {what} ({setting}) cannot be converted")
    activation = settings.get("activation_fn") or "relu"
    if activation not in _ACTIVATIONS:
        raise InputError(f"{path}: activation_fn {activation} cannot be converted; {' and '.join(_ACTIVATIONS)} can")


def _renamed(tensors: Mapping[str, Tensor]) -> Tensors:
    """Names of today's fairseq, without what has no use."""
    renamed: Tensors = {}
    for name, tensor in tensors.items():
        if _NO_WEIGHT.fullmatch(name):
            continue
        old_norm = re.fullmatch(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)", name)
        fused = re.fullmatch(r"(.*_attn)\.in_proj_(weight|bias)", name)
        if old_norm and int(old_norm[3]) < len(_OLD_NORMS[old_norm[2]]):
            renamed[f"{old_norm[1]}.{_OLD_NORMS[old_norm[2]][int(old_norm[3])]}.{old_norm[4]}"] = tensor
        elif fused:
            for part, projection in zip(tensor.chunk(3), "qkv", strict=True):
                renamed[f"{fused[1]}.{projection}_proj.{fused[2]}"] = part
        else:
            renamed["decoder.output_projection.weight" if name == "decoder.embed_out" else name] = tensor
    return renamed


class _Reader:
    """Takes tensors one by one, so that at the end it is known whether any has no place."""

    def __init__(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        self._path = checkpoint.path
        self._settings = checkpoint.settings
        self._tensors = tensors
        self._versions = {side: _version(checkpoint.tensors, side) for side in ("encoder", "decoder")}
        self._weights: Tensors = {}

    def verifier(self) -> Verifier:
        """All tensors as weights of a verifier."""
        target = self._take("decoder.embed_tokens.weight")
        source = self._take("encoder.embed_tokens.weight")
        output = self._tensors.pop("decoder.output_projection.weight", target)
        joined, tied = _equal(source, target), _equal(output, target)
        self._weights["embeddings.weight"] = target
        if not joined:
            self._weights["source_embeddings.weight"] = source
        if not tied:
            self._weights["output.weight"] = output
        self._take_positions("encoder", SOURCE_POSITIONS, source.size(1))
        self._take_positions("decoder", TARGET_POSITIONS, target.size(1))
        architecture = self._architecture(target, 0 if joined else len(source), tied)
        self._check_sizes(architecture, source, output)
        self._take_layers(architecture)
        if self._tensors:
            name = min(self._tensors)
            raise InputError(f"{self._path}: {name} has no place in a plain transformer; the model cannot be converted")
        for name, tensor in self._weights.items():
            if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
                raise InputError(f"{self._path}: {name} holds what is no finite number")
        return Verifier(architecture, {name: tensor.float() for name, tensor in self._weights.items()})

    def _take(self, name: str) -> Tensor:
        try:
            return self._tensors.pop(name)
        except KeyError:
            raise InputError(f"{self._path}: {name} is missing: not a plain transformer") from None

    def _setting(self, side: str, name: str, default: int) -> int:
        return int(self._settings.get(f"{side}_{name}") or default)

    def _take_positions(self, side: str, name: str, width: int) -> None:
        """Take the positions that a side learned; none where they are sinusoids.

        fairseq counts from the id of padding.
        """
        if self._settings.get(f"{side}_learned_pos"):
            table = self._take(f"{side}.embed_positions.weight")
            if table.dim() != 2 or table.size(0) <= _NO_POSITIONS or table.size(1) != width:
                raise InputError(
                    f"{self._path}: {side}.embed_positions.weight has shape {list(table.shape)}, "
                    f"expected more than {_NO_POSITIONS} rows of {width}"
                )
            self._weights[f"{name}.weight"] = table[_NO_POSITIONS:]

    def _layers(self, side: str) -> int:
        """Layers there are, whatever was trained: LayerDrop may have left some out."""
        numbers = {name.split(".")[2] for name in self._tensors if name.startswith(f"{side}.layers.")}
        if numbers != set(map(str, range(len(numbers)))) or not numbers:
            raise InputError(f"{self._path}: layers of the {side} are missing")
        return len(numbers)

    def _architecture(self, target: Tensor, source_vocabulary_size: int, tied: bool) -> Architecture:
        heads, encoder_heads = (self._setting(side, "attention_heads", 8) for side in ("decoder", "encoder"))
        inner, encoder_inner = (
            len(self._tensors.get(f"{side}.layers.0.fc1.weight", target)) for side in ("decoder", "encoder")
        )
        pre_norm = {side: bool(self._settings.get(f"{side}_normalize_before")) for side in ("encoder", "decoder")}
        # fairseq: checkpoints of old had no layer norm after a stack of layers.
        decoder_final = not self._settings.get("no_decoder_final_norm") and self._versions["decoder"] > 2
        try:
            return Architecture(
                vocabulary_size=len(target),
                width=target.size(1),
                heads=heads,
                feed_forward_width=inner,
                encoder_layers=self._layers("encoder"),
                decoder_layers=self._layers("decoder"),
                drafter_layers=0,
                draft_length=0,
                bigram_rank=0,
                source_vocabulary_size=source_vocabulary_size,
                tied_output=tied,
                encoder_heads=encoder_heads if encoder_heads != heads else 0,
                encoder_feed_forward_width=encoder_inner if encoder_inner != inner else 0,
                encoder_pre_norm=pre_norm["encoder"],
                decoder_pre_norm=pre_norm["decoder"],
                encoder_final_norm=pre_norm["encoder"] and self._versions["encoder"] >= 2,
                decoder_final_norm=pre_norm["decoder"] and decoder_final,
                scaled_embeddings=not self._settings.get("no_scale_embedding"),
                activation=str(self._settings.get("activation_fn") or "relu"),
                source_positions=len(self._weights.get(f"{SOURCE_POSITIONS}.weight", ())),
                target_positions=len(self._weights.get(f"{TARGET_POSITIONS}.weight", ())),
            )
        except ValueError as error:
            raise InputError(f"{self._path}: {error}") from None

    def _check_sizes(self, architecture: Architecture, source: Tensor, output: Tensor) -> None:
        if source.size(1) != architecture.width:
            raise InputError(
                f"{self._path}: encoder of width {source.size(1)} and decoder of width {architecture.width}; "
                "only equal widths are converted"
            )
        if output.shape != (architecture.vocabulary_size, architecture.width):
            raise InputError(f"{self._path}: decoder.output_projection.weight has shape {list(output.shape)}")

    def _take_layers(self, architecture: Architecture) -> None:
        from specmt.tensors import expected_shapes

        for name, shape in expected_shapes(architecture).items():
            if name.startswith("verifier."):
                tensor = self._take(name.removeprefix("verifier."))
                if tuple(tensor.shape) != shape:
                    raise InputError(f"{self._path}: {name} has shape {list(tensor.shape)}, expected {list(shape)}")
                self._weights[name] = tensor


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _version(tensors: Mapping[str, Tensor], side: str) -> float:
    version = tensors.get(f"{side}.version")
    return float(version.flatten()[0]) if version is not None and version.numel() else 1.0
