"""Files written whole or not at all, and their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_BLOCK = 1 << 20


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal. In steps so large that other threads seldom wait for it, or it for them."""
    digest, block = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as stream:
        while count := stream.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()


def write_json(path: Path, value: object) -> None:
    """Write JSON atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` (file or folder) that takes its place when the block ends without an exception."""
    # A folder of its own, so that two programs that write the same path do not write the same temporary file.
    with TemporaryDirectory(dir=path.parent, prefix=f".{path.name[:32]}.") as folder:
        temporary, replaced = Path(folder) / path.name, Path(folder) / f"{path.name[:32]}.replaced"
        try:
            yield temporary
            if temporary.is_dir() and path.is_dir():
                path.replace(replaced)  # no system call replaces a folder that is not empty
            temporary.replace(path)
        finally:
            if replaced.exists() and not path.exists():
                replaced.replace(path)
