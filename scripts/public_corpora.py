"""The public sources of the corpora, for `fetch_corpora`: each file downloaded once and checked."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from corpus_files import (
    FetchError,
    Pair,
    aligned,
    atomically,
    clean_pairs,
    decode_lines,
    report,
    split_by_source,
    write_sides,
)

LOCK_NAME = "downloads.lock.json"
DOWNLOAD_TIMEOUT = 60
"""Seconds without a byte until a download is given up."""


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
    if file.url.endswith(".zip") and not _is_whole_zip(data):
        raise FetchError(f"{file.url}: what came is not a zip archive, or damaged")
    recorded: dict[str, str] = json.loads(lock.read_text(encoding="utf-8")) if lock.is_file() else {}
    found = hashlib.sha256(data).hexdigest()
    if recorded.setdefault(file.url, found) != found:
        raise FetchError(f"{file.url}: SHA-256 is {found[:16]}…, but {lock} has {recorded[file.url][:16]}…")
    with atomically(lock) as stream:
        stream.write((json.dumps(recorded, indent=2, sort_keys=True) + "\n").encode())


def _is_whole_zip(data: bytes) -> bool:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        return False


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
