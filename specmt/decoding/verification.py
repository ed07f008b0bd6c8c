"""Spec-Verify: which drafted tokens the verifier accepts, and what an iteration emits. Pure functions; no model.

Xia et al., "Speculative Decoding: Exploiting Speculative Execution for Accelerating Seq2seq Generation", Findings of
EMNLP 2023 (arXiv 2203.16487). With beta = 1 the emitted tokens are those of autoregressive greedy decoding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specmt.arrays import FloatArray, IntArray
from specmt.engines.base import Candidates

BLANK_ID = -1
"""`[BLANK]`: an emptied place in a candidate table. No vocabulary item, so it matches nothing."""


@dataclass(frozen=True)
class Verdict:
    """What one iteration emits.

    `accepted`: accepted draft tokens of each row, shape (batch,), 0 to draft_length. `emitted_ids`, `log_probs` (nats):
    shape (batch, draft_length + 1); the first `accepted + 1` are emitted, the last of them recovered or bonus, and
    what follows has no meaning.
    """

    accepted: IntArray
    emitted_ids: IntArray
    log_probs: FloatArray


def blank(candidates: Candidates, tau: float) -> Candidates:
    """Replace candidates more than `tau` nats below the best of their position by `[BLANK]`, log-probability -inf."""
    if candidates.ids.shape[2] == 1:
        return candidates
    too_far = candidates.log_probs < candidates.log_probs[:, :, :1] - tau
    return Candidates(
        np.where(too_far, BLANK_ID, candidates.ids), np.where(too_far, np.float32(-np.inf), candidates.log_probs)
    )


def check(draft: IntArray, candidates: Candidates) -> Verdict:
    """Accept draft tokens from the left while each is among its position's candidates.

    Args:
        draft: shape (batch, draft_length).
        candidates: after `blank`, for draft_length + 1 positions: each slot's and the one after the last.
    """
    draft_length = draft.shape[1]
    matches = candidates.ids[:, :draft_length] == draft[:, :, None]
    accepted = np.logical_and.accumulate(matches.any(axis=2), axis=1).sum(axis=1)
    emitted_ids, log_probs = candidates.ids[:, :, 0], candidates.log_probs[:, :, 0]
    if candidates.ids.shape[2] > 1:  # else an accepted token is the best candidate itself
        emitted_ids, log_probs = emitted_ids.copy(), log_probs.copy()
        kept = np.arange(draft_length) < accepted[:, None]
        draft_log_probs = np.where(matches, candidates.log_probs[:, :draft_length], 0).sum(axis=2)
        np.copyto(emitted_ids[:, :draft_length], draft, where=kept)
        np.copyto(log_probs[:, :draft_length], draft_log_probs, where=kept)
    return Verdict(accepted, emitted_ids, log_probs)
