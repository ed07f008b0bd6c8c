"""Reading parallel text: what ends a line, what is refused, and with which words."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt.corpus import Pair, keep_pair, read_corpus, read_parallel, read_tsv
from specmt.errors import InputError
from specmt.streams.inputs import decode_line
from specmt.text_files import read_lines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def message(path: Path) -> str:
    """The error that reading gives, without the file's folder."""
    with pytest.raises(InputError) as caught:
        read_lines(path)
    return str(caught.value).removeprefix(f"{path.parent}/")


# -- lines


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(b"", [], id="an empty file has no line"),
        pytest.param(b"\n", [""], id="one empty line"),
        pytest.param(b"a\nb\n", ["a", "b"], id="LF"),
        pytest.param(b"a\nb", ["a", "b"], id="the last line need not end"),
        pytest.param(b"a\r\n\r\nb\r\n", ["a", "", "b"], id="CRLF"),
        pytest.param(b"a\n\n\nb\n\n", ["a", "", "", "b", ""], id="blank lines count"),
        pytest.param(b"  a \t\n", ["  a \t"], id="spaces stay"),
        pytest.param(b"\xef\xbb\xbfa\nb\n", ["a", "b"], id="a byte order mark is no text"),
        pytest.param(b"\xef\xbb\xbf\r\n", [""], id="a byte order mark on an empty line"),
        pytest.param(b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"], id="elsewhere it stays"),
        pytest.param(b"a\rb\nc\r\r\n", ["a\rb", "c\r"], id="CR alone ends no line"),
        pytest.param("a\u2028b\u2029c\u0085d\n".encode(), ["a\u2028b\u2029c\u0085d"], id="U+2028, U+2029, U+0085"),
        pytest.param(b"a\x0bb\x0cc\x1cd\x1ed\n", ["a\x0bb\x0cc\x1cd\x1ed"], id="VT, FF, FS, RS"),
        pytest.param(b"a\x00b\n", ["a\x00b"], id="NUL"),
        pytest.param("Grüße, 東京 🙂\n".encode(), ["Grüße, 東京 🙂"], id="beyond ASCII"),
    ],
)
def test_only_lf_and_crlf_end_a_line(folder: Path, data: bytes, lines: list[str]) -> None:
    assert read_lines(written(folder / "text.de", data)) == lines


@given(st.lists(st.text().filter(lambda line: "\n" not in line and not line.endswith("\r"))))
def test_any_lines_come_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "".join(f"{line}\n" for line in lines).encode())
    assert read_lines(path) == (lines or [""])


@pytest.mark.parametrize(("suffix", "compress"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_files_read_as_their_text(folder: Path, suffix: str, compress: object) -> None:
    assert callable(compress)
    path = written(folder / f"text.de{suffix}", compress("Grüße\r\n\nEnde".encode()))
    assert read_lines(path) == ["Grüße", "", "Ende"]


@pytest.mark.parametrize("suffix", [".bz2", ".zip", ".zst"])
def test_an_archive_of_another_kind_is_named_as_such(folder: Path, suffix: str) -> None:
    path = written(folder / f"train.tsv{suffix}", bz2.compress(b"a\tb\n"))
    assert message(path) == f"train.tsv{suffix}: {suffix} is not supported; .xz and .gz are"


def test_a_byte_that_is_not_utf_8_is_named_with_its_line(folder: Path) -> None:
    path = written(folder / "text.de", "gut\nGrüße\nGr\xfc\xdfe\n".encode("latin-1").replace(b"Gr\xfc\xdfe\n", b"", 1))
    assert message(path) == "text.de: line 2: byte 3 is not UTF-8"


def test_the_byte_is_counted_from_the_start_of_the_line_behind_a_byte_order_mark_too(folder: Path) -> None:
    assert message(written(folder / "text.de", b"\xef\xbb\xbfGr\xfc\xdfe\n")) == "text.de: line 1: byte 6 is not UTF-8"


def test_utf_16_is_not_taken_for_utf_8(folder: Path) -> None:
    assert message(written(folder / "text.de", "a\n".encode("utf-16"))) == "text.de: line 1: byte 1 is not UTF-8"


def test_a_sequence_cut_off_at_the_end_of_the_file_is_refused(folder: Path) -> None:
    assert message(written(folder / "text.de", "a\nbü".encode()[:-1])) == "text.de: line 2: byte 2 is not UTF-8"


def test_a_file_that_is_not_there_is_named(folder: Path) -> None:
    assert message(folder / "text.de") == "text.de: no such file"


def test_a_folder_is_no_text(folder: Path) -> None:
    (folder / "text.de").mkdir()
    assert message(folder / "text.de").startswith("text.de: cannot be read: ")


WHOLE = b"".join(b"line %d of a file that does not compress well: %d\n" % (i, i**7) for i in range(200))
XZIPPED, GZIPPED = lzma.compress(WHOLE), gzip.compress(WHOLE, mtime=0)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("cut.xz", XZIPPED[:-40]),
        ("cut.gz", GZIPPED[:-40]),
        ("text.xz", b"not compressed\n"),
        ("text.gz", b"not compressed\n"),
        ("flipped.xz", XZIPPED[:300] + b"\x55\xaa" + XZIPPED[302:]),
        ("flipped.gz", GZIPPED[:300] + b"\x55\xaa" + GZIPPED[302:]),
        ("none.xz", b""),
        ("second.xz", XZIPPED + b"not compressed\n"),
        ("second_head.xz", XZIPPED + b"\xfd7zXX" + XZIPPED[5:]),
        ("header.gz", GZIPPED[:10] + b"\xff" * 40),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_damaged_archive_is_one_line_that_names_it(folder: Path, name: str, data: bytes) -> None:
    found = message(written(folder / name, data))
    assert found.startswith(f"{name}: cannot be read: ")
    assert "\n" not in found


def test_archives_may_stand_one_behind_the_other(folder: Path) -> None:
    for name, data in (("two.xz", XZIPPED + bytes(8) + XZIPPED), ("two.gz", GZIPPED * 2)):
        assert read_lines(written(folder / name, data)) == (WHOLE * 2).decode().splitlines()


@pytest.mark.parametrize(
    ("line", "number", "text"),
    [
        (b"a\n", 2, "a"),
        (b"a\r\n", 2, "a"),
        (b"a", 2, "a"),
        (b"\xef\xbb\xbfa\n", 1, "a"),
        (b"\xef\xbb\xbfa\n", 2, "\ufeffa"),
    ],
)
def test_a_single_line_decodes_as_in_a_file(line: bytes, number: int, text: str) -> None:
    assert decode_line(line, "standard input", number) == text


def test_a_single_line_that_is_not_utf_8_names_where_it_came_from() -> None:
    with pytest.raises(InputError, match=r"^standard input: line 7: byte 2 is not UTF-8$"):
        decode_line(b"a\xff\n", "standard input", 7)


# -- pairs


def test_line_aligned_files_are_pairs(folder: Path) -> None:
    source = written(folder / "a.de", b"eins\r\nzwei\n\n")
    target = written(folder / "a.en", b"one\ntwo\n\n")
    expected = [Pair("eins", "one"), Pair("zwei", "two"), Pair("", "")]
    assert read_parallel(source, target) == expected
    assert read_corpus(folder / "a", "de", "en") == expected


def test_the_sides_may_be_archives(folder: Path) -> None:
    written(folder / "a.de.gz", gzip.compress(b"eins\nzwei\n"))
    written(folder / "a.en.xz", lzma.compress(b"one\ntwo\n"))
    assert read_corpus(folder / "a", "de", "en") == [Pair("eins", "one"), Pair("zwei", "two")]
    written(folder / "a.en", b"uno\ndue\n")
    assert read_corpus(folder / "a", "de", "en") == [Pair("eins", "uno"), Pair("zwei", "due")]


def test_the_direction_is_the_order_of_the_languages(folder: Path) -> None:
    written(folder / "a.de", b"eins\n")
    written(folder / "a.en", b"one\n")
    assert read_corpus(folder / "a", "en", "de") == [Pair("one", "eins")]


def test_files_of_different_lengths_are_refused_with_both_numbers(folder: Path) -> None:
    two, three = written(folder / "a.de", b"eins\nzwei\n"), written(folder / "a.en", b"one\ntwo\nthree\n")
    with pytest.raises(InputError) as caught:
        read_parallel(two, three)
    assert str(caught.value) == f"{two} has 2 lines, {three} has 3: they must be line-aligned"
    with pytest.raises(InputError) as caught:
        read_parallel(three, two)
    assert str(caught.value) == f"{three} has 3 lines, {two} has 2: they must be line-aligned"


def test_a_missing_side_is_named(folder: Path) -> None:
    written(folder / "a.de", b"eins\n")
    with pytest.raises(InputError) as caught:
        read_corpus(folder / "a", "de", "en")
    assert str(caught.value) == f"{folder / 'a.en'}: no such file"


@pytest.mark.parametrize(
    ("name", "compress"), [("a.tsv", bytes), ("a.tsv.xz", lzma.compress), ("a.tsv.gz", gzip.compress)]
)
def test_a_tsv_file_has_a_pair_a_line(folder: Path, name: str, compress: object) -> None:
    assert callable(compress)
    path = written(folder / name, compress(b"eins\tone\r\n\tleer\nzwei \t two\n"))
    expected = [Pair("eins", "one"), Pair("", "leer"), Pair("zwei ", " two")]
    assert read_tsv(path) == expected
    assert read_corpus(path, "de", "en") == expected
    assert read_corpus(path, "en", "de", swapped=True) == [Pair(target, source) for source, target in expected]


@pytest.mark.parametrize(("line", "columns"), [(b"zwei", 1), (b"zwei\ttwo\tdos", 3), (b"", 1)])
def test_a_line_without_exactly_two_columns_is_named(folder: Path, line: bytes, columns: int) -> None:
    path = written(folder / "a.tsv", b"eins\tone\n" + line + b"\ndrei\tthree\n")
    with pytest.raises(InputError) as caught:
        read_tsv(path)
    assert str(caught.value) == f"{path}: line 2: {columns} columns, expected source<TAB>target"


@pytest.mark.parametrize(
    ("source", "target", "kept"),
    [
        pytest.param(5, 5, True, id="equal"),
        pytest.param(0, 5, False, id="no source"),
        pytest.param(5, 0, False, id="no target"),
        pytest.param(0, 0, False, id="nothing"),
        pytest.param(20, 20, True, id="as long as allowed"),
        pytest.param(20, 21, False, id="target too long"),
        pytest.param(21, 20, False, id="source too long"),
        pytest.param(6, 12, True, id="as far apart as allowed"),
        pytest.param(6, 13, False, id="target far longer"),
        pytest.param(13, 6, False, id="source far longer"),
        pytest.param(1, 8, True, id="a short side counts as four"),
        pytest.param(1, 9, False, id="but as no more"),
    ],
)
def test_a_pair_is_kept_by_its_lengths(source: int, target: int, kept: bool) -> None:
    assert keep_pair(source, target, max_tokens=20, max_ratio=2.0) is kept


def test_no_line_on_which_the_pair_is_tried_is_in_what_we_wrote_to_train_it() -> None:
    data = Path(__file__).parent.parent / "data"
    trained = {pair.source for name in ("phrases", "sentences") for pair in read_tsv(data / f"{name}.de-en.tsv")}
    tried = {line for name in ("sample", "ordinary", "everyday") for line in read_lines(data / f"{name}.de")}
    assert len(trained) > 10_000 and len(tried) > 200 and not trained & tried
    assert len(read_parallel(data / "everyday.de", data / "everyday.en")) == 200
