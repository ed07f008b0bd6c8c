"""Bring the corpora of the real models into one folder, each file checked.

    python scripts/fetch_corpora.py --from FOLDER     copies from a folder that has the project's own files
    python scripts/fetch_corpora.py                   downloads what is public

Either way the folder (default ``data/corpora``) then holds, for each corpus, ``NAME.train.tsv.xz`` (one pair a line:
German, a tab, English) and line-aligned ``NAME.valid.{de,en}``, ``NAME.test*.{de,en}``.

What is known about the bytes, and what is not:

- ``--from`` accepts a file only if its SHA-256 stands in ``SHA256`` below.
- Multi30k comes from the repository of its authors. The MD5 sums are those with which torchtext checked the same
  files. newstest2021 comes through sacrebleu, which checks its archive.
- Of the Tatoeba archive at OPUS the authors of this script know no published checksum. The first download writes its
  SHA-256 into ``downloads.lock.json`` beside the data, and every later download has to agree with it. Who wants to be
  sure of the first one compares lock files with somebody else.
- Training texts are cleaned (NFC, straight quotes, single spaces), and held-out sources are removed from them. That is
  like the project's own files but not byte-identical with them, and Tatoeba is split anew: a model that was trained on
  the project's own split may have seen sentences of this one's test set. The held-out sets of Multi30k and newstest2021
  are the official ones; the script says of each whether it is byte for byte the project's own.
- The WMT part cannot be downloaded: it pairs WMT 2021-2023 news and test-suite sentences with strong systems'
  translations, and nobody publishes it in this form.

Licences: Multi30k CC BY-NC-SA 4.0, Tatoeba CC BY 2.0 FR, WMT for research.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import lzma
import shutil
import sys
import tarfile
import tempfile
import unicodedata
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SHA256 = {
    "multi30k.test2016.de": "4be6b5b3236b79c25475c6bb829800a7ce559e9ba7a1f6c2394fe4d40be46d16",
    "multi30k.test2016.en": "399a4382932c1aadd3ceb9bef1008d388a64c76d4ae4e9d4728c6f4301cac182",
    "multi30k.test2017.de": "c3078bc3b36808bf9d20eb2347ed6137016179ef59ec0d2b9b8ecc3fb2880081",
    "multi30k.test2017.en": "ce1450ddc5ab0834502579d77a170849952e15a2938b34cc503bdc25ebb4fb98",
    "multi30k.train.tsv.xz": "56545d12b17e91742bb6845f9e93ce7a2ca7d393d0be56e200435140ea3bf728",
    "multi30k.valid.de": "1794b472fef617e4a8c893921afc1512d809c30e4518ba8d9930e259953524a8",
    "multi30k.valid.en": "1f2a23d992769b5b3d209b0a10dd0b77c08cceb1f20dfb97ed0aafa49d107227",
    "newstest2021.de": "b8afa1e06d881bbf739e7c8b2edbc568b963a3ffd26a8c49c98ef7ac98d53526",
    "newstest2021.en": "35a42d27dfc433fcb9d8ec4094b12ca389b98e90ee4497c75d364fa2638ece3a",
    "tatoeba.test.de": "b3ac912e546ec0547c6578188367c563442806d7c4d48497ba385d5ce7456c85",
    "tatoeba.test.en": "7f2a29f4f750b96e74d7014faa53b6ff0cd553b8fe78d8e71aec545c3c51414c",
    "tatoeba.train.tsv.xz": "3c922258434a1cea575ac24efc4a24bcff47b790837d76c1a191135c4e256670",
    "tatoeba.valid.de": "6f2418eb0172b76b0f4fb8adccd1690e797c9df8bd9b6bd66c120f3b8fa13e14",
    "tatoeba.valid.en": "a7d56839f2bf90d89aa265c55ff3fc530ad881eb3090661fda860757025589fd",
    "wmt.train.tsv.xz": "249b99573fd34121c4d9f25ffc6410ffddb383673ca5008f1bc4b45d89b7778a",
    "wmt.valid.de": "a4a43dc72bb5e58b15877095258d2d68da1f09cd2f45ff62dd2c159451b10ac2",
    "wmt.valid.en": "89e2608733250d96c9bdd173b712e2b303367767dc33cbacd84f64306183e9d3",
}
"""The project's own files, by name."""

CORPORA = ("multi30k", "newstest2021", "tatoeba", "wmt")
LOCK_NAME = "downloads.lock.json"
DOWNLOAD_TIMEOUT = 60
"""Seconds without a byte until a download is given up."""

STRAIGHT_QUOTES = str.maketrans({**dict.fromkeys("„“”‟«»", '"'), **dict.fromkeys("‚‘’‛´`", "'"), "\u00ad": None})
"""Typographic quotes to straight ones; soft hyphens are dropped."""

Pair = tuple[str, str]
"""A German sentence and its English translation."""


class FetchError(Exception):
    """What a user has to know, in one line."""


@dataclass(frozen=True)
class PublicFile:
    """A file to download; `md5` is None where nobody publishes a checksum."""

    url: str
    md5: str | None = None


_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K = {
    "train.de": PublicFile(f"{_MULTI30K}train.de.gz", "81ff90b99829c0cd4b1b587d394afd39"),
    "train.en": PublicFile(f"{_MULTI30K}train.en.gz", "0065d13af80720a55ca8153d126e6627"),
    "valid.de": PublicFile(f"{_MULTI30K}val.de.gz", "6e0e229eb049e3fc99a1ef02fb2d5f91"),
    "valid.en": PublicFile(f"{_MULTI30K}val.en.gz", "2b69aa9253948ac9f67e94917272dd40"),
    "test2016.de": PublicFile(f"{_MULTI30K}test_2016_flickr.de.gz", "efd67d314d98489b716b145475101932"),
    "test2016.en": PublicFile(f"{_MULTI30K}test_2016_flickr.en.gz", "ff2c0fcb4893a13bd73414306bc250ae"),
    "test2017.de": PublicFile(f"{_MULTI30K}test_2017_flickr.de.gz", "6a8d5c87f6ae19e3d35681aa6fd16571"),
    "test2017.en": PublicFile(f"{_MULTI30K}test_2017_flickr.en.gz", "005396bac545d880abe6f00bbb7dbbb4"),
}
TATOEBA = PublicFile("https://object.pouta.csc.fi/OPUS-Tatoeba/v2023-04-12/moses/de-en.txt.zip")
TATOEBA_HELD_OUT = 2000
"""German sources in each of the Tatoeba validation and test sets."""


# Text


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


# Files


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


def names_of(corpus: str) -> list[str]:
    """The file names of a corpus."""
    return [name for name in SHA256 if name.startswith(f"{corpus}.")]


# From a folder


def copy_corpus(corpus: str, source: Path, target: Path, link: bool = False) -> None:
    """Copy a corpus's files from `source` to `target` (or link to them), skipping those that are there already.

    Raises:
        FetchError: a file is missing in `source` or has other bytes than the project's.
    """
    target.mkdir(parents=True, exist_ok=True)
    for name in names_of(corpus):
        origin, place = source / name, target / name
        if place.is_file() and sha256(place) == SHA256[name]:
            report(f"{name}: already there")
            continue
        if not origin.is_file():
            raise FetchError(f"{origin}: no such file; --only leaves corpora out")
        found = sha256(origin)
        if found != SHA256[name]:
            raise FetchError(f"{origin}: SHA-256 is {found[:16]}…, expected {SHA256[name][:16]}…")
        if link:
            place.unlink(missing_ok=True)
            place.symlink_to(origin.resolve())
        else:
            with origin.open("rb") as reader, atomically(place) as writer:
                shutil.copyfileobj(reader, writer)
        report(f"{name}: {'linked' if link else 'copied'}")


# From the public sources


def download(file: PublicFile, folder: Path) -> bytes:
    """The bytes of a public file, kept in ``FOLDER/.downloads`` so that a second run does not fetch them again.

    Raises:
        FetchError: no connection, or a checksum that is neither the published nor the recorded one.
    """
    kept = folder / ".downloads" / hashlib.sha256(file.url.encode()).hexdigest()[:12] / file.url.rsplit("/", 1)[-1]
    if not kept.is_file():
        report(f"downloading {file.url}")
        try:
            with urllib.request.urlopen(file.url, timeout=DOWNLOAD_TIMEOUT) as response, atomically(kept) as stream:
                shutil.copyfileobj(response, stream)
        except (urllib.error.URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise FetchError(f"{file.url}: cannot be downloaded: {reason}; --only leaves corpora out") from None
    data = kept.read_bytes()
    try:
        check_download(file, data, folder / LOCK_NAME)
    except FetchError:
        kept.unlink()
        raise
    return data


def check_download(file: PublicFile, data: bytes, lock: Path) -> None:
    """Compare with the published checksum, if there is one, and with the recorded one; record it if it is the first.

    Raises:
        FetchError: they differ, or what should be an archive is none (so that no error page is ever recorded).
    """
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if file.md5 is not None and md5 != file.md5:
        raise FetchError(f"{file.url}: MD5 is {md5}, published is {file.md5}")
    if file.url.endswith(".zip") and not zipfile.is_zipfile(io.BytesIO(data)):
        raise FetchError(f"{file.url}: what came is not a zip archive")
    recorded: dict[str, str] = json.loads(lock.read_text(encoding="utf-8")) if lock.is_file() else {}
    found = hashlib.sha256(data).hexdigest()
    if recorded.setdefault(file.url, found) != found:
        raise FetchError(f"{file.url}: SHA-256 is {found[:16]}…, but {lock} has {recorded[file.url][:16]}…")
    with atomically(lock) as stream:
        stream.write((json.dumps(recorded, indent=2, sort_keys=True) + "\n").encode())


def download_multi30k(folder: Path) -> list[Pair]:
    """Write the official held-out sets as they are published; the cleaned training pairs."""
    lines = {name: decode_lines(gzip.decompress(download(file, folder)), name) for name, file in MULTI30K.items()}
    splits = {
        split: aligned(lines[f"{split}.de"], lines[f"{split}.en"], f"multi30k.{split}")
        for split in ("train", "valid", "test2016", "test2017")
    }
    for split in ("valid", "test2016", "test2017"):
        write_sides(splits[split], folder / f"multi30k.{split}")
    return clean_pairs(splits["train"])


def download_tatoeba(folder: Path) -> list[Pair]:
    """Split the OPUS release by German source and write the held-out sets; the training pairs."""
    with zipfile.ZipFile(io.BytesIO(download(TATOEBA, folder))) as archive:
        german, english = (decode_lines(archive.read(name), name) for name in ("Tatoeba.de-en.de", "Tatoeba.de-en.en"))
    split = split_by_source(clean_pairs(aligned(german, english, "Tatoeba.de-en")), TATOEBA_HELD_OUT)
    write_sides(split.valid, folder / "tatoeba.valid")
    write_sides(split.test, folder / "tatoeba.test")
    return split.train


def download_newstest2021(folder: Path) -> list[Pair]:
    """Write WMT 2021 German-English news, reference A, through sacrebleu's downloader; no training pairs."""
    try:
        from sacrebleu.dataset import DATASETS
    except ImportError:
        raise FetchError("newstest2021 needs sacrebleu: pip install sacrebleu") from None
    dataset = DATASETS["wmt21"]
    try:
        paths = dataset.get_files("de-en")  # type: ignore[no-untyped-call]
    except (OSError, EOFError, tarfile.TarError, SystemExit) as error:  # it exits where the checksum differs
        raise FetchError(f"newstest2021: sacrebleu cannot download it: {error}") from None
    files = dict(zip(dataset.fieldnames("de-en"), map(Path, paths), strict=True))
    german, english = (decode_lines(files[field].read_bytes(), str(files[field])) for field in ("src", "ref:A"))
    write_sides(aligned(german, english, "newstest2021"), folder / "newstest2021")
    return []


def skip_wmt(_folder: Path) -> list[Pair]:
    """Say why there is no download; no training pairs."""
    report(
        "wmt: skipped, it is not public in this form (WMT 2021-2023 news and test-suite sentences with strong systems' "
        "translations); train without it, or take it from a folder with --from"
    )
    return []


DOWNLOADERS: Mapping[str, Callable[[Path], list[Pair]]] = {
    "multi30k": download_multi30k,
    "newstest2021": download_newstest2021,
    "tatoeba": download_tatoeba,
    "wmt": skip_wmt,
}
"""Each writes a corpus's held-out sets into a folder and returns its training pairs."""


def download_corpora(corpora: Iterable[str], folder: Path) -> None:
    """Download corpora, except those whose files are all there already.

    Training pairs are written last, without the sources of any held-out set that is in the folder by then.

    Raises:
        FetchError: the first download that does not work.
    """
    training: dict[str, list[Pair]] = {}
    for corpus in corpora:
        if all((folder / name).is_file() for name in names_of(corpus)):
            report(f"{corpus}: already there")
            continue
        training[corpus] = DOWNLOADERS[corpus](folder)
        report_sameness(corpus, folder)
    held_out = held_out_sources(folder)
    for corpus, pairs in training.items():
        if kept := without_sources(pairs, held_out):
            write_training_pairs(kept, folder / f"{corpus}.train.tsv.xz")
            report(f"{corpus}.train.tsv.xz: {len(kept):,} pairs")


def report_sameness(corpus: str, folder: Path) -> None:
    """Say of each held-out file whether it is byte for byte the project's own."""
    for name in names_of(corpus):
        if name.endswith((".de", ".en")) and (folder / name).is_file():
            same = sha256(folder / name) == SHA256[name]
            report(f"{name}: {'the same bytes as' if same else 'differs from'} the project's own file")


# Command line


def report(message: str) -> None:
    """Progress, on standard error."""
    print(message, file=sys.stderr)


def chosen_corpora(text: str) -> list[str]:
    """The corpora that ``--only`` names.

    Raises:
        FetchError: an unknown name.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in CORPORA:
            raise FetchError(f"--only: no corpus {name!r}; there are {', '.join(CORPORA)}")
    return [corpus for corpus in CORPORA if corpus in names]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help="take the files from this folder")
    parser.add_argument("--to", dest="target", type=Path, metavar="FOLDER", default=Path("data/corpora"))
    parser.add_argument("--only", default=",".join(CORPORA), metavar="NAME,…", help=f"of {', '.join(CORPORA)}")
    parser.add_argument("--link", action="store_true", help="with --from: symbolic links in place of copies")
    return parser.parse_args(arguments)


def fetch(options: argparse.Namespace) -> None:
    """Fetch what the command line asks for.

    Raises:
        FetchError: the first thing that does not work.
    """
    corpora = chosen_corpora(options.only)
    if options.source is None and options.link:
        raise FetchError("--link needs --from")
    if options.source is not None and not options.source.is_dir():
        raise FetchError(f"--from: {options.source} is not a folder")
    if options.source is None:
        download_corpora(corpora, options.target)
        return
    for corpus in corpora:
        copy_corpus(corpus, options.source, options.target, options.link)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 after one line on standard error."""
    try:
        fetch(parse_arguments(arguments))
    except (FetchError, OSError) as error:
        report(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
