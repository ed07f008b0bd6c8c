"""What the graphs of `onnx_export` are made of: 8-bit products, attention and residual streams, as nodes.

Products with weights are exact: activations are quantised with scales that calibration fixed, integers are summed in
integers, and the scale of a weight's row is applied to the sum. What remains in floating point is written so that the
result for one position of one row depends on nothing else in the call: attention is exp(scores) @ values divided by
exp(scores) @ ones, two products whose sums run key by key, in which hidden keys add exact zeros. (A softmax sums in
blocks, and the blocks move with the number of padded keys.) See `docs/engines.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import WEIGHTS
from specmt.bundles.tensors import ids_name, scale_name
from specmt.bundles.weights import Stored
from specmt.engines.calibration import Ranges
from specmt.engines.onnx_calls import memory_names
from specmt.engines.onnx_graph import Graph
from specmt.text.vocabulary import EOS_ID, PAD_ID

_EPSILON = 1e-5
"""Of layer norms; fairseq's."""
_BLOCK = 64
"""Tokens of the vocabulary among which the best is searched as one."""


@dataclass(frozen=True)
class Quantised:
    """An activation in 8 bits: value = (integers - zero) * scale; all three are names in the graph."""

    integers: str
    scale: str
    zero: str
    step: float
    """The scale as a number."""


@dataclass(frozen=True)
class Stream:
    """The residual stream of a stack of layers, and what the next sublayer reads; shape (lines, width).

    Pre-norm reads the stream's layer norm; post-norm, whose stream is a layer norm's result, reads the stream.
    """

    x: str
    normed: str


@dataclass(frozen=True)
class Norms:
    """The layer norms of a stack of layers: one a sublayer in their order, and the one after the last, if any."""

    pre_norm: bool
    sublayers: tuple[str, ...]
    final: str | None

    @classmethod
    def of(cls, stack: str, layers: int, sublayers: Sequence[str], pre_norm: bool = True, final: bool = True) -> Norms:
        """Those of `layers` layers of a stack, each of `sublayers`; `final`: whether one follows them all."""
        names = tuple(f"{stack}.layers.{layer}.{name}_layer_norm" for layer in range(layers) for name in sublayers)
        return cls(pre_norm, names, f"{stack}.layer_norm" if final else None)

    def before(self, sublayer: int) -> str | None:
        """What is applied to the stream for a sublayer, or, past the last one, for the stack's result."""
        if sublayer == len(self.sublayers):
            return self.final
        return self.sublayers[sublayer] if self.pre_norm else None


class Network:
    """One graph of a pair; its methods mirror the torch engine's."""

    def __init__(self, name: str, architecture: Architecture, weights: Stored, ranges: Ranges, folder: Path) -> None:
        self.graph = Graph(name, folder / WEIGHTS)
        self.architecture = architecture
        self._weights = weights
        self._ranges = ranges

    # -- products with weights

    def quantise(self, x: str, reader: str) -> Quantised:
        """Bring `x` to 8 bits by the range that calibration saw where the matrix `reader` reads it."""
        scale, zero, step = self._activation(*self._ranges[f"{reader}.weight"])
        return Quantised(self.graph.add("QuantizeLinear", x, scale, zero), scale, zero, step)

    def _activation(self, low: float, high: float) -> tuple[str, str, float]:
        step = np.float32((max(high, 0.0) - min(low, 0.0)) / 255 or 1.0)
        zero = np.uint8(np.rint(-min(low, 0.0) / step))
        return self.graph.constant(np.array(step)), self.graph.constant(np.array(zero)), float(step)

    def project(self, x: Quantised, name: str, biased: str = "") -> str:
        """x @ weight.T + bias, where there is one (of the name `biased`, if that is another); (lines, outputs)."""
        return self.graph.add("QGemm", *self._product(x, name, biased or name), transB=1)

    def project_to(self, x: Quantised, name: str, reader: str) -> Quantised:
        """As `project`, clipped below at 0 and brought to 8 bits for the matrix `reader`, all in one node."""
        scale, zero, step = self._activation(0.0, self._ranges[f"{reader}.weight"][1])
        integers = self.graph.add("QGemm", *self._product(x, name, name), scale, zero, transB=1)
        return Quantised(integers, scale, zero, step)

    def _product(self, x: Quantised, name: str, biased: str) -> tuple[str, ...]:
        weight = self.graph.weight(f"{name}.weight")
        scales = self.graph.weight(scale_name(f"{name}.weight"))
        zeros = self.graph.constant(np.zeros(len(self._weights[f"{name}.weight"]), dtype=np.int8))
        return x.integers, x.scale, x.zero, weight, scales, zeros, self._bias(x, name, biased)

    def _bias(self, x: Quantised, name: str, biased: str) -> str:
        if f"{biased}.bias" not in self._weights:
            return ""
        steps = self._weights[scale_name(f"{name}.weight")] * np.float32(x.step)
        return self.graph.constant(np.rint(self._weights[f"{biased}.bias"] / steps).astype(np.int32))

    def embed(self, ids: str, name: str, scale: float = 1.0) -> str:
        """Rows of the table `name`, times `scale`; `ids` must be a vector."""
        rows = self.graph.add("Gather", self.graph.weight(f"{name}.weight"), ids)
        scales = self.graph.add("Gather", self.graph.weight(scale_name(f"{name}.weight")), ids)
        if scale != 1:
            scales = self.graph.add("Mul", scales, self.graph.constant(np.array(scale, dtype=np.float32)))
        return self.graph.add("DequantizeLinear", rows, scales, axis=0)

    def embed_source(self, ids: str) -> str:
        """Embeddings of source tokens, scaled as the model has them; shape (lines, width)."""
        return self.embed(ids, self.architecture.source_embeddings, self._embedding_scale)

    def embed_target(self, ids: str) -> str:
        """The same of target tokens, of which end-of-sentence is read at the start only."""
        if self.architecture.starts_from_padding:
            end, padding = self.graph.integers(EOS_ID), self.graph.integers(PAD_ID)
            ids = self.graph.add("Where", self.graph.add("Equal", ids, end), padding, ids)
        return self.embed(ids, "embeddings", self._embedding_scale)

    @property
    def _embedding_scale(self) -> float:
        return math.sqrt(self.architecture.width) if self.architecture.scaled_embeddings else 1

    # -- sublayers

    def start(self, x: str, norms: Norms) -> Stream:
        """Begin a stack of layers."""
        return self._stream(x, norms.before(0))

    def advance(self, stream: Stream, change: str, norms: Norms, sublayer: int) -> Stream:
        """Add the result of the stack's sublayer number `sublayer` to the residual stream.

        Two nodes: ONNX Runtime's SkipLayerNormalization, which does both, takes several times as long.
        """
        x = self.graph.add("Add", stream.x, change)
        if not norms.pre_norm:
            x = self._normalised(x, norms.sublayers[sublayer])
        return self._stream(x, norms.before(sublayer + 1))

    def _stream(self, x: str, norm: str | None) -> Stream:
        return Stream(x, self._normalised(x, norm) if norm else x)

    def _normalised(self, x: str, norm: str) -> str:
        return self.graph.add("LayerNormalization", x, *self._norm(norm), epsilon=_EPSILON)

    def _norm(self, name: str) -> tuple[str, str]:
        return self.graph.weight(f"{name}.weight"), self.graph.weight(f"{name}.bias")

    def heads(self, x: str, side: str) -> str:
        """(lines, width) to (positions, batch, heads, head width), by the shape that the caller gives for `side`."""
        return self.graph.add("Reshape", x, f"{side}_shape")

    def attend(self, query: str, keys: str, values: str, limits: str, name: str, heads: int = 0) -> str:
        """Attention of (T, batch, heads, head width) over (keys, batch, heads, head width), and its projection `name`.

        `heads`: 0 for the decoder's. `limits`, shape (batch, 1, T or 1, keys): the most that a score may be, -inf where
        a key is hidden. What the two products share cancels in the division; that it is not 1 keeps ONNX Runtime on one
        kernel at any T.
        """
        add = self.graph.add
        head_width = self.architecture.width // (heads or self.architecture.heads)
        scores = add("FusedMatMul", query, keys, alpha=head_width**-0.5, transB=1, transBatchA=1, transBatchB=1)
        weights = add("Exp", add("Min", scores, limits))
        weighted = add("FusedMatMul", weights, values, alpha=0.5, transBatchB=1)
        totals = add("FusedMatMul", weights, self._ones(limits), alpha=0.5)
        attended = self.quantise(add("Div", weighted, totals), f"{name}.out_proj")
        integers = add("Transpose", attended.integers, perm=[2, 0, 1, 3])
        integers = add("Reshape", integers, self.graph.integers(-1, self.architecture.width))
        return self.project(replace(attended, integers=integers), f"{name}.out_proj")

    @staticmethod
    def _ones(limits: str) -> str:
        return "source_ones" if limits == "source_limits" else "target_ones"

    def self_attention(self, x: Quantised, layer: str, side: str) -> tuple[str, str, str]:
        """Queries, keys and values of a window, each of shape (T, batch, heads, head width)."""
        query, keys, values = (self.heads(self.project(x, f"{layer}.self_attn.{name}_proj"), side) for name in "qkv")
        return query, keys, values

    def output(self, states: Quantised, name: str) -> tuple[str, int]:
        """Scores of the tokens that a network can say, and their number; `name`: its own output matrix, if any."""
        matrix = self.output_matrix(name)
        return self.project(states, matrix, biased=name), len(self._weights[f"{matrix}.weight"])

    def output_matrix(self, name: str) -> str:
        """`name`, or what stands in where the network has no output matrix of its own."""
        return name if f"{name}.weight" in self._weights else self.architecture.output

    def ids(self, places: str, name: str) -> str:
        """Token ids of the scores of `output` at `places`."""
        ids = ids_name(name)
        return self.graph.add("Gather", self.graph.weight(ids), places) if ids in self._weights else places

    def best(self, scores: str, outputs: int, count: str) -> tuple[str, str]:
        """The best `count` of each line's scores of `outputs` tokens, and their places among them.

        The best are among the `count` blocks of tokens with the best maxima: finding those takes one fast pass, where
        TopK walks through all token by token.
        """
        add, integers = self.graph.add, self.graph.integers
        size = math.gcd(outputs, _BLOCK)
        number = outputs // size
        maxima = add("ReduceMax", add("Reshape", scores, integers(-1, number, size)), integers(2), keepdims=0)
        _, blocks = self.graph.top(maxima, add("Min", count, integers(number)))
        first = add("Unsqueeze", add("Mul", blocks, integers(size)), integers(2))
        places = add("Flatten", add("Add", first, self.graph.constant(np.arange(size))), axis=1)
        best, chosen = self.graph.top(add("GatherElements", scores, places, axis=-1), count)
        return best, add("GatherElements", places, chosen, axis=-1)

    def feed_forward(self, stream: Stream, layer: str, activation: str) -> str:
        """What the feed-forward sublayer of `layer` makes of the stream; shape (lines, width)."""
        normed = self.quantise(stream.normed, f"{layer}.fc1")
        if activation == "relu":
            inner = self.project_to(normed, f"{layer}.fc1", f"{layer}.fc2")
        else:
            raised = self.project(normed, f"{layer}.fc1")
            inner = self.quantise(self._activated(raised, activation), f"{layer}.fc2")
        return self.project(inner, f"{layer}.fc2")

    def _activated(self, x: str, activation: str) -> str:
        if activation == "gelu":
            return self.graph.add("Gelu", x)
        return self.graph.add("Mul", x, self.graph.add("Sigmoid", x))

    def read_source(self, stream: Stream, layer: str, index: int) -> str:
        """Attention of the window over the source, whose keys and values for layer `index` the caller gives."""
        name = f"{layer}.encoder_attn"
        query = self.heads(self.project(self.quantise(stream.normed, f"{name}.q_proj"), f"{name}.q_proj"), "target")
        keys, values = memory_names(index)
        return self.attend(query, keys, values, "source_limits", name)

    def read_layer(
        self, stream: Stream, attended: str, layer: str, norms: Norms, place: tuple[int, int], activation: str
    ) -> Stream:
        """What follows self-attention in a layer that reads the source.

        Args:
            place: the layer's number in its stack, and among all layers whose keys and values the caller gives.
        """
        number, index = place
        first = 3 * number
        stream = self.advance(stream, attended, norms, first)
        stream = self.advance(stream, self.read_source(stream, layer, index), norms, first + 1)
        return self.advance(stream, self.feed_forward(stream, layer, activation), norms, first + 2)
