"""Bundles that are read: whatever is not as it was written is one line that names the file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from pairs import BUNDLE_FILES, DEFAULTS, TINY, random_weights, write_tiny_bundle
from safetensors.torch import load, save
from torch import Tensor

from specmt.bundles.bundle import TOKENIZER, load_bundle
from specmt.errors import BundleError
from specmt.loading import load_translator
from specmt.translator import Translator


def load_all(path: Path) -> Translator:
    """Everything that is checked: manifest, digests, tokenizer, weights."""
    return load_translator(path)


def message(path: Path) -> str:
    """The error that loading gives, without the bundle's path, which it starts with."""
    with pytest.raises(BundleError) as caught:
        load_all(path)
    text = str(caught.value)
    assert text.startswith(f"{path}")
    assert "\n" not in text
    return text.removeprefix(f"{path}").removeprefix("/").removeprefix(": ")


def signed(manifest: dict[str, Any]) -> dict[str, Any]:
    """With the digest that fits: as somebody who means it would write it."""
    entries = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    canonical = json.dumps(entries, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
    return {**entries, "manifest_sha256": hashlib.sha256(canonical).hexdigest()}


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and sign it."""
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    change(manifest)
    (path / "manifest.json").write_text(json.dumps(signed(manifest)), encoding="utf-8")


# -- what is refused


def test_no_such_folder(tmp_path: Path) -> None:
    assert message(tmp_path / "none") == "no such model directory"


def test_a_file_is_no_bundle(bundle: Path) -> None:
    assert message(bundle / "tokenizer.model") == "no such model directory"


def test_a_folder_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    assert message(tmp_path) == "no manifest.json; not a model directory"


@pytest.mark.parametrize("name", BUNDLE_FILES[1:])
def test_a_missing_file_is_named(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    assert message(bundle) == f"{name}: missing; copy the model again"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(bundle: Path) -> None:
    (bundle / TOKENIZER).unlink()
    os.mkfifo(bundle / TOKENIZER)
    assert message(bundle) == f"{TOKENIZER}: a pipe, not a file"


@pytest.mark.parametrize("name", BUNDLE_FILES[1:])
def test_a_folder_in_the_place_of_a_file_is_named(bundle: Path, name: str) -> None:
    (bundle / name).unlink()
    (bundle / name).mkdir()
    assert message(bundle).startswith(f"{name}: cannot be read: ")


def flips() -> Iterator[tuple[str, float]]:
    for name in BUNDLE_FILES:
        for share in (0.0, 0.1, 0.5, 0.9, 1.0):
            yield name, share


@pytest.mark.parametrize(("name", "share"), list(flips()))
def test_one_flipped_bit_in_a_file_is_found(bundle: Path, name: str, share: float) -> None:
    data = bytearray((bundle / name).read_bytes())
    place = int(share * (len(data) - 1))
    # The manifest's last byte is its line end, which says nothing.
    place -= name == "manifest.json" and share == 1.0
    data[place] ^= 1
    (bundle / name).write_bytes(data)
    assert message(bundle).startswith(f"{name}: ")


@pytest.mark.parametrize("name", BUNDLE_FILES)
@pytest.mark.parametrize("kept", [0, 1, 100])
def test_a_file_cut_short_is_found(bundle: Path, name: str, kept: int) -> None:
    (bundle / name).write_bytes((bundle / name).read_bytes()[:kept])
    assert message(bundle).startswith(f"{name}: ")


@pytest.mark.parametrize("name", BUNDLE_FILES[1:])
def test_bytes_appended_to_a_file_are_found(bundle: Path, name: str) -> None:
    with (bundle / name).open("ab") as stream:
        stream.write(b"\0")
    assert message(bundle) == f"{name}: altered or damaged (SHA-256 differs from the manifest); copy the model again"


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"no json", b"\xff\xfe", b"[" * 100_000, b'{"format_version": 1', b"9" * 5000, b"\x00"],
    ids=["empty", "open", "text", "not UTF-8", "deep", "cut", "a long number", "NUL"],
)
def test_a_manifest_that_is_no_json_is_damaged(bundle: Path, data: bytes) -> None:
    (bundle / "manifest.json").write_bytes(data)
    assert message(bundle) == "manifest.json: damaged: not JSON"


@pytest.mark.parametrize("data", [b"[]", b"null", b'"format_version"', b"1"])
def test_a_manifest_that_is_no_object_is_damaged(bundle: Path, data: bytes) -> None:
    (bundle / "manifest.json").write_bytes(data)
    assert message(bundle) == "manifest.json: damaged: not an object"


@pytest.mark.parametrize("version", [3, 10**30])
def test_a_newer_format_asks_for_a_newer_program(bundle: Path, version: int) -> None:
    rewrite(bundle, lambda manifest: manifest.update(format_version=version))
    assert message(bundle) == f"format {version} is newer than this program's 2; upgrade specmt"


@pytest.mark.parametrize("version", [0, -1, "1", None, [1], 1.5])
def test_a_format_that_is_none_is_refused(bundle: Path, version: object) -> None:
    rewrite(bundle, lambda manifest: manifest.update(format_version=version))
    assert message(bundle).startswith("manifest.json: ")


KEYS = ("source_language", "target_language", "architecture", "decoding", "files", "training", "scores")


@pytest.mark.parametrize("key", KEYS)
def test_a_missing_entry_of_the_manifest_is_named(bundle: Path, key: str) -> None:
    rewrite(bundle, lambda manifest: manifest.pop(key))
    assert message(bundle) == f"manifest.json: {key} is missing or damaged"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in KEYS
        for value in (None, 7, 1.5, True, "text", ["a", "b"])
        if not (key.endswith("_language") and value == "text")
    ]
    + [
        ("source_language", "de\x1b]0;x\x07\nmodel  fake"),
        ("target_language", "\ud800"),
    ],
)
def test_an_entry_of_the_wrong_type_is_named(bundle: Path, key: str, value: object) -> None:
    rewrite(bundle, lambda manifest: manifest.update({key: value}))
    assert message(bundle) == f"manifest.json: {key} is missing or damaged"


@pytest.mark.parametrize("value", [None, "8", 8.5, [8], {}, True], ids=repr)
@pytest.mark.parametrize(("key", "field"), [("architecture", "heads"), ("decoding", "draft_length")])
def test_a_number_of_the_wrong_type_is_found(bundle: Path, key: str, field: str, value: object) -> None:
    rewrite(bundle, lambda manifest: manifest[key].update({field: value}))
    assert message(bundle) == f"manifest.json: {key} is missing or damaged"


@pytest.mark.parametrize(
    ("key", "field", "value"),
    [
        ("architecture", "heads", 0),
        ("architecture", "heads", 3),
        ("architecture", "heads", -2),
        ("architecture", "width", 0),
        ("architecture", "width", 2),
        ("architecture", "width", 65),
        ("architecture", "encoder_layers", 30_000_000),
        ("architecture", "encoder_layers", 0),
        ("architecture", "decoder_layers", 0),
        ("architecture", "drafter_layers", -1),
        ("architecture", "target_vocabulary_size", -8),
        ("architecture", "feed_forward_width", 40_000),
        ("architecture", "drafter_layers", 0),
        ("architecture", "draft_length", 0),
        ("architecture", "bigram_rank", 0),
        ("decoding", "draft_length", 0),
        ("decoding", "draft_length", 5),
        ("decoding", "beta", 0),
        ("decoding", "tau", -1.0),
        ("decoding", "tau", float("nan")),
        ("decoding", "tau", 2e6),
        ("decoding", "length_penalty", -20.0),
        ("decoding", "length_penalty", float("nan")),
        ("decoding", "max_tokens_factor", -1.0),
        ("decoding", "max_tokens_factor", float("inf")),
        ("decoding", "max_tokens_factor", 1e308),
        ("decoding", "max_tokens_offset", -100),
        ("decoding", "max_tokens_offset", 2**63),
    ],
)
def test_a_number_that_cannot_work_is_found(bundle: Path, key: str, field: str, value: float) -> None:
    rewrite(bundle, lambda manifest: manifest[key].update({field: value}))
    assert message(bundle).startswith(f"manifest.json: {key}")


@pytest.mark.parametrize("key", ["architecture", "decoding"])
def test_an_unknown_field_is_found(bundle: Path, key: str) -> None:
    rewrite(bundle, lambda manifest: manifest[key].update({"secret": 1}))
    assert message(bundle) == f"manifest.json: {key} is missing or damaged"


def test_a_longest_source_without_end_is_taken_for_none(bundle: Path) -> None:
    rewrite(bundle, lambda manifest: manifest.update(training={"config": {"data": {"max_tokens": float("inf")}}}))
    assert load_bundle(bundle).max_source_tokens == 100


def test_a_missing_field_of_the_architecture_is_found(bundle: Path) -> None:
    rewrite(bundle, lambda manifest: manifest["architecture"].pop("width"))
    assert message(bundle) == "manifest.json: architecture is missing or damaged"


def test_a_default_that_an_older_bundle_does_not_name_is_taken(bundle: Path) -> None:
    rewrite(bundle, lambda manifest: manifest["decoding"].pop("length_penalty"))
    assert load_bundle(bundle).decoding == DEFAULTS


@pytest.mark.parametrize("name", ["../secret", "sub/file", "/etc/hostname", "..", ".", "", "a\0b", "\ud800"], ids=repr)
def test_a_file_outside_of_the_bundle_is_never_read(bundle: Path, name: str) -> None:
    (bundle.parent / "secret").write_bytes(b"secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    rewrite(bundle, lambda manifest: manifest["files"].update({name: digest}))
    assert message(bundle) == "manifest.json: files is missing or damaged"


@pytest.mark.parametrize("name", BUNDLE_FILES[1:])
def test_a_file_that_the_manifest_does_not_list_is_not_trusted(bundle: Path, name: str) -> None:
    rewrite(bundle, lambda manifest: manifest["files"].pop(name))
    assert message(bundle) == f"manifest.json: files: {name} is not listed"


def test_a_manifest_changed_by_hand_is_found(bundle: Path) -> None:
    text = (bundle / "manifest.json").read_text(encoding="utf-8")
    (bundle / "manifest.json").write_text(text.replace('"beta": 2', '"beta": 1'), encoding="utf-8")
    assert message(bundle).startswith("manifest.json: altered or damaged")


# -- files that are whole, but not what they should be


def replace(bundle: Path, name: str, data: bytes) -> None:
    """Another file with the digest that fits."""
    (bundle / name).write_bytes(data)
    rewrite(bundle, lambda manifest: manifest["files"].update({name: hashlib.sha256(data).hexdigest()}))


@pytest.mark.parametrize("data", [b"", b"no tokenizer", b"\x00" * 100], ids=repr)
def test_a_tokenizer_that_is_none_is_named(bundle: Path, data: bytes) -> None:
    replace(bundle, "tokenizer.model", data)
    assert message(bundle).startswith("tokenizer.model: ")


@pytest.mark.parametrize(
    "data",
    [b"", b"no weights", b"\x00" * 100, b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]"],
    ids=repr,
)
def test_weights_that_are_none_are_named(bundle: Path, data: bytes) -> None:
    replace(bundle, "model.safetensors", data)
    assert message(bundle).startswith("model.safetensors: ")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf"), 1e7, -3e38])
@pytest.mark.parametrize("name", ["verifier.decoder.layer_norm.bias", "embeddings.weight_scale"])
def test_weights_that_no_network_has_are_named(bundle: Path, name: str, number: float) -> None:
    tensors = load((bundle / "model.safetensors").read_bytes())
    assert max(map(abs, tensors[name].tolist())) < 1e6
    tensors[name][3] = 999_999
    replace(bundle, "model.safetensors", save(tensors))
    load_all(bundle)
    tensors[name][3] = number
    replace(bundle, "model.safetensors", save(tensors))
    assert message(bundle) == f"model.safetensors: {name}: not all are numbers of at most 1,000,000"


def test_weights_are_never_unpickled(bundle: Path, tmp_path: Path) -> None:
    torch.save(random_weights(TINY), tmp_path / "weights.pt")
    replace(bundle, "model.safetensors", (tmp_path / "weights.pt").read_bytes())
    assert message(bundle).startswith("model.safetensors: ")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            lambda weights: weights.update({"drafter.slots.weight": torch.zeros(3, 16)}),
            "drafter.slots.weight: found int8 [3, 16], expected int8 [4, 16]",
            id="shape",
        ),
        pytest.param(
            lambda weights: weights.pop("verifier.decoder.layer_norm.bias"),
            "verifier.decoder.layer_norm.bias: found none, expected float32 [16]",
            id="missing",
        ),
        pytest.param(
            lambda weights: weights.update({"zzz": torch.zeros(2)}),
            "zzz: found float32 [2], expected none",
            id="unknown",
        ),
    ],
)
def test_a_tensor_that_does_not_fit_the_architecture_is_named(
    tmp_path: Path, change: Callable[[dict[str, Tensor]], object], expected: str
) -> None:
    weights = random_weights(TINY)
    change(weights)
    write_tiny_bundle(tmp_path / "model", weights)
    assert message(tmp_path / "model") == f"model.safetensors: {expected}"


def test_a_tokenizer_with_more_pieces_than_the_embeddings_have_is_refused(tmp_path: Path) -> None:
    """Else its last pieces would have no embedding, and the first line that needs one would end in a traceback."""
    path = tmp_path / "model"
    write_tiny_bundle(path)
    smaller = {name: tensor[:88] if tensor.shape[0] == 96 else tensor for name, tensor in random_weights(TINY).items()}
    write_tiny_bundle(tmp_path / "smaller", smaller)
    replace(path, "model.safetensors", (tmp_path / "smaller" / "model.safetensors").read_bytes())
    rewrite(path, lambda manifest: manifest["architecture"].update(vocabulary_size=88))
    assert message(path).startswith("tokenizer.model: ")
