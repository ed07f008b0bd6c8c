"""What the documents say of the command line is what it has."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specmt.cli import app

ROOT = Path(__file__).parent.parent
COMMANDS = ("translate", "explain", "eval", "train", "export", "tune", "convert", "info", "doctor")
README = (ROOT / "README.md").read_text()


@cache
def help_of(*command: str) -> str:
    done = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.output
    return re.sub(r"\x1b\[[0-9;]*m", "", done.output)


def shown_commands() -> list[list[str]]:
    """The `specmt` commands in the README's shell blocks, comments and redirections left out."""
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("specmt ")]
    return [[word for word in shlex.split(line, comments=True) if word not in {"<", ">"}] for line in lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_stands_in_the_readme(command: str) -> None:
    assert command in help_of()
    assert len(help_of(command).splitlines()) > 5
    assert any(shown[1] == command for shown in shown_commands())


def test_the_readmes_commands_have_the_options_that_it_gives_them() -> None:
    shown = shown_commands()
    assert len(shown) >= 8
    for _, command, *words in shown:
        assert command in COMMANDS, command
        for option in (word.partition("=")[0] for word in words if word.startswith("-")):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", help_of(command)), f"{command} {option}"


def test_files_that_the_readme_names_exist() -> None:
    named = set(re.findall(r"\b(?:configs|scripts|docs|data|specmt)/[\w./-]+\.\w+", README))
    assert len(named) >= 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_shell_targets_that_the_readme_names_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text()
    assert targets >= {"demo", "test"}
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)
