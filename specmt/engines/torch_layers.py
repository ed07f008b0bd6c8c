"""The layers of the torch engine, in eager torch over a bundle's weights.

Vaswani et al. 2017, pre-norm or post-norm, as fairseq's `transformer` computes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from specmt.bundles.tensors import ids_name
from specmt.text.vocabulary import PAD_ID

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": Tensor.relu_,
    "gelu": functional.gelu,
    "swish": functional.silu,
}


class Linear:
    """Several projections of the same input as one product."""

    def __init__(self, weights: Mapping[str, Tensor], *names: str) -> None:
        self.weight = torch.cat([weights[f"{name}.weight"] for name in names])
        self.bias = torch.cat([weights[f"{name}.bias"] for name in names])

    def __call__(self, x: Tensor) -> Tensor:
        """(..., inputs) to (..., the outputs of all, side by side)."""
        return functional.linear(x, self.weight, self.bias)


class LayerNorm:
    """Over the last axis."""

    def __init__(self, weights: Mapping[str, Tensor], name: str) -> None:
        self.weight, self.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]

    def __call__(self, x: Tensor) -> Tensor:
        """`x`, shape (..., width), normalised."""
        return functional.layer_norm(x, [*self.weight.shape], self.weight, self.bias)


class Sublayer:
    """How a sublayer is joined to the residual stream: layer norm before it, or after the sum."""

    def __init__(self, weights: Mapping[str, Tensor], norm: str, pre_norm: bool) -> None:
        self._norm = LayerNorm(weights, norm)
        self._pre_norm = pre_norm

    def input(self, x: Tensor) -> Tensor:
        """What the sublayer reads."""
        return self._norm(x) if self._pre_norm else x

    def sum(self, x: Tensor, change: Tensor) -> Tensor:
        """The stream with the sublayer's result."""
        return x + change if self._pre_norm else self._norm(x + change)


class FeedForward(Sublayer):
    """Two projections with an activation between them, the residual connection included."""

    def __init__(
        self, weights: Mapping[str, Tensor], layer: str, pre_norm: bool = True, activation: str = "relu"
    ) -> None:
        super().__init__(weights, f"{layer}.final_layer_norm", pre_norm)
        self.fc1, self.fc2 = Linear(weights, f"{layer}.fc1"), Linear(weights, f"{layer}.fc2")
        self._activation = _ACTIVATIONS[activation]

    def __call__(self, x: Tensor) -> Tensor:
        """The residual stream, shape (batch, T, width), after this sublayer."""
        inner = self.fc1(self.input(x))
        return self.sum(x, self.fc2(self._activation(inner)))


class SelfAttention(Sublayer):
    """Queries, keys and values come from one product."""

    def __init__(self, weights: Mapping[str, Tensor], layer: str, pre_norm: bool = True) -> None:
        super().__init__(weights, f"{layer}.self_attn_layer_norm", pre_norm)
        names = [f"{layer}.self_attn.{name}_proj" for name in "qkv"]
        self.project, self.out = Linear(weights, *names), Linear(weights, f"{layer}.self_attn.out_proj")


class CrossAttention(Sublayer):
    """Queries of a window; keys and values come from the source, for all layers at once."""

    def __init__(self, weights: Mapping[str, Tensor], layer: str, pre_norm: bool = True) -> None:
        super().__init__(weights, f"{layer}.encoder_attn_layer_norm", pre_norm)
        self.query = Linear(weights, f"{layer}.encoder_attn.q_proj")
        self.out = Linear(weights, f"{layer}.encoder_attn.out_proj")


class Output:
    """Logits of the tokens that a network can say."""

    def __init__(self, weights: Mapping[str, Tensor], name: str, otherwise: str) -> None:
        self._weight = weights[f"{name}.weight" if f"{name}.weight" in weights else f"{otherwise}.weight"]
        self._bias = weights.get(f"{name}.bias")
        self._ids = weights.get(ids_name(name))

    def __call__(self, states: Tensor) -> Tensor:
        """(..., width) to (..., tokens that the network can say)."""
        return functional.linear(states, self._weight, self._bias)

    def ids(self, places: Tensor) -> Tensor:
        """Token ids of the logits at `places`."""
        return places if self._ids is None else self._ids[places]


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention of shape (batch, heads, T, head width) over (batch, heads, keys, head width); (batch, T, width).

    Plain products: for these short sequences `scaled_dot_product_attention` is several times slower on a CPU.

    Args:
        mask: 0 where a key may be attended, -inf where it is hidden, for every head; shape (batch, 1, T or 1, keys).
    """
    scores = query @ keys.transpose(2, 3) * (query.size(-1) ** -0.5)
    if mask is not None:
        scores = scores + mask
    read: Tensor = (scores.softmax(dim=-1) @ values).transpose(1, 2).flatten(2)
    return read


def final_norm(weights: Mapping[str, Tensor], name: str, present: bool) -> Callable[[Tensor], Tensor]:
    """The layer norm after a stack of layers, or nothing where there is none."""
    return LayerNorm(weights, name) if present else lambda x: x


def position_table(positions: int, width: int, learned: Tensor | None = None) -> Tensor:
    """As `positions.position_table`."""
    if learned is not None:
        return learned[torch.arange(positions, device=learned.device).clamp(max=len(learned) - 1)]
    half = width // 2
    frequencies = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
    angles = (torch.arange(positions) + PAD_ID + 1)[:, None] * frequencies[None, :]
    return torch.cat([angles.sin(), angles.cos()], dim=1)
