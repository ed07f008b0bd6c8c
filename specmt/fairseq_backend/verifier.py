"""The verifier's criterion. Its task and model are fairseq's own, so that other fairseq tools accept its checkpoint."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)
from specmt.fairseq_backend.loss import forward_pass, linear_cross_entropy, places

from fairseq.criterions import FairseqCriterion, register_criterion  # isort: skip
from fairseq.dataclass import FairseqDataclass  # isort: skip
from fairseq.logging import metrics  # isort: skip


@dataclass
class TranslationCriterionConfig(FairseqDataclass):
    """Arguments of the criterion."""

    label_smoothing: float = field(default=0.1, metadata={"help": "probability mass spread over the vocabulary"})
    autocast_bf16: bool = field(default=False, metadata={"help": "run the network in bfloat16 autocast"})


@register_criterion("specmt_translation", dataclass=TranslationCriterionConfig)
class TranslationCriterion(FairseqCriterion):
    """Label-smoothed cross-entropy over the gold prefix; forward in bfloat16 where asked, backward outside autocast."""

    def __init__(self, task: Any, label_smoothing: float, autocast_bf16: bool) -> None:
        super().__init__(task)
        self.label_smoothing = label_smoothing
        self.autocast_bf16 = autocast_bf16

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        """Returns the summed loss (nats), the number of target tokens, and what to log."""
        target: Tensor = sample["target"]
        with forward_pass(target.device, self.autocast_bf16):
            features, _ = model(**sample["net_input"], features_only=True)
        tokens = int(sample["ntokens"])
        kept = places(target != self.padding_idx, tokens)
        smoothing = self.label_smoothing if model.training else 0.0
        states = features.flatten(0, 1)[kept].to(torch.bfloat16 if self.autocast_bf16 else torch.float32)
        weight = model.decoder.output_projection.weight
        loss = linear_cross_entropy(states, weight, target.flatten()[kept], smoothing)
        logged = {"loss": loss.detach(), "ntokens": tokens, "nsentences": target.size(0), "sample_size": tokens}
        return loss, tokens, logged

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate over workers: loss in bits per token, as fairseq logs it."""
        tokens = sum(log["ntokens"] for log in logging_outputs)
        loss = sum(float(log["loss"]) for log in logging_outputs) / max(tokens, 1) / math.log(2)
        metrics.log_scalar("loss", loss, tokens, round=3)
        metrics.log_derived("ppl", lambda meters: 2 ** min(meters["loss"].avg, 50))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Sums over workers are enough."""
        return True
