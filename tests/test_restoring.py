"""A bundle's models as fairseq's checkpoints: nothing is lost, and what training would not make is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from specmt import BUNDLED_MODEL
from specmt.bundles.bundle import Bundle, load_bundle
from specmt.bundles.shortlist import seen_ids
from specmt.bundles.tensors import DRAFTER_OUTPUT
from specmt.bundles.weights import load_weights
from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, restoring
from specmt.text.vocabulary import UNK_ID
from specmt.training.config import DrafterConfig, OptimizerConfig
from specmt.training.earlier import Earlier

SIZE = load_bundle(BUNDLED_MODEL).architecture.vocabulary_size
DRAFTER = DrafterConfig(optimizer=OptimizerConfig(max_updates=1), layers=1, draft_length=10, vocabulary_size=3072)


@pytest.fixture(scope="module")
def bundled() -> Bundle:
    return load_bundle(BUNDLED_MODEL)


def test_a_pair_comes_back_from_its_checkpoints_to_the_bit(bundled: Bundle, tmp_path: Path) -> None:
    restoring.write_verifier(bundled, tmp_path / "verifier.pt")
    restoring.write_drafter(bundled, tmp_path / "drafter.pt")
    verifier, drafter = (checkpoints.load(tmp_path / name) for name in ("verifier.pt", "drafter.pt"))
    found = checkpoints.bundle_weights(verifier["model"], drafter["model"])
    said = seen_ids(Earlier(BUNDLED_MODEL).target_counts())
    found, architecture = checkpoints.limit_targets(found, checkpoints.pair_architecture(verifier, drafter), said)
    assert architecture == bundled.architecture
    weights = load_weights(bundled)
    assert found.keys() == weights.keys()
    rounded = weights.pop(f"{DRAFTER_OUTPUT}.weight")  # to 4 bits; in a checkpoint they are rows of the embeddings
    assert np.linalg.norm(found[f"{DRAFTER_OUTPUT}.weight"].numpy() - rounded) < 0.25 * np.linalg.norm(rounded)
    for name, array in weights.items():
        np.testing.assert_array_equal(found[name].numpy(), array, err_msg=name)


def test_tokens_that_are_added_begin_as_the_unknown_one(tmp_path: Path) -> None:
    same, grown = (
        checkpoints.load(Earlier(BUNDLED_MODEL).verifier(tmp_path, size))["model"] for size in (SIZE, SIZE + 8)
    )
    for name, weights in same.items():
        if len(weights) == SIZE:
            assert grown[name][:SIZE].equal(weights)
            assert grown[name][SIZE:].equal(weights[UNK_ID].expand(8, -1))
        else:
            assert grown[name].equal(weights)
    drafter = Earlier(BUNDLED_MODEL).drafter(tmp_path, DRAFTER, SIZE + 8)
    assert drafter is not None
    grown = checkpoints.load(drafter)["model"]
    assert grown["bigram_left.weight"][SIZE:].equal(grown["bigram_left.weight"][UNK_ID].expand(8, -1))
    assert len(grown["bigram_right.weight"]) == DRAFTER.vocabulary_size


def test_a_drafter_that_says_all_tokens_grows_on_both_sides(tmp_path: Path) -> None:
    weights = {name: torch.randn(16, 2) for name in ("bigram_left.weight", "bigram_right.weight", "slots.weight")}
    torch.save({"model": weights}, tmp_path / "drafter.pt")
    assert not checkpoints.write_grown(tmp_path / "drafter.pt", tmp_path / "grown.pt", 16)
    assert checkpoints.write_grown(tmp_path / "drafter.pt", tmp_path / "grown.pt", 24)
    grown = checkpoints.load(tmp_path / "grown.pt")["model"]
    assert [len(grown[name]) for name in weights] == [24, 24, 16]


def test_a_converted_verifier_is_refused(bundled: Bundle, tmp_path: Path) -> None:
    converted = replace(bundled, architecture=replace(bundled.architecture, activation="gelu"))
    with pytest.raises(TrainingError, match="is not of the kind that is trained here"):
        restoring.write_verifier(converted, tmp_path / "verifier.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("other", "goes_on"),
    [
        ({}, True),
        ({"layers": 2}, False),
        ({"draft_length": 9}, False),
        ({"bigram_rank": 8}, False),
        ({"vocabulary_size": 0}, False),
    ],
)
def test_a_drafter_goes_on_where_it_has_the_wanted_shape(tmp_path: Path, other: dict[str, int], goes_on: bool) -> None:
    initial = Earlier(BUNDLED_MODEL).drafter(tmp_path, replace(DRAFTER, **other), SIZE)
    assert initial == (tmp_path / "initial.pt" if goes_on else None)
    assert len(list(tmp_path.iterdir())) == goes_on
