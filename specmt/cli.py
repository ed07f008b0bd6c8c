"""The command line: its commands, and errors as one line and an exit code."""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Annotated, NoReturn

import typer

from specmt import __version__, standard_streams
from specmt.commands.convert import convert
from specmt.commands.evaluate import evaluate
from specmt.commands.explain import explain
from specmt.commands.inspect import doctor, info
from specmt.commands.train import export, train
from specmt.commands.translate import translate
from specmt.commands.tune import tune
from specmt.errors import SpecmtError

app = typer.Typer(
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


_COMMANDS: Mapping[str, Callable[..., None]] = {
    "translate": translate,
    "convert": convert,
    "info": info,
    "doctor": doctor,
    "tune": tune,
    "explain": explain,
    "eval": evaluate,
    "train": train,
    "export": export,
}
"""In the order of `specmt --help`."""
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)


def _terminated(signal_number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + signal_number)


def _one_line(error: BaseException) -> tuple[str, int]:
    """What to say of an error, and the exit code."""
    if isinstance(error, SpecmtError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError):
        return "not enough memory: lower --batch-size, --max-batch-tokens or --threads", 1
    if isinstance(error, OSError):
        return str(error), 1
    # typer carries its own copy of click, or uses the one that is installed: its errors have no class to import.
    if callable(message := getattr(error, "format_message", None)):
        text = str(message())  # none where the help was shown instead
        return text and f"{text} (see specmt --help)", int(getattr(error, "exit_code", 2))
    return f"unexpected {type(error).__name__}: {error} (specmt --debug … shows where; please report it)", 1


def main() -> NoReturn:
    """Run the command line; the only place where an error becomes a line and an exit code."""
    signal.signal(signal.SIGTERM, _terminated)
    standard_streams.prepare()
    try:
        status = app(standalone_mode=False) or 0
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except Exception as error:
        if _Debug.wanted:
            traceback.print_exc()
        text, status = _one_line(error)
        if text:
            print("specmt:", " ".join(text.split()), file=sys.stderr)
    standard_streams.leave()
    sys.exit(status)
