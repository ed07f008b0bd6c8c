"""The command line: its commands, and errors as one line and an exit code."""

from __future__ import annotations

import re
import signal
import sys
import traceback
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from specmt import __version__
from specmt.errors import SpecmtError, UsageError, reason
from specmt.streams import standard_streams

if TYPE_CHECKING:
    from typer._click import Command, Context

_COMMANDS = {
    "translate": "translate:translate",
    "convert": "convert:convert",
    "info": "inspect:info",
    "doctor": "inspect:doctor",
    "tune": "tune:tune",
    "explain": "explain:explain",
    "eval": "evaluate:evaluate",
    "train": "train:train",
    "export": "train:export",
}
"""Where in `specmt.commands` each command is, in the order of `specmt --help`."""


_ONCE = frozenset({"input_path", "output_path", "protect", "terminology", "source", "reference"})
"""Parameters that somebody may give twice to have both: the last alone would count. Of others it may."""


class _Command(TyperCommand):
    """A command that takes some options once."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """See click.

        Raises:
            UsageError: such an option is given twice.
        """
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        seen: set[str] = set()
        for parameter in given:
            if parameter.name in seen & _ONCE:
                raise UsageError(f"{parameter.opts[0]}: given twice")
            seen.add(str(parameter.name))
        return super().parse_args(ctx, args)


class _Commands(TyperGroup):
    """The commands. One is imported when it is asked for: a short translation should not wait for the others."""

    def list_commands(self, ctx: Context) -> list[str]:
        """Names, as `specmt --help` shows them."""
        return list(_COMMANDS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        """The command of a name, if there is one."""
        if cmd_name not in _COMMANDS:
            return None
        single = typer.Typer(add_completion=False)
        single.command(cmd_name, cls=_Command)(resolve_name(f"specmt.commands.{_COMMANDS[cmd_name]}"))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    # `--beam_size` is `--beam-size`, as other tools of the field write it.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"specmt {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback with an error; stands before the command.")
    ] = False,
) -> None:
    """Machine translation that drafts many tokens in one pass and verifies them in another.

    For example:

      specmt translate < input.de > output.en

      specmt explain "Ein Mann spielt Gitarre."

      specmt eval --source test.de --reference test.en
    """
    _Debug.wanted = debug


class _Debug:
    """Whether errors come with a traceback; set once, when the command line is parsed."""

    wanted = False


class _TerminatedError(SystemExit):
    """A signal ends the program; what is still running in it is not waited for."""

    def __init__(self, signal_number: int) -> None:
        self.status = 128 + signal_number
        super().__init__(self.status)


def _terminated(signal_number: int, frame: object) -> NoReturn:
    raise _TerminatedError(signal_number)


_LESS_MEMORY = {
    "translate": ": lower --batch-size, --max-batch-tokens, --beam or --threads",
    "eval": ": lower --batch-size, the beam or --threads",
    "train": ": shorten what is too long, or lower batch_tokens",
}
"""What a command's user can do."""
_NO_MEMORY = re.compile("out of memory|can't allocate memory|can't start new thread")
"""What torch and Python say when there is none: in a `RuntimeError`."""
_WHERE_TEXT_BELONGS = {
    "translate": ": text comes from standard input or --input FILE",
    "explain": ": a sentence goes in quotes",
}


def _asked_for() -> str:
    """The command, if it is known yet."""
    return next((word for word in sys.argv[1:] if word in _COMMANDS), "")


def _one_line(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, SpecmtError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(str(error))):
        return f"not enough memory{_LESS_MEMORY.get(_asked_for(), '')}", 1
    if isinstance(error, OSError):
        path = error.filename2 or error.filename  # of two, the second is the one that is written
        return f"{path}: {reason(error)}" if path else reason(error), 1
    # typer carries its own copy of click, or uses the one that is installed: its errors have no class to import.
    if callable(message := getattr(error, "format_message", None)):
        text = str(message())  # none where the help was shown instead
        command = getattr(getattr(error, "ctx", None), "command_path", f"specmt {_asked_for()}".strip())
        if "unexpected extra argument" in text:
            text += _WHERE_TEXT_BELONGS.get(command.split()[-1], "")
        return text and f"{text} (see {command} --help)", int(getattr(error, "exit_code", 2))
    return f"unexpected {type(error).__name__}: {error} (specmt --debug … shows where; please report it)", 1


def main() -> NoReturn:
    """Run the command line; the only place where an error becomes a line and an exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _terminated)
    standard_streams.prepare()
    try:
        status = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except _TerminatedError as error:
        status = error.status
    except Exception as error:
        if _Debug.wanted:
            traceback.print_exc()
        text, status = _one_line(error)
        if text:
            from specmt.text.characters import printable

            print("specmt:", printable(" ".join(text.split())), file=sys.stderr)
    standard_streams.leave(status)
