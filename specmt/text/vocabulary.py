"""SentencePiece pieces <-> ids. fairseq's own ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, `[MASK]` 4, pieces."""

from __future__ import annotations

import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol

import sentencepiece

BOS_ID, PAD_ID, EOS_ID, UNK_ID, MASK_ID = range(5)
MASK_PIECE = "[MASK]"
SPECIAL_PIECES = ("<s>", "<pad>", "</s>", "<unk>", MASK_PIECE)
SIZE_STEP = 8
"""What fairseq fills up dictionaries to a multiple of."""

_FILLER = "[UNUSED"
_NORMALISATION = "nmt_nfkc"
"""SentencePiece's name of what it does to a text first."""
_WORD = "▁"
_BLANKS_LEFT = re.compile(" {2,}")
"""How pieces write a blank."""
_UNKNOWN = -50.0
"""Log-probability of what no piece has, nats: below all pieces."""
_LOOK_ALIKES = {
    **dict.fromkeys("»«‟", '"'),
    **dict.fromkeys("›‹‚‘´", "'"),
    **dict.fromkeys("‐‑−", "-"),
    "×": "x",
}
"""What a character is read as by a vocabulary that knows this one only: another quotation mark, hyphen or sign."""
_BLANKS: dict[int, str] = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " ")
"""Control characters, of which normalisation drops some, so that the words beside them become one."""
_COMMAS = re.compile(r"(?<!\w),,([^,\n]{1,1000}?)(?:''|[“”])(?!\w)")
_QUOTED = re.compile(r"(?<!\w)(?:‚([^‚‘\n]{1,1000})‘|›([^›‹\n]{1,1000})‹)(?!\w)")
"""What stands between single quotation marks, of which models take the second for an apostrophe."""
_DOUBLE = re.compile(r"[\"„“”»«]")
_BRACKETED = re.compile(r"[^\[\]()]*(?:(?<![\w\]])\[[^\[\]()]+\](?![\w+\[(])[^\[\]()]*)+")
"""Texts with brackets, and without parentheses, of programs and the like."""
_GRAVE_APOSTROPHE = re.compile(r"(?<=[^\W\d_])`(?=[^\W\d_])")
# The argument's name changed with sentencepiece 0.2.1.
_WITH_SURFACES: Any = (
    {"return_type": "proto"}
    if hasattr(sentencepiece.SentencePieceProcessor, "_resolve_return_type")
    else {"out_type": "immutable_proto"}
)


class AnyVocabulary(Protocol):
    """Text <-> ids, for whatever a bundle holds: `Vocabulary`, or `dictionaries.FairseqVocabulary`."""

    def __len__(self) -> int:
        """Tokens of the target."""

    @property
    def source_size(self) -> int:
        """Tokens of the source."""

    def encode(self, text: str) -> list[int]:
        """Source ids of a line, without end-of-sentence; empty for a blank line."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of target ids. Special ids other than `<unk>` leave no trace."""

    def unknown_symbols(self, text: str) -> list[str]:
        """What of a line the vocabulary does not have, in order: one entry for each `<unk>` of `encode`."""

    def decode_with(self, ids: Sequence[int], symbols: Sequence[str]) -> str:
        """As `decode`, with `symbols` in the place of each `<unk>` in turn; what has no symbol is left out."""

    def has_word(self, ids: Sequence[int]) -> bool:
        """Whether a source token that is known has a letter: else there is nothing to translate."""

    def piece(self, id_: int) -> str:
        """A target token as a person reads it."""

    def source_piece(self, id_: int) -> str:
        """A source token as a person reads it."""


class Vocabulary:
    """A joint source and target SentencePiece model whose ids are used by every network without translation."""

    def __init__(self, model: bytes) -> None:
        """Load a serialised SentencePiece model.

        Raises:
            ValueError: the bytes are no SentencePiece model, or its special ids are not ours.
        """
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError("not a SentencePiece model") from error
        found = tuple(self._processor.id_to_piece(id_) for id_ in range(min(len(self), len(SPECIAL_PIECES))))
        if found != SPECIAL_PIECES:
            raise ValueError(f"the first pieces are {' '.join(found)}, not {' '.join(SPECIAL_PIECES)}")
        known = {one: alike for one, alike in _LOOK_ALIKES.items() if not self._spells(one) and self._spells(alike)}
        self._reads_brackets = self._spells("(") and not self._spells("[")
        self._read_as = _BLANKS | str.maketrans({"\N{SOFT HYPHEN}": "", **known})

    def __len__(self) -> int:
        return int(self._processor.get_piece_size())

    @property
    def source_size(self) -> int:
        """As many as the target has."""
        return len(self)

    def encode(self, text: str) -> list[int]:
        """Ids of a line, without end-of-sentence; empty for a blank line. `[MASK]` in a text is plain characters.

        Soft hyphens, which say where a word may be broken, are no part of it. Of some characters that no piece has,
        such as `»`, it is those that look alike. Control characters are blanks, grave accents between letters are
        apostrophes, and quotation marks are double ones; so are brackets parentheses, which `punctuation.bracketed`
        undoes.
        """
        return list(self._processor.encode(self._read(text)))

    def _read(self, text: str) -> str:
        """A text as it is encoded."""
        if ("‘" in text or "‹" in text) and not _DOUBLE.search(text):
            text = _QUOTED.sub(lambda match: f'"{match[1] or match[2]}"', text)
        if ",," in text:
            text = _COMMAS.sub(r'"\1"', text)
        if "[" in text and self._reads_brackets and _BRACKETED.fullmatch(text):
            text = text.replace("[", "(").replace("]", ")")
        if "`" in text:
            text = _GRAVE_APOSTROPHE.sub("'", text)
        return text.translate(self._read_as)

    def _spells(self, character: str) -> bool:
        return UNK_ID not in self._processor.encode(character)

    def decode(self, ids: Sequence[int]) -> str:
        """Detokenised text. Special ids other than `<unk>` leave no trace."""
        return str(self._processor.decode([id_ for id_ in ids if id_ >= UNK_ID and id_ != MASK_ID]))

    def unknown_symbols(self, text: str) -> list[str]:
        """What of a line no piece has, as it stands there, in order: one entry for each `<unk>` of `encode`.

        One that begins a word comes with a blank before it.
        """
        pieces = list(self._processor.encode(self._read(text), **_WITH_SURFACES).pieces)
        return [
            " " * (before is not None and before.piece == _WORD) + str(piece.surface or piece.piece)
            for before, piece in zip([None, *pieces], pieces, strict=False)
            if piece.id == UNK_ID
        ]

    def decode_with(self, ids: Sequence[int], symbols: Sequence[str]) -> str:
        """As `decode`, with `symbols` in the place of each `<unk>` in turn; what has no symbol is left out."""
        left = iter(symbols)
        text = ""
        for id_ in ids:
            if id_ == UNK_ID:
                symbol = next(left, "")
                text += symbol.lstrip(" ") if text.endswith(" ") else symbol
            elif id_ > MASK_ID:
                text += self.piece(id_).replace(_WORD, " ")
        return _BLANKS_LEFT.sub(" ", text.strip(" "))

    def has_word(self, ids: Sequence[int]) -> bool:
        """Whether a piece that is known has a letter: else there is nothing to translate."""
        return any(id_ > MASK_ID and any(map(str.isalpha, self.piece(id_))) for id_ in ids)

    def starts_word(self, id_: int) -> bool:
        """Whether a blank stands before the piece, or it is the first."""
        return self.piece(id_).startswith(_WORD)

    def piece(self, id_: int) -> str:
        """The piece as a person reads it: `▁` marks the start of a word."""
        return str(self._processor.id_to_piece(int(id_)))

    def source_piece(self, id_: int) -> str:
        """As `piece`: both sides have the same tokens."""
        return self.piece(id_)

    def log_probability(self, id_: int) -> float:
        """Of the piece in the unigram model, nats."""
        return float(self._processor.get_score(int(id_)))

    def commonness(self, word: str) -> float:
        """The log-probability of a word's pieces in the unigram model, nats."""
        return sum(self.log_probability(id_) if id_ != UNK_ID else _UNKNOWN for id_ in self.encode(word))

    def pieces(self) -> list[str]:
        """All pieces in the order of their ids."""
        return [self.piece(id_) for id_ in range(len(self))]


def required_pieces(characters: str) -> str:
    """What pieces need so that texts with these characters can be spelt: each once, as normalisation has it."""
    # One by one: together, neighbours might become one character.
    pieces = "".join(map(normalised, unicodedata.normalize("NFC", characters)))
    return "".join(dict.fromkeys(pieces.replace(_WORD, "").replace(" ", "")))


def normalised(text: str) -> str:
    """A text as it is before it is cut into pieces."""
    said: str = _normaliser().normalize(text)
    return said


@cache
def _normaliser() -> Any:  # noqa: ANN401
    return sentencepiece.SentencePieceNormalizer(rule_name=_NORMALISATION)


def add_characters(model: bytes, characters: str) -> bytes:
    """A serialised SentencePiece model that spells `characters` too; ids of what it has do not change.

    Characters that it lacks take the places of unused pieces, and then become its last ones, less probable than all
    others. If it grew, unused pieces fill it up to a multiple of `SIZE_STEP`.
    """
    from sentencepiece import sentencepiece_model_pb2  # needs protobuf, which translating does not

    format_: Any = sentencepiece_model_pb2
    proto, kinds = format_.ModelProto.FromString(model), format_.ModelProto.SentencePiece
    size, lowest = len(proto.pieces), min(piece.score for piece in proto.pieces)
    unused = {piece.piece: piece for piece in proto.pieces if piece.type == kinds.UNUSED}
    known = {piece.piece for piece in proto.pieces} - unused.keys()
    for character in required_pieces(characters):
        if character not in known:
            names = [character, *(name for name in unused if name.startswith(_FILLER))]
            piece = next((unused.pop(name) for name in names if name in unused), None) or proto.pieces.add()
            piece.piece, piece.score, piece.type = character, lowest, kinds.NORMAL
    while len(proto.pieces) > size and len(proto.pieces) % SIZE_STEP:
        proto.pieces.add(piece=f"{_FILLER}{len(proto.pieces)}]", score=lowest, type=kinds.UNUSED)
    return bytes(proto.SerializeToString())


def train_vocabulary(
    sentences: Iterable[str],
    size: int,
    character_coverage: float,
    threads: int,
    required_characters: str = "",
) -> bytes:
    """Learn a unigram SentencePiece model from an iterator of lines; the serialised model.

    `[MASK]` is a control symbol: no text encodes to it.

    Raises:
        RuntimeError: SentencePiece cannot make so many pieces from the text.
    """
    model = io.BytesIO()  # to a file, SentencePiece writes as much as there is room for, and says nothing
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        vocab_size=size,
        character_coverage=character_coverage,
        normalization_rule_name=_NORMALISATION,
        required_chars=required_pieces(required_characters),
        bos_id=BOS_ID,
        pad_id=PAD_ID,
        eos_id=EOS_ID,
        unk_id=UNK_ID,
        pad_piece=SPECIAL_PIECES[PAD_ID],
        control_symbols=[MASK_PIECE],
        input_sentence_size=1_000_000,
        shuffle_input_sentence=True,
        num_threads=threads,
        minloglevel=1,
    )
    return model.getvalue()
