"""Standard streams that are closed, full or without a reader, of every command; and bytes that are no text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def shell(script: str, folder: Path = ROOT) -> subprocess.CompletedProcess[bytes]:
    """Run a line of shell in which `specmt` is the program and its package is on the path."""
    start = f'specmt() {{ PYTHONPATH="{ROOT}" "{sys.executable}" -m specmt "$@"; }}\n'
    return subprocess.run(["bash", "-c", start + script], capture_output=True, cwd=folder, check=False, timeout=120)


@pytest.mark.parametrize("command", ["info", "--version", "--help", "explain Hund"])
def test_a_reader_that_has_gone_is_no_error_of_any_command(command: str) -> None:
    done = shell(f"specmt {command} | true; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["info", "--version", "--help", "explain Hund"])
@pytest.mark.parametrize(
    ("redirection", "expected"),
    [(">/dev/full", "cannot be written: no space left on device"), (">&-", "is closed; redirect it")],
)
def test_output_that_cannot_be_written_is_one_line(command: str, redirection: str, expected: str) -> None:
    done = shell(f"specmt {command} {redirection}")
    assert (done.returncode, done.stderr.decode()) == (1, f"specmt: standard output: {expected}\n")


def test_streams_that_are_not_needed_may_be_closed(tmp_path: Path) -> None:
    (tmp_path / "in.de").write_text("Ein Hund.\n")
    done = shell("specmt translate -i in.de -o out.en <&- >&- 2>&-", tmp_path)
    assert (done.returncode, (tmp_path / "out.en").read_text()) == (0, "A dog.\n")


def test_what_is_said_of_an_error_goes_nowhere_else_when_that_is_closed(tmp_path: Path) -> None:
    done = shell("specmt translate -i none 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")


def test_output_is_utf_8_in_any_locale() -> None:
    settings = "export LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 PYTHONCOERCECLOCALE=0\n"
    assert "▁Hund" in shell(f"{settings}specmt explain Hund").stdout.decode()


def test_a_sentence_that_is_no_text_is_one_line() -> None:
    done = shell(r"specmt explain $'\xff'")
    assert (done.returncode, done.stderr) == (2, b"specmt: the sentence is not UTF-8\n")


@pytest.mark.parametrize("command", ["-i in.de -o in.de", "-o in.de < in.de", "-i in.de -o link --append-resume"])
def test_the_input_is_never_overwritten(command: str, tmp_path: Path) -> None:
    source = tmp_path / "in.de"
    source.write_text("Ein Hund.\n")
    (tmp_path / "link").symlink_to(source)
    done = shell(f"specmt translate {command}", tmp_path)
    assert done.returncode == 2 and b"is the input" in done.stderr and done.stderr.count(b"\n") == 1
    assert source.read_text() == "Ein Hund.\n"
