"""What the torch engine keeps of the rows that it decodes: keys and values of source and target."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from specmt.arrays import IntArray
from specmt.engines.base import rounded_up

CAPACITY_STEP = 32
"""Target positions by which caches grow."""


@dataclass
class Cache:
    """Keys and values of positions, shape (batch, heads, capacity, head width), uncommitted ones included."""

    keys: Tensor
    values: Tensor

    def write(self, keys: Tensor, values: Tensor, positions: Tensor) -> None:
        """Store entries of shape (batch, heads, T, head width) at `positions`, shape (batch, T)."""
        rows = torch.arange(len(positions), device=positions.device)[:, None]
        self.keys[rows, :, positions] = keys.transpose(1, 2)
        self.values[rows, :, positions] = values.transpose(1, 2)

    def sized(self, capacity: int) -> Cache:
        """The same with room for exactly `capacity` positions; new ones are zero."""
        room = (0, 0, 0, capacity - self.keys.size(2))
        return Cache(functional.pad(self.keys, room), functional.pad(self.values, room))

    def select(self, indices: Tensor) -> Cache:
        """The rows at `indices`."""
        return Cache(self.keys[indices], self.values[indices])

    def gather(self, indices: Tensor, capacity: int) -> Cache:
        """The rows at `indices` with exactly `capacity` positions, laid out in one way whatever the layout here.

        Kernels are chosen by strides as well as by shapes, and add in another order then.
        """
        return Cache(_laid_out(self.keys, indices, capacity), _laid_out(self.values, indices, capacity))


@dataclass
class TorchRows:
    """Caches of a batch: one a verifier layer, then one a drafter layer."""

    memory: list[Cache]
    """Keys and values of the source, shape (batch, heads, source length, head width)."""
    source_mask: Tensor
    """0 where a source token may be attended, -inf at padding; shape (batch, 1, 1, source length)."""
    caches: list[Cache]
    lengths: IntArray
    drafts: bool = False
    """Whether a drafter reads the verifier's states; set by the first draft."""
    fixed: bool = False
    """Whether passes have the shape of the arrays, whatever stands in them."""
    sitting: object = None
    """What lives as long as arrays are used that other rows will take over; see `torch_graphs`."""

    @property
    def capacity(self) -> int:
        """Target positions that the caches hold."""
        return self.caches[0].keys.size(2)

    def reserve(self, positions: int) -> None:
        """Make room for so many target positions; a group of fixed shape has it from the start."""
        if positions > self.capacity:
            assert not self.fixed, "the shape is fixed"
            self.caches = [cache.sized(rounded_up(positions, CAPACITY_STEP)) for cache in self.caches]


@dataclass(frozen=True)
class States:
    """What a verifier made of sources and targets, for a drafter in training. S source, T target positions."""

    memory: Tensor
    """The encoder's output, shape (batch, S, width)."""
    memory_padding: Tensor
    """True at source padding, shape (batch, S)."""
    decoded: Tensor
    """The decoder's states, shape (batch, T, width)."""


def _laid_out(entries: Tensor, indices: Tensor, capacity: int) -> Tensor:
    """Contiguous rows, shape (len(indices), heads, capacity, head width)."""
    result = entries.new_zeros(len(indices), entries.size(1), capacity, entries.size(3))
    taken = min(capacity, entries.size(2))
    result[:, :, :taken] = entries[:, :, :taken][indices]
    return result


def joined(cache: Cache, other: Cache, length: int) -> Cache:
    """Both batches as one, with room for `length` positions."""
    first, second = cache.sized(length), other.sized(length)
    return Cache(torch.cat([first.keys, second.keys]), torch.cat([first.values, second.values]))


def padded_mask(mask: Tensor, length: int) -> Tensor:
    """A mask of the source for `length` positions: cut, or padded with hidden ones."""
    return functional.pad(mask, (0, length - mask.size(3)), value=-math.inf).contiguous()
