"""Text files that are read whole, also from archives."""

from __future__ import annotations

import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path

from specmt.errors import InputError, reason
from specmt.streams.inputs import decode_line


def _unxz(data: bytes) -> bytes:
    """All streams of an archive; Python's own reader drops what follows the first one where its head is damaged.

    Raises:
        EOFError: it is cut off.
        lzma.LZMAError: it is damaged.
    """
    parts: list[bytes] = []
    while data or not parts:
        stream = lzma.LZMADecompressor()
        parts.append(stream.decompress(data))
        if not stream.eof:
            raise EOFError("the archive ends before its end-of-stream marker")
        data = stream.unused_data.lstrip(b"\0")  # padding between streams
    return b"".join(parts)


def _gunzip(data: bytes) -> bytes:
    import gzip  # hardly ever needed, and each translation would wait for it

    return gzip.decompress(data)


UNPACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": _unxz, ".gz": _gunzip}
"""How to read archives, by the endings of their names."""
_NOT_OPENED = {".bz2", ".zip", ".zst"}
"""Archives that would be read as text."""


def read_lines(path: Path) -> list[str]:
    """Lines of a UTF-8 text file (also `.xz`, `.gz`) without their ends. Only LF and CRLF end a line.

    Raises:
        InputError: no such file, a damaged archive, one of another kind, or bytes that are not UTF-8; names the line.
    """
    if path.suffix in _NOT_OPENED:
        raise InputError(f"{path}: {path.suffix} is not supported; {' and '.join(UNPACKERS)} are")
    try:
        data = path.read_bytes()
        if unpack := UNPACKERS.get(path.suffix):
            data = unpack(data)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason(error)}") from None
    except (lzma.LZMAError, zlib.error, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return [decode_line(line, str(path), number) for number, line in enumerate(io.BytesIO(data), start=1)]
