"""Lines from a stream: all of them, in order, as soon as they are there."""

from __future__ import annotations

import io
import os
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threads import interrupted

from specmt.errors import InputError
from specmt.streams import line_stream
from specmt.streams.line_stream import LineStream


def raw(line: bytes, number: int) -> bytes:
    return line


def lines_of(stream: LineStream[bytes], limit: int = 100) -> list[bytes]:
    """All lines, taken as they come."""
    found: list[bytes] = []
    while True:
        with stream.lock:
            stream.changed.wait_for(lambda: stream._waiting or stream.ended)
            if stream.ended:
                return found
            taken = stream.take(limit)
            assert 1 <= len(taken) <= limit
            found += taken


class Dribble(io.RawIOBase):
    """A stream that gives a few bytes at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = io.BytesIO(data), size

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, self._size))


@given(st.lists(st.binary(max_size=8).map(lambda b: b.replace(b"\n", b"\r"))), st.integers(1, 7), st.integers(1, 9))
def test_every_line_comes_out_once_and_in_order(lines: list[bytes], limit: int, size: int) -> None:
    expected = [line + b"\n" for line in lines]
    assert lines_of(LineStream(Dribble(b"".join(expected), size), "input", raw), limit) == expected


def test_a_last_line_without_an_end_counts() -> None:
    assert lines_of(LineStream(io.BytesIO(b"eins\nzwei"), "input", raw)) == [b"eins\n", b"zwei"]


@pytest.mark.timeout(60)
def test_a_signal_that_does_not_wake_who_skips_lines_is_heeded_all_the_same() -> None:
    reading, writing = os.pipe()
    with io.FileIO(reading) as source, io.FileIO(writing, "w") as sink:
        stream = LineStream(source, "standard input", raw)
        sink.write(b"eins\n")
        with pytest.raises(KeyboardInterrupt), interrupted():
            stream.skip(2)


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with io.FileIO(reading) as source:
        stream = LineStream(source, "standard input", raw)
        time.sleep(0.05)  # nothing is there yet
        os.write(writing, b"a\nb")
        time.sleep(0.05)
        os.write(writing, b"c\n")
        os.close(writing)
        assert lines_of(stream) == [b"a\n", b"bc\n"]


def test_lines_are_numbered_from_one() -> None:
    assert lines_of(LineStream(io.BytesIO(b"a\nb\n\n"), "input", lambda line, number: b"%d" % number)) == [
        b"1",
        b"2",
        b"3",
    ]


def test_a_line_is_given_out_before_the_next_one_is_written() -> None:
    reading, writing = os.pipe()
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        stream = LineStream(source, "pipe", raw)
        for line in (b"eins\n", b"zwei\n", b"drei\n"):
            target.write(line)
            with stream.lock:
                assert stream.changed.wait_for(lambda: stream._waiting, timeout=10)
                assert stream.take(9) == [line]
        target.close()
        assert lines_of(stream) == []


class Endless(io.RawIOBase):
    """Lines of a length, without end."""

    def __init__(self, line: int) -> None:
        self.given, self._line = 0, line

    def read(self, size: int = -1) -> bytes:
        self.given += size
        return (b"x" * (self._line - 1) + b"\n") * (size // self._line)


def test_no_more_than_a_few_megabytes_are_read_ahead() -> None:
    source = Endless(line_stream._CHUNK)
    stream = LineStream(source, "endless", raw)
    with stream.lock:
        assert stream.changed.wait_for(lambda: stream._waiting_bytes >= 1 << 22, timeout=10)
    before = source.given
    threading.Event().wait(0.05)
    assert source.given <= before + (1 << 17)
    with stream.lock:
        stream.end()


def test_short_lines_that_wait_take_no_more_memory_than_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object takes more bytes than its line, and all that were taken are counted no more."""
    monkeypatch.setattr(line_stream, "_READ_AHEAD", 1 << 20)
    stream = LineStream(Endless(2), "endless", raw)
    with stream.lock:
        for _ in range(3):
            assert stream.changed.wait_for(lambda: stream._waiting_bytes >= 1 << 20, timeout=10)
            assert sum(map(sys.getsizeof, stream._waiting)) <= 1 << 20
            stream.take(len(stream._waiting))
            assert stream._waiting_bytes == 0
        stream.end()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("skipped", [0, 40])
def test_more_than_may_wait_in_memory_comes_out_whole(monkeypatch: pytest.MonkeyPatch, skipped: int) -> None:
    monkeypatch.setattr(line_stream, "_READ_AHEAD", 8)
    monkeypatch.setattr(line_stream, "_CHUNK", 4)
    lines = [b"%05d\n" % number for number in range(50)]
    stream = LineStream(io.BytesIO(b"".join(lines)), "input", raw)
    assert stream.skip(skipped) == skipped
    assert lines_of(stream) == lines[skipped:]


def test_lines_before_one_that_cannot_be_parsed_are_given_out_and_it_is_named() -> None:
    def ascii_only(line: bytes, number: int) -> bytes:
        if not line.isascii():
            raise InputError(f"line {number}")
        return line

    stream = LineStream(io.BytesIO(b"eins\nzwei\nM\xfctter\nvier\n"), "input", ascii_only)
    assert lines_of(stream) == [b"eins\n", b"zwei\n"]
    with pytest.raises(InputError, match="line 3"):
        stream.check()


def test_a_stream_that_cannot_be_read_is_an_error_that_names_it_after_the_lines_before() -> None:
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if data := super().read(size):
                return data
            raise OSError(5, "Input/output error")

    stream = LineStream(Broken(b"eins\n"), "tape", raw)
    assert lines_of(stream) == [b"eins\n"]
    with pytest.raises(InputError, match=r"tape: cannot be read: input/output error"):
        stream.check()


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, end: bytes) -> None:
    monkeypatch.setattr(line_stream, "_LONGEST_LINE", 1 << 20)
    longest = b"x" * (1 << 20)
    stream = LineStream(io.BytesIO(longest + b"\n" + longest + b"x" + end), "input", raw)
    assert lines_of(stream) == [longest + b"\n"]
    with pytest.raises(InputError, match=r"^input: cannot be read: line 2 has more than 1 MiB$"):
        stream.check()


@pytest.mark.parametrize(("count", "skipped", "left"), [(0, 0, 3), (2, 2, 1), (3, 3, 0), (9, 3, 0)])
def test_what_is_skipped_is_not_parsed(count: int, skipped: int, left: int) -> None:
    numbers: list[int] = []
    stream = LineStream(io.BytesIO(b"a\nb\nc\n"), "input", lambda line, number: numbers.append(number))
    assert stream.skip(count) == skipped
    assert len(lines_of(stream)) == left  # type: ignore[arg-type]
    assert numbers == list(range(skipped + 1, 4))
