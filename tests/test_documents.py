"""Code in the documents beside the README: configurations load, Python runs, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from specmt.training.config import load_config

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md")])
DOCUMENTS += [ROOT / "specmt" / "models" / "de-en" / "README.md", ROOT / "data" / "README.md"]


def blocks(language: str) -> list[str]:
    """All blocks of code in one language."""
    texts = (path.read_text(encoding="utf-8") for path in DOCUMENTS if path.parent == ROOT / "docs")
    return [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.M)]


@pytest.mark.parametrize("block", blocks("yaml"))
def test_configurations_load(block: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    if "name" not in yaml.safe_load(block):  # a section, to be added to another configuration
        whole = next(other for other in blocks("yaml") if "tokenizer" in yaml.safe_load(other))
        block = whole + block
    path.write_text(block, encoding="utf-8")
    assert load_config(path, []).data.train, "corpora to train on"


def test_what_is_said_of_reproducibility_from_python_works() -> None:
    (block,) = blocks("python")
    said: dict[str, Any] = {}
    exec(block, said)
    assert said["every_line"] == said["the_first"][:1] == ["A dog is sleeping."]
    assert len(said["the_first"]) == 2


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("https://", "http://")):
            continue
        name, _, heading = target.partition("#")
        file = path.parent / name if name else path
        assert file.exists(), target
        if heading:
            assert heading in headings(file), target


def headings(path: Path) -> set[str]:
    """The anchors of a document's headings, as Git hosts make them."""
    lines = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M).splitlines()
    titles = [line.lstrip("#").strip().lower() for line in lines if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
