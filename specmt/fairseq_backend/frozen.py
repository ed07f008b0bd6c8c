"""The verifier as a drafter in training sees it, frozen: fairseq's own model, or a bundle's, whatever trained it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import load_bundle
from specmt.bundles.tensors import TARGET_POSITIONS, VERIFIER_OUTPUT, ids_name
from specmt.bundles.weights import load_weights
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_layers import position_table
from specmt.engines.torch_rows import States
from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)
from specmt.text.vocabulary import EOS_ID, PAD_ID

from fairseq import checkpoint_utils  # isort: skip

_DECODER = "verifier.decoder."


class Frozen(Protocol):
    """What a drafter needs of its verifier: sizes, matrices, and states. Nothing of it is trained."""

    width: int
    heads: int
    feed_forward_width: int
    embeddings: Tensor
    """What its decoder reads tokens as, shape (vocabulary_size, width)."""
    output: Tensor
    """What its decoder's states are multiplied with, shape (vocabulary_size, width); 0 for tokens never said."""

    def positions(self, count: int) -> Tensor:
        """What its decoder adds for position, shape (count, width)."""

    def initial_weights(self, layers: int) -> dict[str, Tensor]:
        """Weights that a drafter of so many layers begins with, by its names; some may be missing."""

    def states(self, source_ids: Tensor, input_ids: Tensor) -> States:
        """What it makes of a batch, of which both sides are padded with `PAD_ID`, the source on either side."""

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """Put what `change` makes of them, such as copies on a GPU, in the place of all its tensors."""


def load_frozen(path: Path, dictionaries: Path | None = None) -> Frozen:
    """A checkpoint of fairseq's `transformer` as `specmt train` makes it, or a bundle, whose numbers have 8 bits.

    Args:
        dictionaries: where a checkpoint's are; else where they were when it was trained.
    """
    if path.is_dir():
        bundle = load_bundle(path)
        weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
        return FrozenBundle(bundle.architecture, weights)
    here = {"data": str(dictionaries)} if dictionaries else None
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], here)
    return FrozenTransformer(model)


class FrozenTransformer:
    """fairseq's `transformer`, pre-norm, with one matrix of embeddings."""

    def __init__(self, model: Any) -> None:
        self._model = model.eval().requires_grad_(False)
        layer = model.decoder.layers[-1]
        self.width, self.feed_forward_width = layer.fc1.in_features, layer.fc1.out_features
        self.heads = layer.self_attn.num_heads
        self._set_matrices()

    def _set_matrices(self) -> None:
        self.output = self._model.decoder.embed_tokens.weight
        self.embeddings = self.output * math.sqrt(self.width)

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """See `Frozen.apply`."""
        self._model._apply(change)
        self._set_matrices()

    def positions(self, count: int) -> Tensor:
        """See `Frozen.positions`."""
        return position_table(count, self.width)

    def initial_weights(self, layers: int) -> dict[str, Tensor]:
        """See `Frozen.initial_weights`."""
        return _initial_weights(self._model.decoder.state_dict(), layers, pre_norm=True)

    @torch.no_grad()
    def states(self, source_ids: Tensor, input_ids: Tensor) -> States:
        """See `Frozen.states`."""
        padding = source_ids == PAD_ID
        encoded = self._model.encoder(source_ids, src_lengths=(~padding).sum(dim=1))
        decoded, _ = self._model.decoder(input_ids, encoder_out=encoded, features_only=True)
        return States(encoded["encoder_out"][0].transpose(0, 1), padding, decoded)


class FrozenBundle:
    """A verifier of any shape that a bundle may have, in the torch engine."""

    def __init__(self, shape: Architecture, weights: Mapping[str, Tensor]) -> None:
        self._shape, self._weights = shape, weights
        self.width, self.heads, self.feed_forward_width = shape.width, shape.heads, shape.feed_forward_width
        self._set_matrices()

    def apply(self, change: Callable[[Tensor], Tensor]) -> None:
        """See `Frozen.apply`."""
        self._weights = {name: change(tensor) for name, tensor in self._weights.items()}
        self._set_matrices()

    def _set_matrices(self) -> None:
        shape, embeddings = self._shape, self._weights["embeddings.weight"]
        self._engine = TorchEngine(shape, self._weights, str(embeddings.device))
        self.output = embeddings if shape.tied_output else self._spread(VERIFIER_OUTPUT, len(embeddings))
        self.embeddings = embeddings * (math.sqrt(shape.width) if shape.scaled_embeddings else 1.0)
        if shape.starts_from_padding:
            self.embeddings[EOS_ID] = self.embeddings[PAD_ID]

    def _spread(self, output: str, vocabulary_size: int) -> Tensor:
        """The rows of an output matrix at the places of their tokens."""
        rows, ids = self._weights[f"{output}.weight"], self._weights.get(ids_name(output))
        return rows if ids is None else rows.new_zeros(vocabulary_size, rows.size(1)).index_copy_(0, ids, rows)

    def positions(self, count: int) -> Tensor:
        """See `Frozen.positions`."""
        return position_table(count, self.width, self._weights.get(f"{TARGET_POSITIONS}.weight"))

    def initial_weights(self, layers: int) -> dict[str, Tensor]:
        """See `Frozen.initial_weights`."""
        decoder = {
            name.removeprefix(_DECODER): tensor for name, tensor in self._weights.items() if name.startswith(_DECODER)
        }
        return _initial_weights(decoder, layers, self._shape.decoder_pre_norm)

    def states(self, source_ids: Tensor, input_ids: Tensor) -> States:
        """See `Frozen.states`."""
        sources = [row[row != PAD_ID].tolist() for row in source_ids]
        return self._engine.states(sources, input_ids.cpu().numpy())


_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")
"""Of a decoder's layer: of its three sublayers, in their order."""


def _initial_weights(decoder: Mapping[str, Tensor], layers: int, pre_norm: bool) -> dict[str, Tensor]:
    """A drafter begins as its verifier's last layers, and reads the prefix as they do.

    Where norms stand behind the sublayers, each is taken for the sublayer that reads its result.

    Args:
        decoder: weights by fairseq's names, without the decoder's own.
    """
    count = 1 + max(int(name.split(".")[1]) for name in decoder if name.startswith("layers."))
    norms = [f"layers.{layer}.{norm}" for layer in range(count) for norm in _NORMS]
    reads = dict(zip(norms, norms if pre_norm else [None, *norms], strict=False))
    initial: dict[str, Tensor] = {}

    def take(name: str, source: str | None) -> None:
        if f"{source}.weight" in decoder:
            initial.update({f"{name}.{kind}": decoder[f"{source}.{kind}"] for kind in ("weight", "bias")})

    for layer in range(layers):
        mine, its = f"layers.{layer}", f"layers.{count - layers + layer}"
        for kind in ("self_attn", "encoder_attn"):
            for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                take(f"{mine}.{kind}.{projection}", f"{its}.{kind}.{projection}")
        for projection in ("k_proj", "v_proj"):
            take(f"{mine}.prefix_attn.{projection}", f"{its}.self_attn.{projection}")
        for norm in _NORMS:
            take(f"{mine}.{norm}", reads[f"{its}.{norm}"])
        for projection in ("fc1", "fc2"):
            take(f"{mine}.{projection}", f"{its}.{projection}")
    take("layer_norm", "layer_norm" if pre_norm else norms[-1])
    return initial
