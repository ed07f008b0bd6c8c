"""Models that fairseq makes, converted: the very tokens of fairseq's own generator, and one line for what cannot be."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from foreign import (
    LEARNED,
    PRE_NORM,
    SHARED,
    TARGET_SIZE,
    Foreign,
    assert_fairseqs_tokens,
    changed,
    fairseqs_log_probs,
    learned_merges,
    log_probs,
    rounded,
    sentences,
)
from processors import skip_where_onnx_saturates
from scripted import tiny_tokenizer, tiny_vocabulary
from torch import Tensor
from typer.testing import CliRunner

from specmt.bundles.bundle import GRAPHS, TOKENIZER, load_bundle
from specmt.cli import app
from specmt.conversion.converting import Conversion, convert
from specmt.engines.base import step
from specmt.errors import BundleError, EngineError, InputError, SpecmtError, UsageError
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID, MASK_ID, Vocabulary

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
ROOT = Path(__file__).parent.parent
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
    "learned positions": {**SHARED, **LEARNED, "max_source_positions": 40, "max_target_positions": 30},
    "learned positions of the source": {"encoder_learned_pos": True},
    "learned positions of the target": {**PRE_NORM, "decoder_learned_pos": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_says_fairseqs_tokens(variant: str, tmp_path: Path) -> None:
    foreign = Foreign(tmp_path, VARIANTS[variant])
    assert_fairseqs_tokens(foreign, foreign.converted())


@pytest.mark.parametrize("engine", ["native", "onnx"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_8_bit_engines_agree_with_the_reference_on_every_variant(variant: str, engine: str, tmp_path: Path) -> None:
    skip_where_onnx_saturates(engine)
    foreign = Foreign(tmp_path, VARIANTS[variant], seed=2, projections=0.25)
    text = [" ".join(foreign.source.symbols[id_] for id_ in source[:-1]) for source in sentences(60, seed=1)]
    assert convert(Conversion(foreign.path), tmp_path / "bundle", text) is None
    assert {name for name in load_bundle(tmp_path / "bundle").files if name.endswith(".onnx")} == set(GRAPHS[:2])
    exact, fast = (load_translator(tmp_path / "bundle", engine=name).engine for name in ("torch", engine))
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


@pytest.mark.parametrize("name", ["transformer_iwslt_de_en", "transformer_wmt_en_de_big"])
def test_sizes_of_public_models_run_in_every_engine(name: str, tmp_path: Path) -> None:
    """With a layer a side; the second has the encoder's feed-forward width of fairseq's models for WMT 2019."""
    wide = {"encoder_ffn_embed_dim": 8192} if name.endswith("big") else {}
    few = {"encoder_layers": 1, "decoder_layers": 1}
    foreign = Foreign(tmp_path, {**SHARED, **few, **wide, "arch": name}, projections=0.004)
    assert convert(Conversion(foreign.path), tmp_path / "bundle", ["w5 w6 w7 w8 w9", "w10 w11 w12"]) is None
    source, said = [7, 8, 11, EOS_ID], [EOS_ID, 9, 30]
    theirs = fairseqs_log_probs(foreign, source, said)
    for engine, tolerance in (("torch", 1e-6), ("native", 0.05), ("onnx", 0.05)):
        found = log_probs(load_translator(tmp_path / "bundle", engine=engine).engine, source, said)
        assert np.abs(found - theirs).mean() < tolerance * theirs.std()


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
        theirs = fairseqs_log_probs(foreign, source, [EOS_ID, 9, 30])
        np.testing.assert_allclose(log_probs(engine, source, [EOS_ID, 9, 30]), theirs, rtol=1e-4, atol=5e-4)


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


# -- the bundle


def of_own_tokenizer(foreign: Foreign) -> Path:
    """The bundle of a model whose dictionaries and codes are those of specmt's tiny tokenizer."""
    pieces = tiny_vocabulary().pieces()
    assert len(pieces) == TARGET_SIZE
    for language in ("de", "en"):
        (foreign.folder / f"dict.{language}.txt").write_text("".join(f"{piece} 1\n" for piece in pieces[MASK_ID:]))
    (foreign.folder / "spm.model").write_bytes(tiny_tokenizer())
    return foreign.converted(bpe="sentencepiece", codes=foreign.folder / "spm.model")


def test_a_model_of_specmts_own_tokenizer_is_a_bundle_like_any_other(tmp_path: Path) -> None:
    bundle = load_bundle(of_own_tokenizer(Foreign(tmp_path, SHARED)))
    assert TOKENIZER in bundle.files and "segmentation.json" not in bundle.files
    assert isinstance(bundle.vocabulary(), Vocabulary)


@pytest.mark.parametrize("other", [{"encoder_normalize_before": False}, {"activation_fn": "gelu"}], ids=str)
def test_a_verifier_unlike_those_that_specmt_trains_is_not_aligned(other: dict[str, Any], tmp_path: Path) -> None:
    translator = load_translator(of_own_tokenizer(Foreign(tmp_path, {**SHARED, **PRE_NORM, **other})))
    with pytest.raises(UsageError, match=r"^--alignment: .* is a converted model; only pairs"):
        _ = translator.aligner


def test_one_that_is_like_them_is_aligned_with_learned_positions_too(tmp_path: Path) -> None:
    sizes = {"max_source_positions": 9, "max_target_positions": 7}
    bundle = of_own_tokenizer(Foreign(tmp_path, {**SHARED, **PRE_NORM, **LEARNED, **sizes}))
    attention = load_translator(bundle).aligner.attention([9, 10, EOS_ID], [11, 12, EOS_ID])
    np.testing.assert_allclose(attention.sum(axis=1), 1, rtol=1e-5)


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
    assert (status, said.split("\n")[0]) == (0, f"specmt: {bundle} has no drafter: decoding with --strategy ar")
    translator = load_translator(bundle)
    settings = DecodingSettings.from_defaults(translator.defaults)
    settings = DecodingSettings("ar", 1, 1, 0.0, 1, settings.length_penalty)
    expected = [one.text for one in translator.translate(["w5 w6 w7", "", "w9"], settings, 2)]
    assert text.split("\n") == [*expected, ""]
    status, text, said = run("explain", "w5", "-m", bundle)
    assert (status, text) == (2, "")
    assert said == "specmt: this model has no drafter: it decodes with --strategy ar or replay\n"
    assert run("tune", bundle)[::2] == (1, f"specmt: {bundle}: has no drafter: there is no draft length to tune\n")
    files = ("--source", tmp_path / "text.de", "--reference", tmp_path / "text.de", "--repeats", 1, "--json")
    status, evaluated, _ = run("eval", "-m", bundle, *files)
    assert [one["strategy"] for one in json.loads(evaluated)["results"]] == ["ar", "beam5"]


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ("german", "expected two languages, as in de-en or de:en"),
        ("de-", "expected two languages, as in de-en or de:en"),
        ("a:b:c", "expected two languages, as in de-en or de:en"),
        ("d\ne:en", "expected two languages, as in de-en or de:en"),
        ("sr-Cyrl-x1", "which hyphen parts the two? Write them as in sr-Cyrl:en"),
    ],
)
def test_languages_that_are_not_two_are_one_line(languages: str, message: str) -> None:
    done = CliRunner().invoke(app, ["convert", "a.pt", "b", "--languages", languages])
    assert isinstance(done.exception, UsageError) and isinstance(done.exception, SpecmtError)
    assert str(done.exception) == f"--languages {languages}: {message}"


@pytest.mark.parametrize(
    ("languages", "pair"), [("de-en", ("de", "en")), ("de:en", ("de", "en")), ("sr-Cyrl:en", ("sr-Cyrl", "en"))]
)
def test_a_name_of_a_language_may_have_a_hyphen(
    languages: str, pair: tuple[str, str], plain: Foreign, tmp_path: Path
) -> None:
    names = zip(("--source-dict", "--target-dict"), ("dict.de.txt", "dict.en.txt"), strict=True)
    dictionaries = [part for option, name in names for part in (option, str(plain.folder / name))]
    command = ["convert", str(plain.path), str(tmp_path / "bundle"), "--languages", languages, *dictionaries]
    assert CliRunner().invoke(app, command).exit_code == 0
    bundle = load_bundle(tmp_path / "bundle")
    assert (bundle.source_language, bundle.target_language) == pair


def test_without_calibration_both_8_bit_engines_are_named(plain: Foreign, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    done = CliRunner().invoke(app, ["convert", str(plain.path), str(bundle)])
    assert (done.exit_code, done.stdout) == (0, f"{bundle}\n")
    assert done.stderr == (
        "specmt: no ranges for the native engine and no graphs for the onnx engine, for there is no --calibration: "
        "the torch engine alone runs the model\n"
    )
    export = f"`specmt export {bundle} --calibration TEXT` writes ranges and graphs"
    for engine, lacks in (
        ("native", "no ranges for the native engine, and no graphs for the onnx engine"),
        ("onnx", "no graphs for the onnx engine, and no ranges for the native engine"),
    ):
        with pytest.raises(EngineError) as caught:
            load_translator(bundle, engine=engine)
        assert str(caught.value) == f"{bundle}: {lacks}; {export}"


@pytest.mark.parametrize("command", ["export", "convert"])
def test_calibration_on_a_file_of_two_languages_is_refused(command: str, plain: Foreign, tmp_path: Path) -> None:
    text, bundle = tmp_path / "valid.tsv", tmp_path / "bundle"
    text.write_text("w5\nw6\tw7\n")
    if command == "export":
        convert(Conversion(plain.path), bundle, None)
    places = [str(plain.path), str(bundle)] if command == "convert" else [str(bundle)]
    done = CliRunner().invoke(app, [command, *places, "--calibration", str(text)])
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"{text}: line 2: has a tab; --calibration takes text of the source language alone"


def test_a_checkpoint_that_does_not_say_its_languages_asks_for_them(plain: Foreign, tmp_path: Path) -> None:
    path = changed(plain, tmp_path, {"source_lang": None}, plain.state)
    with pytest.raises(InputError, match=r"give them, as in --languages de-en$"):
        convert(Conversion(path), tmp_path / "bundle", None)
    convert(Conversion(path, languages=("de", "en")), tmp_path / "bundle", None)
    assert load_bundle(tmp_path / "bundle").source_language == "de"


def fairseq(tool: str, *arguments: str) -> None:
    """Run a tool of fairseq's in a process of its own, as two in one share its global state."""
    code = f"from specmt.fairseq_backend import compat; from fairseq_cli.{tool} import cli_main; cli_main()"
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, cwd=ROOT)


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
    fairseq("preprocess", *prepare)
    sizes = "--encoder-embed-dim 32 --decoder-embed-dim 32 --encoder-ffn-embed-dim 64 --decoder-ffn-embed-dim 64"
    sizes += " --encoder-layers 2 --decoder-layers 1 --encoder-attention-heads 4 --decoder-attention-heads 4"
    how = "--arch transformer --optimizer adam --lr 0.005 --max-tokens 2000 --max-update 60 --no-epoch-checkpoints"
    fairseq("train", str(folder), "--save-dir", str(tmp_path / "run"), *sizes.split(), *how.split())

    from fairseq import checkpoint_utils

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
