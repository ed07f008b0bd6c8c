"""What the parts of the package may import, as docs/architecture.md says it, so that imports point one way."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "specmt"
MAY_IMPORT = {
    "text": {"errors"},
    "bundles": {"arrays", "errors", "files", "text"},
    # What falls back to two passes does what any engine's caller does, and what is exported is measured on text.
    "engines": {"arrays", "bundles", "corpus", "decoding.drafting", "errors", "files", "text"},
    "decoding": {"arrays", "engines.base", "errors", "settings", "text"},
    "streams": {"choices", "errors", "files", "text", "translation", "workers"},
    "protection": {"corpus", "decoding.hypotheses", "errors", "text", "translation", "wrapping"},
}
ONLY_IN = {
    "fairseq": {"fairseq_backend"},
    "fairseq_cli": {"fairseq_backend"},
    "torch": {"conversion", "engines", "fairseq_backend", "loading", "training"},
    "onnxruntime": {"engines"},
    "typer": {"cli", "cli_options", "commands"},
    "matplotlib": {"evaluation"},
}


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """Files of a folder and what each imports, wherever in it, with the names where these may be modules."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((str(path), alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield from ((str(path), f"{node.module}.{alias.name}") for alias in node.names)


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_stands_below_it(part: str) -> None:
    allowed = [f"specmt.{name}." for name in {part, *MAY_IMPORT[part]}]
    own = [(path, name) for path, name in imported(PACKAGE / part) if name.startswith("specmt.")]
    assert own
    assert [found for found in own if not any(f"{found[1]}.".startswith(name) for name in allowed)] == []


@pytest.mark.parametrize("library", ONLY_IN)
def test_a_library_is_imported_only_where_it_belongs(library: str) -> None:
    users = {
        Path(path).relative_to(PACKAGE).parts[0].removesuffix(".py")
        for path, name in imported(PACKAGE)
        if f"{name}.".startswith(f"{library}.")
    }
    assert users == ONLY_IN[library]
