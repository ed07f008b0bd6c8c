"""A pair that was made larger to be timed says what the small one says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pairs import random_weights
from widen import trainable, widened, widened_shape

from specmt.bundles.architecture import Architecture
from specmt.bundles.positions import position_table
from specmt.engines import torch_networks
from specmt.engines.torch_engine import TorchEngine
from specmt.text.vocabulary import EOS_ID

SMALL = Architecture(48, 16, 2, 24, 1, 2, 1, 4, 6, target_vocabulary_size=40, draft_vocabulary_size=32)


@pytest.mark.parametrize("to_train", [False, True])
def test_a_widened_pair_drafts_and_verifies_as_the_small_one(monkeypatch: pytest.MonkeyPatch, to_train: bool) -> None:
    weights = random_weights(SMALL, seed=3, projections=0.3)
    large = widened_shape(SMALL, decoder_layers=4, positions=32)
    assert (large.width, large.heads, large.decoder_layers) == (32, 4, 4)
    wide = widened(SMALL, {name: tensor.numpy() for name, tensor in weights.items()}, large)
    if to_train:  # without positions, for which it has no table
        monkeypatch.setattr(torch_networks, "position_table", lambda count, width, learned: torch.zeros(count, width))
        large, wide = replace(large, source_positions=0, target_positions=0), trainable(wide)
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


def test_no_two_units_of_a_trainable_pair_are_read_alike() -> None:
    large = widened_shape(SMALL, decoder_layers=2, positions=32)
    small = {name: tensor.numpy() for name, tensor in random_weights(SMALL, seed=3, projections=0.3).items()}
    for name, weight in trainable(widened(SMALL, small, large)).items():
        if any(part in name for part in ("_proj.weight", "fc1.weight", "fc2.weight")):
            assert len(np.unique(weight, axis=1).T) == weight.shape[1], name


def test_halves_of_a_unit_lie_beside_each_other_as_nearly_equal_sinusoids_do() -> None:
    small, large = position_table(20, 256), position_table(20, 512)
    assert np.abs(np.repeat(small, 2, axis=1) - large)[:, ::2].max() < 0.05
