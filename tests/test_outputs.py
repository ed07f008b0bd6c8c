"""Output that is whole, or as much of it as was finished, whatever happened."""

from __future__ import annotations

import io
import json
import os
import stat
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specmt.errors import InputError, ReaderGoneError
from specmt.streams import outputs
from specmt.streams.line_stream import LineStream
from specmt.streams.outputs import Output, Resumable, resumable_file, whole_file, writing

OPTIONS = {"beam": 1, "format": "text", "strategy": "ar"}
CHUNKS = [1, 3, outputs._CHUNK]
"""Bytes read at a time: with few, short files take as many steps as long ones do otherwise."""


def resume(
    target: Path,
    records: list[str],
    lines_each: int = 1,
    options: dict[str, Any] = OPTIONS,
    source: Path | None = None,
    stop: int | None = None,
) -> int:
    """Write the records that are not there yet, at most `stop` of them; how many there were."""
    with resumable_file(target, Resumable(lines_each, options, source)) as output:
        for record in records[output.finished_before :][:stop]:
            output.write(record)
        return output.finished_before


records_of = {
    1: ["eins\n", "\n", "zwei ü\n", "drei\n"],
    2: ["a\nb\n", "\n\n", "ü\nc\n"],
    3: ["S\nH\nD\n", "\n\n\n"],
}


@given(st.sampled_from(list(records_of)), st.integers(0, 40), st.booleans(), st.sampled_from(CHUNKS))
def test_cut_at_any_byte_it_goes_on_to_the_same_end(lines_each: int, cut: int, torn: bool, chunk: int) -> None:
    records = records_of[lines_each]
    complete = sum(len("".join(records[: count + 1]).encode()) <= cut for count in range(len(records)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs, "_CHUNK", chunk)
        target = Path(folder) / "out.en"
        assert resume(target, records, lines_each) == 0
        whole = target.read_bytes()
        assert whole == "".join(records).encode()
        target.write_bytes(whole[:cut] + (b"\xc3" if torn and cut < len(whole) else b""))
        assert resume(target, records, lines_each) == complete
        assert target.read_bytes() == whole


def test_what_is_finished_is_there_before_the_run_ends(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    with resumable_file(target, Resumable(1, OPTIONS, None)) as output:
        output.write("eins\n")
        assert target.read_bytes() == b"eins\n"


def test_a_run_that_ended_goes_on_where_the_input_has_grown(tmp_path: Path) -> None:
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n2\n")
    resume(target, ["a\n", "b\n"], source=source)
    source.write_bytes(b"1\n2\n3\n")
    assert resume(target, ["a\n", "b\n", "c\n"], source=source) == 2
    assert target.read_bytes() == b"a\nb\nc\n"
    assert resume(target, ["a\n", "b\n", "c\n"], source=source) == 3


def test_what_has_grown_may_not_change_any_more(tmp_path: Path) -> None:
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n")
    assert resume(target, ["a\n"], source=source) == 0
    source.write_bytes(b"1\n2\n")
    assert resume(target, ["a\n", "b\n"], source=source) == 1
    source.write_bytes(b"1\nX\n")
    with pytest.raises(InputError, match=r"in\.de: not what out\.en was begun from"):
        resume(target, ["a\n", "b\n"], source=source)
    assert target.read_bytes() == b"a\nb\n"


@pytest.mark.parametrize("ended", [b"\n3", b"\n3\n", b"\r\n3\n"])
def test_the_last_line_may_have_had_no_end(tmp_path: Path, ended: bytes) -> None:
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n2")
    resume(target, ["a\n", "b\n"], source=source)
    source.write_bytes(b"1\n2" + ended)
    assert resume(target, ["a\n", "b\n", "c\n"], source=source) == 2


def stopped(target: Path, source: Path, changed: bytes | None = None) -> None:
    """A run that writes two records, then meets a line that cannot be read; meanwhile the input may change."""
    with resumable_file(target, Resumable(1, OPTIONS, source)) as output:
        output.write("a\n")
        output.write("b\n")
        if changed is not None:
            source.write_bytes(changed)
        raise InputError("line 3: wrong")


@pytest.mark.parametrize("while_running", [None, b"1\n2\nX\n4\n5\n"])
@pytest.mark.parametrize("mended", [b"1\n2\n3\n", b"1\n2\n", b"1\n2\nThree\n4\n"])
def test_what_comes_after_a_line_in_error_may_be_mended(
    tmp_path: Path, mended: bytes, while_running: bytes | None
) -> None:
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n2\nX\n4\n")
    with pytest.raises(InputError, match="line 3: wrong"):
        stopped(target, source, while_running)
    source.write_bytes(mended)
    assert resume(target, ["a\n", "b\n", "c\n"], source=source) == 2
    assert target.read_bytes() == b"a\nb\nc\n"


@pytest.mark.parametrize("while_running", [b"0\n2\n3\n", None])
def test_what_comes_before_a_line_in_error_may_not_change(tmp_path: Path, while_running: bytes | None) -> None:
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n2\nX\n")
    with pytest.raises(InputError, match="line 3: wrong"):
        stopped(target, source, while_running)
    source.write_bytes(b"0\n2\n3\n")
    with pytest.raises(InputError, match=r"in\.de: not what out\.en was begun from"):
        resume(target, ["a\n", "b\n"], source=source)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("changed", [b"1\nX\n", b"1\n", b"", b"1\n23"])
def test_another_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bytes, chunk: int) -> None:
    monkeypatch.setattr(outputs, "_CHUNK", chunk)
    source, target = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes(b"1\n2" if changed.endswith(b"3") else b"1\n2\n")
    resume(target, ["a\n"], source=source)
    source.write_bytes(changed)
    with pytest.raises(InputError, match=r"in\.de: not what out\.en was begun from"):
        resume(target, ["a\n"], source=source)
    assert target.read_bytes() == b"a\n"


def test_other_options_are_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    resume(target, ["a\n"])
    with pytest.raises(InputError, match=r"out\.en: was begun with beam 1, this run has 5"):
        resume(target, ["b\n"], options={**OPTIONS, "beam": 5})
    with pytest.raises(InputError, match=r"with strategy ar, this run has spec"):
        resume(target, ["b\n"], options={**OPTIONS, "strategy": "spec", "beta": 3})
    assert target.read_bytes() == b"a\n"


@pytest.mark.parametrize("changed", [{"bytes": "x", "sha256": "y"}, {"sha256": "y"}, [1], "x"], ids=str)
def test_what_was_begun_from_a_damaged_input_is_said_to_be_damaged(tmp_path: Path, changed: object) -> None:
    source, target, beside = tmp_path / "in.de", tmp_path / "out.en", tmp_path / ".out.en.resume"
    source.write_bytes(b"1\n2\n")
    resume(target, ["a\n"], source=source)
    beside.write_text(json.dumps({**json.loads(beside.read_text()), "input": changed}))
    with pytest.raises(InputError, match=r"\.out\.en\.resume: damaged; remove it and out\.en"):
        resume(target, ["b\n"], source=source)


def test_a_file_that_was_not_begun_so_is_refused_and_kept(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    target.write_bytes(b"mine\n")
    with pytest.raises(InputError, match="was not begun with --append-resume"):
        resume(target, ["a\n"])
    assert target.read_bytes() == b"mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.en"]


def test_two_runs_at_a_time_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    with resumable_file(target, Resumable(1, OPTIONS, None)) as output:
        output.write("a\n")
        with pytest.raises(InputError, match="another run is writing it"):
            resume(target, ["b\n"])
    assert target.read_bytes() == b"a\n"


def test_a_run_that_is_refused_changes_nothing_of_the_one_that_is_writing(tmp_path: Path) -> None:
    target, others = tmp_path / "out.en", {**OPTIONS, "beam": 3}
    with resumable_file(target, Resumable(1, OPTIONS, None)):
        refused = resumable_file(target, Resumable(1, others, None))
        with pytest.raises(InputError, match="another run is writing it"), refused:
            pass
    with resumable_file(target, Resumable(1, OPTIONS, None)) as output:
        assert output.finished_before == 0


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    text, found = "x" * 500_000 + "\n", []
    with os.fdopen(reading, "rb") as source:
        reader = threading.Thread(target=lambda: found.append(source.read()))
        with io.FileIO(writing, "wb") as stream:
            reader.start()
            Output(stream, "out.en").write(text)
        reader.join()
    assert found == [text.encode()]


def test_more_output_than_input_is_an_error() -> None:
    lines = LineStream(io.BytesIO(b"a\nb\n"), "in.de", lambda line, number: line)
    with pytest.raises(InputError, match=r"out\.en: holds 3 lines, in\.de has only 2"):
        Output(io.FileIO("/dev/null", "wb"), "out.en", finished_before=3).pass_over(lines)


def test_a_whole_file_appears_at_the_end_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    with whole_file(target) as output:
        output.write("a\n")
        assert not target.exists()
    assert target.read_bytes() == b"a\n"
    broken_off = whole_file(target)
    broken_off.__enter__().write("b\n")
    assert not broken_off.__exit__(LookupError, LookupError(), None)
    assert target.read_bytes() == b"a\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.en"]


def test_a_resumable_file_that_is_written_anew_is_no_longer_one(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    resume(target, ["a\n", "b\n"], stop=1)
    with whole_file(target) as output:
        output.write("c\n")
    with pytest.raises(InputError, match="was not begun with --append-resume"):
        resume(target, ["a\n", "b\n"])
    assert target.read_bytes() == b"c\n"


def test_who_may_read_a_file_does_not_change(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    target.touch(mode=0o600)
    with whole_file(target) as output:
        output.write("a\n")
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (b"a\n", 0o600)


def test_a_name_as_long_as_a_system_takes_is_written(tmp_path: Path) -> None:
    target = tmp_path / ("a" * 255)
    with whole_file(target) as output:
        output.write("a\n")
    assert target.read_bytes() == b"a\n"


def test_a_name_too_long_to_be_gone_on_with_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: file name too long"):
        resume(tmp_path / ("a" * 252), ["a\n"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("linked", [False, True])
def test_what_a_shell_has_opened_is_added_to(tmp_path: Path, linked: bool) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"kept\n")
    with log.open("ab") as stream:
        os.set_inheritable(stream.fileno(), True)  # as a shell leaves it to its commands
        path = Path(f"/dev/fd/{stream.fileno()}")
        if linked:
            (tmp_path / "link").symlink_to(path)
            path = tmp_path / "link"
        with writing(path, None) as output:
            output.write("a\n")
    assert log.read_bytes() == b"kept\na\n"


def test_what_no_shell_has_opened_is_closed(tmp_path: Path) -> None:
    with (tmp_path / "own").open("w") as stream:  # an open file of this program's
        for number in (stream.fileno(), 10_000):
            with (
                pytest.raises(InputError, match=f"/dev/fd/{number}: is closed"),
                writing(Path(f"/dev/fd/{number}"), None),
            ):
                pass


@pytest.mark.parametrize("opened", [whole_file, lambda path: resumable_file(path, Resumable(1, {}, None))])
def test_a_link_to_itself_is_named(tmp_path: Path, opened: Callable[[Path], AbstractContextManager[Output]]) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(InputError, match="loop: cannot be written: too many levels of symbolic links"), opened(loop):
        pass


def test_a_full_disk_is_a_line_that_names_the_file() -> None:
    with (
        pytest.raises(InputError, match="/dev/full: cannot be written: no space left on device"),
        whole_file(Path("/dev/full")) as output,
    ):
        output.write("a\n")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for opened in (whole_file(tmp_path / "none/out"), resumable_file(tmp_path / "none/out", Resumable(1, {}, None))):
        with pytest.raises(InputError, match="none/out: cannot be written: no such file or directory"), opened:
            pass


def test_a_reader_that_has_gone_is_told_apart(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with io.FileIO(writing, "wb") as stream, pytest.raises(ReaderGoneError):
        Output(stream, "pipe").write("a\n")
