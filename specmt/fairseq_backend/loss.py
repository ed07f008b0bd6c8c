"""What the criteria share: how networks run in training, and a loss that does not keep the logits.

The latter is projection onto the vocabulary and label-smoothed cross-entropy in one, in chunks that stay in the cache.
The logits of a batch are its largest array by far, and fresh memory is costly: computed whole, they cost a third of a
training step. Here each chunk's logits become its gradient in place, and only the features' gradients are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

CHUNK_POSITIONS = 512
_CHUNK_POSITIONS_OF_GPU = 16384


@contextmanager
def forward_pass(device: torch.device, bf16: bool) -> Iterator[None]:
    """Where networks run in training: in autocast if asked, and on a CPU with plain products for attention.

    torch's fused attention is slow there for short sentences.
    """
    backends = [SDPBackend.MATH]
    if device.type != "cpu":
        backends += [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION]
    with sdpa_kernel(backends), torch.autocast(device.type, torch.bfloat16, bf16):
        yield


def places(wanted: Tensor, count: int) -> Tensor:
    """Where `wanted`, flattened, is true, in order, shape (count,); `count` is known, so that no GPU is waited for."""
    return wanted.flatten().logical_not().to(torch.uint8).argsort(stable=True)[:count]


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
        size = weight.size(0)
        total = features.new_zeros((), dtype=torch.float64)
        features_grad = torch.empty_like(features)
        weight_grad = torch.zeros_like(weight)
        cast_weight = weight.to(features.dtype)
        chunk = _CHUNK_POSITIONS_OF_GPU if features.is_cuda else CHUNK_POSITIONS
        for start in range(0, features.size(0), chunk):
            rows = slice(start, start + chunk)
            gold = target[rows, None]
            log_probs = functional.linear(features[rows], cast_weight).float().log_softmax(dim=1)
            gold_log_probs = log_probs.gather(1, gold)
            total -= (1 - label_smoothing) * gold_log_probs.sum()
            if label_smoothing:
                total -= label_smoothing / size * log_probs.sum()
            gradient = log_probs.exp_()
            if label_smoothing:
                gradient.sub_(label_smoothing / size)
            gradient.scatter_add_(1, gold, torch.full_like(gold_log_probs, label_smoothing - 1))
            cast_gradient = gradient.to(features.dtype)
            torch.mm(cast_gradient, cast_weight, out=features_grad[rows])
            weight_grad += cast_gradient.T @ features[rows]
        ctx.save_for_backward(features_grad, weight_grad)
        return total.float()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor, None, None]:
        features_grad, weight_grad = ctx.saved_tensors
        return features_grad * grad_output, weight_grad * grad_output, None, None


def linear_cross_entropy(features: Tensor, weight: Tensor, target: Tensor, label_smoothing: float) -> Tensor:
    """Sum of cross-entropies (nats) of softmax(features @ weight.T) against (1 - s) · gold + s · uniform.

    Args:
        features: shape (positions, width); its dtype (float32 or bfloat16) is that of the products.
        weight: shape (vocabulary_size, width), float32.
        target: gold ids, shape (positions,).
        label_smoothing: s, the probability mass spread evenly over the vocabulary.
    """
    loss: Tensor = _LinearCrossEntropy.apply(features, weight, target, label_smoothing)
    return loss
