"""What cannot be converted is refused in one line."""

from __future__ import annotations

import os
import pickle
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import failed, tried
from foreign import Foreign, changed
from pairs import write_tiny_bundle
from safetensors.numpy import load_file
from scripted import tiny_tokenizer, tiny_vocabulary
from torch import Tensor
from typer.testing import CliRunner

from specmt.bundles.bundle import check_destination, load_bundle
from specmt.bundles.weights import is_read_in_each_pass
from specmt.cli import app
from specmt.conversion.converting import Conversion, convert
from specmt.errors import InputError, UsageError
from specmt.text.dictionaries import Dictionary

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]


def _positions(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"encoder.embed_positions.weight": torch.zeros(9, 16)}


REFUSED: dict[str, tuple[dict[str, Any], Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "learned positions, lost": (
        {"decoder_learned_pos": True},
        dict,
        "decoder.embed_positions.weight is missing: not a plain transformer",
    ),
    "learned positions for no token": (
        {"encoder_learned_pos": True},
        lambda state: state | {"encoder.embed_positions.weight": torch.zeros(2, 16)},
        "encoder.embed_positions.weight has shape [2, 16]",
    ),
    "learned positions for one token": (
        {"encoder_learned_pos": True},
        lambda state: state | {"encoder.embed_positions.weight": torch.zeros(3, 16)},
        "a table of learned positions must have at least 2",
    ),
    "learned positions of another width": (
        {"encoder_learned_pos": True},
        lambda state: state | {"encoder.embed_positions.weight": torch.zeros(9, 8)},
        "encoder.embed_positions.weight has shape [9, 8]",
    ),
    "learned positions, unsaid": ({}, _positions, "encoder.embed_positions.weight has no place in a plain transformer"),
    "adaptive softmax": ({"adaptive_softmax_cutoff": [9]}, dict, "adaptive softmax (adaptive_softmax_cutoff)"),
    "layer norm of embeddings": ({"layernorm_embedding": True}, dict, "layer norm of embeddings"),
    "no positions": ({"no_token_positional_embeddings": True}, dict, "no positions"),
    "no cross-attention": ({"no_cross_attention": True}, dict, "does not read the source"),
    "activation": ({"activation_fn": "gelu_accurate"}, dict, "activation_fn gelu_accurate cannot be converted"),
    "mixture": ({"task": "translation_moe"}, dict, "trained for the task translation_moe"),
    "language model": ({"arch": "transformer_lm_big"}, dict, "a model of architecture transformer_lm_big"),
    "mask-predict": ({"arch": "cmlm_transformer"}, dict, "a model of architecture cmlm_transformer"),
    "convolutions": ({"arch": "fconv_wmt_en_de"}, dict, "a model of architecture fconv_wmt_en_de"),
    "alignment": ({"arch": "transformer_wmt_en_de_big_align"}, dict, "transformer_wmt_en_de_big_align"),
    "heads": ({"decoder_attention_heads": 3}, dict, "width must be a multiple of heads"),
    "a layer less": (
        {},
        lambda state: {name: part for name, part in state.items() if "encoder.layers.0" not in name},
        "layers of the encoder are missing",
    ),
    "a tensor less": (
        {},
        lambda state: {name: part for name, part in state.items() if name != "decoder.layers.1.fc2.bias"},
        "decoder.layers.1.fc2.bias is missing",
    ),
    "heads unsaid": (
        {"encoder_attention_heads": None},
        dict,
        "encoder_attention_heads: None, expected a whole number from 1 to 16",
    ),
    "xformers, encoder": (
        {"encoder_xformers_att_config": '{"name": "linformer"}'},
        dict,
        "xformers attention (encoder_xformers_att_config)",
    ),
    "xformers, decoder": ({"decoder_xformers_att_config": "{}"}, dict, "(decoder_xformers_att_config)"),
    "heads in words": ({"decoder_attention_heads": "eight"}, dict, "a damaged one"),
    "a task in a list": ({"task": ["translation"]}, dict, "a damaged one"),
    "embeddings of one dimension": (
        {},
        lambda state: state | {"encoder.embed_tokens.weight": torch.zeros(9)},
        "a damaged one",
    ),
    "a layer without a number": (
        {},
        lambda state: state | {"encoder.layers.x.fc1.weight": torch.zeros(2, 2)},
        "layers of the encoder are missing",
    ),
    "another size": ({}, lambda state: state | {"decoder.layers.1.fc2.bias": torch.zeros(3)}, "has shape [3]"),
    "not a number": ({}, lambda state: state | {"decoder.layers.1.fc2.bias": torch.full((16,), np.nan)}, "no finite"),
    "projected output": (
        {},
        lambda state: state | {"decoder.project_out_dim.weight": torch.zeros(16, 16)},
        "decoder.project_out_dim.weight has no place",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_the_engines_do_not_compute_is_refused_in_one_line(what: str, plain: Foreign, tmp_path: Path) -> None:
    settings, change, message = REFUSED[what]
    path = changed(plain, tmp_path, settings, change(plain.state))
    with pytest.raises(InputError) as caught:
        convert(Conversion(path), tmp_path / "bundle", None)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "bundle").exists()


class Harmful:
    """What an attacker would put into a checkpoint."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, ("touch harmed",)


def test_no_code_in_a_checkpoint_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"args": Namespace(), "model": {}, "extra_state": Harmful()}, tmp_path / "bad.pt")
    with pytest.raises(InputError, match=r"not read: only tensors, numbers and settings are, and it holds .*system"):
        convert(Conversion(tmp_path / "bad.pt"), tmp_path / "bundle", None)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04junk", pickle.dumps({"model": 1}), pickle.dumps([1])])
def test_what_is_no_checkpoint_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"x\.pt: not ") as caught:
        convert(Conversion(tmp_path / "x.pt"), tmp_path / "bundle", None)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(plain: Foreign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.pt: no such file or directory$"):
        convert(Conversion(tmp_path / "none.pt"), tmp_path / "bundle", None)
    with pytest.raises(InputError, match=r"dict\.txt: no such file or directory$"):
        convert(Conversion(plain.path, source_dictionary=tmp_path / "dict.txt"), tmp_path / "bundle", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("w4 1\n", "5 symbols with the four special ones, but the checkpoint has 96"),
        ("w4 1\nw4 1\n", "line 2: 'w4' stands there twice"),
        ("w4\n", "line 1: not a symbol and its count"),
        ("w4 many\n", "line 1: not a symbol and its count"),
    ],
)
def test_a_dictionary_that_does_not_fit_is_one_line(text: str, message: str, plain: Foreign, tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text(text)
    with pytest.raises(InputError, match=r"dict\.txt") as caught:
        convert(Conversion(plain.path, target_dictionary=tmp_path / "dict.txt"), tmp_path / "bundle", None)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ("▁w{}", "begin with ▁, so these are subwords: say --bpe sentencepiece, with --codes"),
        (
            "w{}@@",
            "end with @@, so these are subwords: say --bpe subword_nmt or fastbpe, with --codes",
        ),
    ],
)
def test_subwords_are_not_taken_for_words_unless_the_user_says_so(
    mark: str, message: str, side: str, plain: Foreign, tmp_path: Path
) -> None:
    symbols = [mark.format(id_) if id_ < 24 else f"w{id_}" for id_ in range(4, 96)]
    path = tmp_path / "dict.txt"
    path.write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    how = Conversion(plain.path, **{f"{side}_dictionary": path})
    with pytest.raises(InputError) as caught:
        convert(how, tmp_path / "bundle", None)
    assert str(caught.value) == f"{path}: 20 of 92 symbols {message} (or --bpe none if your text comes cut already)"
    assert not (tmp_path / "bundle").exists()
    convert(replace(how, bpe="none"), tmp_path / "bundle", None)


@pytest.mark.parametrize("name", ["gpt2", "bytes", "characters", "hf_byte_bpe"])
@pytest.mark.parametrize("old", [True, False])
def test_text_that_was_cut_as_no_bundles_is_refused_unless_the_user_says_how(
    name: str, old: bool, plain: Foreign, tmp_path: Path
) -> None:
    path = changed(plain, tmp_path, {"bpe": name} if old else {}, plain.state)
    if not old:
        cfg = {"model": plain.settings, "task": None, "bpe": {"_name": name}}
        torch.save({"args": None, "cfg": cfg, "model": plain.state}, path)
    with pytest.raises(InputError) as caught:
        convert(Conversion(path), tmp_path / "bundle", None)
    assert str(caught.value) == (
        f"{path}: its text was cut by {name}, and only sentencepiece, subword_nmt, fastbpe can be converted "
        "(or say --bpe none if your text comes cut already)"
    )
    convert(Conversion(path, bpe="none"), tmp_path / "bundle", None)


def test_a_sentencepiece_model_of_other_dictionaries_is_refused(plain: Foreign, tmp_path: Path) -> None:
    pieces, codes, path = tiny_vocabulary().pieces(), tmp_path / "spm.model", tmp_path / "dict.txt"
    codes.write_bytes(tiny_tokenizer())
    how = Conversion(plain.path, source_dictionary=path, bpe="sentencepiece", codes=codes)
    for common, converted in ((45, False), (46, True)):
        symbols = [*pieces[-common:], *(f"w{id_}" for id_ in range(92 - common))]
        path.write_text("".join(f"{symbol} 1\n" for symbol in symbols))
        if converted:
            convert(how, tmp_path / "bundle", None)
            continue
        with pytest.raises(InputError) as caught:
            convert(how, tmp_path / "bundle", None)
        assert str(caught.value) == f"{codes}: only 45 of its 96 pieces stand in {path}: it is another model's"


def test_languages_the_other_way_round_are_refused(plain: Foreign, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        convert(Conversion(plain.path, languages=("en", "de")), tmp_path / "bundle", None)
    assert str(caught.value) == f"{plain.path}: translates de to en: exchange the two of --languages"
    path = changed(plain, tmp_path, {"source_lang": "de", "target_lang": "de"}, plain.state)
    convert(Conversion(path, languages=("de", "de")), tmp_path / "bundle", None)


def test_a_few_marks_in_a_dictionary_of_words_are_words(plain: Foreign, tmp_path: Path) -> None:
    symbols = ["▁", "▁▁", "@@", "a@@", *(f"w{id_}" for id_ in range(8, 96))]
    (tmp_path / "dict.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols))
    convert(Conversion(plain.path, target_dictionary=tmp_path / "dict.txt"), tmp_path / "bundle", None)
    vocabulary = load_bundle(tmp_path / "bundle").vocabulary()
    assert [vocabulary.piece(id_) for id_ in range(4, 9)] == ["▁", "▁▁", "@@", "a@@", "w8"]


def test_a_dictionary_gives_the_ids_that_fairseq_gives(tmp_path: Path) -> None:
    from fairseq.data import Dictionary as FairseqDictionary

    text = "a 5\n▁b 3\nc\u2028d 2\na 1 #fairseq:overwrite\n\u00e9 0\nmadeupword0000 0\n"
    (tmp_path / "dict.txt").write_text(text, encoding="utf-8")
    theirs, ours = FairseqDictionary.load(str(tmp_path / "dict.txt")), Dictionary(text, "dict.txt")
    words = ["a", "▁b", "c\u2028d", "é", "x", "<unk>", "</s>", "madeupword0000"]
    assert ours.symbols == theirs.symbols
    assert ours.ids(words) == [theirs.index(word) for word in words]


def test_nothing_but_a_bundle_is_replaced_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "models"
    other.mkdir()
    check_destination(other)
    (other / "thesis.txt").write_text("irreplaceable")
    extension = tmp_path / "extension"
    extension.mkdir()
    (extension / "manifest.json").write_text('{"manifest_version": 3}')
    for place in (other, other / "thesis.txt", extension):
        with pytest.raises(InputError, match="stands there and is no model directory"):
            check_destination(place)
    write_tiny_bundle(tmp_path / "model")
    check_destination(tmp_path / "model")
    check_destination(tmp_path / "none")
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"would be replaced, and notes\.txt in it is no part of the model"):
        check_destination(tmp_path / "model")
    (tmp_path / "model" / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "model" / "inner")
    with pytest.raises(InputError, match="working directory"):
        check_destination(tmp_path / "model", others_stay=True)


@pytest.mark.slow
def test_drafts_of_a_model_that_has_no_drafter_are_refused(plain: Foreign, tmp_path: Path) -> None:
    text, bundle = tmp_path / "text.de", tmp_path / "bundle"
    text.write_text("w5\n")
    convert(Conversion(plain.path), bundle, None)
    of_all, of_translate = [("--tau", 1), ("--draft-length", 3)], [("--relaxed",)]
    for command, options in {
        ("translate",): of_all + of_translate,
        ("eval", "--source", text, "--reference", text): of_all,
    }.items():
        for option in options:
            said = failed(tried(*command, "-m", bundle, *option), 2)
            assert said.endswith(f"--draft-length, --beta and --tau are for drafts, and {bundle} has no drafter")


def test_alignment_is_refused_before_anything_is_written(plain: Foreign, tmp_path: Path) -> None:
    bundle, out = tmp_path / "bundle", tmp_path / "out"
    convert(Conversion(plain.path), bundle, None)
    out.mkdir()
    options = ("--strategy", "ar", "--alignment", "-o", out / "out.en", "--append-resume")
    said = failed(tried("translate", "-m", bundle, *options, stdin=b"w5\n"), 2)
    assert said.endswith(f"--alignment: {bundle} is a converted model; only pairs that specmt trained are aligned")
    assert list(out.iterdir()) == []


def test_weights_in_4_bits_need_calibration(plain: Foreign, tmp_path: Path) -> None:
    command = ["convert", str(plain.path), str(tmp_path / "bundle"), "--weight-bits", "4"]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith("--weight-bits 4 needs --calibration")
    (tmp_path / "text.de").write_text("w5\nw6 w7\nw8\n")
    assert CliRunner().invoke(app, [*command, "--calibration", str(tmp_path / "text.de")]).exit_code == 0
    stored = load_file(tmp_path / "bundle" / "model.safetensors")
    for name, array in stored.items():
        if array.dtype == np.int8:
            assert (array.min() >= -8 and array.max() <= 7) == is_read_in_each_pass(name)
