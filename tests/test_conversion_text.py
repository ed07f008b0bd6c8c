"""Text of converted models: the tokens of fairseq's own tokenizers."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO

import pytest
from foreign import LINES, Foreign, learned_merges
from scripted import tiny_tokenizer

from specmt.bundles.bundle import load_bundle
from specmt.conversion.converting import Conversion, convert
from specmt.errors import EngineError, InputError
from specmt.text import dictionaries
from specmt.text.dictionaries import Dictionary, FairseqVocabulary, Segmentation
from specmt.text.vocabulary import EOS_ID

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]


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


def test_words_without_end_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from subword_nmt import apply_bpe

    made = []

    class Watched(apply_bpe.BPE):
        def __init__(self, codes: TextIO) -> None:
            super().__init__(codes)
            made.append(self)

    monkeypatch.setattr(apply_bpe, "BPE", Watched)
    monkeypatch.setattr(dictionaries, "_MOST_CACHED", 5)
    vocabulary = vocabulary_of([], Segmentation("subword_nmt", "none", "de", "en"), learned_merges().encode())
    for number in range(100):
        assert vocabulary.unknown_symbols(f"a{number} a{number} Hund")[-1] == vocabulary.unknown_symbols("Hund")[-1]
        assert len(made[0].cache) <= 5 + 2


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
    with pytest.raises(EngineError, match=r"pip install '.\[moses\]'"):
        load_bundle(tmp_path / "bundle").vocabulary()
