"""Parallel text for `fetch_corpora`: read as published, cleaned, split, and written whole or not at all."""

from __future__ import annotations

import hashlib
import lzma
import sys
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

STRAIGHT_QUOTES = str.maketrans({**dict.fromkeys("„“”‟«»", '"'), **dict.fromkeys("‚‘’‛´`", "'"), "\u00ad": None})
"""Typographic quotes to straight ones; soft hyphens are dropped."""

Pair = tuple[str, str]
"""A German sentence and its English translation."""


class FetchError(Exception):
    """What a user has to know, in one line."""


def report(message: str) -> None:
    """Progress, on standard error."""
    print(message, file=sys.stderr)


def normalise(text: str) -> str:
    """Training text: NFC, straight quotes, single spaces, none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).translate(STRAIGHT_QUOTES).split())


def clean_pairs(pairs: Iterable[Pair]) -> list[Pair]:
    """Normalised pairs in their order; pairs that repeat, or lack a side, or whose sides are equal, are left out."""
    normalised = ((normalise(german), normalise(english)) for german, english in pairs)
    return list(
        dict.fromkeys((german, english) for german, english in normalised if german and english != german and english)
    )


def without_sources(pairs: Iterable[Pair], sources: frozenset[str]) -> list[Pair]:
    """The pairs whose German side is not among `sources`, which are normalised."""
    return [pair for pair in pairs if pair[0] not in sources]


@dataclass(frozen=True)
class Split:
    """Pairs apart by German source: no source is in two of the lists."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def split_by_source(pairs: Sequence[Pair], held_out: int) -> Split:
    """Hold out two sets of `held_out` German sources, with one translation of each.

    The order of the sources' SHA-256 decides: not the order of the input, and another release with a few sentences more
    or less is split nearly alike.

    Raises:
        FetchError: fewer than ``2 * held_out + 1`` different sources.
    """
    first_pair = {german: (german, english) for german, english in reversed(pairs)}
    order = sorted(first_pair, key=lambda source: hashlib.sha256(source.encode()).digest())
    if len(order) <= 2 * held_out:
        raise FetchError(f"{len(order)} different sentences are too few to hold out 2 x {held_out} of them")
    valid, test = order[:held_out], order[held_out : 2 * held_out]
    return Split(
        train=without_sources(pairs, frozenset(valid + test)),
        valid=[first_pair[source] for source in valid],
        test=[first_pair[source] for source in test],
    )


def decode_lines(data: bytes, name: str) -> list[str]:
    """The lines of a text as published: only LF and CRLF end a line, spaces at the ends are dropped, NFC.

    Raises:
        FetchError: not UTF-8.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FetchError(f"{name}: byte {error.start + 1} is not UTF-8") from None
    lines = text.removesuffix("\n").split("\n")
    return [unicodedata.normalize("NFC", line).strip() for line in lines]


def aligned(german: Sequence[str], english: Sequence[str], name: str) -> list[Pair]:
    """The lines of two sides as pairs.

    Raises:
        FetchError: the sides differ in length.
    """
    if len(german) != len(english):
        raise FetchError(f"{name}: {len(german)} German lines, {len(english)} English ones")
    return list(zip(german, english, strict=True))


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def atomically(path: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes `path` when the block ends well; until then, and after an error, `path` is untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
        temporary = Path(stream.name)
        try:
            yield stream.file
            stream.close()
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_sides(pairs: Iterable[Pair], stem: Path) -> None:
    """Write ``STEM.de`` and ``STEM.en``, line-aligned."""
    pairs = list(pairs)
    for side, language in enumerate(("de", "en")):
        with atomically(stem.with_name(f"{stem.name}.{language}")) as stream:
            stream.write("".join(f"{pair[side]}\n" for pair in pairs).encode())


def write_training_pairs(pairs: Iterable[Pair], path: Path) -> None:
    """Write ``NAME.train.tsv.xz``: German, a tab, English."""
    text = "".join(f"{german}\t{english}\n" for german, english in pairs)
    with atomically(path) as stream:
        stream.write(lzma.compress(text.encode()))


def held_out_sources(folder: Path) -> frozenset[str]:
    """The normalised German sides of all the validation and test files in `folder`."""
    return frozenset(
        normalise(line) for path in sorted(folder.glob("*.de")) for line in decode_lines(path.read_bytes(), str(path))
    )
