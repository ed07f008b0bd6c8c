"""Transformers that fairseq trained elsewhere: a checkpoint as a verifier. Imports no fairseq.

Names of old versions are brought up to date by fairseq's own rules (`upgrade_state_dict_named`). What the engines do
not compute is refused: by its setting where it leaves no tensor, and else because every tensor must find its place.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS, VERIFIER_OUTPUT, expected_shapes
from specmt.conversion.foreign_files import Settings, Tensors, read_pickle, tensors_in
from specmt.conversion.safe_types import meter_types, settings_types
from specmt.errors import InputError
from specmt.text.vocabulary import PAD_ID

_KIND = "a plain transformer"
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
    "encoder_xformers_att_config": "xformers attention",
    "decoder_xformers_att_config": "xformers attention",
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
    settings: Settings
    """Of the model, by fairseq's names."""
    task: Settings
    bpe: Settings
    """Of what cut its text into subwords; in old versions its name is a setting of the model."""
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Verifier:
    """A verifier under a bundle's names."""

    architecture: Architecture
    weights: dict[str, Tensor]


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint of any version; nothing but tensors, numbers and settings is ever unpickled.

    Raises:
        InputError: no checkpoint, or one that holds anything else.
    """
    state = read_pickle(path, [*settings_types(), *meter_types()])
    if not isinstance(state, dict) or not isinstance(state.get("model"), Mapping):
        raise InputError(f"{path}: not a checkpoint of fairseq: no model in it")
    configured = _as_mapping(state.get("cfg"))
    model = _as_mapping(state.get("args")) or _as_mapping(configured.get("model"))
    if not model:
        raise InputError(f"{path}: not a checkpoint of fairseq: no settings of the model (args or cfg.model) in it")
    task = _as_mapping(configured.get("task")) or model
    parts = (model, task, _as_mapping(configured.get("bpe")))
    settings, of_task, bpe = (Settings(path, values, _KIND) for values in parts)
    return Checkpoint(path, settings, of_task, bpe, tensors_in(path, state["model"]))


def _as_mapping(value: object) -> dict[str, Any]:
    if isinstance(value, argparse.Namespace):
        return vars(value)
    return dict(value) if isinstance(value, Mapping) else {}


def verifier_of(checkpoint: Checkpoint) -> Verifier:
    """Take a checkpoint's model as a verifier.

    Raises:
        InputError: a model that the engines do not compute, or settings and tensors that are not what they should be.
    """
    _refuse_other_models(checkpoint)
    return _Reader(checkpoint).verifier()


def _refuse_other_models(checkpoint: Checkpoint) -> None:
    settings, path = checkpoint.settings, checkpoint.path
    task = checkpoint.task.word("_name") or checkpoint.task.word("task")
    if task not in _TASKS:
        raise InputError(f"{path}: trained for the task {task}; only models for translation are converted")
    name = settings.word("arch") or settings.word("_name") or "transformer"
    if not name.startswith("transformer") or _OTHER_MODELS.search(name.removeprefix("transformer")):
        raise InputError(f"{path}: a model of architecture {name}; only fairseq's transformer is converted")
    for setting, what in _UNSUPPORTED.items():
        if not settings.is_off(setting):
            raise InputError(f"{path}: {what} ({setting}) cannot be converted")


def _renamed(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Names of today's fairseq, without what has no use."""
    renamed = {}
    for name, tensor in checkpoint.tensors.items():
        if _NO_WEIGHT.fullmatch(name):
            continue
        old_norm = re.fullmatch(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)", name)
        fused = re.fullmatch(r"(.*_attn)\.in_proj_(weight|bias)", name)
        if old_norm and int(old_norm[3]) < len(_OLD_NORMS[old_norm[2]]):
            renamed[f"{old_norm[1]}.{_OLD_NORMS[old_norm[2]][int(old_norm[3])]}.{old_norm[4]}"] = tensor
        elif fused:
            if not tensor.dim() or len(tensor) % 3:
                raise InputError(f"{checkpoint.path}: {name} has shape {list(tensor.shape)}, expected thrice the width")
            for part, projection in zip(tensor.chunk(3), "qkv", strict=True):
                renamed[f"{fused[1]}.{projection}_proj.{fused[2]}"] = part
        else:
            renamed["decoder.output_projection.weight" if name == "decoder.embed_out" else name] = tensor
    return renamed


class _Reader:
    """Takes tensors one by one, so that at the end it is known whether any has no place."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._path = checkpoint.path
        self._settings = checkpoint.settings
        self._tensors = Tensors(checkpoint.path, _renamed(checkpoint), _KIND)
        self._versions = {side: _version(checkpoint.tensors, side) for side in ("encoder", "decoder")}

    def verifier(self) -> Verifier:
        """All tensors as weights of a verifier."""
        take = self._tensors.take
        target = take("decoder.embed_tokens.weight", None, None)
        rows, width = target.shape
        source = take("encoder.embed_tokens.weight", None, width)
        projection = "decoder.output_projection.weight"
        output = take(projection, rows, width) if projection in self._tensors.names else target
        joined, tied = torch.equal(source, target), torch.equal(output, target)
        weights = {"embeddings.weight": target}
        if not joined:
            weights["source_embeddings.weight"] = source
        if not tied:
            weights[f"{VERIFIER_OUTPUT}.weight"] = output
        for side, table in (("encoder", SOURCE_POSITIONS), ("decoder", TARGET_POSITIONS)):
            if self._settings.flag(f"{side}_learned_pos"):
                weights[f"{table}.weight"] = self._positions(side, width)
        architecture = self._architecture(weights, 0 if joined else len(source), tied)
        for name, shape in expected_shapes(architecture).items():
            if name.startswith("verifier."):
                weights[name] = take(name.removeprefix("verifier."), *shape)
        if left := self._tensors.left():
            raise InputError(f"{self._path}: {left[0]} has no place in {_KIND}; the model cannot be converted")
        return Verifier(architecture, weights)

    def _positions(self, side: str, width: int) -> Tensor:
        """The positions that a side learned; fairseq counts them from the id of padding."""
        name = f"{side}.embed_positions.weight"
        table = self._tensors.take(name, None, width)
        if len(table) <= _NO_POSITIONS:
            raise InputError(
                f"{self._path}: {name} has shape {list(table.shape)}, expected more than {_NO_POSITIONS} rows"
            )
        return table[_NO_POSITIONS:]

    def _layers(self, side: str) -> int:
        """Layers there are, whatever was trained: LayerDrop may have left some out."""
        numbers = {name.split(".")[2] for name in self._tensors.names if name.startswith(f"{side}.layers.")}
        if numbers != set(map(str, range(len(numbers)))) or not numbers:
            raise InputError(f"{self._path}: layers of the {side} are missing")
        return len(numbers)

    def _architecture(self, weights: Mapping[str, Tensor], source_vocabulary_size: int, tied: bool) -> Architecture:
        settings, (rows, width) = self._settings, weights["embeddings.weight"].shape
        layers, encoder_layers = (self._layers(side) for side in ("decoder", "encoder"))
        heads, encoder_heads = (settings.heads(side, width) for side in ("decoder", "encoder"))
        inner, encoder_inner = (
            len(self._tensors.take(f"{side}.layers.0.fc1.weight", None, width)) for side in ("decoder", "encoder")
        )
        pre_norm = {side: settings.flag(f"{side}_normalize_before") for side in ("encoder", "decoder")}
        # fairseq: checkpoints of old had no layer norm after a stack of layers.
        decoder_final = not settings.flag("no_decoder_final_norm") and self._versions["decoder"] > 2
        try:
            return Architecture(
                vocabulary_size=rows,
                width=width,
                heads=heads,
                feed_forward_width=inner,
                encoder_layers=encoder_layers,
                decoder_layers=layers,
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
                scaled_embeddings=not settings.flag("no_scale_embedding"),
                activation=settings.one_of("activation_fn", _ACTIVATIONS, default="relu"),
                source_positions=len(weights.get(f"{SOURCE_POSITIONS}.weight", ())),
                target_positions=len(weights.get(f"{TARGET_POSITIONS}.weight", ())),
            )
        except ValueError as error:
            raise InputError(f"{self._path}: {error}") from None


def _version(tensors: Mapping[str, Tensor], side: str) -> float:
    version = tensors.get(f"{side}.version")
    return float(version.flatten()[0]) if version is not None and version.numel() else 1.0
