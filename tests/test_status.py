"""What a person is told of a translation that is under way or done."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import suppress
from typing import Any, cast

import pytest

from specmt.commands.translating import report_unplaced
from specmt.errors import InputError
from specmt.streams.outputs import Output
from specmt.streams.status import status
from specmt.translation import Translation


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(
    monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, quiet: bool = False, end: BaseException | None = None
) -> str:
    """Of one line that is as it should be, and one that was cut, and whatever ends the run then."""
    monkeypatch.setattr(sys, "stderr", stderr)

    class Target:
        stream = io.StringIO()
        finished_before = 0

    lines: list[dict[str, Any]] = [{}, {"warnings": ("repetition",)}]
    with suppress(type(end or EOFError())), status(None, cast("Output", Target()), quiet) as show:
        for fields in lines:
            show(Translation(index=0, source="a", text="b", score=0.0, **fields))
        if end:
            raise end
    return stderr.getvalue()


def test_where_nobody_looks_warnings_alone_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = "specmt: 1 of 2 lines have warnings (see --format jsonl)\n"
    assert told(monkeypatch, io.StringIO()) == expected
    assert told(monkeypatch, io.StringIO(), quiet=True) == ""
    assert "2 lines in" in told(monkeypatch, Terminal())


def test_warnings_are_told_where_an_error_ends_the_run_but_not_where_the_reader_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "1 of 2 lines have warnings" in told(monkeypatch, io.StringIO(), end=InputError("line 3: not UTF-8"))
    assert "2 lines in" in told(monkeypatch, Terminal(), end=InputError("line 3: not UTF-8"))
    assert told(monkeypatch, io.StringIO(), end=BrokenPipeError()) == ""


def test_an_interruption_while_the_program_is_loaded_is_no_traceback() -> None:
    program = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "specmt.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from specmt.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_what_could_not_be_placed_is_one_line_of_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Terms may hold anything, and a terminal heeds escapes."""
    report_unplaced(Translation(index=1, source="a", text="b", score=0.0, unplaced=("d\x1b[2Ja", "e\u2028f")))
    assert capsys.readouterr().err == "specmt: line 2: not in the translation: d [2Ja, e f\n"
