"""Bundles that are written: whole or not at all, and what was written is what is loaded."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pairs import BUNDLE_FILES, DEFAULTS, TINY, random_weights, write_tiny_bundle
from scripted import SENTENCES, tiny_tokenizer, tiny_vocabulary
from torch import Tensor

from specmt.bundles.bundle import RANGES, Bundle, load_bundle, write_bundle
from specmt.bundles.weights import load_weights
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import InputError
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.translator import Translator


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


def test_a_digest_is_of_contents_wherever_they_stand(pristine: Path, bundle: Path) -> None:
    found = load_bundle(pristine)
    assert load_bundle(bundle).digest == found.digest
    assert replace(found, files=dict(reversed(found.files.items()))).digest == found.digest
    swapped = dict(zip(found.files, reversed(found.files.values()), strict=True))
    assert replace(found, files=swapped).digest != found.digest
    write_tiny_bundle(bundle, random_weights(TINY, seed=7))
    assert load_bundle(bundle).digest != found.digest


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


ANOTHER = {"config": {"name": "another"}}
"""How what `written_anew` writes was trained."""


def written_anew(bundle: Path, pristine: Path, more: Mapping[str, str]) -> None:
    """Write `bundle` again, with the files of `pristine` and `more` (name: content); what lies beside them may stay."""

    def write_files(folder: Path) -> None:
        for name in BUNDLE_FILES[1:]:
            shutil.copyfile(pristine / name, folder / name)
        for name, content in more.items():
            (folder / name).write_text(content)

    rewrite(bundle, write_files, others_stay=True)


def rewrite(bundle: Path, write_files: Callable[[Path], None], others_stay: bool = False) -> None:
    """Write a tiny pair's bundle."""
    write_bundle(
        bundle,
        languages=("de", "en"),
        architecture=TINY,
        decoding=DEFAULTS,
        write_files=write_files,
        training=ANOTHER,
        scores={},
        others_stay=others_stay,
    )


def test_an_interrupted_export_leaves_the_old_bundle(bundle: Path) -> None:
    def write_files(folder: Path) -> None:
        (folder / "tokenizer.model").write_bytes(b"half")
        raise KeyboardInterrupt

    before = {path.name: path.read_bytes() for path in bundle.iterdir()}
    with pytest.raises(KeyboardInterrupt):
        rewrite(bundle, write_files)
    assert {path.name: path.read_bytes() for path in bundle.iterdir()} == before
    assert [path.name for path in bundle.parent.iterdir()] == ["model"]


def test_a_bundle_takes_the_place_of_an_older_one(bundle: Path) -> None:
    write_tiny_bundle(bundle, random_weights(TINY, seed=7))
    assert sorted(path.name for path in bundle.iterdir()) == sorted(BUNDLE_FILES)
    expected = rounded(random_weights(TINY, seed=7))["embeddings.weight"]
    np.testing.assert_allclose(load_weights(load_bundle(bundle))["embeddings.weight"], expected.numpy(), rtol=1e-6)


def test_what_lies_beside_an_older_bundles_files_is_kept_where_it_may_stay(pristine: Path, bundle: Path) -> None:
    (bundle / "README.md").write_bytes(b"a model card\r\n")
    (bundle / "link").symlink_to("README.md")
    (bundle / "to be mounted").symlink_to("/nowhere")
    (bundle / "elsewhere").symlink_to("plots")
    (bundle / "plots" / "old").mkdir(parents=True)
    (bundle / "plots" / "loss.svg").write_bytes(b"<svg/>")
    (bundle / "plots" / "last").symlink_to("loss.svg")

    written_anew(bundle, pristine, {})
    found = load_bundle(bundle)
    assert found.training == ANOTHER
    assert found.files == load_bundle(pristine).files, "what lies beside them is none of the bundle's"
    others = {path.name for path in bundle.iterdir()} - {*BUNDLE_FILES}
    assert others == {"README.md", "link", "to be mounted", "elsewhere", "plots"}
    assert (bundle / "README.md").read_bytes() == b"a model card\r\n"
    assert (bundle / "link").readlink() == Path("README.md")
    assert (bundle / "to be mounted").readlink() == Path("/nowhere")
    assert (bundle / "elsewhere").readlink() == Path("plots")
    assert sorted(path.name for path in (bundle / "plots").iterdir()) == ["last", "loss.svg", "old"]
    assert (bundle / "plots" / "loss.svg").read_bytes() == b"<svg/>"
    assert (bundle / "plots" / "last").readlink() == Path("loss.svg")


def test_what_has_the_name_of_a_file_that_is_written_gives_way(pristine: Path, bundle: Path) -> None:
    (bundle / RANGES).write_text("none of the older bundle's files")

    written_anew(bundle, pristine, {RANGES: "{}"})
    assert set(load_bundle(bundle).files) == {*BUNDLE_FILES[1:], RANGES}
    assert (bundle / RANGES).read_text() == "{}"


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
