"""A pair's networks as ONNX graphs in 8-bit integers, for `onnx_engine`. Needs torch and onnx; translation does not.

Products with weights are exact: activations are quantised with scales that calibration fixed, integers are summed in
integers, and the scale of a weight's row is applied to the sum. What remains in floating point is written so that the
result for one position of one row depends on nothing else in the call: attention is exp(scores) @ values divided by
exp(scores) @ ones, two products whose sums run key by key, in which hidden keys add exact zeros. (A softmax sums in
blocks, and the blocks move with the number of padded keys.) See `docs/engines.md`.

Arrays are position-major: a window of T tokens of a batch is T * batch lines of `width`, caches are (capacity, batch,
heads, head width), and new keys are written into them in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specmt.architecture import Architecture
from specmt.bundle import RANGES, WEIGHTS
from specmt.engines.base import LATTICE_WIDTH
from specmt.engines.calibration import Ranges, calibrate
from specmt.engines.onnx_engine import cache_names, memory_names
from specmt.engines.onnx_graph import INT64, Graph
from specmt.files import write_json
from specmt.weights import DRAFTER_OUTPUT, VERIFIER_OUTPUT, Stored, dequantised, ids_name, read_stored, scale_name

_VERIFIER_STATES = "drafter.layers.0.prefix_attn.k_proj"
"""A matrix that reads the verifier's last states, as the output projection does; it is there if a drafter is."""
DRAFTER_STATES = "drafter.bigram_gate"
"""A matrix that reads the drafter's last states, as the output projection does."""
_EPSILON = 1e-5
"""Of layer norms; fairseq's."""
_BLOCK = 64
"""Tokens of the vocabulary among which the best is searched as one."""
_KINDS = ("self_attn", "encoder_attn", "final")
"""Sublayers of a layer that reads the source, by their layer norms."""
_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Quantised:
    """An activation in 8 bits: value = (integers - zero) * scale; all three are names in the graph."""

    integers: str
    scale: str
    zero: str
    step: float
    """The scale as a number."""


@dataclass(frozen=True)
class _Stream:
    """The residual stream of a stack of layers, and what the next sublayer reads; shape (lines, width).

    Pre-norm reads the stream's layer norm; post-norm, whose stream is a layer norm's result, reads the stream.
    """

    x: str
    normed: str


@dataclass(frozen=True)
class _Norms:
    """The layer norms of a stack of layers: one a sublayer in their order, and the one after the last, if any."""

    pre_norm: bool
    sublayers: tuple[str, ...]
    final: str | None

    def before(self, sublayer: int) -> str | None:
        """What is applied to the stream for a sublayer, or, past the last one, for the stack's result."""
        if not self.pre_norm:
            return None
        return self.sublayers[sublayer] if sublayer < len(self.sublayers) else self.final


def _norms(stack: str, layers: int, kinds: Sequence[str], pre_norm: bool = True, final: bool = True) -> _Norms:
    names = tuple(f"{stack}.layers.{layer}.{kind}_layer_norm" for layer in range(layers) for kind in kinds)
    return _Norms(pre_norm, names, f"{stack}.layer_norm" if final else None)


@dataclass(frozen=True)
class _Lattice:
    """As `base.Lattice`, slots first: `ids` and `scores` of shape (slots, batch, width)."""

    ids: str
    scores: str
    transitions: str
    """Shape (slots * batch, width, width)."""
    width: int


class _Network:
    """One graph of a pair; its methods mirror the torch engine's."""

    def __init__(self, name: str, architecture: Architecture, weights: Stored, ranges: Ranges, folder: Path) -> None:
        self.graph = Graph(name, folder / WEIGHTS)
        self.architecture = architecture
        self._weights = weights
        self._ranges = ranges

    # -- products with weights

    def quantise(self, x: str, reader: str) -> _Quantised:
        """Bring `x` to 8 bits by the range that calibration saw where the matrix `reader` reads it."""
        scale, zero, step = self._activation(*self._ranges[f"{reader}.weight"])
        return _Quantised(self.graph.add("QuantizeLinear", x, scale, zero), scale, zero, step)

    def _activation(self, low: float, high: float) -> tuple[str, str, float]:
        step = np.float32((max(high, 0.0) - min(low, 0.0)) / 255 or 1.0)
        zero = np.uint8(np.rint(-min(low, 0.0) / step))
        return self.graph.constant(np.array(step)), self.graph.constant(np.array(zero)), float(step)

    def project(self, x: _Quantised, name: str) -> str:
        """x @ weight.T + bias, where there is one; shape (lines, outputs)."""
        return self.graph.add("QGemm", *self._product(x, name), transB=1)

    def project_to(self, x: _Quantised, name: str, reader: str) -> _Quantised:
        """As `project`, clipped below at 0 and brought to 8 bits for the matrix `reader`, all in one node."""
        scale, zero, step = self._activation(0.0, self._ranges[f"{reader}.weight"][1])
        integers = self.graph.add("QGemm", *self._product(x, name), scale, zero, transB=1)
        return _Quantised(integers, scale, zero, step)

    def _product(self, x: _Quantised, name: str) -> tuple[str, ...]:
        weight = self.graph.weight(f"{name}.weight")
        scales = self.graph.weight(scale_name(f"{name}.weight"))
        zeros = self.graph.constant(np.zeros(len(self._weights[f"{name}.weight"]), dtype=np.int8))
        return x.integers, x.scale, x.zero, weight, scales, zeros, self._bias(x, name)

    def _bias(self, x: _Quantised, name: str) -> str:
        if f"{name}.bias" not in self._weights:
            return ""
        steps = self._weights[scale_name(f"{name}.weight")] * np.float32(x.step)
        return self.graph.constant(np.rint(self._weights[f"{name}.bias"] / steps).astype(np.int32))

    def embed(self, ids: str, name: str, scale: float = 1.0) -> str:
        """Rows of the table `name`, times `scale`; `ids` must be a vector."""
        rows = self.graph.add("Gather", self.graph.weight(f"{name}.weight"), ids)
        scales = self.graph.add("Gather", self.graph.weight(scale_name(f"{name}.weight")), ids)
        if scale != 1:
            scales = self.graph.add("Mul", scales, self.graph.constant(np.array(scale, dtype=np.float32)))
        return self.graph.add("DequantizeLinear", rows, scales, axis=0)

    def embed_tokens(self, ids: str, table: str = "embeddings") -> str:
        return self.embed(ids, table, math.sqrt(self.architecture.width) if self.architecture.scaled_embeddings else 1)

    # -- sublayers

    def start(self, x: str, norms: _Norms) -> _Stream:
        """Begin a stack of layers."""
        return self._stream(x, norms.before(0))

    def advance(self, stream: _Stream, change: str, norms: _Norms, sublayer: int) -> _Stream:
        """Add the result of the stack's sublayer number `sublayer` to the residual stream.

        Two nodes: ONNX Runtime's SkipLayerNormalization, which does both, takes several times as long.
        """
        x = self.graph.add("Add", stream.x, change)
        if not norms.pre_norm:
            x = self._normalised(x, norms.sublayers[sublayer])
        return self._stream(x, norms.before(sublayer + 1))

    def _stream(self, x: str, norm: str | None) -> _Stream:
        return _Stream(x, self._normalised(x, norm) if norm else x)

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

    def self_attention(self, x: _Quantised, layer: str, side: str) -> tuple[str, str, str]:
        """Queries, keys and values of a window, each of shape (T, batch, heads, head width)."""
        query, keys, values = (self.heads(self.project(x, f"{layer}.self_attn.{name}_proj"), side) for name in "qkv")
        return query, keys, values

    def output(self, states: _Quantised, name: str) -> tuple[str, int]:
        """Scores of the tokens that a network can say, and their number; `name`: its own output matrix, if any."""
        name = self.output_matrix(name)
        return self.project(states, name), len(self._weights[f"{name}.weight"])

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

    def feed_forward(self, stream: _Stream, layer: str, activation: str = "relu") -> str:
        normed = self.quantise(stream.normed, f"{layer}.fc1")
        if activation == "gelu":
            inner = self.quantise(self.graph.add("Gelu", self.project(normed, f"{layer}.fc1")), f"{layer}.fc2")
        else:
            inner = self.project_to(normed, f"{layer}.fc1", f"{layer}.fc2")
        return self.project(inner, f"{layer}.fc2")

    def read_source(self, stream: _Stream, layer: str, index: int) -> str:
        """Attention of the window over the source, whose keys and values for layer `index` the caller gives."""
        name = f"{layer}.encoder_attn"
        query = self.heads(self.project(self.quantise(stream.normed, f"{name}.q_proj"), f"{name}.q_proj"), "target")
        keys, values = memory_names(index)
        return self.attend(query, keys, values, "source_limits", name)

    def read_layer(
        self, stream: _Stream, attended: str, layer: str, norms: _Norms, place: tuple[int, int], activation: str
    ) -> _Stream:
        """What follows self-attention in a layer that reads the source.

        Args:
            place: the layer's number in its stack, and among all layers whose keys and values the caller gives.
        """
        number, index = place
        first = 3 * number
        stream = self.advance(stream, attended, norms, first)
        stream = self.advance(stream, self.read_source(stream, layer, index), norms, first + 1)
        return self.advance(stream, self.feed_forward(stream, layer, activation), norms, first + 2)


class _Encoder(_Network):
    """Source ids to the keys and values that every layer of verifier and drafter reads."""

    def build(self) -> Graph:
        graph, width = self.graph, self.architecture.width
        ids = graph.input("source_ids", ("lines",), INT64)
        positions = graph.input("positions", ("lines", width))
        graph.input("source_shape", (4,), INT64)
        graph.input("source_limits", ("batch", 1, 1, "source"))
        graph.input("source_ones", ("source", 1))
        shape = self.architecture
        kinds = ("self_attn", "final")
        norms = _norms(
            "verifier.encoder", shape.encoder_layers, kinds, shape.encoder_pre_norm, shape.encoder_final_norm
        )
        embedded = self.embed_tokens(ids, shape.source_embeddings)
        stream = self.start(graph.add("Add", embedded, positions), norms)
        for number in range(shape.encoder_layers):
            stream = self._layer(stream, number, norms)
        self._memory(stream.normed)
        return graph

    def _layer(self, stream: _Stream, number: int, norms: _Norms) -> _Stream:
        layer, heads = f"verifier.encoder.layers.{number}", self.architecture.heads_of_encoder
        normed = self.quantise(stream.normed, f"{layer}.self_attn.q_proj")
        window = self.self_attention(normed, layer, "source")
        attended = self.attend(*window, "source_limits", f"{layer}.self_attn", heads)
        stream = self.advance(stream, attended, norms, 2 * number)
        change = self.feed_forward(stream, layer, self.architecture.activation)
        return self.advance(stream, change, norms, 2 * number + 1)

    def _memory(self, states: str) -> None:
        layers = [f"verifier.decoder.layers.{i}" for i in range(self.architecture.decoder_layers)]
        layers += [f"drafter.layers.{i}" for i in range(self.architecture.drafter_layers)]
        quantised = self.quantise(states, f"{layers[0]}.encoder_attn.k_proj")
        for index, layer in enumerate(layers):
            for output, name in zip(memory_names(index), "kv", strict=True):
                value = self.project(quantised, f"{layer}.encoder_attn.{name}_proj")
                self.graph.output(output, value, ("lines", self.architecture.width))


class _Decoder(_Network):
    """The graphs that read target tokens: the verifier's pass, the drafter's, and both in one call.

    A window of T tokens stands at `places` of the caches, one (position, row) pair a token.
    """

    def verifier(self) -> Graph:
        """Token ids to candidates."""
        self._declare_window()
        self._declare_layers(0, self._layers)
        ids = self.graph.input("token_ids", ("lines",), INT64)
        self._verify(ids)
        return self.graph

    def drafter(self) -> Graph:
        """The last verified ids to a lattice."""
        self._declare_window()
        self._declare_layers(self.architecture.decoder_layers, self._layers)
        lattice = self._draft()
        width = lattice.width
        self.graph.output("ids", lattice.ids, ("slots", "batch", width), INT64)
        self.graph.output("scores", lattice.scores, ("slots", "batch", width))
        self.graph.output("transitions", lattice.transitions, ("draft_lines", width, width))
        return self.graph

    def speculator(self) -> Graph:
        """The last verified ids to a draft and the candidates of its positions."""
        self._declare_window()
        self._declare_layers(0, self._layers)
        draft = self._walk(self._draft())
        self._verify(self.graph.add("Concat", "last_ids", draft, axis=0))
        self.graph.output("draft", draft, ("draft_lines",), INT64)
        return self.graph

    # -- inputs

    @property
    def _layers(self) -> int:
        return self.architecture.decoder_layers + self.architecture.drafter_layers

    def _declare_window(self) -> None:
        graph = self.graph
        graph.input("positions", ("lines", self.architecture.width))
        graph.input("target_shape", (4,), INT64)
        graph.input("places", ("window", "batch", 2), INT64)
        graph.input("target_limits", ("batch", 1, "window", "capacity"))
        graph.input("target_ones", ("capacity", 1))
        graph.input("source_limits", ("batch", 1, 1, "source"))
        graph.input("source_ones", ("source", 1))

    def _declare_layers(self, first: int, last: int) -> None:
        heads = self.architecture.heads
        size = ("batch", heads, self.architecture.width // heads)
        for index in range(first, last):
            for name in memory_names(index):
                self.graph.input(name, ("source", *size))
            for name in cache_names(index):
                self.graph.input(name, ("capacity", *size))

    # -- verifier

    def _verify(self, ids: str) -> None:
        graph = self.graph
        shape = self.architecture
        norms = _norms(
            "verifier.decoder", shape.decoder_layers, _KINDS, shape.decoder_pre_norm, shape.decoder_final_norm
        )
        stream = self.start(graph.add("Add", self.embed_tokens(ids), "positions"), norms)
        for index in range(shape.decoder_layers):
            layer = f"verifier.decoder.layers.{index}"
            query, keys, values = self.self_attention(self._normed(stream, layer), layer, "target")
            keys, values = self._write(index, keys, values)
            attended = self.attend(query, keys, values, "target_limits", f"{layer}.self_attn")
            stream = self.read_layer(stream, attended, layer, norms, (index, index), shape.activation)
        reader = _VERIFIER_STATES if shape.drafter_layers else self.output_matrix(VERIFIER_OUTPUT)
        states = self.quantise(stream.normed, reader)
        self._cache_prefix(states)
        self._give_candidates(states)

    def _normed(self, stream: _Stream, layer: str) -> _Quantised:
        return self.quantise(stream.normed, f"{layer}.self_attn.q_proj")

    def _write(self, index: int, keys: str, values: str) -> list[str]:
        """The caches of layer `index` with the window written into them; given back, so that they are kept."""
        written = self._scattered(index, keys, values)
        heads = self.architecture.heads
        shape = ("capacity", "batch", heads, self.architecture.width // heads)
        return [
            self.graph.output(f"{name}.next", value, shape)
            for name, value in zip(cache_names(index), written, strict=True)
        ]

    def _scattered(self, index: int, keys: str, values: str) -> list[str]:
        pairs = zip(cache_names(index), (keys, values), strict=True)
        return [self.graph.add("ScatterND", cache, "places", window) for cache, window in pairs]

    def _cache_prefix(self, states: _Quantised) -> None:
        """What the drafter will read of these tokens: keys and values of the verifier's states."""
        for layer in range(self.architecture.drafter_layers):
            name = f"drafter.layers.{layer}.prefix_attn"
            keys, values = (self.heads(self.project(states, f"{name}.{part}_proj"), "target") for part in "kv")
            self._write(self.architecture.decoder_layers + layer, keys, values)

    def _give_candidates(self, states: _Quantised) -> None:
        beta = self.graph.input("beta", (1,), INT64)
        logits, outputs = self.output(states, VERIFIER_OUTPUT)
        best, places = self.best(self.graph.add("LogSoftmax", logits, axis=-1), outputs, beta)
        self.graph.output("candidate_ids", self.ids(places, VERIFIER_OUTPUT), ("lines", "beta"), INT64)
        self.graph.output("log_probs", best, ("lines", "beta"))

    # -- drafter

    def _draft(self) -> _Lattice:
        graph = self.graph
        last_ids = graph.input("last_ids", ("batch",), INT64)
        slots = graph.input("slots", ("draft_lines",), INT64)
        graph.input("lattice_shape", (3,), INT64)
        graph.input("batch", (1,), INT64)
        norms = _norms("drafter", self.architecture.drafter_layers, _KINDS)
        window = graph.add("Concat", self.embed_tokens(last_ids), self.embed(slots, "drafter.slots"), axis=0)
        stream = self.start(graph.add("Add", window, "positions"), norms)
        # Every position of the window sees the prefix and the whole window: what the last one may see.
        limits = graph.add("Slice", "target_limits", *(graph.integers(i) for i in (-1, _END, 2)))
        for number in range(self.architecture.drafter_layers):
            index, layer = self.architecture.decoder_layers + number, f"drafter.layers.{number}"
            query, keys, values = self.self_attention(self._normed(stream, layer), layer, "target")
            keys, values = self._scattered(index, keys, values)
            attended = self.attend(query, keys, values, limits, f"{layer}.self_attn")
            stream = self.read_layer(stream, attended, layer, norms, (number, index), "relu")
        states = graph.add("Slice", stream.normed, "batch", graph.integers(_END), graph.integers(0))
        return self._lattice(self.quantise(states, DRAFTER_STATES))

    def _lattice(self, states: _Quantised) -> _Lattice:
        graph = self.graph
        logits, outputs = self.output(states, DRAFTER_OUTPUT)
        width = min(LATTICE_WIDTH, outputs)
        scores, places = self.best(logits, outputs, graph.integers(width))
        places, scores = (graph.add("Reshape", x, "lattice_shape") for x in (places, scores))
        ids = self.ids(places, DRAFTER_OUTPUT)
        first = graph.add("Reshape", "last_ids", graph.integers(1, -1, 1))
        first = graph.add("Expand", first, graph.integers(1, 1, width))
        before = graph.add("Slice", ids, *(graph.integers(i) for i in (0, -1, 0)))
        left = self._bigram(graph.add("Concat", first, before, axis=0), width, "left")
        gate = self.project(states, "drafter.bigram_gate")
        left = graph.add("Mul", left, graph.add("Unsqueeze", gate, graph.integers(1)))
        transitions = graph.add("FusedMatMul", left, self._bigram(places, width, "right"), transB=1)
        return _Lattice(ids, scores, transitions, width)

    def _bigram(self, places: str, width: int, side: str) -> str:
        """Bigram vectors of a lattice's tokens, shape (slots * batch, width, rank)."""
        flat = self.graph.add("Reshape", places, self.graph.integers(-1))
        rows = self.embed(flat, f"drafter.bigram_{side}")
        return self.graph.add("Reshape", rows, self.graph.integers(-1, width, self.architecture.bigram_rank))

    def _walk(self, lattice: _Lattice) -> str:
        """`drafting.walk` in the graph: one token a slot, each given the one before; shape (slots * batch).

        Each slot maps the choice before it to its own. The maps are composed in strides of 1, 2, 4, ...: then each
        leads from the last verified token straight to its slot. The first slot's map says the same for every choice,
        so what is composed with it, or with a map that holds it, does not matter.
        """
        graph = self.graph
        scores = graph.add("Reshape", lattice.scores, graph.integers(-1, 1, lattice.width))
        totals = graph.add("Add", lattice.transitions, scores)
        choices = graph.add("Reshape", graph.add("ArgMax", totals, axis=-1, keepdims=0), "lattice_shape")
        stride = 1
        while stride < self.architecture.draft_length:
            head = graph.add("Slice", choices, *(graph.integers(i) for i in (0, stride, 0)))
            tail = graph.add("Slice", choices, *(graph.integers(i) for i in (0, -stride, 0)))
            before = graph.add("Concat", head, tail, axis=0)
            choices = graph.add("GatherElements", choices, before, axis=2)
            stride *= 2
        chosen = graph.add("Slice", choices, *(graph.integers(i) for i in (0, 1, 2)))
        return graph.add("Reshape", graph.add("GatherElements", lattice.ids, chosen, axis=2), graph.integers(-1))


def export_graphs(folder: Path, architecture: Architecture, calibration_sources: Sequence[Sequence[int]]) -> None:
    """Write the graphs of the pair whose weights stand in `folder`, beside them.

    Args:
        calibration_sources: sentences (ids with end-of-sentence) like those to be translated; a few hundred.

    Raises:
        BundleError: weights that do not fit the architecture.
        EngineError: attention scores that 32-bit floats cannot hold.
    """
    stored = read_stored(folder / WEIGHTS, architecture)
    ranges = calibrate(architecture, dequantised(stored), calibration_sources)
    write_json(folder / RANGES, ranges)
    _Encoder("encode", architecture, stored, ranges, folder).build().save(folder)
    _Decoder("verify", architecture, stored, ranges, folder).verifier().save(folder)
    if architecture.drafter_layers:
        _Decoder("draft", architecture, stored, ranges, folder).drafter().save(folder)
        _Decoder("speculate", architecture, stored, ranges, folder).speculator().save(folder)
