"""Sentences on their way: what is asked for, what each iteration gave, and what a target sequence has become."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from specmt.text.guards import allowed_repeats, runaway_length
from specmt.text.vocabulary import EOS_ID


@dataclass(frozen=True)
class Request:
    """A sentence to decode. `source_ids` end with end-of-sentence; `max_tokens` counts it on the target side."""

    index: int
    source_ids: Sequence[int]
    max_tokens: int
    reproducible: bool = False
    """Whether the result must not depend on what else is decoded; see `replay.py`."""
    source_repeats: int | None = None
    """Times that a phrase stands in a row in the source: what the target may do too (`text.guards`); None: any."""


class Iteration(NamedTuple):
    """One iteration of one row. `accepted` draft tokens of `drafted`; `emitted` = accepted + recovered or bonus.

    Where an end-of-sentence or the length limit falls inside, what follows it counts neither as drafted nor as
    accepted. `draft` (ids) and `candidates` (log-probabilities in nats) are kept for the trace only.
    """

    drafted: int
    accepted: int
    emitted: tuple[int, ...]
    draft: tuple[int, ...] = ()
    candidates: tuple[tuple[tuple[int, float], ...], ...] = ()


Trace = tuple[tuple[int, ...], tuple[tuple[tuple[int, float], ...], ...]]
"""An iteration's draft and candidates."""
NO_TRACE: Trace = ((), ())


@dataclass
class ReplayCounts:
    """What replays did to one sentence."""

    replays: int = 0
    """Passes that replayed tokens of it."""
    mismatches: int = 0
    """Replays that found another token than the fast path had; it was replaced."""
    rollbacks: int = 0
    """Mismatches behind which tokens had to be forgotten."""
    recomputed: int = 0
    """Tokens forgotten behind mismatches."""

    @classmethod
    def total(cls, counts: Iterable[ReplayCounts]) -> ReplayCounts | None:
        """The sum, or None of none."""
        rows = [(one.replays, one.mismatches, one.rollbacks, one.recomputed) for one in counts]
        return cls(*map(sum, zip(*rows, strict=True))) if rows else None


@dataclass
class Hypothesis:
    """A target sequence as far as it is verified. `ids` end with end-of-sentence once it is complete."""

    request: Request
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    """Sum over tokens, nats."""
    iterations: list[Iteration] = field(default_factory=list)
    token_log_probs: list[float] = field(default_factory=list)
    """Nats, one per token."""
    runaway: bool = False
    """Whether the row was ended for repeating itself."""
    pending: list[int] = field(default_factory=list)
    """Tokens decoded ahead that no replay has verified; they follow `ids`."""
    waited: int = 0
    """Iterations that a replay has been due."""
    replay: ReplayCounts = field(default_factory=ReplayCounts)

    @property
    def last_id(self) -> int:
        """The last token, verified or pending; decoding starts from end-of-sentence, as fairseq trains it."""
        return (self.pending or self.ids or [EOS_ID])[-1]

    @property
    def finished(self) -> bool:
        """Whether end-of-sentence or the length limit is reached, or the row repeats itself, all of it verified."""
        return self.ended and not self.pending

    @property
    def ended(self) -> bool:
        """Whether the row goes no further, pending tokens counted."""
        length = len(self.ids) + len(self.pending)
        return length > 0 and (self.runaway or self.last_id == EOS_ID or length >= self.request.max_tokens)

    def emit(
        self,
        draft_length: int,
        accepted: Sequence[int],
        ids: Sequence[int],
        log_probs: Sequence[float],
        trace: Trace = NO_TRACE,
    ) -> None:
        """Take what iterations emitted, as far as the row goes, and record them.

        Args:
            accepted: tokens accepted in each; it emitted one more. Without drafts it is not looked at.
            ids: emitted by all, one behind the other.
        """
        taken = ids[: self.extend(ids, log_probs)]
        if not draft_length:
            self.iterations += [Iteration(0, 0, (id_,)) for id_ in taken]
            return
        begin = 0
        for count in accepted:
            emitted = taken[begin : begin + count + 1]
            if not emitted:
                return
            begin += len(emitted)
            ended = begin == len(taken) and self.finished
            drafted = min(len(emitted), draft_length) if ended else draft_length
            self.iterations.append(Iteration(drafted, min(count, len(emitted)), tuple(emitted), *trace))

    def extend(self, ids: Sequence[int], log_probs: Sequence[float]) -> int:
        """Append verified tokens up to the first end-of-sentence, the length limit or a runaway; how many were taken.

        Sums and guards do not depend on how tokens are spread over calls.
        """
        begin, request = len(self.ids), self.request
        end = ids.index(EOS_ID) + 1 if EOS_ID in ids else len(ids)
        self.ids += ids[: min(end, request.max_tokens - begin)]
        if request.source_repeats is not None:
            length = runaway_length(self.ids, begin, allowed_repeats(request.source_repeats))
            if length is not None:
                self.runaway = True
                del self.ids[length:]
        taken = len(self.ids) - begin
        for log_prob in log_probs[:taken]:  # not `sum`, which some versions of Python compensate
            self.log_prob += log_prob
        self.token_log_probs += log_probs[:taken]
        return taken


def length_normalised(log_prob: float, tokens: int, length_penalty: float) -> float:
    """A hypothesis' score: its log-probability (nats) over its length in tokens to the power of the penalty."""
    return float(log_prob / max(tokens, 1) ** length_penalty)
