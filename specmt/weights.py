"""Weights of a pair as safetensors: names, shapes, and the half precision in which they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from specmt.architecture import Architecture
from specmt.bundle import Bundle
from specmt.errors import BundleError


def expected_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor of a bundle and its shape.

    `embeddings` serve source, target and output; attention and feed-forward names are fairseq's own.
    """
    width, inner = architecture.width, architecture.feed_forward_width
    shapes: dict[str, tuple[int, ...]] = {"embeddings.weight": (architecture.vocabulary_size, width)}

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (width,)

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (outputs, inputs), (outputs,)

    def attention(
        layer: str, kind: str, projections: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "out_proj")
    ) -> None:
        for projection in projections:
            linear(f"{layer}.{kind}.{projection}", width, width)

    def layer(name: str, reads_source: bool) -> None:
        attention(name, "self_attn")
        norm(f"{name}.self_attn_layer_norm")
        if reads_source:
            attention(name, "encoder_attn")
            norm(f"{name}.encoder_attn_layer_norm")
        linear(f"{name}.fc1", inner, width)
        linear(f"{name}.fc2", width, inner)
        norm(f"{name}.final_layer_norm")

    for index in range(architecture.encoder_layers):
        layer(f"verifier.encoder.layers.{index}", reads_source=False)
    for index in range(architecture.decoder_layers):
        layer(f"verifier.decoder.layers.{index}", reads_source=True)
    for index in range(architecture.drafter_layers):
        layer(f"drafter.layers.{index}", reads_source=True)
        attention(f"drafter.layers.{index}", "prefix_attn", ("k_proj", "v_proj"))
    for name in ("verifier.encoder.layer_norm", "verifier.decoder.layer_norm", "drafter.layer_norm"):
        norm(name)
    rank = architecture.bigram_rank
    shapes["drafter.slots.weight"] = (architecture.draft_length, width)
    shapes["drafter.bigram_gate.weight"] = (rank, width)
    shapes["drafter.bigram_left.weight"] = shapes["drafter.bigram_right.weight"] = (architecture.vocabulary_size, rank)
    return shapes


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Store weights in half precision."""
    save_file({name: tensor.detach().to(torch.float16).contiguous() for name, tensor in weights.items()}, path)


def load_weights(bundle: Bundle) -> dict[str, Tensor]:
    """A bundle's weights in float32.

    Raises:
        BundleError: not safetensors, or tensors that do not fit the architecture.
    """
    path = bundle.weights_path
    try:
        weights = load_file(path)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path}: {error}") from None
    expected = expected_shapes(bundle.architecture)
    found = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise BundleError(f"{path}: {name}: shape {found.get(name)}, expected {expected.get(name)}")
    return {name: tensor.to(torch.float32) for name, tensor in weights.items()}
