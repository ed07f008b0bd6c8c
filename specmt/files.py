"""Files written whole or not at all, and their digests."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (file or folder) that takes its place when the block ends without an exception."""
    temporary, replaced = path.with_name(f".{path.name}.part"), path.with_name(f".{path.name}.part.old")
    _remove(temporary)
    try:
        yield temporary
        if temporary.is_dir() and path.is_dir():
            # No system call replaces a folder that is not empty.
            _remove(replaced)
            path.replace(replaced)
        temporary.replace(path)
    finally:
        if replaced.exists() and not path.exists():
            replaced.replace(path)
        _remove(temporary)
        _remove(replaced)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
