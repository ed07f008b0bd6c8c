"""Files written whole or not at all, and their digests."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_BLOCK = 1 << 20
_UNWRITABLE = {errno.EACCES, errno.EPERM, errno.EROFS}
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE


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
    """A temporary path beside `path` (file or folder) that takes its place when the block ends without an exception.

    Two cases are not atomic: a file that can be written but not replaced, as one that is mounted by itself or stands in
    a folder that cannot be written, is overwritten; and where the system cannot exchange two folders at once, whoever
    is killed between the two steps that it takes then leaves the older one in a folder beside `path`.
    """
    with _temporary_folder(path) as folder:
        temporary, replaced = Path(folder) / path.name, Path(folder) / f"{path.name[:32]}.replaced"
        try:
            yield temporary
            if temporary.is_dir() and path.is_dir() and not path.is_symlink():
                if _exchange(temporary, path):
                    return
                path.replace(replaced)
            _replace(temporary, path)
        finally:
            if replaced.exists() and not path.exists():
                replaced.replace(path)


def _temporary_folder(path: Path) -> TemporaryDirectory[str]:
    """A folder of its own, so that two programs that write the same path do not write the same temporary file."""
    prefix = f".{path.name[:32]}."
    try:
        return TemporaryDirectory(dir=path.parent, prefix=prefix)
    except OSError as error:
        if error.errno in _UNWRITABLE and path.is_file() and os.access(path, os.W_OK):
            return TemporaryDirectory(prefix=prefix)
        raise


def _replace(temporary: Path, path: Path) -> None:
    try:
        temporary.replace(path)
    except OSError:
        if not (temporary.is_file() and path.is_file()):
            raise
        shutil.copyfile(temporary, path)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places at once, as Linux can in most file systems; whether they did."""
    try:
        exchange = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError):
        return False
    return int(exchange(_HERE, bytes(one.absolute()), _HERE, bytes(other.absolute()), _EXCHANGE)) == 0
