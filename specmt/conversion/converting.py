"""Models that were trained elsewhere as bundles: fairseq's checkpoints, dictionaries and codes, or Marian's folders.

Needs torch (and onnx, where graphs are wanted); translation with the result needs what its tokenizer needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sentencepiece

from specmt.bundles.bundle import TOKENIZER, WEIGHTS, DecodingDefaults, check_destination, write_bundle
from specmt.bundles.weights import save_weights
from specmt.conversion.fairseq_checkpoint import Checkpoint, Verifier, read_checkpoint, verifier_of
from specmt.conversion.foreign_files import read_file, shown
from specmt.conversion.marian import CODES, SOURCE_PIECES, read_model
from specmt.errors import InputError
from specmt.exporting import calibration_sources, moments_for, write_cpu_files
from specmt.files import file_digest
from specmt.text import dictionaries
from specmt.text.dictionaries import Dictionary, FairseqVocabulary, Segmentation
from specmt.text.vocabulary import MASK_ID, UNK_ID, AnyVocabulary, Vocabulary

_MERGES = re.compile(rb"(?!#version:)|#version: 0\.[12]\s*\n\s*\S")
"""How subword-nmt's codes begin: of a version that it reads, with a merge at least."""
_BPE = ("none", "sentencepiece", "subword_nmt", "fastbpe")
"""What `Conversion.bpe` may be."""
_MARKED_SHARE = 0.05
"""Of a dictionary's symbols: from there on, marks of subwords are no accident."""
_COMMON_SHARE = 0.5
"""Of a SentencePiece model's pieces or of a dictionary's symbols: the least that both have if they belong together. One
of them may be of more languages than the other."""


@dataclass(frozen=True)
class Conversion:
    """What is to be converted, and how its text was prepared."""

    checkpoint: Path
    """fairseq's; or a folder with a Marian model as transformers keeps it, of which only `languages` and
    `target_token` are asked."""
    languages: tuple[str, str] | None = None
    """Source and target; None: as the checkpoint says."""
    source_dictionary: Path | None = None
    """None: `dict.LANGUAGE.txt` beside the checkpoint."""
    target_dictionary: Path | None = None
    bpe: str | None = None
    """As `--bpe` has it; None: `none`, unless the checkpoint names another or a dictionary has the marks of subwords,
    which is then refused."""
    codes: Path | None = None
    """Merges or SentencePiece model; where `bpe` is neither `none` nor None."""
    tokenizer: str = "none"
    """`moses` or `none`."""
    dash_splits: bool = True
    escape: bool = True
    target_token: str = ""
    """Put before every source of a Marian model of several target languages."""


@dataclass(frozen=True)
class _Model:
    """What either kind comes to."""

    languages: tuple[str, str]
    verifier: Verifier
    vocabulary: AnyVocabulary
    write_vocabulary: Callable[[Path], None]
    origin: Mapping[str, Any]


def convert(
    conversion: Conversion, bundle: Path, calibration: Sequence[str] | None, weight_bits: int = 8
) -> str | None:
    """Write the bundle; why it has no graphs, if calibrated it has none.

    Args:
        calibration: lines in the source language, for the 8-bit engines; None: torch alone runs the model.
        weight_bits: 8, or 4 where there is calibration (see `moments_for`).

    Raises:
        InputError: a file that cannot be read or used, a model that cannot be converted, or see `check_destination`.
        EngineError: a package is not installed.
    """
    check_destination(bundle)
    model = _marian_model(conversion) if conversion.checkpoint.is_dir() else _fairseq_model(conversion)
    architecture = model.verifier.architecture
    without_graphs: str | None = None
    sources = calibration_sources(model.vocabulary, calibration) if calibration is not None else []

    def write_files(folder: Path) -> None:
        nonlocal without_graphs
        model.write_vocabulary(folder)
        weights = {name: tensor.numpy() for name, tensor in model.verifier.weights.items()}
        moments = moments_for(weight_bits, architecture, weights, sources)
        save_weights(weights, folder / WEIGHTS, moments=moments)
        if sources:
            without_graphs = write_cpu_files(folder, architecture, sources)

    write_bundle(
        bundle,
        languages=model.languages,
        architecture=architecture,
        decoding=DecodingDefaults(draft_length=1, beta=1, tau=0.0),
        write_files=write_files,
        training={"converted_from": model.origin},
        scores={},
    )
    return without_graphs


def _marian_model(conversion: Conversion) -> _Model:
    model = read_model(conversion.checkpoint, conversion.languages, conversion.target_token)
    text = (model.source_dictionary, model.target_dictionary)
    try:
        source, target = (Dictionary(content, "vocabulary") for content in text)
        vocabulary = FairseqVocabulary(model.segmentation, source, target, model.codes)
    except ValueError as error:
        raise InputError(f"{conversion.checkpoint / CODES}: {error}") from None
    _check_pieces(model.codes, source, conversion.checkpoint / CODES, conversion.checkpoint / SOURCE_PIECES)
    path = model.weights_path
    return _Model(
        model.languages,
        model.verifier,
        vocabulary,
        lambda folder: dictionaries.write_vocabulary(folder, model.segmentation, *text, model.codes),
        {"checkpoint": path.name, "sha256": file_digest(path), "model": model.name if _is_plain(model.name) else ""},
    )


def _fairseq_model(conversion: Conversion) -> _Model:
    checkpoint = read_checkpoint(conversion.checkpoint)
    verifier = verifier_of(checkpoint)
    languages = _languages(checkpoint, conversion.languages)
    if conversion.bpe is None:
        _check_bpe(checkpoint)
    text = _TextFiles(conversion, languages)
    vocabulary = text.vocabulary()
    _check_dictionaries(vocabulary, verifier, text)
    return _Model(languages, verifier, vocabulary, text.write, _origin(conversion, checkpoint))


def _languages(checkpoint: Checkpoint, given: tuple[str, str] | None) -> tuple[str, str]:
    """Those given, unless they are the checkpoint's the other way round; else the checkpoint's."""
    source, target = (
        checkpoint.task.word(name) or checkpoint.settings.word(name) for name in ("source_lang", "target_lang")
    )
    if given == (target, source) != (source, target):
        raise InputError(f"{checkpoint.path}: translates {source} to {target}: exchange the two of --languages")
    if given:
        return given
    if not (source and target):
        raise InputError(f"{checkpoint.path}: does not say its languages; give them, as in --languages de-en")
    return source, target


def _check_bpe(checkpoint: Checkpoint) -> None:
    """Refuse a model whose text was cut as no bundle's is.

    Raises:
        InputError: the checkpoint says so.
    """
    name = checkpoint.bpe.word("_name") or checkpoint.settings.word("bpe")
    if name and name not in _BPE:
        raise InputError(
            f"{checkpoint.path}: its text was cut by {name}, and only {', '.join(_BPE[1:])} can be converted (or say "
            "--bpe none if your text comes cut already)"
        )


def _origin(conversion: Conversion, checkpoint: Checkpoint) -> Mapping[str, Any]:
    names = ("arch", "task", "lr", "max_update", "update_freq", "dropout", "label_smoothing", "seed")
    given = {name: checkpoint.settings.values.get(name) for name in names}
    settings = {name: value for name, value in given.items() if _is_plain(value) or _is_list(value)}
    path = conversion.checkpoint
    return {"checkpoint": path.name, "sha256": file_digest(path), "fairseq_settings": settings}


def _is_plain(value: object) -> bool:
    """Whether a manifest can say it."""
    return isinstance(value, int | float) or (isinstance(value, str) and value.isprintable())


def _is_list(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_plain, value))


class _TextFiles:
    """Dictionaries and codes: read, checked, and written into a bundle."""

    def __init__(self, conversion: Conversion, languages: tuple[str, str]) -> None:
        self._segmentation = Segmentation(
            "subword_nmt" if conversion.bpe == "fastbpe" else conversion.bpe or "none",
            conversion.tokenizer,
            *languages,
            conversion.dash_splits,
            conversion.escape,
        )
        folder, (source, target) = conversion.checkpoint.parent, languages
        self.source_path = conversion.source_dictionary or folder / f"dict.{source}.txt"
        self.target_path = conversion.target_dictionary or folder / f"dict.{target}.txt"
        self._source, self._target = _text(self.source_path), _text(self.target_path)
        self._codes_path, self._codes = conversion.codes, _codes(conversion)
        self._is_bpe_said = conversion.bpe is not None

    def vocabulary(self) -> AnyVocabulary:
        """The vocabulary that the files make.

        Raises:
            InputError: a file that is not what it should be.
        """
        try:
            source = Dictionary(self._source, str(self.source_path))
            target = Dictionary(self._target, str(self.target_path))
        except ValueError as error:
            raise InputError(str(error)) from None
        if not self._is_bpe_said:
            _check_words(source, self.source_path)
            _check_words(target, self.target_path)
        try:
            vocabulary = FairseqVocabulary(self._segmentation, source, target, self._codes)
        except ValueError as error:
            raise InputError(f"{self._codes_path}: {error}") from None
        if self._segmentation.subwords == "sentencepiece":
            assert self._codes is not None and self._codes_path is not None
            _check_pieces(self._codes, source, self._codes_path, self.source_path)
        return vocabulary

    def write(self, folder: Path) -> None:
        """Write them; specmt's own tokenizer as such, for then the bundle is like any other."""
        if self._is_specmts():
            assert self._codes is not None
            (folder / TOKENIZER).write_bytes(self._codes)
        else:
            dictionaries.write_vocabulary(folder, self._segmentation, self._source, self._target, self._codes)

    def _is_specmts(self) -> bool:
        if self._segmentation.subwords != "sentencepiece" or self._segmentation.tokenizer != "none":
            return False
        try:
            pieces = Vocabulary(self._codes or b"").pieces()
        except ValueError:
            return False
        names = (str(self.source_path), self._source), (str(self.target_path), self._target)
        return all(Dictionary(text, name).symbols[MASK_ID:] == pieces[MASK_ID:] for name, text in names)


def _text(path: Path) -> str:
    try:
        return read_file(path).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None


def _codes(conversion: Conversion) -> bytes | None:
    """The codes as a bundle keeps them: fastBPE's, which have counts, as subword-nmt's, which have the same meaning."""
    if conversion.bpe in {None, "none"}:
        if conversion.codes:
            raise InputError(f"{conversion.codes}: codes of what? Say --bpe sentencepiece, subword_nmt or fastbpe")
        return None
    if not conversion.codes:
        raise InputError(f"--bpe {conversion.bpe} needs the codes (merges or SentencePiece model) that the model has")
    content = read_file(conversion.codes)
    if conversion.bpe == "subword_nmt" and not _MERGES.match(content):
        found = shown(content.partition(b"\n")[0])
        raise InputError(f"{conversion.codes}: begins with {found}, expected #version: 0.1 or 0.2, and merges")
    if conversion.bpe != "fastbpe":
        return content
    merges = []
    for number, line in enumerate(_text(conversion.codes).rstrip("\n").split("\n"), start=1):
        symbols = line.strip("\r\n ").split(" ")
        if len(symbols) != 3 or not symbols[2].isdecimal():
            raise InputError(f"{conversion.codes}, line {number}: not a merge of two symbols with its count")
        merges.append(f"{symbols[0]} {symbols[1]}\n")
    return "".join(["#version: 0.2\n", *merges]).encode()


def _check_words(dictionary: Dictionary, path: Path) -> None:
    """Refuse subwords where words are expected.

    Raises:
        InputError: more symbols have a mark of subwords than in a text of words, where a few may.
    """
    symbols = dictionary.symbols[UNK_ID + 1 :]
    marks = {
        "begin with ▁": (sum(symbol.startswith("▁") for symbol in symbols), "--bpe sentencepiece"),
        "end with @@": (sum(symbol.endswith("@@") for symbol in symbols), "--bpe subword_nmt or fastbpe"),
    }
    for what, (count, option) in marks.items():
        if count > _MARKED_SHARE * len(symbols):
            raise InputError(
                f"{path}: {count} of {len(symbols)} symbols {what}, so these are subwords: say {option}, with --codes "
                "(or --bpe none if your text comes cut already)"
            )


def _check_pieces(codes: bytes, dictionary: Dictionary, codes_path: Path, dictionary_path: Path) -> None:
    """Refuse the SentencePiece model of other dictionaries.

    Raises:
        InputError: the dictionary has too few of its pieces.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=codes)
    pieces, symbols = set(map(processor.id_to_piece, range(len(processor)))), set(dictionary.symbols[UNK_ID + 1 :])
    common = len(pieces & symbols)
    if common < _COMMON_SHARE * min(len(pieces), len(symbols)):
        raise InputError(
            f"{codes_path}: only {common} of its {len(pieces)} pieces stand in {dictionary_path}: it is another model's"
        )


def _check_dictionaries(vocabulary: AnyVocabulary, verifier: Verifier, text: _TextFiles) -> None:
    shape = verifier.architecture
    sizes = (
        (text.source_path, vocabulary.source_size, shape.source_vocabulary_size or shape.vocabulary_size),
        (text.target_path, len(vocabulary), shape.vocabulary_size),
    )
    for path, found, expected in sizes:
        if found != expected:
            raise InputError(f"{path}: {found} symbols with the four special ones, but the checkpoint has {expected}")
