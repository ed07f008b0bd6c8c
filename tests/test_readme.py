"""The README typed in, block by block: every command works, and prints what the README shows."""

from __future__ import annotations

import re
import shutil
from configparser import ConfigParser
from pathlib import Path

import pytest
from check_readme import (
    README,
    Block,
    ReadmeError,
    blocks,
    check,
    cloned,
    environment,
    main,
    outputs,
    run,
    same,
    with_output,
)

ROOT = Path(__file__).parent.parent
BLOCKS = blocks(README.read_text(encoding="utf-8"))
INSTALLS = [line for block in BLOCKS if block.installs for line in block.commands.splitlines()]


def test_what_needs_no_clone_works_in_an_empty_folder() -> None:
    typed = [block for block in BLOCKS if not block.of_the_clone]
    shown = [block for block, printed in outputs(typed) if check(block, printed) or block.printed is not None]
    assert len(shown) >= 4


def test_what_needs_the_clone_works_there(trained_clone: Path, tmp_path: Path) -> None:
    clone, variables = cloned(tmp_path / "clone"), environment(tmp_path / "bin")
    shutil.copytree(trained_clone / "runs", clone / "runs")  # trained by the first of these commands
    typed = [block for block in BLOCKS if block.of_the_clone and not block.installs]
    for block in typed:
        check(block, run(block, clone, variables))
    assert sum(block.commands.count("\nspecmt ") for block in typed) >= 5


def test_what_it_says_of_python_works(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(code, {})
    assert re.fullmatch(r"Where.* station\? -\d+\.\d+\nA dog.* -\d+\.\d+\n", capsys.readouterr().out)


def test_what_it_installs_is_there_to_be_installed() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^([a-z]+):.*## ", makefile, flags=re.MULTILINE)
    assert len(INSTALLS) >= 6
    for line in INSTALLS:
        words = line.split("#")[0].split()
        if words[0] == "make":
            assert words[1] in targets
        elif words[0] == "pip" and (extra := re.fullmatch(r"'?\.(?:\[(\w+)\])?'?", words[-1])):
            assert extra[1] is None or setup.has_option("options.extras_require", extra[1])
        elif words[0] == "pip":
            assert f"{words[-2]} {words[-1]}" in makefile  # fairseq, the same version as in development
        else:
            assert words == ["python3", "-m", "venv", "env", "&&", ".", "env/bin/activate"]


def test_commands_that_fail_or_print_something_else_are_found(tmp_path: Path) -> None:
    variables = environment(tmp_path / "bin")
    with pytest.raises(ReadmeError, match="exit code 1"):
        run(Block("specmt translate -i none\n", None), tmp_path, variables)
    with pytest.raises(ReadmeError, match="exit code 141"):
        run(Block("yes | head -n 1\necho\n", None), tmp_path, variables)
    with pytest.raises(ReadmeError, match="README shows"):
        check(Block("echo 3 1.4\n", "4 1.4\n"), run(Block("echo 3 1.4\n", None), tmp_path, variables))
    assert same("3 lines, 0.104 s, 1.5e-05\n", "3 lines, 0.2 s, -2.5\n")


def test_what_is_printed_is_put_into_the_document() -> None:
    text = "```sh\necho 1\n```\n\n```text\n0\n```\n\n```sh\ntrue\n```\n"
    one, other = blocks(text)
    assert (one, other) == (Block("echo 1\n", "0\n"), Block("true\n", None))
    assert with_output(text, one, "1\n") == text.replace("0", "1")
    assert with_output(text, other, "1\n") == text
    assert callable(main)
