"""A pair of tiny random networks in the torch engine, and what is read of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.engines.base import Candidates, Lattice
from specmt.engines.torch_engine import TorchEngine, TorchRows
from specmt.text.vocabulary import EOS_ID, MASK_ID

PAIR = Architecture(
    vocabulary_size=24,
    width=32,
    heads=4,
    feed_forward_width=64,
    encoder_layers=2,
    decoder_layers=2,
    drafter_layers=2,
    draft_length=6,
    bigram_rank=8,
)
SEED = 5
"""With these weights some sentences end early, and greedy's choices are never closer than 0.003 nats."""
CLOSE = 1e-4
"""Nats by which sums in another order may differ with weights as large as these."""

REAL_IDS = np.arange(MASK_ID + 1, PAIR.vocabulary_size)


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    """Sources of 2 to 12 tokens."""
    rng = np.random.default_rng(seed)
    return [[*rng.choice(REAL_IDS, rng.integers(1, 12)).tolist(), EOS_ID] for _ in range(count)]


def targets(*shape: int, seed: int = 1) -> IntArray:
    """Target ids, each row starting from end-of-sentence."""
    ids = np.random.default_rng(seed).choice(REAL_IDS, shape)
    ids[:, 0] = EOS_ID
    return ids.astype(np.int64)


def table(candidates: Candidates) -> np.ndarray:
    """Log-probabilities of the whole vocabulary, shape (batch, T, vocabulary size)."""
    full = np.empty((*candidates.ids.shape[:2], PAIR.vocabulary_size), dtype=np.float32)
    np.put_along_axis(full, candidates.ids, candidates.log_probs, axis=2)
    return full


def read(engine: TorchEngine, rows: TorchRows, ids: IntArray, keep: Sequence[int] | int) -> np.ndarray:
    """Verify, commit the first `keep` tokens of each row, and give the whole table."""
    candidates = engine.verify(rows, ids, PAIR.vocabulary_size)
    engine.commit(rows, np.broadcast_to(np.array(keep, dtype=np.int64), len(ids)))
    return table(candidates)


def assert_close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=CLOSE)


def assert_same_lattice(found: Lattice, expected: Lattice) -> None:
    assert found.ids.tolist() == expected.ids.tolist()
    assert_close(found.scores, expected.scores)
    assert_close(found.transitions, expected.transitions)


def drafted(engine: TorchEngine, source: Sequence[int], read: IntArray, start: int, draft_length: int) -> Lattice:
    """What the engine drafts behind the first `start` tokens of `read`, shape (1, T), and the token after them."""
    rows = engine.encode([source])
    rows.drafts = True
    if start:
        engine.verify(rows, read[:, :start], beta=1)
        engine.commit(rows, np.array([start]))
    return engine.draft(rows, read[:, start], draft_length)
