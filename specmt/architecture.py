"""The shape of a pair of models: what an engine must know to run its weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Sizes of verifier and drafter. Both are pre-norm Transformers with ReLU that share one embedding matrix."""

    vocabulary_size: int
    width: int
    """Units of a hidden state."""
    heads: int
    feed_forward_width: int
    encoder_layers: int
    decoder_layers: int
    drafter_layers: int
    draft_length: int
    """The most `[MASK]` slots that the drafter fills."""
    bigram_rank: int
    target_vocabulary_size: int = 0
    """Tokens that the verifier can say; 0: all."""
    draft_vocabulary_size: int = 0
    """Tokens that the drafter can say; 0: all."""

    def __post_init__(self) -> None:
        """Refuse heads that do not share the width evenly."""
        if self.heads < 1 or self.width % self.heads:
            raise ValueError("width must be a multiple of heads")
