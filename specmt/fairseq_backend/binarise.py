"""Parallel ids into fairseq's memory-mapped format, and the dictionary that gives fairseq the same ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from specmt.arrays import IntArray
from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)
from specmt.text.vocabulary import EOS_ID, MASK_ID, SIZE_STEP, AnyVocabulary

from fairseq.data import indexed_dataset  # isort: skip


def write_dictionary(vocabulary: AnyVocabulary, folder: Path, languages: Sequence[str]) -> None:
    """Write `dict.LANGUAGE.txt` for each language: fairseq adds ids 0 to 3 itself, the rest are listed in order.

    Raises:
        ValueError: a vocabulary size that is no multiple of 8, which fairseq would pad with words of its own.
    """
    if len(vocabulary) % SIZE_STEP:
        raise ValueError(f"the vocabulary has {len(vocabulary)} pieces; fairseq needs a multiple of {SIZE_STEP}")
    lines = "".join(f"{piece} 1\n" for piece in map(vocabulary.piece, range(MASK_ID, len(vocabulary))))
    for language in languages:
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")


def write_numbers(sizes: Iterable[int], folder: Path, languages: Sequence[str]) -> None:
    """Write dictionaries whose words are ids, for vocabularies of other kinds. `sizes`: of each language, in tokens."""
    for size, language in zip(sizes, languages, strict=True):
        lines = "".join(f"{id_} 1\n" for id_ in range(MASK_ID, size))
        (folder / f"dict.{language}.txt").write_text(lines, encoding="utf-8")


def write_split(
    folder: Path,
    split: str,
    languages: tuple[str, str],
    pairs: Iterable[tuple[Sequence[int], Sequence[int]]],
    vocabulary_size: int,
) -> int:
    """Write `SPLIT.de-en.{de,en}.{bin,idx}`; the number of pairs, without which fairseq cannot read the files.

    Args:
        pairs: source and target ids without end-of-sentence, which is added here.
    """
    written = 0
    prefixes = [str(folder / f"{split}.{'-'.join(languages)}.{language}") for language in languages]
    builders = [
        indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=vocabulary_size) for prefix in prefixes
    ]
    for pair in pairs:
        written += 1
        for builder, ids in zip(builders, pair, strict=True):
            builder.add_item(torch.tensor([*ids, EOS_ID], dtype=torch.int32))
    for builder, prefix in zip(builders, prefixes, strict=True):
        builder.finalize(f"{prefix}.idx")
    return written


def token_counts(prefix: Path, vocabulary_size: int) -> IntArray:
    """Occurrences of each token in `PREFIX.{bin,idx}`, shape (vocabulary_size,)."""
    tokens = np.fromfile(f"{prefix}.bin", indexed_dataset.MMapIndexedDataset(str(prefix))._index.dtype)
    return np.bincount(tokens, minlength=vocabulary_size)
