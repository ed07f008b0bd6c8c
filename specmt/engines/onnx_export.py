"""A pair's networks as ONNX graphs in 8-bit integers, for `onnx_engine`. Needs torch and onnx; translation does not.

Arrays are position-major: a window of T tokens of a batch is T * batch lines of `width`, caches are (capacity, batch,
heads, head width), and new keys are written into them in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import DRAFTER_OUTPUT, VERIFIER_OUTPUT
from specmt.bundles.weights import Stored
from specmt.engines.base import LATTICE_WIDTH
from specmt.engines.calibration import Calibration
from specmt.engines.onnx_calls import cache_names, memory_names
from specmt.engines.onnx_graph import INT64, Graph
from specmt.engines.onnx_network import Network, Norms, Quantised, Stream
from specmt.errors import EngineError

_SAFE_SCORE = 60.0
"""Attention scores seen in calibration are to stay below this: from `LARGEST_SCORE` on, they all count as that."""
_VERIFIER_STATES = "drafter.layers.0.prefix_attn.k_proj"
"""A matrix that reads the verifier's last states, as the output projection does; it is there if a drafter is."""
_DRAFTER_STATES = "drafter.bigram_gate"
"""A matrix that reads the drafter's last states, as the output projection does."""
_SUBLAYERS = ("self_attn", "encoder_attn", "final")
"""Sublayers of a layer that reads the source, by their layer norms."""
_END = np.iinfo(np.int64).max


@dataclass(frozen=True)
class _Lattice:
    """As `base.Lattice`, slots first: `ids` and `scores` of shape (slots, batch, width)."""

    ids: str
    scores: str
    transitions: str
    """Shape (slots * batch, width, width)."""
    width: int


class _Encoder(Network):
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
        norms = Norms.of(
            "verifier.encoder", shape.encoder_layers, kinds, shape.encoder_pre_norm, shape.encoder_final_norm
        )
        embedded = self.embed_source(ids)
        stream = self.start(graph.add("Add", embedded, positions), norms)
        for number in range(shape.encoder_layers):
            stream = self._layer(stream, number, norms)
        self._memory(stream.normed)
        return graph

    def _layer(self, stream: Stream, number: int, norms: Norms) -> Stream:
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


class _Decoder(Network):
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
        norms = Norms.of(
            "verifier.decoder",
            shape.decoder_layers,
            _SUBLAYERS,
            shape.decoder_pre_norm,
            shape.decoder_final_norm,
        )
        stream = self.start(graph.add("Add", self.embed_target(ids), "positions"), norms)
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

    def _normed(self, stream: Stream, layer: str) -> Quantised:
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

    def _cache_prefix(self, states: Quantised) -> None:
        """What the drafter will read of these tokens: keys and values of the verifier's states."""
        for layer in range(self.architecture.drafter_layers):
            name = f"drafter.layers.{layer}.prefix_attn"
            keys, values = (self.heads(self.project(states, f"{name}.{part}_proj"), "target") for part in "kv")
            self._write(self.architecture.decoder_layers + layer, keys, values)

    def _give_candidates(self, states: Quantised) -> None:
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
        norms = Norms.of("drafter", self.architecture.drafter_layers, _SUBLAYERS)
        window = graph.add("Concat", self.embed_target(last_ids), self.embed(slots, "drafter.slots"), axis=0)
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
        return self._lattice(self.quantise(states, _DRAFTER_STATES))

    def _lattice(self, states: Quantised) -> _Lattice:
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
        """`drafting.walk` in the graph: one token per slot, each given the one before; shape (slots * batch).

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


def export_graphs(folder: Path, architecture: Architecture, stored: Stored, calibration: Calibration) -> None:
    """Write the graphs of the pair whose weights stand in `folder`, beside them.

    Args:
        stored: those weights.

    Raises:
        EngineError: attention scores that the graphs cannot hold.
    """
    if calibration.largest_score > _SAFE_SCORE:
        reached = f"attention scores reach {calibration.largest_score:.0f}"
        raise EngineError(f"{reached}; the onnx engine holds those up to {_SAFE_SCORE:.0f}")
    ranges = calibration.ranges
    _Encoder("encode", architecture, stored, ranges, folder).build().save(folder)
    _Decoder("verify", architecture, stored, ranges, folder).verifier().save(folder)
    if architecture.drafter_layers:
        _Decoder("draft", architecture, stored, ranges, folder).drafter().save(folder)
        _Decoder("speculate", architecture, stored, ranges, folder).speculator().save(folder)
