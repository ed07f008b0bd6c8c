"""What stands in a damaged checkpoint of fairseq: one line says where, what was found, and what may stand there."""

from __future__ import annotations

import json
import pickle
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import Foreign, changed
from torch import Tensor

from specmt.bundles.bundle import load_bundle
from specmt.conversion.converting import Conversion, convert
from specmt.conversion.foreign_files import read_pickle, shown
from specmt.errors import InputError

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def refusal(path: Path, bundle: Path, **how: Any) -> str:  # noqa: ANN401
    """What is said of a checkpoint that leaves nothing behind."""
    with pytest.raises(InputError) as caught:
        convert(Conversion(path, **how), bundle, None)
    said = str(caught.value)
    assert said.startswith(f"{path.parent}/") and said.isprintable() and len(said) < 500
    assert not list(bundle.parent.glob("*bundle*"))
    return said.removeprefix(f"{path.parent}/")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("encoder_attention_heads", float("inf"), "inf, expected a whole number from 1 to 16"),
        ("decoder_attention_heads", True, "True, expected a whole number from 1 to 16"),
        ("decoder_attention_heads", -2, "-2, expected a whole number from 1 to 16"),
        ("decoder_attention_heads", torch.tensor([1, 2]), "tensor([1, 2]), expected a whole number from 1 to 16"),
        ("encoder_normalize_before", "no", "'no', expected true or false"),
        ("decoder_learned_pos", np.array([1, 2]), "array([1, 2]), expected true or false"),
        ("activation_fn", ["relu"], "['relu'], expected text of at most 100 printable characters"),
        ("arch", "transformer\n", r"'transformer\n', expected text of at most 100 printable characters"),
        ("task", ENDLESS, "[[[[[[[...]]]]]]], expected text of at most 100 printable characters"),
        ("source_lang", ["de"], "['de'], expected text of at most 100 printable characters"),
        ("target_lang", "e\0n", r"'e\x00n', expected text of at most 100 printable characters"),
        ("target_lang", "\ud800", r"'\ud800', expected text of at most 100 printable characters"),
    ],
    ids=str,
)
def test_a_setting_of_another_type_or_range_is_named(
    name: str, value: object, message: str, plain: Foreign, tmp_path: Path
) -> None:
    path = changed(plain, tmp_path, {name: value}, plain.state)
    said = refusal(path, tmp_path / "bundle")
    assert said == f"changed.pt: {name}: {message}: not a plain transformer, or a damaged one"


def test_a_setting_that_must_be_off_is_on_whatever_it_is(plain: Foreign, tmp_path: Path) -> None:
    path = changed(plain, tmp_path, {"adaptive_softmax_cutoff": torch.zeros(2)}, plain.state)
    assert refusal(path, tmp_path / "bundle").endswith("adaptive softmax (adaptive_softmax_cutoff) cannot be converted")


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("decoder.embed_tokens.weight", torch.tensor(1.0), "has shape [], expected [any, any]"),
        ("encoder.embed_tokens.weight", torch.ones(0, 16), "has shape [0, 16], expected [any, 16]"),
        ("encoder.embed_tokens.weight", torch.ones(9, 8), "has shape [9, 8], expected [any, 16]"),
        ("decoder.output_projection.weight", torch.ones(9, 16), "has shape [9, 16], expected [96, 16]"),
        ("decoder.layers.0.fc1.weight", torch.tensor(1.0), "has shape [], expected [any, 16]"),
        ("encoder.layers.0.self_attn.in_proj_weight", torch.tensor(1.0), "has shape [], expected thrice the width"),
        ("encoder.layers.0.self_attn.in_proj_bias", torch.ones(4), "has shape [4], expected thrice the width"),
        ("decoder.layers.1.fc2.bias", torch.ones(16).long(), "is of type torch.int64, expected floating point"),
        ("decoder.layers.1.fc2.bias", torch.ones(16).cfloat(), "is of type torch.complex64, expected floating point"),
        (
            "decoder.layers.1.fc2.bias",
            torch.ones(16).double() * 1e300,
            "holds what is no finite number, or one beyond",
        ),
        (
            "decoder.layers.1.fc2.bias",
            torch.full((16,), 1e20),
            "holds what is no finite number, or one beyond 1,000,000",
        ),
        ("decoder.layers.1.fc2.weight", torch.eye(16).to_sparse(), "is sparse, quantised or without values; expected"),
        ("decoder.layers.1.fc2.weight", torch.ones(16, 24, device="meta"), "is sparse, quantised or without values"),
    ],
)
def test_a_tensor_of_another_shape_or_type_is_named(
    name: str, tensor: Tensor, message: str, plain: Foreign, tmp_path: Path
) -> None:
    path = changed(plain, tmp_path, {}, {**plain.state, name: tensor})
    assert refusal(path, tmp_path / "bundle").startswith(f"changed.pt: {name} {message}")


def test_a_name_that_no_tensor_has_is_shown_in_one_line(plain: Foreign, tmp_path: Path) -> None:
    path = changed(plain, tmp_path, {}, {**plain.state, "a\n" * 300: torch.ones(1)})
    assert refusal(path, tmp_path / "bundle").startswith(r"changed.pt: a tensor of the name 'a\na\na\n")


def test_weights_that_torch_would_train_are_weights(plain: Foreign, tmp_path: Path) -> None:
    """And settings that no manifest can say are left out of it."""
    state = {
        name: torch.nn.Parameter(part, requires_grad=part.dtype.is_floating_point) for name, part in plain.state.items()
    }
    path = changed(plain, tmp_path, {"lr": ENDLESS, "seed": "\ud800", "update_freq": [2]}, state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convert(Conversion(path), tmp_path / "bundle", None)
    settings = load_bundle(tmp_path / "bundle").training["converted_from"]["fairseq_settings"]
    assert settings["update_freq"] == [2] and not {"lr", "seed"} & settings.keys()
    convert(Conversion(plain.path), tmp_path / "other", None)
    files = [load_bundle(tmp_path / name).files["model.safetensors"] for name in ("bundle", "other")]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"#version: 0.3\na b\n", "begins with b'#version: 0.3', expected #version: 0.1 or 0.2, and merges"),
        (b"#version: x\na b\n", "begins with b'#version: x', expected #version: 0.1 or 0.2, and merges"),
        (b"#version: 0.2\n", "begins with b'#version: 0.2', expected #version: 0.1 or 0.2, and merges"),
        (b"", "is empty"),
    ],
)
def test_codes_that_subword_nmt_would_not_read_are_refused(
    content: bytes, message: str, plain: Foreign, tmp_path: Path
) -> None:
    path = changed(plain, tmp_path, {}, plain.state)
    (tmp_path / "codes").write_bytes(content)
    said = refusal(path, tmp_path / "bundle", bpe="subword_nmt", codes=tmp_path / "codes")
    assert said == f"codes: {message}"


def test_what_is_no_file_of_torchs_is_one_line_without_warnings(plain: Foreign, tmp_path: Path) -> None:
    whole = plain.path.read_bytes()
    for content in (whole[: len(whole) // 2], pickle.dumps({"model": 1}, protocol=4), json.dumps({}).encode(), b""):
        (tmp_path / "x.pt").write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(InputError, match=r"x\.pt: not "):
                read_pickle(tmp_path / "x.pt")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        (10**400, "100000000000000000...0000000000000000000"),
        (list(range(1000)), "[0, 1, 2, 3, 4, 5, ...]"),
        (torch.ones(2, 2), "tensor([[1., 1.], [1., 1.]])"),
    ],
    ids=["text", "digits", "list", "tensor"],
)
def test_whatever_was_found_is_shown_in_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text
