"""Which tokens a network can say. The product with the output matrix is a large part of a pass over a small model.

A joint vocabulary holds the pieces of both languages: about a third of them never stand on the target side. The
verifier's outputs leave those out, which changes no translation. The drafter's leave out rare ones too (Zhao et al.
2025, arXiv 2502.14856): a token that is never drafted costs an iteration where it is due, and every other one is
cheaper.
"""

from __future__ import annotations

import numpy as np

from specmt.arrays import IntArray
from specmt.text.vocabulary import BOS_ID, EOS_ID, MASK_ID, PAD_ID

BLOCK = 64
"""Output matrices have a multiple of so many rows, where the vocabulary is large enough."""


def seen_ids(counts: IntArray) -> IntArray:
    """Tokens that occur, and a few more to fill the last block; ascending.

    Args:
        counts: occurrences of each token on the target side, shape (vocabulary_size,).
    """
    seen = int((_ranked(counts) > 0).sum())
    return frequent_ids(counts, min(-(-seen // BLOCK) * BLOCK, len(counts) - len(never_said(counts))))


def never_said(counts: IntArray) -> tuple[int, ...]:
    """Tokens that mark no text. `[MASK]` never occurs; in the vocabulary of a converted model its id may be a word's.

    `<unk>` is none of them: where the verifier says it, a symbol is copied from the source.
    """
    return (BOS_ID, PAD_ID) if counts[MASK_ID] else (BOS_ID, PAD_ID, MASK_ID)


def frequent_ids(counts: IntArray, size: int) -> IntArray:
    """The `size` most frequent tokens, end-of-sentence always among them and none that is `never_said`; ascending."""
    return np.sort(np.argsort(-_ranked(counts), kind="stable")[:size])


def _ranked(counts: IntArray) -> IntArray:
    ranked = counts.astype(np.int64)
    ranked[list(never_said(counts))] = -1
    ranked[EOS_ID] = ranked.max() + 1
    return ranked
