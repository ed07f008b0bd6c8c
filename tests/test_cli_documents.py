"""What the documents say of the command line is what it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from specmt import __version__
from specmt.cli import app

ROOT = Path(__file__).parent.parent
COMMANDS = ("translate", "explain", "eval", "train", "export", "tune", "convert", "info", "doctor")
README = (ROOT / "README.md").read_text()


@cache
def help_of(*command: str) -> str:
    done = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    return re.sub(r"\x1b\[[0-9;]*m", "", done.output)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_stands_in_the_readme(command: str) -> None:
    assert command in help_of()
    assert len(help_of(command).splitlines()) > 5
    assert re.search(rf"^specmt {command}\b", README, flags=re.MULTILINE)


def test_files_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"\b(?:configs|scripts|docs|data|specmt)/[\w./-]+\.\w+", README))
    assert len(named) >= 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_page_of_the_command_line_is_what_the_program_says() -> None:
    from generate_cli_docs import TARGET, document

    assert TARGET.read_text(encoding="utf-8") == document(), "run scripts/generate_cli_docs.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_says_what_it_does(command: str) -> None:
    group: Any = typer.main.get_command(app)
    parameters = group.get_command(None, command).params
    assert [parameter.name for parameter in parameters if not parameter.help] == []


def test_options_have_the_names_that_other_tools_give_them() -> None:
    for alias in ("--beam-size", "--lenpen", "--nbest", "--max-tokens", "--max-sentences", "--print-alignment"):
        assert alias in help_of("translate")


def test_the_version_is_that_of_the_package() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"specmt {__version__}\n")
