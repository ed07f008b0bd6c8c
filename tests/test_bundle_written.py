"""Bundles that are written: whole or not at all, and what was written is what is loaded."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from pairs import BUNDLE_FILES, DEFAULTS, TINY, random_weights, write_tiny_bundle
from scripted import SENTENCES, tiny_tokenizer, tiny_vocabulary
from torch import Tensor

from specmt.bundle import Bundle, load_bundle, write_bundle
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import InputError
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.translator import Translator
from specmt.weights import load_weights


def test_a_bundle_comes_back_as_it_was_written(pristine: Path) -> None:
    found = load_bundle(pristine)
    digests = {name: hashlib.sha256((pristine / name).read_bytes()).hexdigest() for name in BUNDLE_FILES[1:]}
    assert found == Bundle(
        path=pristine,
        source_language="de",
        target_language="en",
        architecture=TINY,
        decoding=DEFAULTS,
        files=digests,
        training={"config": {"name": "tiny"}, "packages": {}},
        scores={"validation": {"bleu": 1.5}},
    )


def test_a_bundle_is_three_files(pristine: Path) -> None:
    assert sorted(path.name for path in pristine.iterdir()) == sorted(BUNDLE_FILES)


def rounded(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """As 8-bit integers keep them: 127 steps up to the largest number of each row of a matrix."""
    found = {}
    for name, tensor in weights.items():
        steps = tensor.abs().amax(dim=-1, keepdim=True) / 127
        found[name] = (tensor / steps).round() * steps if tensor.dim() == 2 else tensor
    return found


def test_weights_come_back_to_the_precision_in_which_they_are_stored(pristine: Path) -> None:
    expected, found = rounded(random_weights(TINY)), load_weights(load_bundle(pristine))
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], tensor.numpy(), rtol=1e-6, atol=0, err_msg=name)


def test_the_tokenizer_comes_back_byte_for_byte(pristine: Path) -> None:
    assert (pristine / "tokenizer.model").read_bytes() == tiny_tokenizer()
    assert load_bundle(pristine).vocabulary().pieces() == tiny_vocabulary().pieces()


def test_a_loaded_bundle_translates_as_the_weights_that_were_written(pristine: Path) -> None:
    by_hand = Translator(TorchEngine(TINY, rounded(random_weights(TINY))), tiny_vocabulary(), DEFAULTS)
    settings = DecodingSettings.from_defaults(DEFAULTS)
    expected = list(by_hand.translate(SENTENCES, settings, batch_size=4))
    found = list(load_translator(pristine).translate(SENTENCES, settings, batch_size=4))
    assert [(one.text, one.ids, one.iterations) for one in found] == [
        (one.text, one.ids, one.iterations) for one in expected
    ]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-4)
    assert len({one.ids for one in expected}) > 1


def test_an_interrupted_export_leaves_the_old_bundle(bundle: Path) -> None:
    def write_files(folder: Path) -> None:
        (folder / "tokenizer.model").write_bytes(b"half")
        raise KeyboardInterrupt

    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        write_bundle(
            bundle,
            languages=("de", "en"),
            architecture=TINY,
            decoding=DEFAULTS,
            write_files=write_files,
            training={},
            scores={},
        )
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert [path.name for path in bundle.parent.iterdir()] == ["model"]


def test_a_bundle_takes_the_place_of_an_older_one(bundle: Path) -> None:
    write_tiny_bundle(bundle, random_weights(TINY, seed=7))
    assert sorted(path.name for path in bundle.iterdir()) == sorted(BUNDLE_FILES)
    expected = rounded(random_weights(TINY, seed=7))["embeddings.weight"]
    np.testing.assert_allclose(load_weights(load_bundle(bundle))["embeddings.weight"], expected.numpy(), rtol=1e-6)


def test_a_bundle_behind_a_link_is_replaced_and_not_the_link(bundle: Path) -> None:
    link = bundle.parent / "link"
    link.symlink_to(bundle)
    write_tiny_bundle(link, random_weights(TINY, seed=7))
    assert link.is_symlink() and sorted(path.name for path in bundle.iterdir()) == sorted(BUNDLE_FILES)


def test_the_working_directory_is_not_replaced(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bundle)
    with pytest.raises(InputError, match=r"\.: the working directory is there and cannot be replaced"):
        write_tiny_bundle(Path(), random_weights(TINY, seed=7))
    assert load_bundle(bundle).files
