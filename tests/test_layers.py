"""Imports point one way: what docs/architecture.md says that each folder imports, and no module itself in the end."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "specmt"
EVERYWHERE = {"arrays", "errors"}
ROW = re.compile(r"^\| `(\w+)/` \| [^|]* \| ([^|]*) \|$", re.MULTILINE)
ONLY_IN = {
    "fairseq": {"fairseq_backend"},
    "fairseq_cli": {"fairseq_backend"},
    "torch": {"conversion", "engines", "fairseq_backend", "loading", "training"},
    "onnxruntime": {"engines"},
    "onnx": {"engines"},
    "typer": {"cli", "cli_options", "commands"},
    "matplotlib": {"evaluation"},
    "sacrebleu": {"evaluation", "training"},
    "sentencex": {"text"},
}


@cache
def modules() -> dict[str, Path]:
    """The package's modules by name, without `specmt.`; its own `__init__`, which imports when asked, is left out."""
    found = {".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")}
    return {name: path for name, path in found.items() if not name.endswith("__init__")}


def imported(path: Path) -> Iterator[str]:
    """What a file imports, wherever in it, names included, but for what is there for types alone."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            waiting += ast.iter_child_nodes(node)


def own(path: Path) -> set[str]:
    """The modules of the package that a file imports."""
    names = [name.removeprefix("specmt.") for name in imported(path) if name.startswith("specmt.")]
    return {one for name in names for one in (name, name.rpartition(".")[0]) if one in modules()}


ALLOWED = {
    folder: set(re.findall(r"`([\w/]+)", imports))
    for folder, imports in ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
}
"""By folder, what the table lets it import; nothing for `commands`, which may import all."""


def test_every_folder_is_in_the_table() -> None:
    assert set(ALLOWED) == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


@pytest.mark.parametrize("folder", [folder for folder, names in ALLOWED.items() if names])
def test_a_folder_imports_what_the_table_says(folder: str) -> None:
    found = {
        name.split(".")[0]
        for module, path in modules().items()
        if module.startswith(f"{folder}.")
        for name in own(path)
        if not name.startswith(f"{folder}.")
    }
    assert found - EVERYWHERE == {name.strip("/") for name in ALLOWED[folder]} - EVERYWHERE


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in turn; none where imports point one way."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_in_the_end() -> None:
    imports = {module: own(path) for module, path in modules().items()}
    assert circle(imports) == []
    assert {"errors", "settings"} <= set(circle(imports | {"errors": {"settings"}})), "one would be found"


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    users = {
        module.split(".")[0]
        for module, path in modules().items()
        if any(f"{name}.".startswith(f"{library}.") for name in imported(path))
    }
    assert users == ONLY_IN[library]
