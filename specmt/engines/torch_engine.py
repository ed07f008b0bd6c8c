"""The reference engine, in eager torch: fp32 is the oracle for every faster path; bf16 and CUDA for speed.

Its drafter is described in `docs/architecture.md`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from specmt.architecture import Architecture
from specmt.engines.base import LATTICE_WIDTH, Candidates, FloatArray, IntArray, Lattice, Size, rounded_up
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
from specmt.engines.torch_rows import CAPACITY_STEP, Cache, States, TorchRows, joined, padded_mask
from specmt.errors import EngineError
from specmt.tensors import DRAFTER_OUTPUT, SOURCE_POSITIONS, TARGET_POSITIONS, VERIFIER_OUTPUT
from specmt.vocabulary import EOS_ID, PAD_ID

_SOURCE_STEP = 8
"""Source positions by which the sizes of fixed shapes grow."""


class TorchEngine:
    """Runs a pair's weights on a CPU or a GPU."""

    def __init__(
        self, architecture: Architecture, weights: Mapping[str, Tensor], device: str = "cpu", bf16: bool = False
    ) -> None:
        """Take a bundle's weights.

        Raises:
            EngineError: the device is not there.
        """
        try:
            self._device = torch.device(device)
            torch.empty(1, device=self._device).item()  # which no device but a real one can
        except (RuntimeError, AssertionError):
            raise EngineError(f"no device {device!r} on this machine") from None
        self.architecture = architecture
        self._dtype = torch.bfloat16 if bf16 else torch.float32
        self._bf16 = bf16
        cast = {
            name: tensor.to(self._device, self._dtype if tensor.is_floating_point() else tensor.dtype)
            for name, tensor in weights.items()
        }
        scale = math.sqrt(architecture.width) if architecture.scaled_embeddings else 1.0
        self._scaled_embeddings = self._scaled_sources = cast["embeddings.weight"] * scale
        if architecture.source_vocabulary_size:
            self._scaled_sources = cast[f"{architecture.source_embeddings}.weight"] * scale
        if architecture.starts_from_padding:  # the target's end-of-sentence is read at the start only
            self._scaled_embeddings = self._scaled_embeddings.clone()
            self._scaled_embeddings[EOS_ID] = self._scaled_embeddings[PAD_ID]
        self._learned = {name: cast.get(f"{name}.weight") for name in (SOURCE_POSITIONS, TARGET_POSITIONS)}
        self._positions = dict.fromkeys(self._learned, cast["embeddings.weight"][:0])
        self._build_encoder(cast)
        self._build_decoder(cast)
        if architecture.drafter_layers:
            self._build_drafter(cast)

    @property
    def name(self) -> str:
        """The engine with its device and precision."""
        return f"torch-{self._device.type}-{'bf16' if self._bf16 else 'fp32'}"

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""
        return self.architecture.draft_length

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

    # -- the interface

    @property
    def speculated_rows(self) -> None:
        """Any."""

    @property
    def strict_draft_length(self) -> None:
        """As many as the model says."""

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]]) -> TorchRows:
        """See `Engine.encode`."""
        return self._encode(sources, max(len(source) for source in sources))

    def _encode(self, sources: Sequence[Sequence[int]], longest: int) -> TorchRows:
        """As `encode`, with padding up to `longest` tokens."""
        return self._rows(*self._encoder_states(sources, longest))

    def _encoder_states(self, sources: Sequence[Sequence[int]], longest: int) -> tuple[Tensor, Tensor]:
        """The encoder's output, shape (batch, longest, width), and the mask of `TorchRows`."""
        ids = torch.full((len(sources), longest), PAD_ID)
        for row, source in enumerate(sources):
            ids[row, : len(source)] = torch.tensor(source)
        ids = ids.to(self._device)
        mask = torch.zeros(ids.shape, device=self._device, dtype=self._dtype)
        mask = mask.masked_fill_(ids == PAD_ID, -math.inf)[:, None, None, :]
        x = self._scaled_sources[ids] + self._position_rows(SOURCE_POSITIONS, longest)[:longest]
        heads = self.architecture.heads_of_encoder
        for attention, feed_forward in self._encoder_layers:
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3, heads)
            x = feed_forward(attention.sum(x, attention.out(attend(query, keys, values, mask))))
        return self._encoder_norm(x), mask

    def _rows(self, memory: Tensor, mask: Tensor) -> TorchRows:
        """Rows without a target for what `_encoder_states` gave."""
        projected = self._split_heads(self._project_memory(memory), 2 * self._cached_layers)
        caches_of_source = [Cache(*projected[i : i + 2]) for i in range(0, len(projected), 2)]
        empty = caches_of_source[0].keys[:, :, :0]
        caches = [Cache(empty, empty) for _ in range(self._cached_layers)]
        return TorchRows(caches_of_source, mask, caches, np.zeros(len(memory), dtype=np.int64))

    @torch.inference_mode()
    def verify(self, rows: TorchRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        positions = self._tensor(rows.lengths[:, None] + np.arange(token_ids.shape[1]))
        states = self._decoder_states(rows, token_ids, positions)
        if rows.drafts:
            self._cache_prefix(rows, states, positions)
        return self._best(self._output(states).float(), beta)

    def states(self, sources: Sequence[Sequence[int]], token_ids: IntArray) -> States:
        """What a drafter reads of the verifier that has read whole targets; see `verify`. No gradients are kept.

        Args:
            token_ids: what the decoder reads, shape (batch, T), padded with whatever token.
        """
        with torch.no_grad():  # not in inference mode: training goes on from here
            memory, mask = self._encoder_states(sources, max(len(source) for source in sources))
            rows = self._rows(memory, mask)
            positions = self._tensor(np.broadcast_to(np.arange(token_ids.shape[1]), token_ids.shape))
            return States(memory, mask[:, 0, 0] != 0, self._decoder_states(rows, token_ids, positions))

    def _decoder_states(self, rows: TorchRows, token_ids: IntArray, positions: Tensor) -> Tensor:
        """States of tokens at `positions`, behind what is cached; shape (batch, T, width)."""
        count = token_ids.shape[1]
        rows.reserve(int(rows.lengths.max()) + count)
        read = rows.capacity if rows.fixed else int(rows.lengths.max()) + count
        mask = self._causal_mask(rows, count, read)
        embedded = self._scaled_embeddings[self._tensor(token_ids)]
        x = embedded + self._position_rows(TARGET_POSITIONS, read)[positions]
        for layer, (attention, cross, feed_forward) in enumerate(self._decoder_layers):
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3)
            cache = rows.caches[layer]
            cache.write(keys, values, positions)
            attended = attention.out(attend(query, cache.keys[:, :, :read], cache.values[:, :, :read], mask))
            x = attention.sum(x, attended)
            x = feed_forward(self._read_source(x, cross, rows.memory[layer], rows.source_mask))
        return self._decoder_norm(x)

    @torch.inference_mode()
    def draft(self, rows: TorchRows, last_ids: IntArray, draft_length: int) -> Lattice:
        """See `Engine.draft`. The window is the last verified token and the slots; only slots are predicted."""
        rows.drafts = True
        window = draft_length + 1
        positions = self._tensor(rows.lengths[:, None] + np.arange(window))
        prefix = rows.capacity if rows.fixed else int(rows.lengths.max())
        mask = self._prefix_mask(rows, prefix, window)
        last = self._scaled_embeddings[self._tensor(last_ids)][:, None]
        slots = self._slots[:draft_length].expand(len(last_ids), -1, -1)
        embedded = torch.cat([last, slots], dim=1)
        x = embedded + self._position_rows(TARGET_POSITIONS, prefix + window)[positions]
        for layer, (attention, cross, feed_forward) in enumerate(
            self._drafter_layers, self.architecture.decoder_layers
        ):
            query, keys, values = self._split_heads(attention.project(attention.input(x)), 3)
            cache = rows.caches[layer]
            keys = torch.cat([cache.keys[:, :, :prefix], keys], dim=2)
            values = torch.cat([cache.values[:, :, :prefix], values], dim=2)
            x = attention.sum(x, attention.out(attend(query, keys, values, mask)))
            x = feed_forward(self._read_source(x, cross, rows.memory[layer], rows.source_mask))
        return self._lattice(self._drafter_norm(x[:, 1:]), self._tensor(last_ids))

    def commit(self, rows: TorchRows, counts: IntArray) -> None:
        """See `Engine.commit`."""
        rows.lengths = rows.lengths + counts

    @torch.inference_mode()
    def select(self, rows: TorchRows, indices: Sequence[int] | IntArray) -> TorchRows:
        """See `Engine.select`."""
        indices = np.asarray(indices)
        chosen = self._tensor(indices)
        memory = [cache.select(chosen) for cache in rows.memory]
        return replace(self.reorder(rows, indices), memory=memory, source_mask=rows.source_mask[chosen])

    @torch.inference_mode()
    def reorder(self, rows: TorchRows, indices: IntArray) -> TorchRows:
        """See `Engine.reorder`."""
        chosen = self._tensor(indices)
        caches = [cache.select(chosen) for cache in rows.caches]
        return replace(rows, caches=caches, lengths=rows.lengths[indices])

    @torch.inference_mode()
    def join(self, rows: TorchRows, others: TorchRows) -> TorchRows:
        """See `Engine.join`."""
        source_length = max(rows.source_mask.size(3), others.source_mask.size(3))
        capacity = max(rows.capacity, others.capacity)
        return TorchRows(
            [joined(*pair, source_length) for pair in zip(rows.memory, others.memory, strict=True)],
            torch.cat([padded_mask(part.source_mask, source_length) for part in (rows, others)]),
            [joined(*pair, capacity) for pair in zip(rows.caches, others.caches, strict=True)],
            np.concatenate([rows.lengths, others.lengths]),
            rows.drafts,
        )

    # -- fixed shapes

    @property
    def row_exact(self) -> bool:
        """No: sums of floats depend on the shapes of the arrays."""
        return False

    @torch.inference_mode()
    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> TorchRows:
        """See `Engine.encode_fixed`."""
        by_size: dict[int, list[int]] = {}
        for row, source in enumerate(sources):
            by_size.setdefault(self.size(len(source), 0).source, []).append(row)
        encoded, order = None, []
        for longest, alike in by_size.items():
            for first in range(0, len(alike), group):
                members = alike[first : first + group]
                filled = [sources[row] for row in (members + members[:1] * group)[:group]]
                rows = self._encode(filled, longest)
                if len(members) < group:
                    rows = self.select(rows, np.arange(len(members)))
                encoded = rows if encoded is None else self.join(encoded, rows)
                order += members
        assert encoded is not None, "no sources"
        return encoded if order == sorted(order) else self.select(encoded, np.argsort(order))

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        """See `Engine.size`."""
        return Size(rounded_up(source_tokens, _SOURCE_STEP), rounded_up(target_tokens, CAPACITY_STEP))

    @torch.inference_mode()
    def gather(self, rows: TorchRows, indices: IntArray, lengths: IntArray, size: Size) -> TorchRows:
        """See `Engine.gather`."""
        chosen = self._tensor(indices)
        return TorchRows(
            [cache.gather(chosen, size.source) for cache in rows.memory],
            padded_mask(rows.source_mask[chosen], size.source),
            [cache.gather(chosen, size.target) for cache in rows.caches],
            lengths,
            rows.drafts,
            fixed=True,
        )

    @torch.inference_mode()
    def scatter(self, rows: TorchRows, indices: IntArray, group: TorchRows, counts: IntArray) -> None:
        """See `Engine.scatter`."""
        starts = group.lengths[: len(indices)]
        rows.reserve(int((starts + counts).max()))
        taken = np.repeat(np.arange(len(indices)), counts)
        offsets = np.arange(len(taken)) - np.repeat(counts.cumsum() - counts, counts)
        places = self._tensor(np.repeat(starts, counts) + offsets)
        to, source = self._tensor(indices[taken]), self._tensor(taken)
        for cache, other in zip(rows.caches, group.caches, strict=True):
            cache.keys[to, :, places] = other.keys[source, :, places]
            cache.values[to, :, places] = other.values[source, :, places]
        rows.drafts = group.drafts

    def keep(self, rows: TorchRows, lengths: IntArray) -> None:
        """See `Engine.keep`."""
        rows.lengths = lengths

    # -- parts

    @property
    def _cached_layers(self) -> int:
        return self.architecture.decoder_layers + self.architecture.drafter_layers

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _position_rows(self, name: str, positions: int) -> Tensor:
        """Embeddings of at least so many positions, of source or target."""
        if len(self._positions[name]) < positions:
            table = position_table(2 * positions, self.architecture.width, self._learned[name])
            self._positions[name] = table.to(self._device, self._dtype)
        return self._positions[name]

    def _split_heads(self, x: Tensor, parts: int, heads: int = 0) -> tuple[Tensor, ...]:
        """(batch, T, parts · width) to `parts` tensors of shape (batch, heads, T, head width); 0: the decoder's."""
        batch, length, _ = x.shape
        return x.view(batch, length, parts, heads or self.architecture.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    def _read_source(self, x: Tensor, cross: CrossAttention, memory: Cache, source_mask: Tensor) -> Tensor:
        (query,) = self._split_heads(cross.query(cross.input(x)), 1)
        return cross.sum(x, cross.out(attend(query, memory.keys, memory.values, source_mask)))

    def _causal_mask(self, rows: TorchRows, count: int, read: int) -> Tensor | None:
        """0 where a position may be attended, else -inf; shape (batch, 1, count, read). None: all may."""
        if count == 1 and (rows.lengths == rows.lengths[0]).all() and not rows.fixed:
            return None
        last = rows.lengths[:, None] + np.arange(count)
        return self._mask_where(np.arange(read)[None, None, :] > last[:, :, None])

    def _prefix_mask(self, rows: TorchRows, prefix: int, window: int) -> Tensor | None:
        """As above for keys [prefix; window], shape (batch, 1, 1, prefix + window): the whole window sees itself."""
        if (rows.lengths == prefix).all() and not rows.fixed:
            return None
        hidden = np.zeros((len(rows.lengths), 1, prefix + window), dtype=bool)
        hidden[:, 0, :prefix] = np.arange(prefix)[None, :] >= rows.lengths[:, None]
        return self._mask_where(hidden)

    def _mask_where(self, hidden: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Tensor:
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0))
        return torch.from_numpy(mask).to(self._device, self._dtype)[:, None]

    def _cache_prefix(self, rows: TorchRows, states: Tensor, positions: Tensor) -> None:
        projected = self._split_heads(self._project_prefix(states), 2 * self.architecture.drafter_layers)
        for layer, cache in enumerate(rows.caches[self.architecture.decoder_layers :]):
            cache.write(projected[2 * layer], projected[2 * layer + 1], positions)

    def _best(self, logits: Tensor, beta: int) -> Candidates:
        log_normaliser = logits.logsumexp(dim=-1, keepdim=True)
        if beta == 1:
            best, places = logits.max(dim=-1, keepdim=True)
        else:
            best, places = logits.topk(min(beta, logits.size(-1)), dim=-1)
        return Candidates(self._output.ids(places).cpu().numpy(), _numpy(best - log_normaliser))

    def _lattice(self, states: Tensor, last_ids: Tensor) -> Lattice:
        logits = self._draft_output(states)
        scores, places = logits.topk(min(LATTICE_WIDTH, logits.size(-1)), dim=-1)
        ids = self._draft_output.ids(places)
        left_ids = torch.cat([last_ids[:, None, None].expand_as(ids[:, :1]), ids[:, :-1]], dim=1)
        gate = functional.linear(states, self._bigram_gate)[:, :, None]
        left, right = self._bigram_left[left_ids] * gate, self._bigram_right[places]
        return Lattice(ids.cpu().numpy(), _numpy(scores), _numpy(left @ right.transpose(2, 3)))


def _numpy(x: Tensor) -> FloatArray:
    array: FloatArray = x.float().cpu().numpy()
    return array
