"""Bring the corpora of the real models into one folder, each file checked as it comes.

    python scripts/fetch_corpora.py --from FOLDER     copies from a folder that has the project's own files
    python scripts/fetch_corpora.py                   downloads what is public

Either way the folder (default: the repository's ``data/corpora``) then holds, for each corpus, ``NAME.train.tsv.xz``
(one pair a line: German, a tab, English) and line-aligned ``NAME.valid.{de,en}``, ``NAME.test*.{de,en}``.

What is known about the bytes, and what is not:

- ``--from`` accepts a file only if its SHA-256 stands in ``SHA256`` below. Without it, a corpus whose files are there
  is not looked at again: delete them to have them anew.
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
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from corpus_files import (
    FetchError,
    Pair,
    atomically,
    held_out_sources,
    report,
    sha256,
    without_sources,
    write_training_pairs,
)
from public_corpora import DOWNLOADERS

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

ROOT = Path(__file__).parent.parent
CORPORA = ("multi30k", "newstest2021", "tatoeba", "wmt")


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
    parser.add_argument("--to", dest="target", type=Path, metavar="FOLDER", default=ROOT / "data" / "corpora")
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
