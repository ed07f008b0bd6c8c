"""A pair that was made larger to be timed says what the small one says."""

from __future__ import annotations

import numpy as np
import torch
from pairs import random_weights
from widen import widened, widened_shape

from specmt.architecture import Architecture
from specmt.engines.torch_engine import TorchEngine
from specmt.vocabulary import EOS_ID

SMALL = Architecture(48, 16, 2, 24, 1, 2, 1, 4, 6, target_vocabulary_size=40, draft_vocabulary_size=32)


def test_a_widened_pair_drafts_and_verifies_as_the_small_one() -> None:
    weights = random_weights(SMALL, seed=3, projections=0.3)
    large = widened_shape(SMALL, decoder_layers=4, positions=32)
    assert (large.width, large.heads, large.decoder_layers) == (32, 4, 4)
    wide = widened(SMALL, {name: tensor.numpy() for name, tensor in weights.items()}, large)
    engines = TorchEngine(SMALL, weights), TorchEngine(large, {n: torch.from_numpy(w) for n, w in wide.items()})
    read, found = np.array([[EOS_ID, 12, 13, 14]]), []
    for engine in engines:
        rows = engine.encode([[7, 9, 11, 30, EOS_ID]])
        rows.drafts = True
        candidates = engine.verify(rows, read, beta=5)
        engine.commit(rows, np.array([4]))
        lattice = engine.draft(rows, np.array([15]), 4)
        found.append((candidates.ids, candidates.log_probs, lattice.ids, lattice.scores, lattice.transitions))
    for small, wide_found in zip(*found, strict=True):
        np.testing.assert_allclose(wide_found, small, atol=1e-4)
