"""Write docs/cli.md from the command line's own help. Run as `python scripts/generate_cli_docs.py`."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from specmt.cli import app

TARGET = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = """# The command line

Written by `scripts/generate_cli_docs.py` from the program itself; do not edit. Option names may be written with `_` for
`-`. Exit codes: 0; 1, an error (one line on stderr that says what, where and how to mend it); 2, options that do not go
together; 129, 130, 141, 143 after SIGHUP, Ctrl-C, when nobody reads the output any more, and after SIGTERM: what was
finished is then on standard output, or in the file of `--append-resume`, while `-o` alone leaves the file as it was.
`specmt --debug COMMAND …` shows a traceback with an error.
"""


def document() -> str:
    """The whole of docs/cli.md."""
    group: Any = typer.main.get_command(app)
    parts = [HEAD, "## specmt", _text(group.help), _options(group)]
    for name in sorted(group.list_commands(None)):
        command = group.get_command(None, name)
        arguments = [f" {parameter.name.upper()}" for parameter in command.params if _is_argument(parameter)]
        parts += [f"## specmt {name}{''.join(arguments)}", _text(command.help), _options(command)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401  (typer and click have no common class for it)
    return bool(parameter.param_type_name == "argument")


def _text(help_: str | None) -> str:
    """Help with its examples as code."""
    return "\n".join(_blocks(inspect.cleandoc(help_ or "").split("\n\n")))


def _blocks(paragraphs: list[str]) -> Iterator[str]:
    examples = [paragraph.strip() for paragraph in paragraphs if paragraph.strip().startswith("specmt ")]
    for paragraph in paragraphs:
        if paragraph.strip() in examples:
            continue
        yield f"{paragraph}\n"
    if examples:
        yield "\n".join(["```sh", *examples, "```"])


def _options(command: Any) -> str:  # noqa: ANN401
    """A table of a command's options and arguments."""
    rows = ["| option | | default |", "|---|---|---|"]
    for parameter in command.params:
        names = [*parameter.opts, *parameter.secondary_opts]
        label = f"`{parameter.name.upper()}`" if _is_argument(parameter) else ", ".join(f"`{name}`" for name in names)
        help_ = " ".join((parameter.help or "").split()).replace("|", "\\|")
        if choices := getattr(parameter.type, "choices", ()):
            values = ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in choices)
            help_ += f" One of {values}."
        rows.append(f"| {label} | {help_} | {_default(parameter)} |")
    return "\n".join(rows)


def _default(parameter: Any) -> str:  # noqa: ANN401
    shown = getattr(parameter, "show_default", True)
    if isinstance(shown, str):
        return shown
    value = getattr(parameter.default, "value", parameter.default)
    if callable(value) or value is None or not shown:
        return "required" if parameter.required else ""
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(document(), encoding="utf-8")
    print(TARGET)
