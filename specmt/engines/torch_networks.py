"""The two networks of a pair, in eager torch over a bundle's weights: tensors in, tensors out, no copies to the host.

The drafter is described in `docs/architecture.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import DRAFTER_OUTPUT, SOURCE_POSITIONS, TARGET_POSITIONS, VERIFIER_OUTPUT
from specmt.engines.base import LATTICE_WIDTH
from specmt.engines.torch_layers import (
    CrossAttention,
    FeedForward,
    LayerNorm,
    Linear,
    Output,
    SelfAttention,
    attend,
    final_norm,
    position_table,
)
from specmt.engines.torch_rows import Cache, TorchRows
from specmt.text.vocabulary import EOS_ID, PAD_ID


class TensorLattice(NamedTuple):
    """As `Lattice`, of tensors."""

    ids: Tensor
    scores: Tensor
    transitions: Tensor


class Networks:
    """Verifier and drafter on one device."""

    def __init__(self, architecture: Architecture, weights: Mapping[str, Tensor]) -> None:
        """Take weights that lie on the device, in the precision that is computed in."""
        self.architecture = architecture
        embeddings = weights["embeddings.weight"]
        self.device, self.dtype = embeddings.device, embeddings.dtype
        scale = math.sqrt(architecture.width) if architecture.scaled_embeddings else 1.0
        self.scaled_embeddings = self._scaled_sources = embeddings * scale
        if architecture.source_vocabulary_size:
            self._scaled_sources = weights[f"{architecture.source_embeddings}.weight"] * scale
        if architecture.starts_from_padding:  # the target's end-of-sentence is read at the start only
            self.scaled_embeddings = self.scaled_embeddings.clone()
            self.scaled_embeddings[EOS_ID] = self.scaled_embeddings[PAD_ID]
        self._learned = {name: weights.get(f"{name}.weight") for name in (SOURCE_POSITIONS, TARGET_POSITIONS)}
        self._positions = dict.fromkeys(self._learned, embeddings[:0])
        self._build_encoder(weights)
        self._build_decoder(weights)
        if architecture.drafter_layers:
            self._build_drafter(weights)

    def _build_encoder(self, weights: Mapping[str, Tensor]) -> None:
        shape = self.architecture
        layers = [f"verifier.encoder.layers.{i}" for i in range(shape.encoder_layers)]
        pre_norm, activation = shape.encoder_pre_norm, shape.activation
        self._encoder_layers = [
            (SelfAttention(weights, layer, pre_norm), FeedForward(weights, layer, pre_norm, activation))
            for layer in layers
        ]
        self._encoder_norm = final_norm(weights, "verifier.encoder.layer_norm", shape.encoder_final_norm)

    def _build_decoder(self, weights: Mapping[str, Tensor]) -> None:
        shape = self.architecture
        layers = [f"verifier.decoder.layers.{i}" for i in range(shape.decoder_layers)]
        drafter_layers = [f"drafter.layers.{i}" for i in range(shape.drafter_layers)]
        pre_norm, activation = shape.decoder_pre_norm, shape.activation
        self._decoder_layers = [
            (
                SelfAttention(weights, layer, pre_norm),
                CrossAttention(weights, layer, pre_norm),
                FeedForward(weights, layer, pre_norm, activation),
            )
            for layer in layers
        ]
        self._decoder_norm = final_norm(weights, "verifier.decoder.layer_norm", shape.decoder_final_norm)
        memory_names = [f"{layer}.encoder_attn.{name}_proj" for layer in layers + drafter_layers for name in "kv"]
        self._project_memory = Linear(weights, *memory_names)
        self._output = Output(weights, VERIFIER_OUTPUT, shape.output)

    def _build_drafter(self, weights: Mapping[str, Tensor]) -> None:
        layers = [f"drafter.layers.{i}" for i in range(self.architecture.drafter_layers)]
        self._drafter_layers = [
            (SelfAttention(weights, layer), CrossAttention(weights, layer), FeedForward(weights, layer))
            for layer in layers
        ]
        self._drafter_norm = LayerNorm(weights, "drafter.layer_norm")
        self._project_prefix = Linear(
            weights, *(f"{layer}.prefix_attn.{name}_proj" for layer in layers for name in "kv")
        )
        self._draft_output = Output(weights, DRAFTER_OUTPUT, self.architecture.output)
        self._slots = weights["drafter.slots.weight"]
        self._bigram_gate = weights["drafter.bigram_gate.weight"]
        self._bigram_left = weights["drafter.bigram_left.weight"]
        self._bigram_right = weights["drafter.bigram_right.weight"]

    # -- verifier

    def encoder(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output, shape (batch, S, width), for padded sources (batch, S), and the mask of `TorchRows`."""
        length = ids.size(1)
        mask = torch.zeros(ids.shape, device=self.device, dtype=self.dtype)
        mask = mask.masked_fill_(ids == PAD_ID, -math.inf)[:, None, None, :]
        x = self._scaled_sources[ids] + self.position_rows(SOURCE_POSITIONS, length)[:length]
        heads = self.architecture.heads_of_encoder
        for attention, feed_forward in self._encoder_layers:
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3, heads)
            x = feed_forward(attention.sum(x, attention.out(attend(query, keys, values, mask))))
        return self._encoder_norm(x), mask

    def rows(self, memory: Tensor, mask: Tensor) -> TorchRows:
        """Rows without a target for what `encoder` gave."""
        layers = self.architecture.decoder_layers + self.architecture.drafter_layers
        projected = self._split_heads(self._project_memory(memory), 2 * layers)
        caches_of_source = [Cache(*projected[i : i + 2]) for i in range(0, len(projected), 2)]
        empty = caches_of_source[0].keys[:, :, :0]
        caches = [Cache(empty, empty) for _ in range(layers)]
        return TorchRows(caches_of_source, mask, caches, np.zeros(len(memory), dtype=np.int64))

    def decoder(self, rows: TorchRows, ids: Tensor, positions: Tensor, mask: Tensor | None, read: int) -> Tensor:
        """States of tokens at `positions`, behind what is cached; all of shape (batch, T), the states with width.

        Args:
            mask: of `attend`, over the first `read` positions of the caches.
        """
        x = self.scaled_embeddings[ids] + self.position_rows(TARGET_POSITIONS, read)[positions]
        for layer, (attention, cross, feed_forward) in enumerate(self._decoder_layers):
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3)
            cache = rows.caches[layer]
            cache.write(keys, values, positions)
            attended = attention.out(attend(query, cache.keys[:, :, :read], cache.values[:, :, :read], mask))
            x = attention.sum(x, attended)
            x = feed_forward(self._read_source(x, cross, rows.memory[layer], rows.source_mask))
        return self._decoder_norm(x)

    def best(self, states: Tensor, beta: int) -> tuple[Tensor, Tensor]:
        """Ids and log-probabilities (float32, nats) of the most probable tokens, shape (batch, T, beta), best first."""
        logits = self._output(states).float()
        log_normaliser = logits.logsumexp(dim=-1, keepdim=True)
        if beta == 1:
            best, places = logits.max(dim=-1, keepdim=True)
        else:
            best, places = logits.topk(min(beta, logits.size(-1)), dim=-1)
        return self._output.ids(places), best - log_normaliser

    # -- drafter

    def cache_prefix(self, rows: TorchRows, states: Tensor, positions: Tensor) -> None:
        """Keep what the drafter reads of the verifier's states at `positions`."""
        shape = self.architecture
        projected = self._split_heads(self._project_prefix(states), 2 * shape.drafter_layers)
        for layer, cache in enumerate(rows.caches[shape.decoder_layers :]):
            cache.write(projected[2 * layer], projected[2 * layer + 1], positions)

    def drafter(
        self, rows: TorchRows, last_ids: Tensor, positions: Tensor, mask: Tensor | None, prefix: int
    ) -> TensorLattice:
        """What may stand in the slots of a window: the last verified token, shape (batch,), and the slots.

        Args:
            positions: of the window, shape (batch, slots + 1).
            mask: of `attend`, over the first `prefix` positions of the caches and the window's.
        """
        window = positions.size(1)
        last = self.scaled_embeddings[last_ids][:, None]
        slots = self._slots[: window - 1].expand(len(last_ids), -1, -1)
        embedded = torch.cat([last, slots], dim=1)
        x = embedded + self.position_rows(TARGET_POSITIONS, prefix + window)[positions]
        for layer, (attention, cross, feed_forward) in enumerate(
            self._drafter_layers, self.architecture.decoder_layers
        ):
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3)
            cache = rows.caches[layer]
            keys = torch.cat([cache.keys[:, :, :prefix], keys], dim=2)
            values = torch.cat([cache.values[:, :, :prefix], values], dim=2)
            x = attention.sum(x, attention.out(attend(query, keys, values, mask)))
            x = feed_forward(self._read_source(x, cross, rows.memory[layer], rows.source_mask))
        return self._lattice(self._drafter_norm(x[:, 1:]), last_ids)

    def _lattice(self, states: Tensor, last_ids: Tensor) -> TensorLattice:
        logits = self._draft_output(states)
        scores, places = logits.topk(min(LATTICE_WIDTH, logits.size(-1)), dim=-1)
        ids = self._draft_output.ids(places)
        left_ids = torch.cat([last_ids[:, None, None].expand_as(ids[:, :1]), ids[:, :-1]], dim=1)
        gate = functional.linear(states, self._bigram_gate)[:, :, None]
        left, right = self._bigram_left[left_ids] * gate, self._bigram_right[places]
        return TensorLattice(ids, scores, left @ right.transpose(2, 3))

    # -- parts

    def position_rows(self, name: str, positions: int) -> Tensor:
        """Embeddings of at least so many positions, of source or target."""
        table = self._positions[name]
        if len(table) < positions:  # another thread may put a shorter one there meanwhile
            table = position_table(2 * positions, self.architecture.width, self._learned[name])
            self._positions[name] = table = table.to(self.device, self.dtype)
        return table

    def tables(self) -> tuple[Tensor, ...]:
        """The tables of positions that are there now; `position_rows` may put longer ones in their place."""
        return tuple(self._positions.values())

    def _split_heads(self, x: Tensor, parts: int, heads: int = 0) -> tuple[Tensor, ...]:
        """(batch, T, parts · width) to `parts` tensors of shape (batch, heads, T, head width); 0: the decoder's."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, heads or self.architecture.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _read_source(self, x: Tensor, cross: CrossAttention, memory: Cache, source_mask: Tensor) -> Tensor:
        (query,) = self._split_heads(cross.query(cross.input(x)), 1)
        return cross.sum(x, cross.out(attend(query, memory.keys, memory.values, source_mask)))
