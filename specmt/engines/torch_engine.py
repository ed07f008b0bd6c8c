"""The reference engine, in eager torch: fp32 is the oracle for every faster path; bf16 and CUDA for speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.architecture import Architecture
from specmt.engines.base import Candidates, Lattice, Size, rounded_up
from specmt.engines.torch_networks import Networks
from specmt.engines.torch_rows import CAPACITY_STEP, States, TorchRows, joined, padded_mask
from specmt.errors import EngineError
from specmt.text.vocabulary import PAD_ID

_SOURCE_STEP = 8
"""Source positions by which the sizes of fixed shapes grow."""


class TorchEngine:
    """Runs a pair's weights on a CPU or a GPU."""

    speculated_rows: int | None = None
    """Any."""
    strict_draft_length: int | None = None
    """As many as the model says."""

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
        self._bf16 = bf16
        dtype = torch.bfloat16 if bf16 else torch.float32
        cast = {
            name: tensor.to(self._device, dtype if tensor.is_floating_point() else tensor.dtype)
            for name, tensor in weights.items()
        }
        self._networks = Networks(architecture, cast)

    @property
    def name(self) -> str:
        """The engine with its device and precision."""
        return f"torch-{self._device.type}-{'bf16' if self._bf16 else 'fp32'}"

    @property
    def hardware(self) -> str:
        """What decides its speed beside the processor: the GPU's name, or the number of threads."""
        if self._device.type == "cuda":
            return torch.cuda.get_device_name(self._device)
        return f"{torch.get_num_threads()} threads"

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""
        return self.architecture.draft_length

    # -- the interface

    @torch.inference_mode()
    def encode(self, sources: Sequence[Sequence[int]]) -> TorchRows:
        """See `Engine.encode`."""
        return self._encode(sources, max(len(source) for source in sources))

    def _encode(self, sources: Sequence[Sequence[int]], longest: int) -> TorchRows:
        """As `encode`, with padding up to `longest` tokens."""
        return self._networks.rows(*self._encoder_states(sources, longest))

    def _encoder_states(self, sources: Sequence[Sequence[int]], longest: int) -> tuple[Tensor, Tensor]:
        """The encoder's output, shape (batch, longest, width), and the mask of `TorchRows`."""
        return self._networks.encoder(padded(sources, longest).to(self._device))

    @torch.inference_mode()
    def verify(self, rows: TorchRows, token_ids: IntArray, beta: int) -> Candidates:
        """See `Engine.verify`."""
        positions = self._tensor(rows.lengths[:, None] + np.arange(token_ids.shape[1]))
        states = self._decoder_states(rows, token_ids, positions)
        if rows.drafts:
            self._networks.cache_prefix(rows, states, positions)
        return candidates(*self._networks.best(states, beta))

    def states(self, sources: Sequence[Sequence[int]], token_ids: IntArray) -> States:
        """What a drafter reads of the verifier that has read whole targets; see `verify`. No gradients are kept.

        Args:
            token_ids: what the decoder reads, shape (batch, T), padded with whatever token.
        """
        with torch.no_grad():  # not in inference mode: training goes on from here
            memory, mask = self._encoder_states(sources, max(len(source) for source in sources))
            rows = self._networks.rows(memory, mask)
            positions = self._tensor(np.broadcast_to(np.arange(token_ids.shape[1]), token_ids.shape))
            return States(memory, mask[:, 0, 0] != 0, self._decoder_states(rows, token_ids, positions))

    def _decoder_states(self, rows: TorchRows, token_ids: IntArray, positions: Tensor) -> Tensor:
        """States of tokens at `positions`, behind what is cached; shape (batch, T, width)."""
        count = token_ids.shape[1]
        rows.reserve(int(rows.lengths.max()) + count)
        read = rows.capacity if rows.fixed else int(rows.lengths.max()) + count
        mask = self._causal_mask(rows, count, read)
        return self._networks.decoder(rows, self._tensor(token_ids), positions, mask, read)

    @torch.inference_mode()
    def draft(self, rows: TorchRows, last_ids: IntArray, draft_length: int) -> Lattice:
        """See `Engine.draft`. The window is the last verified token and the slots; only slots are predicted."""
        rows.drafts = True
        window = draft_length + 1
        positions = self._tensor(rows.lengths[:, None] + np.arange(window))
        prefix = rows.capacity if rows.fixed else int(rows.lengths.max())
        mask = self._prefix_mask(rows, prefix, window)
        lattice = self._networks.drafter(rows, self._tensor(last_ids), positions, mask, prefix)
        return Lattice(lattice.ids.cpu().numpy(), to_numpy(lattice.scores), to_numpy(lattice.transitions))

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

    def _tensor(self, array: IntArray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

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
        return torch.from_numpy(mask).to(self._device, self._networks.dtype)[:, None]


def padded(sources: Sequence[Sequence[int]], longest: int) -> Tensor:
    """Sources as ids of shape (batch, longest), on the CPU."""
    ids = torch.full((len(sources), longest), PAD_ID)
    for row, source in enumerate(sources):
        ids[row, : len(source)] = torch.tensor(source)
    return ids


def candidates(ids: Tensor, log_probs: Tensor) -> Candidates:
    """What `Networks.best` gave, as `Candidates`."""
    return Candidates(ids.cpu().numpy(), to_numpy(log_probs))


def to_numpy(x: Tensor) -> FloatArray:
    """As float32 on the CPU."""
    array: FloatArray = x.float().cpu().numpy()
    return array
