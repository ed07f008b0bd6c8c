"""Marian models of transformers, converted: the tokens and numbers of transformers itself, or one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign import rounded
from marian_models import LIMIT, LINES, ROOT, SMOKE, TOKENS, TOLERANCE, VARIANTS, Marian, learned_pieces
from numpy.typing import NDArray
from processors import exact_engines
from safetensors.torch import load_file, save_file

from specmt.bundles.bundle import load_bundle
from specmt.conversion.converting import Conversion, convert
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.engines.base import AnyEngine, step
from specmt.errors import InputError
from specmt.loading import load_translator
from specmt.text.vocabulary import BOS_ID, EOS_ID, PAD_ID

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")


def our_log_probs(engine: AnyEngine, source: list[int], said: list[int], size: int) -> NDArray[np.float32]:
    """The same by an engine: step by step, and in a window, which must not differ."""
    found = np.empty((len(said) + 1, size), dtype=np.float32)
    rows = engine.encode([source])
    for place, token in enumerate([EOS_ID, *said]):
        best = step(engine, rows, np.array([token]), size)
        found[place, best.ids[0, 0]] = best.log_probs[0, 0]
    return found


def assert_alike(marian: Marian, bundle: Path, name: str, tolerance: float, token: str = "") -> None:
    translator, vocabulary = load_translator(bundle, engine=name), load_bundle(bundle).vocabulary()
    random = np.random.default_rng(5)
    differences = []
    for line in LINES:
        source = [*vocabulary.encode(line), EOS_ID]
        given = f"{token} {line}" if token else line
        theirs = [marian.source_pieces[id_] for id_ in marian.tokenizer(given).input_ids]
        assert [vocabulary.source_piece(id_) for id_ in source] == theirs
        said = random.integers(2, len(marian.ours) - 1, 8).tolist()
        ours = our_log_probs(translator.engine, source, [marian.ours[id_] for id_ in said], len(vocabulary))
        expected = marian.log_probs(given, said)
        assert (ours[:, [BOS_ID, PAD_ID]] < -900).all()
        places = [id_ for id_ in marian.ours if id_ != PAD_ID]
        differences.append(np.abs(ours[:, places] - expected[:, places]))
        assert expected[:, places].std() > 1
    found = np.concatenate([part.ravel() for part in differences])
    assert (found.max() if name == "torch" else found.mean()) < tolerance


@pytest.mark.parametrize("variant", VARIANTS)
def test_log_probabilities_are_those_of_transformers(variant: str, tmp_path: Path) -> None:
    marian = Marian(tmp_path / "marian", VARIANTS[variant])
    bundle = marian.converted(LINES)
    for engine in exact_engines("torch", "native", "onnx"):
        assert_alike(marian, bundle, engine, TOLERANCE if engine == "torch" else 0.1)


def test_of_several_target_languages_one_is_chosen(tmp_path: Path) -> None:
    marian = Marian(tmp_path / "marian", tokens=TOKENS)
    bundle = marian.converted(target_token=">>fra<<")
    assert_alike(marian, bundle, "torch", TOLERANCE, ">>fra<<")
    vocabulary = load_bundle(bundle).vocabulary()
    assert vocabulary.encode(" ") == []
    assert vocabulary.source_piece(vocabulary.encode("Hund")[0]) == ">>fra<<"
    assert vocabulary.has_word(vocabulary.encode("Hund")) and not vocabulary.has_word(vocabulary.encode("?"))


def trained(folder: Path) -> Marian:
    """A model that has learned some of the smoke corpus: it says something, and comes to an end."""
    marian = Marian(folder)
    sources, targets = (
        (SMOKE / f"train.{side}").read_text(encoding="utf-8").splitlines()[:1600] for side in ("de", "en")
    )
    optimiser = torch.optim.Adam(marian.model.parameters(), lr=4e-3)
    for update in range(150):
        chosen = slice(update * 64 % 1600, update * 64 % 1600 + 64)
        batch = marian.tokenizer(sources[chosen], text_target=targets[chosen], return_tensors="pt", padding=True)
        batch["labels"][batch["labels"] == marian.model.config.pad_token_id] = -100
        marian.model(**batch).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    with torch.no_grad():
        for parameter in marian.model.parameters():
            if parameter.dim() == 2:
                parameter.copy_(rounded(parameter))
    marian.model.save_pretrained(folder)
    return marian


@pytest.mark.slow
def test_a_trained_model_translates_as_with_transformers(tmp_path: Path) -> None:
    marian = trained(tmp_path / "marian")
    lines = (SMOKE / "valid.de").read_text(encoding="utf-8").splitlines()[:60]
    calibration = tmp_path / "text.de"
    calibration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    theirs = []
    for line in lines:
        inputs = marian.tokenizer(line, return_tensors="pt")
        said = marian.model.generate(**inputs, num_beams=1, do_sample=False, max_length=LIMIT)[0]
        theirs.append(marian.tokenizer.decode(said, skip_special_tokens=True))
    assert len(set(theirs)) > 40
    bundle = tmp_path / "bundle"
    assert run("convert", marian.folder, bundle, "--calibration", calibration) == (0, f"{bundle}\n", "")
    vocabulary = load_bundle(bundle).vocabulary()
    requests = [Request(index, [*vocabulary.encode(line), EOS_ID], LIMIT - 1) for index, line in enumerate(lines)]
    engine = load_translator(bundle, engine="torch").engine
    done = sorted(decode(engine, RequestQueue(requests, 8), Greedy(), 8), key=lambda one: one.request.index)
    assert [vocabulary.decode(hypothesis.ids) for hypothesis in done] == theirs
    how = ("--strategy", "ar", "--beam", "4", "--quiet")
    code, out, err = run("translate", "-m", bundle, *how, given=calibration.read_text(encoding="utf-8"))
    assert (code, err) == (0, "") and len(out.splitlines()) == 60


def test_weights_as_a_pickle_of_half_precision_are_read(tmp_path: Path) -> None:
    marian = Marian(tmp_path / "marian")
    (marian.folder / "model.safetensors").unlink()
    state = {name: torch.nn.Parameter(part.half()) for name, part in marian.model.state_dict().items()}
    torch.save(state, marian.folder / "pytorch_model.bin")
    bundle = marian.converted()
    origin = json.loads((bundle / "manifest.json").read_text())["training"]["converted_from"]
    assert origin["checkpoint"] == "pytorch_model.bin" and len(origin["sha256"]) == 64
    marian.model.load_state_dict({name: part.float() for name, part in state.items()})
    assert_alike(marian, bundle, "torch", 0.05)


# -- what is refused


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Marian(tmp_path_factory.mktemp("saved") / "marian", tokens=TOKENS).folder


def changed_json(name: str, key: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | {key: value}
        (folder / name).write_text(json.dumps({key: value for key, value in content.items() if value is not None}))

    return change


config, pieces_file = partial(changed_json, "config.json"), partial(changed_json, "vocab.json")


def cut(name: str, size: int = 1000) -> Callable[[Path], None]:
    return lambda folder: os.truncate(folder / name, size)


def another_tokenizer(folder: Path) -> None:
    (folder / "source.spm").write_bytes(learned_pieces(["ж б ц ш щ"] * 9, 8))


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def pickled(content: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save(content, folder / "pytorch_model.bin")

    return change


def tensor(name: str, part: torch.Tensor) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file({**load_file(path), f"model.{name}": part}, path)

    return change


TOKENIZER, BIAS, POSITIONS = "tokenizer_config.json", "decoder.layers.1.fc1.bias", "encoder.embed_positions.weight"
REFUSALS: dict[str, tuple[Callable[[Path], None], str]] = {
    "another model": (config("model_type", "bart"), "config.json: a model of type 'bart'; of "),
    "activation": (config("activation_function", "tanh"), "activation_function tanh cannot be converted; relu, gelu, "),
    "a list": (config("activation_function", ["relu"]), "activation_function: ['relu'], expected text of at most 100"),
    "a word": (config("d_model", "32"), "config.json: d_model: '32', expected a whole number from 1 to 1048576: not a"),
    "yes": (config("scale_embedding", "yes"), "config.json: scale_embedding: 'yes', expected true or false"),
    "memory": (config("max_position_embeddings", 10**12), "1000000000000, expected a whole number from 2 to 65536"),
    "norm": (config("normalize_embedding", True), "layer norm of embeddings (normalize_embedding)"),
    "no heads": (config("encoder_attention_heads", None), "encoder_attention_heads: None, expected"),
    "odd heads": (config("decoder_attention_heads", 5), "decoder_attention_heads: 5; the width must be a multiple of"),
    "more layers": (config("encoder_layers", 3), "encoder.layers.2.self_attn.q_proj.weight is missing"),
    "fewer layers": (config("encoder_layers", 1), "encoder.layers.1.fc1.bias has no place in the model that config.j"),
    "another width": (config("decoder_ffn_dim", 40), "fc1.weight has shape [48, 32], expected [40, 32]"),
    "another start": (config("decoder_start_token_id", 5), "decoder_start_token_id: 5, which is 'n'; only what starts"),
    "no languages": (changed_json(TOKENIZER, "source_lang", None), "does not say the languages; give them"),
    "two lines": (changed_json(TOKENIZER, "source_lang", "d\ne"), r"source_lang: 'd\ne', expected text of at most 100"),
    "no such file": (without("source.spm"), "source.spm: no such file or directory"),
    "no configuration": (without("config.json"), "config.json: no such file or directory"),
    "no weights": (without("model.safetensors"), ": no weights: neither model.safetensors nor pytorch_model.bin"),
    "cut weights": (cut("model.safetensors"), "model.safetensors: not a safetensors file, or a damaged one"),
    "cut tokenizer": (cut("source.spm"), "source.spm: the codes are not a SentencePiece model"),
    "another tokenizer": (another_tokenizer, "source.spm: only 1 of its 8 pieces stand in "),
    "empty tokenizer": (cut("source.spm", 0), "source.spm: is empty"),
    "cut vocabulary": (cut("vocab.json"), "vocab.json: not a JSON object"),
    "gaps": (pieces_file("Hund", 4000), "vocab.json: 'Hund': 4000, expected ids from 0 to 199, each of one piece"),
    "words for ids": (pieces_file("Hund", "one"), "vocab.json: 'Hund': 'one', expected ids from 0 to 199, each of one"),
    "two of one id": (pieces_file("Hund", 7), "vocab.json: 'Hund': 7, expected ids from 0 to 199, each of one piece"),
    "no, for 0": (pieces_file("</s>", False), "vocab.json: '</s>': False, expected ids from 0 to 198, each of one"),
    "half a character": (pieces_file("\ud800", 199), r"vocab.json: '\ud800' is no piece of a SentencePiece model"),
    "more pieces": (pieces_file("Hund", 199), "shared.weight has shape [199, 32], expected [200, 32]: not the model"),
    "a number": (tensor("shared.weight", torch.tensor(1.0)), "shared.weight has shape [], expected [199, 32]"),
    "no positions": (tensor(POSITIONS, torch.ones(0, 32)), f"{POSITIONS} has shape [0, 32], expected [any, 32]"),
    "integers": (tensor(BIAS, torch.ones(48).int()), f"{BIAS} is of type torch.int32, expected floating point"),
    "infinite": (tensor(BIAS, torch.ones(48).double() * 1e300), f"{BIAS} holds what is no finite number, or one"),
    "code": (pickled({"weight": Path("x")}), "not read: only tensors, numbers and settings are, and it holds pathlib"),
    "numbers": (pickled([1, 2]), "pytorch_model.bin: holds [1, 2], expected tensors by name"),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_what_cannot_be_converted_is_one_line(why: str, saved: Path, tmp_path: Path) -> None:
    change, message = REFUSALS[why]
    folder = Path(shutil.copytree(saved, tmp_path / "marian"))
    change(folder)
    with pytest.raises(InputError) as caught:
        convert(Conversion(folder, target_token=TOKENS[0]), tmp_path / "bundle", None)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(folder))
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "translates into several languages; --target-token says into which: >>eng<<, >>fra<<"),
        (">>spa<<", "has no >>spa<<: >>eng<<, >>fra<<"),
    ],
)
def test_a_target_language_is_needed_where_there_are_several(token: str, message: str, saved: Path) -> None:
    with pytest.raises(InputError) as caught:
        convert(Conversion(saved, target_token=token), saved.parent / "bundle", None)
    assert str(caught.value) == f"{saved}: {message}"


def test_a_target_token_is_refused_where_there_is_one_target(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no >>fra<<: it is no model of several target languages"):
        Marian(tmp_path / "marian").converted(target_token=">>fra<<")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--bpe", "sentencepiece"], "--bpe: {folder} is a folder with a Marian model, which says this itself"),
        (["--source-dict", "x"], "--source-dict: {folder} is a folder with a Marian model, which says this itself"),
        (["--moses-no-escape"], "--moses-no-escape: {folder} is a folder with a Marian model, which says this itself"),
    ],
)
def test_fairseqs_options_are_refused_for_a_folder(options: list[str], message: str, saved: Path) -> None:
    code, out, err = run("convert", saved, saved.parent / "bundle", *options)
    assert (code, out, err) == (2, "", f"specmt: {message.format(folder=saved)}\n")


def test_a_target_token_is_refused_for_a_checkpoint(tmp_path: Path) -> None:
    code, out, err = run("convert", tmp_path / "x.pt", tmp_path / "bundle", "--target-token", ">>fra<<")
    assert (code, out, err) == (2, "", f"specmt: --target-token: {tmp_path}/x.pt is no folder with a Marian model\n")


def run(*arguments: object, given: str = "") -> tuple[int, str, str]:
    command = [sys.executable, "-m", "specmt", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, input=given, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr
