"""Parallel text for training and evaluation: read, checked for alignment, filtered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from specmt.errors import InputError
from specmt.text_files import UNPACKERS, read_lines

T = TypeVar("T")


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def evenly_spread(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, or all if there are fewer."""
    count = min(count, len(items))
    return [items[place * len(items) // count] for place in range(count)]


def read_parallel(source: Path, target: Path) -> list[Pair]:
    """Line-aligned files as pairs.

    Raises:
        InputError: unreadable, or not the same number of lines.
    """
    sources, targets = read_lines(source), read_lines(target)
    if len(sources) != len(targets):
        raise InputError(f"{source} has {len(sources)} lines, {target} has {len(targets)}: they must be line-aligned")
    return [Pair(*pair) for pair in zip(sources, targets, strict=True)]


def read_tsv(path: Path) -> list[Pair]:
    """Pairs from a file with one `source<TAB>target` a line.

    Raises:
        InputError: unreadable, or a line without exactly one tab; names the line.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != len(Pair._fields):
            raise InputError(f"{path}: line {number}: {len(fields)} columns, expected source<TAB>target")
        pairs.append(Pair(*fields))
    return pairs


def corpus_files(path: Path, source_language: str, target_language: str) -> tuple[Path, ...]:
    """The file or files that `read_corpus` reads; of a side that is there as text and as an archive, the text."""
    if ".tsv" in path.suffixes:
        return (path,)
    return _side(path, source_language), _side(path, target_language)


def _side(path: Path, language: str) -> Path:
    files = [Path(f"{path}.{language}{archive}") for archive in ("", *UNPACKERS)]
    return next(filter(Path.is_file, files), files[0])


def read_corpus(path: Path, source_language: str, target_language: str, swapped: bool = False) -> list[Pair]:
    """A corpus by its path: a `.tsv` file, or the common start of `PATH.de` and `PATH.en`; each also `.xz` or `.gz`.

    Args:
        swapped: the columns of a `.tsv` file are target and source.

    Raises:
        InputError: unreadable or not aligned.
    """
    files = corpus_files(path, source_language, target_language)
    if len(files) > 1:
        return read_parallel(*files)
    pairs = read_tsv(*files)
    return [Pair(pair.target, pair.source) for pair in pairs] if swapped else pairs


def keep_pair(source_length: int, target_length: int, max_tokens: int, max_ratio: float) -> bool:
    """Whether a pair (lengths in tokens) is fit for training: no side empty, too long, or far longer than the other."""
    shorter, longer = sorted((source_length, target_length))
    return shorter > 0 and longer <= max_tokens and longer <= max_ratio * max(shorter, 4)
