"""The interface of an engine: encode, draft, verify, commit, and the rows whose caches it keeps.

A *row* is one target sequence being decoded. For each row an engine keeps the encoder's output, and keys and values
of the target tokens that the verifier has read. `lengths` counts the tokens that are committed; what was read beyond
is forgotten by not being committed, so rolling back costs nothing.

Every array that crosses this interface is numpy: ids int64, log-probabilities float32 (nats). Decoding by whole
iterations (`Iterating`) needs none, and so need not import numpy, which takes longer than a short translation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from specmt.arrays import FloatArray, IntArray

LATTICE_WIDTH = 16
"""Candidates a slot among which neighbours are reconciled."""


@dataclass(frozen=True)
class Candidates:
    """The verifier's most probable tokens at each of T positions, best first.

    `ids`: shape (batch, T, beta); `log_probs`: same shape, nats. Column t holds what may follow the t-th token given.
    """

    ids: IntArray
    log_probs: FloatArray


@dataclass(frozen=True)
class Lattice:
    """The drafter's most probable tokens for each slot, and how well neighbours go together.

    `ids`: shape (batch, draft_length, width), best first; `scores`: same shape, unnormalised; `transitions`: shape
    (batch, draft_length, width, width), what token [c] gains in slot j after token [p] of slot j-1 (in slot 0, whose
    left neighbour is the last verified token, every [p] says the same).
    """

    ids: IntArray
    scores: FloatArray
    transitions: FloatArray


@dataclass(frozen=True)
class Speculation:
    """A draft, shape (batch, draft_length), and the verifier's candidates for its slots and for what follows them."""

    draft: IntArray
    candidates: Candidates


class Size(NamedTuple):
    """Positions of source and target for which arrays have room."""

    source: int
    target: int


class Rows(Protocol):
    """The state of a batch of rows; made by `Engine.encode`, understood only by that engine."""

    @property
    def lengths(self) -> IntArray:
        """Committed target tokens of each row, shape (batch,)."""


R = TypeVar("R", bound=Rows)
R_contra = TypeVar("R_contra", bound=Rows, contravariant=True)


class Engine(Protocol[R]):
    """Runs a pair of models. Methods take the rows that the same engine made."""

    @property
    def name(self) -> str:
        """How the engine is called in reports, with device and precision."""

    @property
    def max_draft_length(self) -> int:
        """The most slots that the drafter was trained to fill."""

    @property
    def row_exact(self) -> bool:
        """Whether a row's results are the same bits in any batch, in any window and beside any padding."""

    @property
    def speculated_rows(self) -> int | None:
        """The most rows in flight with which drafting is about as fast as plain steps, where that is known; None: any.

        What `specmt tune` measures goes before.
        """

    @property
    def strict_draft_length(self) -> int | None:
        """The most tokens that are worth drafting under strict, where that is known; None: as many as the model says.

        What `specmt tune` measures goes before.
        """

    def encode(self, sources: Sequence[Sequence[int]]) -> R:
        """Run the encoder over sources (ids with end-of-sentence, no padding) and start a row for each."""

    def draft(self, rows: R, last_ids: IntArray, draft_length: int) -> Lattice:
        """Fill `draft_length` `[MASK]` slots after the verified prefix in one pass.

        What a drafter reads of the prefix is kept from a row's first draft on: a row that is ever to be drafted for is
        drafted for from its first token.

        Args:
            last_ids: the last verified token of each row, not read by the verifier yet, shape (batch,).
        """

    def verify(self, rows: R, token_ids: IntArray, beta: int) -> Candidates:
        """Read T more tokens per row, after the committed ones, in one pass; nothing is committed.

        Args:
            token_ids: shape (batch, T), no padding.
            beta: candidates wanted at each position; there are fewer where the verifier says fewer tokens.
        """

    def commit(self, rows: R, counts: IntArray) -> None:
        """Keep the first `counts` (shape (batch,)) tokens of the last `verify`; forget the rest."""

    def select(self, rows: R, indices: Sequence[int] | IntArray) -> R:
        """The rows at `indices`, in that order; an index may repeat. They may be the same objects: `rows` is spent."""

    def reorder(self, rows: R, indices: IntArray) -> R:
        """As `select`, where each row is replaced by a row of the same source: only the target side moves."""

    def join(self, rows: R, others: R) -> R:
        """Both batches as one, `others` last."""

    # -- fixed shapes: what is computed for a row depends on that row alone

    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> R:
        """As `encode`, in passes of exactly `group` rows whose length follows from each source's own length."""

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        """The size of the arrays in which a row of so many tokens is computed; it follows from the row alone."""

    def gather(self, rows: R, indices: IntArray, lengths: IntArray, size: Size) -> R:
        """Copies of rows of `encode_fixed` in arrays of exactly `size`; passes over them have that shape.

        Where no shape changes a bit, they may be the rows themselves. They stand until the same thread's next `gather`.

        Args:
            indices: of the rows; one may repeat, to fill a group.
            lengths: how many of a row's tokens count as read, shape (len(indices),).
        """

    def scatter(self, rows: R, indices: IntArray, group: R, counts: IntArray) -> None:
        """Overwrite caches by those of a group's first rows.

        Args:
            indices: of the rows that `group` holds copies of, without what fills it up.
            counts: tokens of the group's last `verify` that are taken, behind the `lengths` that it was made with.
        """

    def keep(self, rows: R, lengths: IntArray) -> None:
        """Let the first `lengths` (shape (batch,)) tokens of each row count as read; forget the rest."""


AnyEngine = Engine[Any]


class Fused(Protocol[R_contra]):
    """`draft_and_verify` of an engine that drafts, walks and verifies in one call; others have none such.

    It drafts as `Engine.draft` does, then reads the last verified token and the draft as `Engine.verify` does.
    """

    def __call__(self, rows: R_contra, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
        """Run one iteration's passes; see `drafting.draft_and_verify`, which composes it for the other engines."""


class Run(NamedTuple):
    """What iterations emitted, an entry a row."""

    accepted: list[list[int]]
    """How many tokens were accepted in each iteration that the row took part in, oldest first; it emitted one more."""
    ids: list[list[int]]
    """All that they emitted, one behind the other."""
    log_probs: list[list[float]]
    """Nats, one an id; NaN where they were not asked for."""


class Iterating(Protocol[R_contra]):
    """`iterate` of an engine that runs whole iterations on its own; others have none such."""

    def __call__(
        self,
        rows: R_contra,
        last_ids: Sequence[int],
        room: Sequence[int],
        draft_length: int,
        beta: int,
        tau: float,
        ends: int = 1,
        scored: bool = True,
    ) -> Run:
        """Iterate and commit until `ends` rows have ended: said end-of-sentence, or as much as they have room for.

        Each iteration is one of `loops.Speculative`, or with a draft length of 0 of `loops.Greedy`, of the rows
        that have not ended. It may return earlier, after at least one.

        Args:
            last_ids: the last verified token of each row, not read by the verifier yet.
            room: tokens that each row may still take; one without any takes no part.
            scored: whether log-probabilities are asked for; with beta = 1 they may be NaN otherwise.
        """


class Attending(Protocol):
    """`attention` of an engine that gives it; others have none such, and `alignment.Aligner` computes it."""

    def __call__(self, source_ids: Sequence[int], token_ids: Sequence[int], layer: int) -> FloatArray:
        """What each token that is read attends to of the source in a layer of the verifier's decoder.

        Args:
            source_ids: with end-of-sentence.
            token_ids: what stands before each token of the target.

        Returns:
            weights, averaged over heads, shape (target tokens, source tokens); rows sum to 1.
        """


def rounded_up(count: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-count // step) * step


def step(engine: Engine[R], rows: R, last_ids: IntArray, beta: int) -> Candidates:
    """Autoregressive step: read one token per row and commit it. Candidates have shape (batch, 1, beta)."""
    import numpy as np

    candidates = engine.verify(rows, last_ids[:, None], beta)
    engine.commit(rows, np.ones(len(last_ids), dtype=np.int64))
    return candidates
