"""Drafters that were only built to be compared with ours: fairseq's `--user-dir` of `ablate_drafter.py`.

What paid went into `specmt.fairseq_backend.drafter`; these stay here, so that the comparison can be made again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from specmt.fairseq_backend.drafter import DrafterModel, DrafterModelConfig, Windows
from specmt.fairseq_backend.frozen import Frozen

from fairseq.models import register_model  # isort: skip

WITHOUT_BIGRAM = "specmt_drafter_without_bigram"
OVER_TOKENS = "specmt_drafter_over_tokens"


@register_model(WITHOUT_BIGRAM, dataclass=DrafterModelConfig)
class DrafterWithoutBigram(DrafterModel):
    """Each slot picks its token alone: the bigram term begins as zero, and stays so."""

    def __init__(self, cfg: DrafterModelConfig, verifier: Frozen) -> None:
        super().__init__(cfg, verifier)
        self.bigram_right.weight.requires_grad_(False)


@register_model(OVER_TOKENS, dataclass=DrafterModelConfig)
class DrafterOverTokens(DrafterModel):
    """The prefix is seen as embedded tokens, not as the verifier's states of them."""

    @torch.no_grad()
    def windows(self, sample: dict[str, Any], starts: Tensor, padding_id: int) -> Windows:
        """As the drafter's own, with tokens and their positions in place of states."""
        ids = sample["net_input"]["prev_output_tokens"]
        tokens = functional.embedding(ids, self.verifier.embeddings)
        windows = super().windows(sample, starts, padding_id)
        return replace(windows, states=tokens + self.positions[: ids.size(1)])
