"""Bytes to lines of input, and what travels with them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt.errors import InputError
from specmt.streams.inputs import InputLine, jsonl_parser, reading, redirected, text_parser
from specmt.text.guards import LineWarning

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("line", "number", "text"),
    [
        (b"Hund\n", 1, "Hund"),
        (b"Hund\r\n", 1, "Hund"),
        (b"Hund", 2, "Hund"),
        (b"\xef\xbb\xbfHund\n", 1, "Hund"),
        (b"\xef\xbb\xbfHund\n", 2, "\ufeffHund"),
        (b"\n", 1, ""),
        (b"a\rb\r\r\n", 1, "a\rb\r"),
        ("a\u2028b\x85c\x0bd\x00e\n".encode(), 1, "a\u2028b\x85c\x0bd\x00e"),
    ],
)
def test_only_lf_and_crlf_end_a_line_and_a_mark_before_the_first_is_no_text(
    line: bytes, number: int, text: str
) -> None:
    assert text_parser("input")(line, number) == InputLine(text)


def test_bytes_that_are_not_utf8_are_named_or_replaced() -> None:
    with pytest.raises(
        InputError, match=r"in\.de: line 7: byte 2 is not UTF-8; convert the text, or use --errors replace"
    ):
        text_parser("in.de")(b"M\xfctter\n", 7)
    assert text_parser("in.de", replace_errors=True)(b"M\xfctter\n", 7) == InputLine(
        "M\ufffdtter", warnings=(LineWarning.REPLACED,)
    )


@given(st.binary())
def test_with_replacement_any_bytes_are_a_text_that_utf8_can_hold(line: bytes) -> None:
    text = text_parser("input", replace_errors=True)(line, 2).text
    assert text.encode().decode() == text


@given(st.text(st.characters(exclude_categories=["Cs"])), st.dictionaries(st.text(), json_values, max_size=4))
def test_a_json_lines_other_fields_pass_through(source: str, fields: dict[str, object]) -> None:
    fields.pop("source", None)
    line = json.dumps({**fields, "source": source}).encode() + b"\n"
    assert jsonl_parser("input")(line, 3) == InputLine(source, fields)


@pytest.mark.parametrize(
    "line",
    [
        *(
            b"Ein Hund",
            b'"source"',
            b"[]",
            b"{}",
            b'{"source": 1}',
            b'{"source": null}',
            b"[" * 100_000,
            b'{"source": "a", "x": ' + b'{"y": [' * 150 + b"]}" * 150 + b"}",
            b"1" * 5000,
        ),
        *(b'{"source": "a", "x": %s}' % number for number in (b"NaN", b"-Infinity", b"1e999")),
    ],
)
def test_what_is_no_object_with_a_source_is_named(line: bytes) -> None:
    with pytest.raises(InputError, match=r"in\.jsonl: line 4: not "):
        jsonl_parser("in.jsonl")(line + b"\n", 4)


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (b'{"source": "a\tb"}', "Invalid control character, column 14"),
        (b'{"source": NaN}', "NaN is no number"),
        (b'{"source": "a", "b": {"c": 1, "c": 2}}', "the key 'c' stands there twice"),
        (b'{"source": 1%se9}' % (b"0" * 9999), "10000000000000000000… is no number"),
    ],
    ids=["a tab", "NaN", "a key twice", "a long number"],
)
def test_where_a_line_is_no_json_is_told(line: bytes, where: str) -> None:
    with pytest.raises(InputError, match=rf"line 4: not JSON \({where}\);"):
        jsonl_parser("in.jsonl")(line, 4)


def test_a_blank_line_among_objects_is_a_blank_text() -> None:
    assert jsonl_parser("input")(b" \r\n", 2) == InputLine("")


def test_half_a_surrogate_pair_is_named_or_replaced() -> None:
    line = rb'{"source": "a\ud83db"}'
    with pytest.raises(InputError, match="line 1: `source` has half a surrogate pair"):
        jsonl_parser("input")(line, 1)
    assert jsonl_parser("input", replace_errors=True)(line, 1) == InputLine(
        "a\ufffdb", warnings=(LineWarning.REPLACED,)
    )
    assert jsonl_parser("input")(rb'{"source": "\ud83d\ude00"}', 1).text == "😀"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"none\.de: no such file or directory"),
        reading(tmp_path / "none.de", text_parser, False),
    ):
        pass
    with pytest.raises(InputError, match="is a directory"), reading(tmp_path, text_parser, False):
        pass


@contextmanager
def from_file(path: Path) -> Iterator[None]:
    """Standard input is redirected from a file."""
    before = os.dup(0)
    with path.open("rb") as opened:
        os.dup2(opened.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@contextmanager
def without_rights() -> Iterator[None]:
    """Whoever runs the tests may read no more than what all may."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_redirected_file_that_may_not_be_opened_is_not_read_twice(tmp_path: Path) -> None:
    """As after `sudo -u nobody specmt translate < private.de`."""
    (tmp_path / "private.de").write_text("Ein Hund\n")
    with from_file(tmp_path / "private.de"):
        assert redirected() == Path("/dev/stdin")
        (tmp_path / "private.de").chmod(0)
        with without_rights():
            assert redirected() is None


def test_a_redirected_file_is_not_read_away_where_opening_it_again_does_not_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, where `/dev/stdin` is the open file itself."""
    (tmp_path / "text.de").write_text("Ein Hund\n")
    with from_file(tmp_path / "text.de"):
        monkeypatch.setattr(Path, "open", lambda path, mode, buffering: os.fdopen(os.dup(0), mode, buffering))
        assert redirected() is None
        assert os.read(0, 100) == b"Ein Hund\n"
