"""The corpora script: folders, checksums, cleaning, splitting, and downloads from ``file:`` addresses (no network)."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import zipfile
from collections.abc import Mapping
from pathlib import Path

import corpus_files
import fetch_corpora
import public_corpora
import pytest
from corpus_files import FetchError, Pair
from public_corpora import PublicFile

TINY = {
    "tatoeba.train.tsv.xz": lzma.compress(b"Guten Tag.\tHello.\n"),
    "tatoeba.valid.de": b"Ja.\n",
    "tatoeba.valid.en": b"Yes.\n",
}


@pytest.fixture
def own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three tiny files, which are all that the checksum table knows."""
    folder = tmp_path / "own"
    folder.mkdir()
    for name, data in TINY.items():
        (folder / name).write_bytes(data)
    monkeypatch.setattr(
        fetch_corpora, "SHA256", {name: hashlib.sha256(data).hexdigest() for name, data in TINY.items()}
    )
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def training_pairs(path: Path) -> list[Pair]:
    lines = lzma.decompress(path.read_bytes()).decode().splitlines()
    return [(german, english) for german, english in (line.split("\t") for line in lines)]


def publish(folder: Path, name: str, data: bytes, md5: str | None = None) -> PublicFile:
    """A file that can be downloaded without a network."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return PublicFile((folder / name).as_uri(), md5)


def publish_multi30k(folder: Path, lines: Mapping[str, list[str]]) -> dict[str, PublicFile]:
    files = {}
    for name, sentences in lines.items():
        data = gzip.compress("".join(f"{sentence}\n" for sentence in sentences).encode())
        files[name] = publish(folder, f"{name}.gz", data, hashlib.md5(data).hexdigest())
    return files


def publish_tatoeba(folder: Path, german: list[str], english: list[str]) -> PublicFile:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "de-en.txt.zip", "w") as archive:
        archive.writestr("Tatoeba.de-en.de", "".join(f"{line}\n" for line in german))
        archive.writestr("Tatoeba.de-en.en", "".join(f"{line}\n" for line in english))
    return PublicFile((folder / "de-en.txt.zip").as_uri())


# From a folder


def test_files_of_a_folder_are_copied_byte_for_byte(own_files: Path, tmp_path: Path) -> None:
    assert fetch_corpora.main(["--from", str(own_files), "--to", str(tmp_path / "to")]) == 0
    assert contents(tmp_path / "to") == TINY


def test_finished_files_are_skipped_and_damaged_ones_replaced(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "to"
    target.mkdir()
    (target / "tatoeba.valid.de").write_bytes(TINY["tatoeba.valid.de"])
    (target / "tatoeba.valid.en").write_bytes(b"Ye")
    assert fetch_corpora.main(["--from", str(own_files), "--to", str(target)]) == 0
    assert contents(target) == TINY
    assert capsys.readouterr().err.splitlines() == [
        "tatoeba.train.tsv.xz: copied",
        "tatoeba.valid.de: already there",
        "tatoeba.valid.en: copied",
    ]


def test_linked_files_are_links(own_files: Path, tmp_path: Path) -> None:
    assert fetch_corpora.main(["--from", str(own_files), "--to", str(tmp_path / "to"), "--link"]) == 0
    assert contents(tmp_path / "to") == TINY
    assert all(path.is_symlink() for path in (tmp_path / "to").iterdir())


def test_a_file_with_other_bytes_is_a_one_line_error_and_not_copied(
    own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (own_files / "tatoeba.train.tsv.xz").write_bytes(b"something else")
    assert fetch_corpora.main(["--from", str(own_files), "--to", str(tmp_path / "to")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {own_files / 'tatoeba.train.tsv.xz'}: SHA-256 is ")
    assert contents(tmp_path / "to") == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "nowhere"], "error: --from: nowhere is not a folder"),
        (["--only", "europarl"], "error: --only: no corpus 'europarl'; there are multi30k, newstest2021, tatoeba, wmt"),
        (["--link"], "error: --link needs --from"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch_corpora.main(arguments) == 1
    assert capsys.readouterr().err.splitlines() == [message]


def test_a_missing_file_is_named(own_files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_files / "tatoeba.valid.en").unlink()
    assert fetch_corpora.main(["--from", str(own_files), "--to", str(tmp_path / "to")]) == 1
    assert f"error: {own_files / 'tatoeba.valid.en'}: no such file" in capsys.readouterr().err


def test_the_table_has_a_checksum_for_each_file_of_each_corpus() -> None:
    names = [name for corpus in fetch_corpora.CORPORA for name in fetch_corpora.names_of(corpus)]
    assert sorted(names) == sorted(fetch_corpora.SHA256)
    assert {len(checksum) for checksum in fetch_corpora.SHA256.values()} == {64}


# Text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Er  sagte:\t„Ja.“\u00a0", 'Er sagte: "Ja."'),
        ("It’s ‘fine’", "It's 'fine'"),
        ("Ka\u0308se", "Käse"),
        ("Donau\u00addampfschiff", "Donaudampfschiff"),
        ("1990–1995 …", "1990–1995 …"),
    ],
)
def test_training_text_is_normalised(text: str, expected: str) -> None:
    assert corpus_files.normalise(text) == expected


def test_cleaning_drops_repeated_empty_and_untranslated_pairs() -> None:
    pairs = [("Ja.", "Yes."), ("Ja. ", "Yes."), ("Ja.", "Yeah."), ("", "Nothing."), ("Nichts.", " "), ("Tom", "Tom")]
    assert corpus_files.clean_pairs(pairs) == [("Ja.", "Yes."), ("Ja.", "Yeah.")]


def test_a_split_keeps_every_source_on_one_side() -> None:
    pairs = [(f"Satz {number % 40}", f"sentence {number}") for number in range(100)]
    split = corpus_files.split_by_source(pairs, held_out=10)
    sources = [{german for german, _ in part} for part in (split.train, split.valid, split.test)]
    assert [len(part) for part in sources] == [20, 10, 10]
    assert len(set.union(*sources)) == 40
    assert [len(split.valid), len(split.test)] == [10, 10]
    assert set(split.train) == {pair for pair in pairs if pair[0] in sources[0]}


def test_a_split_does_not_depend_on_the_order_of_different_sources() -> None:
    pairs = [(f"Satz {number}", f"sentence {number}") for number in range(30)]
    one, other = (corpus_files.split_by_source(order, held_out=5) for order in (pairs, pairs[::-1]))
    assert (one.valid, one.test) == (other.valid, other.test)


def test_too_few_sources_to_split_are_an_error() -> None:
    with pytest.raises(FetchError, match="2 different sentences are too few"):
        corpus_files.split_by_source([("a", "x"), ("b", "y")], held_out=1)


def test_only_line_feeds_end_a_line() -> None:
    assert corpus_files.decode_lines("a\u2028b\r\n\n c\x0b \n".encode(), "file") == ["a\u2028b", "", "c"]


def test_bytes_that_are_not_utf8_are_named() -> None:
    with pytest.raises(FetchError, match="file: byte 3 is not UTF-8"):
        corpus_files.decode_lines(b"ab\xff", "file")


def test_sides_of_different_length_are_an_error() -> None:
    with pytest.raises(FetchError, match="multi30k: 2 German lines, 1 English ones"):
        corpus_files.aligned(["a", "b"], ["x"], "multi30k")


# Files


def test_a_file_is_untouched_when_writing_it_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")

    def write_a_part() -> None:
        with corpus_files.atomically(tmp_path / "file") as stream:
            stream.write(b"half of the ne")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_a_part()
    assert contents(tmp_path) == {"file": b"old"}


# Downloads


def test_multi30k_is_downloaded_and_held_out_sentences_leave_the_training_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {
        "train.de": ["Ein Hund .", "Eine „Katze“.", "Ein Test."],
        "train.en": ["A dog.", "A “cat”.", "A test."],
        "valid.de": ["Ein  Tor."],
        "valid.en": ["A gate."],
        "test2016.de": ["Ein Test. "],
        "test2016.en": ["A test."],
        "test2017.de": ["„Zwei“ Tests."],
        "test2017.en": ["Two tests."],
    }
    monkeypatch.setattr(public_corpora, "MULTI30K", publish_multi30k(tmp_path / "public", lines))
    assert fetch_corpora.main(["--to", str(tmp_path / "to"), "--only", "multi30k"]) == 0
    assert training_pairs(tmp_path / "to" / "multi30k.train.tsv.xz") == [
        ("Ein Hund .", "A dog."),
        ('Eine "Katze".', 'A "cat".'),
    ]
    assert (tmp_path / "to" / "multi30k.valid.de").read_text(encoding="utf-8") == "Ein  Tor.\n"
    assert (tmp_path / "to" / "multi30k.test2016.de").read_text(encoding="utf-8") == "Ein Test.\n"
    assert (tmp_path / "to" / "multi30k.test2017.de").read_text(encoding="utf-8") == "„Zwei“ Tests.\n"


def test_tatoeba_is_downloaded_split_and_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    german, english = [f"Satz {n}." for n in range(9)], [f"Sentence {n}." for n in range(9)]
    public = publish_tatoeba(tmp_path / "public", german, english)
    monkeypatch.setattr(public_corpora, "TATOEBA", public)
    monkeypatch.setattr(public_corpora, "TATOEBA_HELD_OUT", 2)
    target = tmp_path / "to"
    assert fetch_corpora.main(["--to", str(target), "--only", "tatoeba"]) == 0
    held_out = [
        (target / f"tatoeba.{split}.de").read_text(encoding="utf-8").splitlines() for split in ("valid", "test")
    ]
    train = training_pairs(target / "tatoeba.train.tsv.xz")
    assert sorted([*held_out[0], *held_out[1], *(german for german, _ in train)]) == german
    assert json.loads((target / "downloads.lock.json").read_text(encoding="utf-8")) == {
        public.url: hashlib.sha256((tmp_path / "public" / "de-en.txt.zip").read_bytes()).hexdigest()
    }


def test_a_finished_corpus_is_not_downloaded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in fetch_corpora.names_of("tatoeba"):
        (tmp_path / name).write_bytes(b"")
    monkeypatch.setattr(public_corpora, "TATOEBA", PublicFile((tmp_path / "nothing here.zip").as_uri()))
    assert fetch_corpora.main(["--to", str(tmp_path), "--only", "tatoeba"]) == 0
    assert capsys.readouterr().err == "tatoeba: already there\n"


def test_what_was_downloaded_once_is_kept(tmp_path: Path) -> None:
    file = publish(tmp_path / "public", "file.gz", b"bytes")
    assert public_corpora.download(file, tmp_path / "to") == b"bytes"
    (tmp_path / "public" / "file.gz").unlink()
    assert public_corpora.download(file, tmp_path / "to") == b"bytes"


def test_a_download_with_another_checksum_than_published_is_refused_and_not_kept(tmp_path: Path) -> None:
    file = publish(tmp_path / "public", "file.gz", b"bytes", md5=hashlib.md5(b"other bytes").hexdigest())
    with pytest.raises(FetchError, match=r"MD5 is .*, published is "):
        public_corpora.download(file, tmp_path / "to")
    assert [path for path in (tmp_path / "to").rglob("*") if path.is_file()] == []


def test_a_download_that_changed_since_the_first_one_is_refused(tmp_path: Path) -> None:
    file = publish(tmp_path / "public", "file.gz", b"bytes")
    lock = tmp_path / "downloads.lock.json"
    public_corpora.check_download(file, b"bytes", lock)
    recorded = lock.read_bytes()
    with pytest.raises(FetchError, match=r"SHA-256 is .*downloads\.lock\.json has "):
        public_corpora.check_download(file, b"other bytes", lock)
    assert lock.read_bytes() == recorded


def test_an_error_page_in_place_of_an_archive_is_not_recorded(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="not a zip archive"):
        public_corpora.check_download(PublicFile("https://example.org/de-en.txt.zip"), b"<html>", tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_archive_is_not_recorded(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("Tatoeba.de-en.de", "Ein Hund.")
    damaged = content.getvalue().replace(b"Hund", b"Huhn")
    with pytest.raises(FetchError, match="or damaged"):
        public_corpora.check_download(PublicFile("https://example.org/de-en.txt.zip"), damaged, tmp_path / "lock")
    assert list(tmp_path.iterdir()) == []


def test_a_download_that_fails_is_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(public_corpora, "TATOEBA", PublicFile((tmp_path / "nothing.zip").as_uri()))
    assert fetch_corpora.main(["--to", str(tmp_path / "to"), "--only", "tatoeba"]) == 1
    downloading, error = capsys.readouterr().err.splitlines()
    assert downloading.startswith("downloading file:")
    assert error.startswith("error: file:")
    assert "nothing.zip: cannot be downloaded: " in error


def test_newstest2021_is_read_from_sacrebleus_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = pytest.importorskip("sacrebleu.dataset").DATASETS["wmt21"]
    document = """<?xml version="1.0"?><dataset id="newstest2021"><doc id="d" origlang="de">
      <src lang="de"><p><seg id="1">Guten Tag.</seg><seg id="2">Auf Wiedersehen.</seg></p></src>
      <ref lang="en" translator="A"><p><seg id="1">Hello.</seg><seg id="2">Goodbye.</seg></p></ref>
      <ref lang="en" translator="B"><p><seg id="1">Good day.</seg><seg id="2">Bye.</seg></p></ref></doc></dataset>"""
    cache = tmp_path / "sacrebleu"
    (cache / "raw" / "test").mkdir(parents=True)
    (cache / "raw" / "wmt21.test.tgz").write_bytes(b"downloaded and unpacked before")
    (cache / "raw" / "test" / "newstest2021.de-en.xml").write_text(document, encoding="utf-8")
    monkeypatch.setattr(dataset, "_outdir", str(cache))
    monkeypatch.setattr(dataset, "_rawdir", str(cache / "raw"))
    monkeypatch.setattr(dataset, "langpairs", {"de-en": dataset.langpairs["de-en"]})
    assert public_corpora.download_newstest2021(tmp_path / "to") == []
    assert contents(tmp_path / "to") == {
        "newstest2021.de": b"Guten Tag.\nAuf Wiedersehen.\n",
        "newstest2021.en": b"Hello.\nGoodbye.\n",
    }


def test_the_wmt_part_is_skipped_with_a_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetch_corpora.main(["--to", str(tmp_path / "to"), "--only", "wmt"]) == 0
    assert capsys.readouterr().err.startswith("wmt: skipped, it is not public")
    assert not (tmp_path / "to").exists()
