"""Models that fairseq makes, converted: the very tokens of fairseq's own generator, and one line for what cannot be."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scripted import tiny_tokenizer, tiny_vocabulary
from torch import Tensor
from typer.testing import CliRunner

from specmt.beam import beam_search
from specmt.bundle import GRAPHS, TOKENIZER, load_bundle
from specmt.cli import app
from specmt.conversion import Conversion, convert
from specmt.decoding import Greedy, Request, RequestQueue, decode
from specmt.dictionaries import Dictionary, FairseqVocabulary, Segmentation
from specmt.engines.base import step
from specmt.errors import BundleError, EngineError, InputError, SpecmtError, UsageError
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.vocabulary import BOS_ID, EOS_ID, MASK_ID, PAD_ID, UNK_ID, Vocabulary
from specmt.weights import quantise

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
ROOT = Path(__file__).parent.parent
SOURCE_SIZE, TARGET_SIZE = 104, 96
LIMIT = 20
"""Tokens of a translation in these tests, end-of-sentence included."""
SIZES = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
SHARED = {"share_all_embeddings": True}

VARIANTS: dict[str, dict[str, Any]] = {
    "post-norm": SHARED,
    "pre-norm": {**SHARED, **PRE_NORM},
    "dictionaries of their own": {"share_decoder_input_output_embed": True},
    "three matrices": {},
    "pre-norm, three matrices": PRE_NORM,
    "pre-norm encoder alone": {**SHARED, "encoder_normalize_before": True},
    "no layer norm after the decoder": {**SHARED, **PRE_NORM, "no_decoder_final_norm": True},
    "gelu": {**SHARED, "activation_fn": "gelu"},
    "unscaled embeddings": {**SHARED, "no_scale_embedding": True},
    "another encoder": {"encoder_layers": 3, "encoder_ffn_embed_dim": 40, "encoder_attention_heads": 4},
    "deep encoder, shallow decoder": {**SHARED, **PRE_NORM, "encoder_layers": 4, "decoder_layers": 1},
}


def dictionary_of(size: int) -> Any:  # noqa: ANN401
    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

    from fairseq.data import Dictionary as FairseqDictionary  # isort: skip

    dictionary = FairseqDictionary()
    for id_ in range(len(dictionary), size):
        dictionary.add_symbol(f"w{id_}")
    return dictionary


class Foreign:
    """fairseq's own model with random weights, as a checkpoint and dictionaries on disk."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], seed: int = 0, projections: float = 0.6, ending: float = 0.2
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        shared = settings.get("share_all_embeddings")
        self.source, self.target = dictionary_of(TARGET_SIZE if shared else SOURCE_SIZE), dictionary_of(TARGET_SIZE)
        self.source.save(str(folder / "dict.de.txt"))
        self.target.save(str(folder / "dict.en.txt"))
        self.settings, self.model = self._built(settings)
        state = self._random(self.model.state_dict(), seed, projections, bool(settings.get("no_decoder_final_norm")))
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
            state[name][EOS_ID, 0] = ending
        state = {name: rounded(part) for name, part in state.items()}
        self.model.load_state_dict(state)
        self.state = {name: part.clone() for name, part in self.model.state_dict().items()}
        self.path = folder / "model.pt"
        self.save(self.state)

    def _built(self, settings: dict[str, Any]) -> tuple[Namespace, Any]:
        from fairseq.models.transformer import TransformerModel, base_architecture

        sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
        args = Namespace(**{**sizes, **settings})
        base_architecture(args)
        vars(args).update({"arch": "transformer", "task": "translation", "source_lang": "de", "target_lang": "en"})
        vars(args).update({"no_decoder_final_norm": settings.get("no_decoder_final_norm", False)})
        task = SimpleNamespace(source_dictionary=self.source, target_dictionary=self.target)
        return args, TransformerModel.build_model(args, task).eval()

    @staticmethod
    def _random(state: dict[str, Tensor], seed: int, projections: float, silent_by_bias: bool) -> dict[str, Tensor]:
        """Large enough that what is read matters, already in the 8 bits of a bundle, and silent about special ids.

        Unit 0 of the decoder's last states is large, and only the special ids listen to it, as in no trained model
        that says one.
        """
        generator = torch.Generator().manual_seed(seed)
        random = {}
        for name, part in state.items():
            if name.endswith("version") or "_float_tensor" in name:
                random[name] = part
                continue
            deviation = (
                0.3 if "embed_tokens" in name or "output_proj" in name else projections if part.dim() > 1 else 0.1
            )
            mean = 1.0 if name.endswith("norm.weight") else 0.0
            random[name] = torch.randn(part.shape, generator=generator) * deviation + mean
        last = max((name for name in state if name.startswith("decoder.layers.")), key=lambda name: name.split(".")[2])
        layer = ".".join(last.split(".")[:3])
        norm = "decoder.layer_norm" if "decoder.layer_norm.weight" in state else f"{layer}.final_layer_norm"
        random[f"{norm}.weight"][0], random[f"{norm}.bias"][0] = 0.0, 10.0
        if silent_by_bias:
            random[f"{layer}.fc2.bias"][0] = 60.0
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight", "encoder.embed_tokens.weight"):
            random[name][:, 0] = 0.0
            random[name][[BOS_ID, PAD_ID, UNK_ID], 0] = -3.0
        if torch.equal(state["decoder.output_projection.weight"], state["decoder.embed_tokens.weight"]):
            random["decoder.output_projection.weight"] = random["decoder.embed_tokens.weight"]
        if state["encoder.embed_tokens.weight"].data_ptr() == state["decoder.embed_tokens.weight"].data_ptr():
            random["encoder.embed_tokens.weight"] = random["decoder.embed_tokens.weight"]
        return random

    def save(self, state: dict[str, Any], **content: object) -> None:
        torch.save({"args": self.settings, "model": state, **content}, self.path)

    def converted(self, **how: Any) -> Path:  # noqa: ANN401
        convert(Conversion(self.path, **how), self.folder / "bundle", None)
        return self.folder / "bundle"

    def generated(self, sources: Sequence[Sequence[int]], beam: int) -> list[list[tuple[list[int], float]]]:
        """fairseq's own hypotheses with their scores, best first."""
        from fairseq.sequence_generator import SequenceGenerator

        limits = {"max_len_a": 0, "max_len_b": LIMIT - 1, "min_len": 0}
        generator = SequenceGenerator([self.model], self.target, beam_size=beam, **limits)
        found = []
        for source in sources:
            inputs = {"src_tokens": torch.tensor([source]), "src_lengths": torch.tensor([len(source)])}
            (hypotheses,) = generator.generate([self.model], {"net_input": inputs})
            found.append([(one["tokens"].tolist(), float(one["score"])) for one in hypotheses])
        return found


def rounded(part: Tensor) -> Tensor:
    """The nearest tensor that a bundle's 8-bit integers hold."""
    if part.dim() != 2:
        return part
    integers, scales = quantise(part.float().numpy())
    return torch.from_numpy(integers * scales[:, None])


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(UNK_ID + 1, TARGET_SIZE, random.integers(1, 9)).tolist(), EOS_ID] for _ in range(count)]


def assert_fairseqs_tokens(foreign: Foreign, bundle: Path) -> None:
    """Log-probabilities of all tokens, greedy's tokens, and beam search's where all hypotheses end before the limit.

    At the limit fairseq forces an end-of-sentence, which no other search does.
    """
    engine = load_translator(bundle, engine="torch").engine
    sources = sentences(12)
    asked = [Request(index, source, LIMIT) for index, source in enumerate(sources)]
    said = [EOS_ID, *sentences(1, seed=5)[0], 40]
    for source in sources:
        logits, _ = foreign.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([said]))
        found = engine.verify(engine.encode([source]), np.array([said]), TARGET_SIZE)
        by_id = np.take_along_axis(found.log_probs, found.ids.argsort(axis=2), axis=2)
        np.testing.assert_allclose(by_id, logits.log_softmax(dim=-1).detach().numpy(), rtol=1e-5, atol=1e-4)
    greedy = {one.request.index: one for one in decode(engine, RequestQueue(asked, 7), Greedy(), 7)}
    for index, ((tokens, _),) in enumerate(foreign.generated(sources, 1)):
        assert greedy[index].ids[: LIMIT - 1] == tokens[: LIMIT - 1]
    found_by_beam = beam_search(engine, asked, 4, 1.0)
    for ours, theirs in zip(found_by_beam, foreign.generated(sources, 4), strict=True):
        if all(len(one.ids) < LIMIT for one in ours):
            assert [one.ids for one in ours] == [tokens for tokens, _ in theirs]
            scores = [one.log_prob / len(one.ids) for one in ours]
            assert scores == pytest.approx([score for _, score in theirs], abs=1e-4)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_says_fairseqs_tokens(variant: str, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, VARIANTS[variant])
    assert_fairseqs_tokens(foreign, foreign.converted())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_graphs_of_every_variant_agree_with_the_reference(variant: str, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, VARIANTS[variant], seed=2, projections=0.25)
    text = [" ".join(foreign.source.symbols[id_] for id_ in source[:-1]) for source in sentences(60, seed=1)]
    converted = convert(Conversion(foreign.path), tmp_path / "bundle", text)
    assert converted.without_graphs is None
    assert {name for name in load_bundle(tmp_path / "bundle").files if name.endswith(".onnx")} == set(GRAPHS[:2])
    exact, fast = (load_translator(tmp_path / "bundle", engine=name).engine for name in ("torch", "onnx"))
    sources = sentences(5, seed=1)
    rows = [engine.encode(sources) for engine in (exact, fast)]
    last = np.full(len(sources), EOS_ID)
    differences = []
    for _ in range(6):
        one, other = (step(engine, row, last, TARGET_SIZE) for engine, row in zip((exact, fast), rows, strict=True))
        by_id = [np.take_along_axis(each.log_probs, each.ids.argsort(axis=2), axis=2) for each in (one, other)]
        differences.append(np.abs(by_id[0] - by_id[1])[:, :, MASK_ID:].mean())
        last = one.ids[:, 0, 0]
    assert np.mean(differences) < 0.25


def old_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """As fairseq named tensors in 2018: q, k and v in one, layer norms by number, sinusoids kept, no version."""
    old: dict[str, Tensor] = {}
    kinds = {
        "encoder": ["self_attn_layer_norm", "final_layer_norm"],
        "decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"],
    }
    for name, part in state.items():
        side = name.partition(".")[0]
        if name.endswith(("version", "_float_tensor")) or ".k_proj." in name or ".v_proj." in name:
            continue
        if ".q_proj." in name:
            fused = torch.cat([state[name.replace("q_proj", f"{kind}_proj")] for kind in "qkv"])
            old[name.replace("q_proj.", "in_proj_")] = fused
        elif ".layers." in name and "norm" in name:
            *layer, kind, what = name.split(".")
            old[".".join([*layer, "layer_norms", str(kinds[side].index(kind)), what])] = part
        else:
            old["decoder.embed_out" if "output_projection" in name else name] = part
    return old | {"encoder.embed_positions.weights": torch.zeros(4, 16), "decoder.version": torch.tensor([2.0])}


class AverageMeter:
    """As checkpoints of 2018 hold them; pickled under fairseq's name."""

    def __init__(self) -> None:
        self.val, self.count = 1.5, 7


AverageMeter.__module__ = "fairseq.meters"


def test_a_checkpoint_of_old_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = Foreign(tmp_path, {})
    monkeypatch.setitem(sys.modules, "fairseq.meters", SimpleNamespace(AverageMeter=AverageMeter))
    foreign.save(old_names(foreign.state), extra_state={"train_meters": {"loss": AverageMeter()}, "val": np.float64(1)})
    monkeypatch.undo()
    assert_fairseqs_tokens(foreign, foreign.converted())


def test_what_fairseq_makes_of_old_names_is_what_is_converted(tmp_path: Path) -> None:
    """The renaming of this test is undone by fairseq itself as well."""
    foreign = Foreign(tmp_path, {})
    old = old_names(foreign.state)
    foreign.model.load_state_dict(dict(old), strict=True)
    assert all(
        torch.equal(part, foreign.state[name])
        for name, part in foreign.model.state_dict().items()
        if not name.endswith(("version", "_float_tensor"))
    )


def test_an_old_pre_norm_model_has_no_last_layer_norm(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, {**SHARED, **PRE_NORM})
    state = {name: part for name, part in foreign.state.items() if not name.endswith("version")}
    state = {name: part for name, part in state.items() if not name.startswith(("encoder.layer_", "decoder.layer_n"))}
    foreign.save(state)
    architecture = load_bundle(foreign.converted()).architecture
    assert (architecture.encoder_pre_norm, architecture.decoder_pre_norm) == (True, True)
    assert (architecture.encoder_final_norm, architecture.decoder_final_norm) == (False, False)
    foreign.model.load_state_dict(dict(state))
    assert foreign.model.decoder.layer_norm is None
    sources, engine = sentences(3), load_translator(tmp_path / "bundle", engine="torch").engine
    for source in sources:
        logits, _ = foreign.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[EOS_ID, 9, 30]]))
        found = engine.verify(engine.encode([source]), np.array([[EOS_ID, 9, 30]]), TARGET_SIZE)
        by_id = np.take_along_axis(found.log_probs, found.ids.argsort(axis=2), axis=2)
        np.testing.assert_allclose(by_id, logits.log_softmax(dim=-1).detach().numpy(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", ["cfg with a Namespace", "cfg with a dictionary", "half precision", "shadows"])
def test_every_form_of_a_checkpoint_is_read(shape: str, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, SHARED)
    task = {"_name": "translation", "source_lang": "de", "target_lang": "en"}
    if shape == "half precision":
        half = {name: part.half() for name, part in foreign.state.items()}
        foreign.save(half)
        foreign.model.load_state_dict({name: rounded(part.float()) for name, part in half.items()})
    elif shape == "shadows":  # what fairseq 0.12 without our shims writes for an encoder
        shadows = {f"encoder.layers.{i}.{name}_weight": torch.zeros(3) for i in (0, 1) for name in ("in_proj", "fc1")}
        foreign.save(foreign.state | shadows)
    else:
        model = foreign.settings if "Namespace" in shape else vars(foreign.settings)
        foreign.save(foreign.state, args=None, cfg={"model": model, "task": task})
    assert_fairseqs_tokens(foreign, foreign.converted())


# -- what cannot be converted


def _positions(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return state | {"encoder.embed_positions.weight": torch.zeros(9, 16)}


REFUSED: dict[str, tuple[dict[str, Any], Callable[[dict[str, Tensor]], dict[str, Tensor]], str]] = {
    "learned positions": ({"encoder_learned_pos": True}, dict, "learned positions (encoder_learned_pos)"),
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
    "another size": ({}, lambda state: state | {"decoder.layers.1.fc2.bias": torch.zeros(3)}, "has shape [3]"),
    "not a number": ({}, lambda state: state | {"decoder.layers.1.fc2.bias": torch.full((16,), np.nan)}, "no finite"),
    "projected output": (
        {},
        lambda state: state | {"decoder.project_out_dim.weight": torch.zeros(16, 16)},
        "decoder.project_out_dim.weight has no place",
    ),
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    return Foreign(tmp_path_factory.mktemp("plain"), SHARED)


def changed(foreign: Foreign, folder: Path, settings: dict[str, Any], state: dict[str, Any]) -> Path:
    path = folder / "changed.pt"
    torch.save({"args": Namespace(**{**vars(foreign.settings), **settings}), "model": state}, path)
    for name in ("dict.de.txt", "dict.en.txt"):
        (folder / name).write_bytes((foreign.folder / name).read_bytes())
    return path


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


def test_a_dictionary_gives_the_ids_that_fairseq_gives(tmp_path: Path) -> None:
    from fairseq.data import Dictionary as FairseqDictionary

    text = "a 5\n▁b 3\nc\u2028d 2\na 1 #fairseq:overwrite\n\u00e9 0\nmadeupword0000 0\n"
    (tmp_path / "dict.txt").write_text(text, encoding="utf-8")
    theirs, ours = FairseqDictionary.load(str(tmp_path / "dict.txt")), Dictionary(text, "dict.txt")
    words = ["a", "▁b", "c\u2028d", "é", "x", "<unk>", "</s>", "madeupword0000"]
    assert ours.symbols == theirs.symbols
    assert ours.ids(words) == [theirs.index(word) for word in words]


# -- text


LINES = [
    "Ein Mann, der nicht da ist, kauft 3,5 % mehr Brot.",
    'Er sagte: "Das ist\'s!" & ging <b>weg</b> – um 10:30 Uhr | [ok]',
    "well-known E-Mail-Adressen z.B. a@b.de",
    "  viel   Platz  ",
    "Straße 東京 😀",
]


def learned_merges(count: int = 60) -> str:
    from io import StringIO

    from subword_nmt.learn_bpe import learn_bpe

    merges = StringIO()
    learn_bpe(StringIO("\n".join(LINES * 3)), merges, count, min_frequency=1)
    return merges.getvalue()


def as_fastbpe(merges: str) -> str:
    return "".join(f"{line} {1000 - i}\n" for i, line in enumerate(merges.splitlines()[1:]))


def fastbpe(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """fastBPE's `process_bpe`, line by line."""
    parts = [*word[:-1], f"{word[-1]}</w>"]
    while len(parts) > 1:
        known = [(ranks[pair], pair) for pair in pairwise(parts) if pair in ranks]
        if not known:
            break
        _, best = min(known)
        merged, place = [], 0
        while place < len(parts):
            if tuple(parts[place : place + 2]) == best:
                merged.append("".join(best))
                place += 2
            else:
                merged.append(parts[place])
                place += 1
        parts = merged
    return [f"{part}@@" for part in parts[:-1]] + [parts[-1].removesuffix("</w>")]


def vocabulary_of(text: Sequence[Sequence[str]], segmentation: Segmentation, codes: bytes | None) -> FairseqVocabulary:
    symbols = dict.fromkeys(symbol for line in text for symbol in line)
    dictionary = "".join(f"{symbol} 1\n" for symbol in symbols)
    return FairseqVocabulary(segmentation, Dictionary(dictionary, "s"), Dictionary(dictionary, "t"), codes)


@pytest.mark.parametrize("bpe", ["subword_nmt", "fastbpe"])
def test_moses_and_merges_are_fairseqs_own(bpe: str, tmp_path: Path) -> None:
    from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig
    from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE, SubwordNMTBPEConfig

    merges = learned_merges()
    (tmp_path / "codes").write_text(merges)
    moses = MosesTokenizer(MosesTokenizerConfig(source_lang="de", target_lang="en"))
    codes = Namespace(name=str(tmp_path / "codes"))
    theirs = SubwordNMTBPE(SubwordNMTBPEConfig(bpe_codes=codes.name))
    expected = [theirs.encode(moses.encode(line)).split() for line in LINES]
    if bpe == "fastbpe":
        ranks = {(a, b): i for i, (a, b) in enumerate(line.split(" ") for line in merges.splitlines()[1:])}
        oracle = [[part for word in moses.encode(line).split() for part in fastbpe(word, ranks)] for line in LINES]
        assert oracle == expected
    segmentation = Segmentation("subword_nmt", "moses", "de", "en")
    vocabulary = vocabulary_of(expected, segmentation, merges.encode())
    for line, symbols in zip(LINES, expected, strict=True):
        ids = vocabulary.encode(line)
        assert [vocabulary.source_piece(id_) for id_ in ids] == symbols
        assert vocabulary.decode([*ids, EOS_ID]) == moses.decode(theirs.decode(" ".join(symbols)))


def test_fastbpes_codes_are_kept_as_the_same_merges(plain: Foreign, tmp_path: Path) -> None:
    merges = learned_merges()
    (tmp_path / "codes").write_text(as_fastbpe(merges))
    convert(Conversion(plain.path, bpe="fastbpe", codes=tmp_path / "codes"), tmp_path / "bundle", None)
    kept = (tmp_path / "bundle" / "codes").read_text()
    assert kept.splitlines()[1:] == merges.splitlines()[1:]
    assert kept.startswith("#version: 0.2\n")


def test_sentencepiece_is_fairseqs_own(tmp_path: Path) -> None:
    from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE, SentencepieceConfig

    (tmp_path / "spm.model").write_bytes(tiny_tokenizer())
    theirs = SentencepieceBPE(SentencepieceConfig(sentencepiece_model=str(tmp_path / "spm.model")))
    expected = [theirs.encode(line).split() for line in LINES]
    vocabulary = vocabulary_of(expected, Segmentation("sentencepiece", "none", "de", "en"), tiny_tokenizer())
    for line, symbols in zip(LINES, expected, strict=True):
        ids = vocabulary.encode(line)
        assert [vocabulary.piece(id_) for id_ in ids] == symbols
        assert vocabulary.decode(ids) == theirs.decode(" ".join(symbols))


@pytest.mark.parametrize(
    ("how", "content", "message"),
    [
        ({"bpe": "fastbpe"}, b"a b 3\na b\n", "line 2: not a merge of two symbols with its count"),
        ({"bpe": "subword_nmt"}, b"#version: 0.2\na b\na b 3\n", "codes, line 3: not a merge of two symbols"),
        ({"bpe": "subword_nmt"}, b"\xff\n", "the codes are not text"),
        ({"bpe": "sentencepiece"}, b"junk", "the codes are not a SentencePiece model"),
        ({"bpe": "none"}, b"a b\n", "codes of what?"),
    ],
)
def test_codes_that_are_none_are_one_line(
    how: dict[str, Any], content: bytes, message: str, plain: Foreign, tmp_path: Path
) -> None:
    (tmp_path / "codes").write_bytes(content)
    with pytest.raises(InputError) as caught:
        convert(Conversion(plain.path, codes=tmp_path / "codes", **how), tmp_path / "bundle", None)
    assert message in str(caught.value) and str(tmp_path / "codes") in str(caught.value)


def test_bpe_without_codes_is_one_line(plain: Foreign, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--bpe subword_nmt needs the codes"):
        convert(Conversion(plain.path, bpe="subword_nmt"), tmp_path / "bundle", None)


@pytest.mark.parametrize("package", ["sacremoses", "subword_nmt"])
def test_a_package_that_is_missing_is_named(
    package: str, plain: Foreign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "codes").write_text(learned_merges(5))
    how = Conversion(plain.path, bpe="subword_nmt", codes=tmp_path / "codes", tokenizer="moses")
    convert(how, tmp_path / "bundle", None)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.apply_bpe", None)
    with pytest.raises(EngineError, match=r"pip install 'specmt\[moses\]'"):
        load_bundle(tmp_path / "bundle").vocabulary()


# -- the bundle


def test_a_model_of_specmts_own_tokenizer_is_a_bundle_like_any_other(tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, SHARED)
    pieces = tiny_vocabulary().pieces()
    assert len(pieces) == TARGET_SIZE
    for language in ("de", "en"):
        (tmp_path / f"dict.{language}.txt").write_text("".join(f"{piece} 1\n" for piece in pieces[MASK_ID:]))
    (tmp_path / "spm.model").write_bytes(tiny_tokenizer())
    bundle = load_bundle(foreign.converted(bpe="sentencepiece", codes=tmp_path / "spm.model"))
    assert TOKENIZER in bundle.files and "segmentation.json" not in bundle.files
    assert isinstance(bundle.vocabulary(), Vocabulary)


def test_a_manifest_says_where_a_model_comes_from(plain: Foreign) -> None:
    manifest = json.loads((plain.converted() / "manifest.json").read_text())
    assert manifest["format_version"] == 2
    assert (manifest["source_language"], manifest["target_language"]) == ("de", "en")
    origin = manifest["training"]["converted_from"]
    assert origin["checkpoint"] == "model.pt" and len(origin["sha256"]) == 64
    assert origin["fairseq_settings"]["arch"] == "transformer"
    assert "tied_output" not in manifest["architecture"] and manifest["architecture"]["encoder_pre_norm"] is False


@pytest.mark.parametrize("content", ["[]", "{", '{"subwords": 1}', '{"subwords": "none"}'])
def test_a_damaged_segmentation_is_one_line(content: str, plain: Foreign) -> None:
    bundle = load_bundle(plain.converted())
    (bundle.path / "segmentation.json").write_text(content)
    with pytest.raises(BundleError, match=r"segmentation\.json: "):
        bundle.vocabulary()


# -- the command line


def run(*arguments: object) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "specmt", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        input="w5 w6 w7\n\nw9\n",
        cwd=ROOT,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_command_converts_and_translate_says_that_there_is_no_drafter(plain: Foreign, tmp_path: Path) -> None:
    (tmp_path / "text.de").write_text("w5\nw6\nw7\nw8\nw9\nw10\n")
    bundle = tmp_path / "bundle"
    assert run("convert", plain.path, bundle, "--calibration", tmp_path / "text.de") == (0, f"{bundle}\n", "")
    status, text, said = run("translate", "-m", bundle)
    assert (status, said) == (0, f"specmt: {bundle} has no drafter: decoding with --strategy ar\n")
    translator = load_translator(bundle)
    settings = DecodingSettings.from_defaults(translator.defaults)
    settings = DecodingSettings("ar", 1, 1, 0.0, 1, settings.length_penalty)
    expected = [one.text for one in translator.translate(["w5 w6 w7", "", "w9"], settings, 2)]
    assert text.split("\n") == [*expected, ""]
    status, text, said = run("explain", "w5", "-m", bundle)
    assert (status, text) == (2, "")
    assert said == "specmt: this model has no drafter: it decodes with --strategy ar only\n"


def test_options_that_say_nothing_are_one_line() -> None:
    done = CliRunner().invoke(app, ["convert", "a.pt", "b", "--languages", "german"])
    assert isinstance(done.exception, UsageError) and isinstance(done.exception, SpecmtError)
    assert str(done.exception) == "--languages german: expected two languages, as in de-en"


def test_a_checkpoint_that_does_not_say_its_languages_asks_for_them(plain: Foreign, tmp_path: Path) -> None:
    path = changed(plain, tmp_path, {"source_lang": None}, plain.state)
    with pytest.raises(InputError, match=r"give them, as in --languages de-en$"):
        convert(Conversion(path), tmp_path / "bundle", None)
    convert(Conversion(path, languages=("de", "en")), tmp_path / "bundle", None)
    assert load_bundle(tmp_path / "bundle").source_language == "de"


@pytest.mark.slow
def test_what_fairseq_itself_trained_says_fairseqs_tokens(tmp_path: Path) -> None:
    """fairseq-preprocess and fairseq-train with fairseq's defaults (post-norm, three matrices) on tokenized text."""
    from subword_nmt.apply_bpe import BPE

    merges, folder = learned_merges(), tmp_path / "data"
    (tmp_path / "codes").write_text(merges)
    with (tmp_path / "codes").open() as codes:
        bpe = BPE(codes)
    for language in ("de", "en"):
        text = (ROOT / "data" / "smoke" / f"train.{language}").read_text().splitlines()[:300]
        (tmp_path / f"train.{language}").write_text("".join(bpe.process_line(f"{line}\n") for line in text))
    prepare = ["--source-lang", "de", "--target-lang", "en", "--trainpref", str(tmp_path / "train")]
    prepare += ["--validpref", str(tmp_path / "train"), "--destdir", str(folder), "--workers", "1"]
    code = "from specmt.fairseq_backend import compat; from fairseq_cli.preprocess import cli_main; cli_main()"
    subprocess.run([sys.executable, "-c", code, *prepare], check=True, capture_output=True, cwd=ROOT)
    sizes = "--encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64"
    sizes += " --encoder-layers 2 --decoder-layers 1 --encoder-attention-heads 4 --decoder-attention-heads 4"
    how = "--arch transformer --optimizer adam --lr 0.005 --max-tokens 2000 --max-update 60 --no-epoch-checkpoints"
    command = [sys.executable, "-m", "specmt.fairseq_backend.train", str(folder), "--save-dir", str(tmp_path / "run")]
    subprocess.run([*command, *sizes.split(), *how.split()], check=True, capture_output=True, cwd=ROOT)

    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

    from fairseq import checkpoint_utils  # isort: skip

    state = torch.load(tmp_path / "run" / "checkpoint_last.pt", weights_only=True)
    state["model"] = {name: rounded(part) for name, part in state["model"].items()}
    torch.save(state, folder / "rounded.pt")
    overrides = {"data": str(folder)}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(folder / "rounded.pt")], overrides)
    model.eval()
    how = Conversion(folder / "rounded.pt", ("de", "en"), bpe="subword_nmt", codes=tmp_path / "codes")
    convert(how, tmp_path / "bundle", None)
    translator = load_translator(tmp_path / "bundle", engine="torch")
    lines = (ROOT / "data" / "smoke" / "valid.de").read_text().splitlines()[:20]

    from fairseq.sequence_generator import SequenceGenerator

    for beam in (1, 4):
        settings = DecodingSettings("ar", 1, 1, 0.0, beam, 1.0, split=False, guards=False)
        for line, ours in zip(lines, translator.translate(lines, settings, 8), strict=True):
            ids = task.source_dictionary.encode_line(bpe.process_line(line), add_if_not_exist=False).long()
            generator = SequenceGenerator(
                [model], task.target_dictionary, beam_size=beam, max_len_a=2, max_len_b=7, min_len=0
            )  # 2 (n + 1) + 7 tokens before end-of-sentence: a bundle's 2 n + 10 with it
            inputs = {"src_tokens": ids[None], "src_lengths": torch.tensor([len(ids)])}
            theirs = generator.generate([model], {"net_input": inputs})[0][0]["tokens"].tolist()
            assert list(ours.ids) == theirs
            assert ours.text == task.target_dictionary.string(theirs, "@@ ")
