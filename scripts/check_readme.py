"""Run the commands of README.md as a newcomer would type them, and compare what they print with what it shows.

Run as `python scripts/check_readme.py`; a block of shell commands is run as one script, and the block of `text` or
`json` right behind it is what it prints (decimal fractions may differ: they are the machine's).

--write    put what the commands print into README.md
--install  in a copy of the clone and a new environment, with all that installs as well (minutes; `make test` left out)

Blocks that name files of the clone run in a folder with links to them, the others in one that was empty before.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
CLONED = ("configs", "data", "scripts")
"""What commands may name of the clone, or write beside it."""
_BLOCK = re.compile(r"^```sh\n(?P<commands>.*?)^```\n(?:\n```(?:text|json)\n(?P<printed>.*?)^```\n)?", re.DOTALL | re.M)
_INSTALLS = re.compile(r"(make|pip|python3 -m venv) ")
_OF_THE_CLONE = re.compile(rf"(?<![\w./-])(?:{'|'.join(CLONED)}|runs)/")
_HEAD_LEAVES = 141


@dataclass(frozen=True)
class Block:
    """A block of shell commands, and what README shows that it prints, if it does."""

    commands: str
    printed: str | None

    @property
    def installs(self) -> bool:
        """Whether all that it does is to install."""
        return all(_INSTALLS.match(line) for line in self.commands.splitlines())

    @property
    def of_the_clone(self) -> bool:
        """Whether it names files of the clone, or what was made there."""
        return bool(_OF_THE_CLONE.search(self.commands))


class ReadmeError(Exception):
    """A block that does not do what README says."""


def blocks(text: str) -> list[Block]:
    """The blocks of shell commands, in order."""
    return [Block(found["commands"], found["printed"]) for found in _BLOCK.finditer(text)]


def run(block: Block, folder: Path, environment: Mapping[str, str]) -> str:
    """What a block prints.

    Raises:
        ReadmeError: a command that fails, or says something on stderr that is an error.
    """
    script = f"set -eo pipefail\nif [ -f env/bin/activate ]; then . env/bin/activate; fi\n{block.commands}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    left_early = done.returncode == _HEAD_LEAVES and "| head" in block.commands.splitlines()[-1]
    if (done.returncode and not left_early) or "Traceback" in done.stderr:
        raise ReadmeError(f"exit code {done.returncode}:\n{block.commands}{done.stderr}")
    return done.stdout


def same(printed: str, shown: str) -> bool:
    """Whether two outputs are the same but for decimal fractions."""
    one, other = (re.sub(r"-?\d+\.\d+(?:e-?\d+)?", "#.#", text) for text in (printed, shown))
    return one == other


def check(block: Block, printed: str) -> None:
    """Compare what was printed with what README shows.

    Raises:
        ReadmeError: it differs.
    """
    if block.printed is not None and not same(printed, block.printed):
        raise ReadmeError(f"{block.commands}prints\n{printed}and README shows\n{block.printed}")


def cloned(folder: Path) -> Path:
    """Make a folder with links to what commands name of the clone."""
    folder.mkdir()
    for name in CLONED:
        (folder / name).symlink_to(ROOT / name)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """This environment's package as `specmt` on the path, and a cache of its own."""
    folder.mkdir()
    command = folder / "specmt"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m specmt "$@"\n')
    command.chmod(0o755)
    paths = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return {**os.environ, **paths, "XDG_CACHE_HOME": str(folder / "cache"), "SHELL": "/bin/bash"}


def outputs(wanted: Sequence[Block]) -> Iterator[tuple[Block, str]]:
    """Each block that does not install, and what it prints."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables, clone, empty = environment(folder / "bin"), cloned(folder / "clone"), folder / "empty"
        empty.mkdir()
        for block in wanted:
            if not block.installs:
                yield block, run(block, clone if block.of_the_clone else empty, variables)


def outputs_when_installed(wanted: Sequence[Block]) -> Iterator[tuple[Block, str]]:
    """Each block, installations included, and what it prints: in a copy of the clone, with its own environment."""
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        without = {"PYTHONPATH", "VIRTUAL_ENV"}
        variables = {key: value for key, value in os.environ.items() if key not in without}
        variables |= {"XDG_CACHE_HOME": str(Path(name) / "cache"), "SHELL": "/bin/bash"}
        for block in wanted:
            lines = [line for line in block.commands.splitlines(keepends=True) if not line.startswith("make test")]
            yield block, run(Block("".join(lines), None), clone, variables)


def with_output(text: str, block: Block, printed: str) -> str:
    """README's text with what a block printed behind it."""
    if block.printed is None:
        return text
    commands = f"{block.commands}```\n\n"
    before, _, rest = text.partition(commands)
    fence, _, rest = rest.partition("\n")
    return f"{before}{commands}{fence}\n{printed}{rest.removeprefix(block.printed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all blocks; 1 if one does not do what README says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args(arguments)
    text = README.read_text(encoding="utf-8")
    try:
        for block, printed in (outputs_when_installed if options.install else outputs)(blocks(text)):
            print(block.commands, end="", flush=True)
            if options.write:
                text = with_output(text, block, printed)
            else:
                check(block, printed)
    except ReadmeError as error:
        print(error, file=sys.stderr)
        return 1
    if options.write:
        README.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
