"""Parallel text for training and evaluation: read, checked line by line, filtered."""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from specmt.errors import InputError, reason
from specmt.streams.inputs import decode_line

T = TypeVar("T")


def _unxz(data: bytes) -> bytes:
    """All streams of an archive; Python's own reader drops what follows the first one where its head is damaged.

    Raises:
        EOFError: it is cut off.
        lzma.LZMAError: it is damaged.
    """
    parts: list[bytes] = []
    while data or not parts:
        stream = lzma.LZMADecompressor()
        parts.append(stream.decompress(data))
        if not stream.eof:
            raise EOFError("the archive ends before its end-of-stream marker")
        data = stream.unused_data.lstrip(b"\0")  # padding between streams
    return b"".join(parts)


def _gunzip(data: bytes) -> bytes:
    import gzip  # hardly ever needed, and each translation would wait for it

    return gzip.decompress(data)


_UNPACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": _unxz, ".gz": _gunzip}
_NOT_OPENED = {".bz2", ".zip", ".zst"}
"""Archives that would be read as text."""


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file (also `.xz`, `.gz`) without their ends. Only LF and CRLF end a line.

    Raises:
        InputError: no such file, a damaged archive, one of another kind, or bytes that are not UTF-8; names the line.
    """
    if path.suffix in _NOT_OPENED:
        raise InputError(f"{path}: {path.suffix} is not supported; {' and '.join(_UNPACKERS)} are")
    try:
        data = path.read_bytes()
        if unpack := _UNPACKERS.get(path.suffix):
            data = unpack(data)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return [decode_line(line, str(path), number) for number, line in enumerate(io.BytesIO(data), start=1)]


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
    files = [Path(f"{path}.{language}{archive}") for archive in ("", *_UNPACKERS)]
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
