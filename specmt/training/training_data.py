"""The training side of the corpora: read, tokenised, filtered, and written as fairseq reads them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from specmt import corpus
from specmt.arrays import IntArray
from specmt.bundles.bundle import TOKENIZER
from specmt.corpus import Pair
from specmt.errors import InputError, TrainingError
from specmt.fairseq_backend import binarise
from specmt.files import atomic_path
from specmt.text.vocabulary import AnyVocabulary, Vocabulary, normalised, required_pieces, train_vocabulary
from specmt.training.config import Config, CorpusConfig, SampleConfig

Ids = list[int]
Encoded = list[tuple[Ids, Ids]]
"""Pairs as token ids without end-of-sentence."""
_HARDLY_LEARNED = 250
"""Sources of an epoch: of characters that were added to a pair, most of those in fewer were taken for one another."""


@dataclass(frozen=True)
class TrainingData:
    """The corpora of a configuration. `announce` takes lines on what is done."""

    config: Config
    announce: Callable[[str], None]

    @property
    def languages(self) -> tuple[str, str]:
        """Source, target."""
        return self.config.data.source_language, self.config.data.target_language

    def files(self, entries: Iterable[CorpusConfig]) -> Iterator[Path]:
        """The files of some corpora."""
        for entry in entries:
            yield from corpus.corpus_files(self._path(entry), *self.languages)

    def check(self) -> None:
        """Look, before anything is made of them, whether all corpora are there, and text to validate with.

        Raises:
            InputError: one is not there, or cannot be read; it is named.
        """
        for path in self.files([*self.config.data.train, *self.config.data.valid]):
            if not path.is_file():
                raise InputError(f"{path}: no such file")
        if not any(pair.source.strip() and pair.target.strip() for pair in self.validation_pairs()):
            raise InputError("data.valid: no text in its files")

    def _path(self, entry: CorpusConfig) -> Path:
        return Path(self.config.data.folder) / entry.path

    def read(self, entry: CorpusConfig, limit: int = 0) -> list[Pair]:
        """A corpus' pairs, without `skip` and up to `limit` of the entry, and of those the first `limit`; 0: all.

        Raises:
            InputError: unreadable, or `skip` leaves nothing.
        """
        pairs = corpus.read_corpus(self._path(entry), *self.languages, entry.swapped)
        if entry.skip and entry.skip >= len(pairs):
            raise InputError(f"{self._path(entry)}: skip: {entry.skip} leaves nothing of {len(pairs)} pairs")
        return pairs[entry.skip :][: entry.limit or None][: limit or None]

    def validation_pairs(self) -> list[Pair]:
        """All of `data.valid`."""
        return [pair for entry in self.config.data.valid for pair in self.read(entry)]

    def kept(self, pairs: Iterable[tuple[Ids, Ids]]) -> Encoded:
        """The pairs that are fit for training."""
        data = self.config.data
        return [
            (source, target)
            for source, target in pairs
            if corpus.keep_pair(len(source), len(target), data.max_tokens, data.max_length_ratio)
        ]

    def encoded(self, vocabulary: Vocabulary, pairs: Iterable[Pair]) -> Encoded:
        """The pairs that are fit for training as token ids."""
        return self.kept((vocabulary.encode(source), vocabulary.encode(target)) for source, target in pairs)

    def train_tokenizer(self, folder: Path) -> None:
        """Learn a SentencePiece model from both sides of the training corpora, and write it to `folder`.

        Raises:
            TrainingError: no text, or not one for so many pieces.
        """
        settings = self.config.tokenizer
        sentences = [text for entry in self.config.data.train for pair in self.read(entry) for text in pair]
        if not any(map(str.strip, sentences)):
            raise TrainingError("data.train: no text in its files")
        threads = self.config.runtime.cores
        try:
            model = train_vocabulary(
                sentences,
                size=settings.vocabulary_size,
                character_coverage=settings.character_coverage,
                threads=threads,
                required_characters=settings.required_characters,
            )
        except RuntimeError as error:
            raise TrainingError(_wrong_size(settings.vocabulary_size, str(error))) from None
        with atomic_path(folder / TOKENIZER) as temporary:
            temporary.write_bytes(model)

    def binarise(self, vocabulary: Vocabulary, folder: Path) -> None:
        """Write the corpora to `folder`; tell what is left out, shared with validation, or rare.

        Raises:
            TrainingError: nothing is left of a split.
        """
        trained: set[int] = set()
        required = frozenset(required_pieces(self.config.tokenizer.required_characters))
        seen: Counter[str] = Counter()
        known = 0

        def encoded(entry: CorpusConfig, split: str) -> Encoded:
            nonlocal known
            read = self.read(entry)
            pairs = self.encoded(vocabulary, read)
            self.announce(f"binarise: {entry.path}, {len(pairs)} of {len(read)} pairs are fit for training")
            digests = [hash((tuple(source), tuple(target))) for source, target in pairs]
            if split == "train":
                trained.update(digests)
                if required:
                    for pair in read:
                        seen.update(dict.fromkeys(required.intersection(normalised(pair.source)), entry.repeat))
            else:
                known += sum(digest in trained for digest in digests)
            return pairs * entry.repeat

        why = "the others are empty, or beyond data.max_tokens or data.max_length_ratio"
        self.write_binarised(vocabulary, folder, encoded, why)
        if known:
            self.announce(f"binarise: {known} pairs of data.valid stand in data.train too: its losses will flatter")
        if rare := [f"{piece} ({seen[piece]})" for piece in sorted(required) if seen[piece] < _HARDLY_LEARNED]:
            self.announce(
                f"binarise: required characters in few sources of data.train: {', '.join(rare)}. "
                "Those hardly learned come out wrong; unknown ones are copied"
            )

    def binarised_files(self) -> Iterator[str]:
        """Names of what `write_binarised` writes."""
        for language in self.languages:
            yield f"dict.{language}.txt"
            for split in ("train", "valid"):
                yield from (f"{split}.{'-'.join(self.languages)}.{language}.{kind}" for kind in ("bin", "idx"))

    def write_binarised(
        self,
        vocabulary: AnyVocabulary,
        folder: Path,
        encoded: Callable[[CorpusConfig, str], Encoded],
        why_none: str,
    ) -> None:
        """Write both splits and fairseq's dictionaries.

        Args:
            encoded: the pairs of a corpus in a split (`train` or `valid`).
            why_none: how it can be that nothing is left of a split.

        Raises:
            TrainingError: nothing is left of a split.
        """
        sizes = (vocabulary.source_size, len(vocabulary))
        if isinstance(vocabulary, Vocabulary):
            binarise.write_dictionary(vocabulary, folder, self.languages)
        else:
            binarise.write_numbers(sizes, folder, self.languages)
        for split, entries in (("train", self.config.data.train), ("valid", self.config.data.valid)):
            pairs = (pair for entry in entries for pair in encoded(entry, split))
            if not binarise.write_split(folder, split, self.languages, pairs, max(sizes)):
                raise TrainingError(f"data.{split}: no pair is left of it: {why_none}")

    def target_counts(self, folder: Path, vocabulary_size: int) -> IntArray:
        """Occurrences of each token on the target side of what `write_binarised` wrote for training."""
        prefix = folder / f"train.{'-'.join(self.languages)}.{self.languages[1]}"
        return binarise.token_counts(prefix, vocabulary_size)


def shards_of(entry: CorpusConfig, sample: SampleConfig) -> str:
    """A name for the translations of what a stage takes of a corpus: another one for anything else."""
    taken = (entry.path, entry.skip, entry.limit, sample.limit, entry.swapped)
    return sha256(repr(taken).encode()).hexdigest()  # a path may be longer than a file's name


def _wrong_size(size: int, error: str) -> str:
    """SentencePiece's complaint in this project's terms."""
    if most := re.search(r"set it to a value <= (\d+)", error):
        return f"tokenizer.vocabulary_size: {size}: the text is enough for {int(most[1]) // 8 * 8}"
    if least := re.search(r"required_chars\D*\d+ vs (\d+)", error):
        return (
            f"tokenizer.vocabulary_size: {size}: the text's characters alone take {least[1]}; raise it, or lower "
            "tokenizer.character_coverage"
        )
    return f"tokenizer.vocabulary_size: {size}: {error}"
