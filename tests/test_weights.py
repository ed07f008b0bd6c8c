"""Weights as 8-bit integers: what is written, and what comes back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specmt.arrays import FloatArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import expected_shapes
from specmt.bundles.weights import dequantised, quantise, read_stored, save_weights
from specmt.errors import BundleError

ARCHITECTURE = Architecture(
    vocabulary_size=64,
    width=16,
    heads=2,
    feed_forward_width=32,
    encoder_layers=1,
    decoder_layers=1,
    drafter_layers=1,
    draft_length=4,
    bigram_rank=8,
)


def random_weights() -> dict[str, FloatArray]:
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(shape, dtype=np.float32) for name, shape in expected_shapes(ARCHITECTURE).items()
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    save_weights(random_weights(), tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_a_matrix_is_at_most_half_a_step_from_its_integers() -> None:
    matrix = random_weights()["embeddings.weight"]
    integers, scales = quantise(matrix)
    assert integers.dtype == np.int8
    assert np.abs(integers).max(axis=1).tolist() == [127] * len(matrix)
    assert (np.abs(integers * scales[:, None] - matrix) <= scales[:, None] * 0.5001).all()


def test_a_row_of_zeros_stays_zero() -> None:
    integers, scales = quantise(np.zeros((2, 3), dtype=np.float32))
    assert integers.tolist() == [[0, 0, 0]] * 2
    assert scales.tolist() == [1, 1]


def test_vectors_come_back_as_they_were_and_matrices_with_their_names(path: Path) -> None:
    written, found = random_weights(), dequantised(read_stored(path, ARCHITECTURE))
    assert found.keys() == written.keys()
    for name, weight in written.items():
        assert found[name].dtype == np.float32
        assert np.array_equal(found[name], weight) if weight.ndim == 1 else np.abs(found[name] - weight).max() < 0.02


def test_saving_again_what_was_loaded_writes_the_same_bytes(path: Path, tmp_path: Path) -> None:
    save_weights(dequantised(read_stored(path, ARCHITECTURE)), tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("embeddings.weight", np.zeros((3, 16), dtype=np.int8), r"found int8 \[3, 16\], expected int8 \[64, 16\]"),
        ("embeddings.weight", np.zeros((64, 16), dtype=np.float32), r"found float32 \[64, 16\], expected int8"),
        ("embeddings.weight_scale", np.zeros(3, dtype=np.float32), r"found float32 \[3\], expected float32 \[64\]"),
        ("spare", np.zeros(3, dtype=np.float32), r"spare: found float32 \[3\], expected none"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(path: Path, name: str, tensor: FloatArray, message: str) -> None:
    save_file({**load_file(path), name: tensor}, path)
    with pytest.raises(BundleError, match=message):
        read_stored(path, ARCHITECTURE)


def test_a_missing_tensor_is_named(path: Path) -> None:
    tensors = load_file(path)
    del tensors["drafter.slots.weight_scale"]
    save_file(tensors, path)
    with pytest.raises(BundleError, match=r"drafter\.slots\.weight_scale: found none, expected float32 \[4\]"):
        read_stored(path, ARCHITECTURE)


def test_a_file_that_is_not_safetensors_is_one_line(path: Path) -> None:
    path.write_bytes(b"\xff" * 64)
    with pytest.raises(BundleError) as raised:
        read_stored(path, ARCHITECTURE)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def _safetensors(header: object, contents: bytes = b"") -> bytes:
    encoded = json.dumps(header).encode()
    return len(encoded).to_bytes(8, "little") + encoded + contents


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x00" * 7,
        (1 << 62).to_bytes(8, "little") + b"{}",
        _safetensors([]),
        _safetensors({"a": {"dtype": "I8", "shape": [4]}}, bytes(4)),
        _safetensors({"a": {"dtype": "I8", "shape": [5], "data_offsets": [0, 5]}}, bytes(4)),
        _safetensors({"a": {"dtype": "I8", "shape": [3], "data_offsets": [0, 4]}}, bytes(4)),
        _safetensors({"a": {"dtype": "I8", "shape": [-2, -2], "data_offsets": [0, 4]}}, bytes(4)),
        _safetensors({"a": {"dtype": "I8", "shape": [4], "data_offsets": [-4, 0]}}, b""),
        _safetensors({"a": {"dtype": "I8", "shape": ["4"], "data_offsets": [0, 4]}}, bytes(4)),
        _safetensors({"a": {"dtype": [], "shape": [4], "data_offsets": [0, 4]}}, bytes(4)),
        _safetensors({"a": {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}}, bytes(5)),
        _safetensors({name: {"dtype": "I8", "shape": [4], "data_offsets": [0, 4]} for name in "ab"}, bytes(4)),
        _safetensors({"__metadata__": {}, "a": {"dtype": "I8", "shape": [4], "data_offsets": [1, 5]}}, bytes(5)),
        len(b"[" * 100_000).to_bytes(8, "little") + b"[" * 100_000,
    ],
)
def test_a_damaged_header_is_one_line(path: Path, damaged: bytes) -> None:
    path.write_bytes(damaged)
    with pytest.raises(BundleError, match=re.escape(str(path))) as raised:
        read_stored(path, ARCHITECTURE)
    assert "not a safetensors file, or a damaged one" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_name_of_many_lines_is_one_line(path: Path) -> None:
    save_file({**load_file(path), "x\n\x1b[31my": np.zeros(1, dtype=np.int8)}, path)
    with pytest.raises(BundleError) as raised:
        read_stored(path, ARCHITECTURE)
    assert "found int8 [1], expected none" in str(raised.value)
    assert "\n" not in str(raised.value) and "\x1b" not in str(raised.value)


def test_tensors_that_stand_askew_are_read_all_the_same(path: Path) -> None:
    contents = path.read_bytes()
    begin = 8 + int.from_bytes(contents[:8], "little")
    askew = contents[8:begin] + b" "
    before = {name: array.copy() for name, array in read_stored(path, ARCHITECTURE).items()}
    path.write_bytes(len(askew).to_bytes(8, "little") + askew + contents[begin:])
    after = read_stored(path, ARCHITECTURE)
    assert before.keys() == after.keys()
    assert all(np.array_equal(array, after[name]) for name, array in before.items())
