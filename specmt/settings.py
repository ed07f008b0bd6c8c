"""How to decode, as options say it: checked once, and then only read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specmt.bundles.bundle import MOST_LENGTH_PENALTY, MOST_TAU, DecodingDefaults
from specmt.choices import StrategyName
from specmt.engines.base import AnyEngine
from specmt.errors import UsageError

BATCH_SIZE = 32
"""Lines that are decoded at a time, unless another number is asked for."""
_MOST_REPLAYED = 16_384
"""Positions of a pass of fixed shape: more gain nothing, and such a pass takes memory and cannot be interrupted."""
MOST_BEAM = 1000
"""Hypotheses of a sentence; more are of no use, and with so many a step takes half a second already."""


@dataclass(frozen=True)
class DecodingSettings:
    """How to decode. `strategy` is `spec`, `replay` or `ar`; `beam` > 1 and `n_best` need `ar`."""

    strategy: str
    draft_length: int
    beta: int
    tau: float
    beam: int
    length_penalty: float
    n_best: int = 1
    speculated_rows: int | None = None
    """The most rows in flight with which strict speculation drafts; with more it takes plain steps. None: any."""
    trace: bool = False
    """Keep each iteration's draft and candidates."""
    split: bool = True
    """Translate the sentences of a line one by one, and split what is longer than `max_source_tokens`."""
    max_source_tokens: int | None = None
    """Of a segment, or without `split` of a line, which is an error if longer; None: what the model was trained on."""
    guards: bool = True
    """End translations that repeat themselves, copy what the model does not know (`text.guards`), read capitals, and
    end as the source does (`text.punctuation`)."""
    scored: bool = True
    """Whether scores are asked for; without, `ar` and strict `spec` may leave them out (NaN), which takes less time."""
    align: bool = False
    """Find the source word of each target word."""
    reproducible: bool = False
    """Whether no translation depends on what is decoded beside it. `ar` then is `replay`, where it is not so anyway."""
    replay_window: int = 16
    """Tokens of a row that are replayed at a time."""
    replay_group: int = 8
    """Rows of every pass of fixed shape."""
    in_flight: bool = True
    """Whether new sentences enter while others are being decoded."""

    @classmethod
    def from_defaults(cls, defaults: DecodingDefaults) -> DecodingSettings:
        """`spec` as the bundle's manifest has it, strict or relaxed."""
        relaxed = cls.relaxed(defaults)
        return relaxed.strict() if defaults.strict else relaxed

    @classmethod
    def relaxed(cls, defaults: DecodingDefaults) -> DecodingSettings:
        """Relaxed `spec` with the manifest's beta and tau."""
        return cls("spec", defaults.draft_length, defaults.beta, defaults.tau, 1, defaults.length_penalty)

    def strict(self) -> DecodingSettings:
        """The same with beta = 1: the very tokens of `ar` greedy."""
        return replace(self, beta=1)

    @property
    def always_reproducible(self) -> bool:
        """Whether every line is decoded reproducibly, asked or not."""
        return self.reproducible or self.strategy == "replay"

    def checked(self, engine: AnyEngine) -> DecodingSettings:
        """These settings, if they make sense.

        Raises:
            UsageError: settings that contradict one another or that the engine cannot do.
        """
        self._check_ranges()
        if self.reproducible and self.beam > 1:
            raise UsageError("--reproducible: not with --beam")
        if self.strategy != "ar" and (self.beam > 1 or self.n_best > 1):
            raise UsageError(
                "--beam and --n-best need --strategy ar: speculation and replay keep one hypothesis a sentence"
            )
        if self.n_best > self.beam:
            raise UsageError(f"--n-best {self.n_best} needs --beam {self.n_best} or more")
        if self.strategy == "spec" and not engine.max_draft_length:
            raise UsageError("this model has no drafter: it decodes with --strategy ar or replay")
        if self.strategy == "spec" and not 1 <= self.draft_length <= engine.max_draft_length:
            raise UsageError(f"--draft-length: this model drafts 1 to {engine.max_draft_length} tokens")
        return self

    def _check_ranges(self) -> None:
        """Raise a `UsageError` for a value that makes no sense by itself."""
        if self.strategy not in set(StrategyName):
            raise UsageError(f"--strategy: {self.strategy!r} is none of {', '.join(StrategyName)}")
        if min(self.replay_window, self.replay_group) < 1:
            raise UsageError("--replay-window and --replay-group are at least 1")
        if self.replay_window * self.replay_group > _MOST_REPLAYED:
            raise UsageError(f"--replay-window times --replay-group: at most {_MOST_REPLAYED:,} positions a pass")
        if min(self.beta, self.n_best) < 1:
            raise UsageError("--beta and --n-best are at least 1")
        if not 1 <= self.beam <= MOST_BEAM:
            raise UsageError(f"--beam: {self.beam} is not from 1 to {MOST_BEAM:,}")
        if not 0 <= self.tau <= MOST_TAU:
            raise UsageError(f"--tau: {self.tau} is not from 0 to {MOST_TAU:,.0f} nats")
        if self.max_source_tokens is not None and self.max_source_tokens < 1:
            raise UsageError("--max-source-tokens is at least 1")
        if not abs(self.length_penalty) <= MOST_LENGTH_PENALTY:
            raise UsageError(
                f"--length-penalty: {self.length_penalty} is not from -{MOST_LENGTH_PENALTY} to {MOST_LENGTH_PENALTY}"
            )
