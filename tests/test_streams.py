"""Lines from a stream: all of them, in order, as soon as they are there."""

from __future__ import annotations

import io
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt.errors import InputError
from specmt.streams import LineStream


@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))), st.integers(1, 7))
def test_every_line_comes_out_once_and_in_order(lines: list[str], limit: int) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    chunks = list(LineStream(io.BytesIO(data), "input").chunks(limit))
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert [line for chunk in chunks for line in chunk] == expected
    assert all(1 <= len(chunk) <= limit for chunk in chunks)


def test_a_last_line_without_an_end_counts() -> None:
    assert list(LineStream(io.BytesIO(b"eins\nzwei"), "input").chunks(9)) in ([["eins", "zwei"]], [["eins"], ["zwei"]])


def test_a_line_is_given_out_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as source, os.fdopen(writing, "wb", buffering=0) as target:
        chunks = LineStream(source, "pipe").chunks(100)
        for line in ("eins", "zwei", "drei"):
            target.write(f"{line}\n".encode())
            assert next(chunks) == [line]
        target.close()
        assert list(chunks) == []


def test_what_waits_is_given_out_together() -> None:
    everything_read = threading.Event()

    class Whole(io.BytesIO):
        def __next__(self) -> bytes:
            try:
                return super().__next__()
            except StopIteration:
                everything_read.set()
                raise

    stream = LineStream(Whole(b"a\nb\nc\nd\ne\n"), "input")
    assert everything_read.wait(10)
    assert list(stream.chunks(3)) == [["a", "b", "c"], ["d", "e"]]


def test_lines_before_one_that_is_not_utf8_are_given_out_and_it_is_named() -> None:
    chunks = LineStream(io.BytesIO(b"eins\nzwei\nM\xfctter\nvier\n"), "input").chunks(2)
    found = next(chunks)
    while len(found) < 2:
        found += next(chunks)
    assert found == ["eins", "zwei"]
    with pytest.raises(InputError, match=r"input: line 3: byte 2 is not UTF-8"):
        next(chunks)


def test_a_stream_that_cannot_be_read_is_an_error_that_names_it() -> None:
    class Broken(io.BytesIO):
        def __next__(self) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(InputError, match=r"tape: cannot be read: Input/output error"):
        list(LineStream(Broken(), "tape").chunks(1))
