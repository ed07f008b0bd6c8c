"""The drafter as fairseq trains it: task, model and criterion.

The model is a Transformer decoder over windows [last verified token; k `[MASK]` slots]. A window sees itself, the
source (the frozen verifier's encoder output) and the verified prefix (the frozen verifier's decoder states). Several
windows of a sentence are trained in one pass. Mask-predict: Ghazvininejad et al. 2019; glancing: Qian et al. 2021.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)
from specmt.fairseq_backend.frozen import Frozen, load_frozen
from specmt.fairseq_backend.loss import forward_pass, linear_cross_entropy

from fairseq.criterions import FairseqCriterion, register_criterion  # isort: skip
from fairseq.dataclass import FairseqDataclass  # isort: skip
from fairseq.logging import metrics  # isort: skip
from fairseq.models import BaseFairseqModel, register_model  # isort: skip
from fairseq.tasks import register_task  # isort: skip
from fairseq.tasks.translation import TranslationConfig, TranslationTask  # isort: skip

_LONGEST_TARGET = 1024  # that fairseq takes, in tokens


@dataclass
class DraftingConfig(TranslationConfig):
    """Arguments of the task."""

    verifier_checkpoint: str = field(default="", metadata={"help": "the verifier: a checkpoint or a bundle"})


@register_task("specmt_drafting", dataclass=DraftingConfig)
class DraftingTask(TranslationTask):
    """Translation whose references are the verifier's own translations; holds the frozen verifier."""

    def load_verifier(self) -> Frozen:
        """The verifier that the drafter works for."""
        return load_frozen(Path(self.cfg.verifier_checkpoint), Path(self.cfg.data))


@dataclass
class DrafterModelConfig(FairseqDataclass):
    """Arguments of the model; widths and heads are the verifier's."""

    layers: int = field(default=1, metadata={"help": "decoder layers"})
    draft_length: int = field(default=10, metadata={"help": "[MASK] slots of a window"})
    bigram_rank: int = field(default=64, metadata={"help": "rank of the bigram term"})
    dropout: float = field(default=0.1, metadata={"help": "dropout"})
    glancing_start: float = field(default=0.5, metadata={"help": "share of wrong slots revealed at first"})
    glancing_end: float = field(default=0.3, metadata={"help": "share of wrong slots revealed at last"})
    glancing_updates: int = field(default=1, metadata={"help": "updates between the two"})
    output_ids: str = field(default="", metadata={"help": "JSON list of the tokens that it can say; empty: all"})


@dataclass
class Windows:
    """Windows of a batch of sentences, and what they may see. N windows a sentence, T target, S source positions."""

    last_ids: Tensor
    """The last verified token, shape (batch, N)."""
    starts: Tensor
    """Its position, which is the number of prefix states seen, shape (batch, N)."""
    gold: Tensor
    """Gold tokens of the slots, padded after end-of-sentence, shape (batch, N, draft_length)."""
    states: Tensor
    """The verifier's decoder states, shape (batch, T, width)."""
    memory: Tensor
    """The verifier's encoder output, shape (batch, S, width)."""
    memory_padding: Tensor
    """True at source padding, shape (batch, S)."""


class _PrefixAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.k_proj, self.v_proj = nn.Linear(width, width), nn.Linear(width, width)


class _Attention(_PrefixAttention):
    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.q_proj, self.out_proj = nn.Linear(width, width), nn.Linear(width, width)


class DrafterLayer(nn.Module):
    """Pre-norm: window and prefix under one softmax, then the source, then feed-forward."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.self_attn = _Attention(width)
        self.prefix_attn = _PrefixAttention(width)
        self.encoder_attn = _Attention(width)
        self.self_attn_layer_norm, self.encoder_attn_layer_norm, self.final_layer_norm = (
            nn.LayerNorm(width) for _ in range(3)
        )
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, windows: Windows, prefix_hidden: Tensor) -> Tensor:
        """Run the layer.

        Args:
            x: shape (batch, N, window, width).
            prefix_hidden: True where a window may not see a state, shape (batch, N, T).
        """
        x = x + self.dropout(
            self.self_attn.out_proj(self._window(self.self_attn_layer_norm(x), windows, prefix_hidden))
        )
        x = x + self.dropout(self.encoder_attn.out_proj(self._source(self.encoder_attn_layer_norm(x), windows)))
        return x + self.dropout(self.fc2(self.dropout(self.fc1(self.final_layer_norm(x)).relu())))

    def _heads(self, x: Tensor) -> Tensor:
        """(batch, …, width) to (batch, heads, …, head width)."""
        return x.view(*x.shape[:-1], self.heads, -1).movedim(-2, 1)

    def _window(self, x: Tensor, windows: Windows, prefix_hidden: Tensor) -> Tensor:
        attn = self.self_attn
        query = self._heads(attn.q_proj(x)) * (x.size(-1) // self.heads) ** -0.5
        keys, values = self._heads(attn.k_proj(x)), self._heads(attn.v_proj(x))
        prefix_keys = self._heads(self.prefix_attn.k_proj(windows.states))
        prefix_values = self._heads(self.prefix_attn.v_proj(windows.states))
        to_prefix = (query.flatten(2, 3) @ prefix_keys.transpose(2, 3)).unflatten(2, query.shape[2:4])
        to_prefix = to_prefix.masked_fill(prefix_hidden[:, None, :, None], -math.inf)
        scores = torch.cat([to_prefix, query @ keys.transpose(3, 4)], dim=-1)
        weights = scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype)
        on_prefix, on_window = weights.split([prefix_keys.size(2), x.size(2)], dim=-1)
        read = (on_prefix.flatten(2, 3) @ prefix_values).unflatten(2, query.shape[2:4]) + on_window @ values
        return read.movedim(1, -2).flatten(-2)

    def _source(self, x: Tensor, windows: Windows) -> Tensor:
        attn = self.encoder_attn
        query = self._heads(attn.q_proj(x)).flatten(2, 3) * (x.size(-1) // self.heads) ** -0.5
        keys, values = self._heads(attn.k_proj(windows.memory)), self._heads(attn.v_proj(windows.memory))
        scores = (query @ keys.transpose(2, 3)).masked_fill(windows.memory_padding[:, None, None], -math.inf)
        read = scores.softmax(dim=-1, dtype=torch.float32).to(values.dtype) @ values
        return read.unflatten(2, x.shape[1:3]).movedim(1, -2).flatten(-2)


class _Output(nn.Module):
    """The tokens that the drafter can say; as state, `ids` only where those are not all."""

    ids: Tensor | None
    places: Tensor
    """Each token's place among them, -1 where it has none, shape (vocabulary_size,)."""

    def __init__(self, vocabulary_size: int, ids: Tensor | None) -> None:
        super().__init__()
        self.register_buffer("ids", ids)
        places = torch.arange(vocabulary_size)
        if ids is not None:
            places = torch.full((vocabulary_size,), -1).scatter(0, ids, torch.arange(len(ids)))
        self.register_buffer("places", places, persistent=False)
        self.size = vocabulary_size if ids is None else len(ids)

    def rows(self, matrix: Tensor) -> Tensor:
        """The rows of these tokens in a matrix with a row for each token of the vocabulary."""
        return matrix if self.ids is None else matrix[self.ids]


@register_model("specmt_drafter", dataclass=DrafterModelConfig)
class DrafterModel(BaseFairseqModel):
    """The drafter; the frozen verifier is used but is no part of its state."""

    def __init__(self, cfg: DrafterModelConfig, verifier: Frozen) -> None:
        super().__init__()
        self.cfg = cfg
        self.verifier = verifier
        width, inner, heads = verifier.width, verifier.feed_forward_width, verifier.heads
        self.layers = nn.ModuleList(DrafterLayer(width, inner, heads, cfg.dropout) for _ in range(cfg.layers))
        self.layer_norm = nn.LayerNorm(width)
        size = len(verifier.embeddings)
        output_ids = torch.tensor(json.loads(Path(cfg.output_ids).read_text())) if cfg.output_ids else None
        self.output = _Output(size, output_ids)
        self.slots = nn.Embedding(cfg.draft_length, width)
        self.bigram_gate = nn.Linear(width, cfg.bigram_rank, bias=False)
        self.bigram_left = nn.Embedding(size, cfg.bigram_rank)
        self.bigram_right = nn.Embedding(self.output.size, cfg.bigram_rank)
        self.input_dropout = nn.Dropout(cfg.dropout)
        self.register_buffer("positions", verifier.positions(_LONGEST_TARGET + cfg.draft_length), persistent=False)
        self.num_updates = 0
        self.load_state_dict(verifier.initial_weights(cfg.layers), strict=False)
        nn.init.normal_(self.slots.weight, std=0.5)
        nn.init.normal_(self.bigram_left.weight)
        nn.init.zeros_(self.bigram_right.weight)

    @classmethod
    def build_model(cls, cfg: DrafterModelConfig, task: DraftingTask) -> "DrafterModel":
        """Called by fairseq."""
        return cls(cfg, task.load_verifier())

    @property
    def output_weight(self) -> Tensor:
        """The rows of the verifier's output matrix for the tokens that the drafter can say."""
        return self.output.rows(self.verifier.output)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "DrafterModel":
        """Called by torch, as by `to`: the verifier goes along."""
        super()._apply(fn, recurse)
        self.verifier.apply(fn)
        return self

    def set_num_updates(self, num_updates: int) -> None:
        """Called by fairseq's trainer; drives the glancing schedule."""
        self.num_updates = num_updates

    @property
    def glancing_share(self) -> float:
        """Share of the wrong slots that are revealed at the present update."""
        progress = min(1.0, self.num_updates / self.cfg.glancing_updates)
        return self.cfg.glancing_start + progress * (self.cfg.glancing_end - self.cfg.glancing_start)

    @torch.no_grad()
    def windows(self, sample: dict[str, Any], starts: Tensor, padding_id: int) -> Windows:
        """Run the frozen verifier over a batch and cut windows at `starts`, shape (batch, N)."""
        inputs, target = sample["net_input"], sample["target"]
        states = self.verifier.states(inputs["src_tokens"], inputs["prev_output_tokens"])
        padded = functional.pad(target, (0, self.cfg.draft_length), value=padding_id)
        slots = starts[:, :, None] + torch.arange(self.cfg.draft_length, device=starts.device)
        gold = padded[:, None].expand(-1, starts.size(1), -1).gather(2, slots)
        return Windows(
            inputs["prev_output_tokens"].gather(1, starts),
            starts,
            gold,
            states.decoded,
            states.memory,
            states.memory_padding,
        )

    def forward(self, windows: Windows, revealed: Tensor | None = None) -> Tensor:
        """States of the slots, shape (batch, N, draft_length, width).

        Args:
            revealed: True where a slot shows its gold token in place of `[MASK]`, shape as `windows.gold`.
        """
        embeddings = self.verifier.embeddings
        slots = self.slots.weight.expand(*windows.gold.shape, -1)
        if revealed is not None:
            slots = torch.where(revealed[..., None], functional.embedding(windows.gold, embeddings), slots)
        last = functional.embedding(windows.last_ids, embeddings)[:, :, None]
        x = torch.cat([last, slots], dim=2)
        offsets = torch.arange(x.size(2), device=x.device)
        x = self.input_dropout(x + self.positions[windows.starts[:, :, None] + offsets])
        seen = torch.arange(windows.states.size(1), device=x.device)
        prefix_hidden = seen >= windows.starts[:, :, None]
        for layer in self.layers:
            x = layer(x, windows, prefix_hidden)
        return self.layer_norm(x[:, :, 1:])


@dataclass
class DraftingCriterionConfig(FairseqDataclass):
    """Arguments of the criterion."""

    label_smoothing: float = field(default=0.1, metadata={"help": "probability mass spread over the vocabulary"})
    autocast_bf16: bool = field(default=False, metadata={"help": "run the networks in bfloat16 autocast"})
    blocks: int = field(default=4, metadata={"help": "windows of each sentence"})


_LEFT_HIDDEN = 0.35
"""Share of slots trained without their left neighbour: the candidates are chosen before the neighbour is known."""
_SLOT_DECAY = 0.8
"""How much rarer each slot is trained than the one before it."""


@register_criterion("specmt_drafting", dataclass=DraftingCriterionConfig)
class DraftingCriterion(FairseqCriterion):
    """Cross-entropy of masked slots given the gold left neighbour, which is hidden from a share of them."""

    def __init__(self, task: Any, label_smoothing: float, autocast_bf16: bool, blocks: int) -> None:
        super().__init__(task)
        self.label_smoothing, self.autocast_bf16, self.blocks = label_smoothing, autocast_bf16, blocks

    def forward(
        self, model: DrafterModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """Returns the summed loss (nats), the number of slots that carry loss, and what to log."""
        target: Tensor = sample["target"]
        with forward_pass(target.device, self.autocast_bf16):
            windows = model.windows(sample, self._starts(target, model.training), self.padding_idx)
            revealed = self._glance(model, windows) if model.training and model.glancing_share > 0 else None
            states = model(windows, revealed)
            masked = (windows.gold != self.padding_idx) & (model.output.places[windows.gold] >= 0)
            if revealed is not None:
                masked = masked & ~revealed
            if model.training:
                masked = masked & self._sampled_slots(masked)
            features, weight = self._with_bigram(model, windows, states, masked)
        smoothing = self.label_smoothing if model.training else 0.0
        dtype = torch.bfloat16 if self.autocast_bf16 else torch.float32
        gold = model.output.places[windows.gold[masked]]
        loss = linear_cross_entropy(features.to(dtype), weight, gold, smoothing)
        slots = int(masked.sum())
        logged = {"loss": loss.detach(), "ntokens": slots, "nsentences": target.size(0), "sample_size": slots}
        return loss, slots, logged

    def _starts(self, target: Tensor, training: bool) -> Tensor:
        """Where windows begin, shape (batch, blocks): random in training, evenly spread in validation."""
        lengths = (target != self.padding_idx).sum(dim=1, keepdim=True)
        if training:
            places = torch.rand(target.size(0), self.blocks, device=target.device)
        else:
            places = (torch.arange(self.blocks, device=target.device) / self.blocks).expand(target.size(0), -1)
        return (places * lengths).long().clamp(max=lengths - 1)

    @staticmethod
    def _sampled_slots(masked: Tensor) -> Tensor:
        """A random choice of slots, the later the rarer: a slot counts only if all before it are accepted."""
        kept = _SLOT_DECAY ** torch.arange(masked.size(2), device=masked.device)
        return torch.rand(masked.shape, device=masked.device) < kept

    @torch.no_grad()
    def _glance(self, model: DrafterModel, windows: Windows) -> Tensor:
        """Reveal a random share of the slots that the model now gets wrong: that many, anywhere in the window."""
        predicted = functional.linear(model(windows), model.output_weight).argmax(dim=-1)
        valid = windows.gold != self.padding_idx
        wrong = ((predicted != model.output.places[windows.gold]) & valid).sum(dim=2, keepdim=True)
        odds = model.glancing_share * wrong / valid.sum(dim=2, keepdim=True).clamp(min=1)
        return (torch.rand(windows.gold.shape, device=odds.device) < odds) & valid

    def _with_bigram(
        self, model: DrafterModel, windows: Windows, states: Tensor, masked: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features and output matrix, both widened by the bigram term, of the masked slots."""
        left_ids = torch.cat([windows.last_ids[:, :, None], windows.gold[:, :, :-1]], dim=2)[masked]
        kept = states[masked]
        gate = model.bigram_gate(kept)
        if model.training:
            gate = gate * (torch.rand(len(gate), 1, device=gate.device) >= _LEFT_HIDDEN)
        features = torch.cat([kept, model.bigram_left(left_ids) * gate], dim=1)
        return features, torch.cat([model.output_weight, model.bigram_right.weight], dim=1)

    @classmethod
    def reduce_metrics(cls, logging_outputs: list[dict[str, Any]]) -> None:
        """Aggregate over workers: loss in bits per slot."""
        slots = sum(log["ntokens"] for log in logging_outputs)
        loss = sum(float(log["loss"]) for log in logging_outputs) / max(slots, 1) / math.log(2)
        metrics.log_scalar("loss", loss, slots, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """Sums over workers are enough."""
        return True
