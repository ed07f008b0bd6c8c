"""The vocabulary of a converted model: fairseq's dictionaries, and how a text becomes their symbols and back.

A source line goes through the Moses tokenizer (where the model was trained so), is cut into subwords (SentencePiece, or
byte-pair encoding with `@@`), and each is looked up. A translation goes the same way back. Source and target may have
dictionaries of their own. The special symbols are fairseq's: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import sentencepiece

from specmt.errors import EngineError
from specmt.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID

SEGMENTATION = "segmentation.json"
SOURCE_DICTIONARY = "source.dict.txt"
TARGET_DICTIONARY = "target.dict.txt"
VOCABULARY_FILES = (SEGMENTATION, SOURCE_DICTIONARY, TARGET_DICTIONARY)
CODES = "codes"
"""Merges of byte-pair encoding as subword-nmt writes them, or a SentencePiece model; where `subwords` needs it."""

SUBWORDS = ("none", "sentencepiece", "subword_nmt")
TOKENIZERS = ("none", "moses")
_FAIRSEQ_SPECIALS = SPECIAL_PIECES[: UNK_ID + 1]
_CONTINUED = "@@ "
_OVERWRITE = " #fairseq:overwrite"
_MOST_CACHED = 50_000
"""Words whose subwords subword-nmt keeps: by itself it forgets none."""


@dataclass(frozen=True)
class Segmentation:
    """How a line becomes symbols of a dictionary. Names and rules are fairseq's (`--tokenizer`, `--bpe`)."""

    subwords: str
    """One of `SUBWORDS`; `none`: words between spaces. fastBPE's codes are kept as subword-nmt's."""
    tokenizer: str
    """One of `TOKENIZERS`."""
    source_language: str
    target_language: str
    dash_splits: bool = True
    """Moses: dashes inside words become tokens."""
    escape: bool = True
    """Moses: `&apos;` and the like."""
    prefix: str = ""
    """A symbol that stands before every source, as where it names the target language; none if empty."""

    def __post_init__(self) -> None:
        """Refuse what no program has."""
        if self.subwords not in SUBWORDS or self.tokenizer not in TOKENIZERS:
            raise ValueError(f"subwords are one of {', '.join(SUBWORDS)}, tokenizers one of {', '.join(TOKENIZERS)}")


class Dictionary:
    """fairseq's `dict.txt`: a symbol and its count a line, ids in the order of the lines after the special symbols."""

    def __init__(self, text: str, name: str) -> None:
        """Read a dictionary.

        Raises:
            ValueError: a line that is none of a dictionary, or a symbol twice; the line is named.
        """
        self.symbols = list(_FAIRSEQ_SPECIALS)
        self._ids = {symbol: id_ for id_, symbol in enumerate(self.symbols)}
        # Not splitlines: symbols may hold U+2028 and its like.
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []
        for number, line in enumerate(lines, start=1):
            entry = line.rstrip(" ")
            overwrite = entry.endswith(_OVERWRITE)
            symbol, _, count = entry.removesuffix(_OVERWRITE).rpartition(" ")
            if not symbol or not count.removeprefix("-").isdecimal():
                raise ValueError(f"{name}, line {number}: not a symbol and its count")
            if symbol in self._ids and not overwrite:
                raise ValueError(f"{name}, line {number}: {symbol!r} stands there twice")
            self._ids[symbol] = len(self.symbols)
            self.symbols.append(symbol)

    def __len__(self) -> int:
        return len(self.symbols)

    def ids(self, symbols: Sequence[str]) -> list[int]:
        """Ids of symbols, `<unk>` for those that are not there."""
        return [self._ids.get(symbol, UNK_ID) for symbol in symbols]


class FairseqVocabulary:
    """What `vocabulary.AnyVocabulary` says, for a converted model."""

    def __init__(self, segmentation: Segmentation, source: Dictionary, target: Dictionary, codes: bytes | None) -> None:
        """Load what the segmentation needs.

        Args:
            codes: content of the file `CODES`; None where subwords are `none`.

        Raises:
            ValueError: the codes are not what they should be.
            EngineError: a package is not installed.
        """
        self._source, self._target = source, target
        self._prefix = source.ids([segmentation.prefix] if segmentation.prefix else [])
        self._subwords = segmentation.subwords
        self._segment = _segmenter(segmentation.subwords, codes)
        self._tokenise, self._detokenise = _moses(segmentation)

    def __len__(self) -> int:
        return len(self._target)

    @property
    def source_size(self) -> int:
        """Symbols of the source's dictionary."""
        return len(self._source)

    def encode(self, text: str) -> list[int]:
        """Source ids of a line, without end-of-sentence; empty for a blank line."""
        ids = self._source.ids(self._segment(self._tokenise(text)))
        return [*self._prefix, *ids] if ids else []

    def unknown_symbols(self, text: str) -> list[str]:
        """Symbols of a line that the source's dictionary does not have, in order."""
        symbols = self._segment(self._tokenise(text))
        return [symbol for symbol, id_ in zip(symbols, self._source.ids(symbols), strict=True) if id_ == UNK_ID]

    def has_word(self, ids: Sequence[int]) -> bool:
        """Whether a source symbol that is known has a letter."""
        own = ids[len(self._prefix) :]
        return any(id_ > UNK_ID and any(map(str.isalpha, self.source_piece(id_))) for id_ in own)

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text of target ids."""
        return self._text([self._target.symbols[id_] for id_ in ids if id_ not in {BOS_ID, PAD_ID, EOS_ID}])

    def decode_with(self, ids: Sequence[int], symbols: Sequence[str]) -> str:
        """As `decode`, with `symbols` in the place of each `<unk>` in turn; what has no symbol is left out."""
        left = iter(symbols)
        texts = [next(left, "") if id_ == UNK_ID else self.piece(id_) for id_ in ids if id_ > EOS_ID]
        return self._text([text for text in texts if text])

    def _text(self, symbols: Sequence[str]) -> str:
        if self._subwords == "sentencepiece":
            text = "".join(symbols).replace("▁", " ").strip()
        else:
            text = f"{' '.join(symbols)} "
            text = (text.replace(_CONTINUED, "") if self._subwords == "subword_nmt" else text).rstrip()
        # One line stays one line, whatever a dictionary holds.
        return " ".join(self._detokenise(text).split("\n"))

    def piece(self, id_: int) -> str:
        """A target symbol."""
        return self._target.symbols[int(id_)]

    def source_piece(self, id_: int) -> str:
        """A source symbol."""
        return self._source.symbols[int(id_)]


def _segmenter(subwords: str, codes: bytes | None) -> Callable[[str], list[str]]:
    if subwords == "none":
        return str.split
    if codes is None:
        raise ValueError(f"subwords {subwords} need codes")
    if subwords == "sentencepiece":
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=codes)
        except RuntimeError:
            raise ValueError("the codes are not a SentencePiece model") from None
        # As fairseq has it: pieces are joined by spaces, and split again at any.
        return lambda text: " ".join(processor.encode(text, out_type=str)).split()
    try:
        from subword_nmt.apply_bpe import BPE
    except ImportError:
        raise EngineError(_missing("byte-pair encoding", "subword-nmt")) from None
    _check_merges(codes)
    bpe = BPE(io.StringIO(codes.decode()))

    def segment(text: str) -> list[str]:
        if len(bpe.cache) > _MOST_CACHED:
            bpe.cache = {}  # not emptied: another thread may be looking into it
        return str(bpe.process_line(text)).split()

    return segment


def _check_merges(codes: bytes) -> None:
    """Refuse what subword-nmt would leave the program for.

    Raises:
        ValueError: a line that is not two symbols.
    """
    try:
        lines = codes.decode().rstrip("\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError("the codes are not text") from None
    merges = lines[1:] if lines[0].startswith("#version:") else lines
    for number, line in enumerate(merges, start=1 + len(lines) - len(merges)):
        if len(line.strip("\r\n ").split(" ")) != 2:
            raise ValueError(f"codes, line {number}: not a merge of two symbols")


def _moses(segmentation: Segmentation) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Tokenizer and detokenizer of a line."""
    if segmentation.tokenizer == "none":
        return str, str
    try:
        from sacremoses import MosesDetokenizer, MosesTokenizer
    except ImportError:
        raise EngineError(_missing("the Moses tokenizer", "sacremoses")) from None
    tokenizer = MosesTokenizer(segmentation.source_language)
    detokenizer = MosesDetokenizer(segmentation.target_language)

    def tokenise(text: str) -> str:
        return str(
            tokenizer.tokenize(
                text, aggressive_dash_splits=segmentation.dash_splits, return_str=True, escape=segmentation.escape
            )
        )

    return tokenise, lambda text: str(detokenizer.detokenize(text.split()))


def _missing(what: str, package: str) -> str:
    return f"this model was trained with {what}, which needs {package}: in the clone, pip install '.[moses]'"


def write_vocabulary(
    folder: Path, segmentation: Segmentation, source_dictionary: str, target_dictionary: str, codes: bytes | None
) -> None:
    """Write the files that `read_vocabulary` reads."""
    (folder / SEGMENTATION).write_text(json.dumps(asdict(segmentation), indent=2) + "\n", encoding="utf-8")
    (folder / SOURCE_DICTIONARY).write_text(source_dictionary, encoding="utf-8", newline="\n")
    (folder / TARGET_DICTIONARY).write_text(target_dictionary, encoding="utf-8", newline="\n")
    if codes is not None:
        (folder / CODES).write_bytes(codes)


def read_vocabulary(folder: Path) -> FairseqVocabulary:
    """Load the vocabulary of a bundle.

    Raises:
        ValueError: a file that is damaged.
        EngineError: a package is not installed.
    """
    segmentation = _segmentation(json.loads((folder / SEGMENTATION).read_text(encoding="utf-8")))
    source, target = (
        Dictionary((folder / name).read_bytes().decode(), name) for name in (SOURCE_DICTIONARY, TARGET_DICTIONARY)
    )
    codes = (folder / CODES).read_bytes() if (folder / CODES).is_file() else None
    return FairseqVocabulary(segmentation, source, target, codes)


def _segmentation(values: object) -> Segmentation:
    types = {"str": str, "bool": bool}
    known = {field.name: types[str(field.type)] for field in fields(Segmentation)}
    if not isinstance(values, dict) or any(not isinstance(value, known.get(key, ())) for key, value in values.items()):
        raise ValueError("damaged")
    try:
        return Segmentation(**values)
    except TypeError:
        raise ValueError("damaged") from None
