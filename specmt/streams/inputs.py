"""Lines of input: bytes to text and what travels with it. One line in makes one translation out, whatever its bytes."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import Any

from specmt.errors import InputError, reason
from specmt.streams.line_stream import LineStream
from specmt.text.characters import printable
from specmt.text.guards import LineWarning

LINE_OPTIONS = frozenset({"reproducible"})
"""Fields of a JSON line that say how to decode it: they go to `InputLine.options`, not through to the output."""

_DEEPEST = 200
"""Arrays and objects of a line in one another."""
_LONGEST_SHOWN = 20
"""Characters of what is no number."""
_REPLACED = (LineWarning.REPLACED,)


@dataclass(frozen=True)
class InputLine:
    """A text to translate, the other fields of its JSON object, and options that hold for this line only.

    `warnings`: what its translation is to say of it. `line`: of which it is a part, or as which it was given, if not
    as the text.
    """

    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[LineWarning, ...] = ()
    line: str = ""


LineParser = Callable[[bytes, int], InputLine]
"""A line with its end, and its number from 1, to what it says; raises `InputError` that names the line."""


def text_parser(name: str, replace_errors: bool = False) -> LineParser:
    """For lines of UTF-8: a byte order mark before the first and the LF or CRLF behind each are no part of them.

    Args:
        name: what errors call the input.
        replace_errors: U+FFFD for bytes that are not UTF-8; otherwise they are an error.
    """

    def parse(line: bytes, number: int) -> InputLine:
        text, warnings = _decoded(line, name, number, replace_errors)
        return InputLine(text, warnings=warnings)

    return parse


def jsonl_parser(name: str, replace_errors: bool = False) -> LineParser:
    """For lines that are JSON objects with the text in `source`; other fields pass through (see `forms`).

    A blank line is a blank text.
    """

    def parse(line: bytes, number: int) -> InputLine:
        text, warnings = _decoded(line, name, number, replace_errors)
        if not text.strip():
            return InputLine("")
        place = f"{name}: line {number}"
        try:
            record = json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=_each_once)
            _check_depth(record, text)
        except (ValueError, RecursionError) as error:
            why = "too deep or too large"
            if isinstance(error, _KeyTwiceError):
                why = str(error)
            elif isinstance(error, json.JSONDecodeError):
                column = f", column {error.colno}" if error.doc == text else ""  # of a number only that is known
                why = f"{error.msg.removesuffix(' at')}{column}"
            raise InputError(f"{place}: not JSON ({why}); each line must be an object with a `source`") from None
        if not isinstance(record, dict) or not isinstance(record.get("source"), str):
            raise InputError(f"{place}: not an object with a text in `source`")
        source = record.pop("source")
        options = {key: record.pop(key) for key in LINE_OPTIONS & record.keys()}
        for key, value in options.items():
            if not isinstance(value, bool):
                raise InputError(f"{place}: `{key}` must be true or false")
        whole = _without_surrogates(source, place, replace_errors)
        return InputLine(whole, record, options, warnings if whole == source else _REPLACED)

    return parse


def _check_depth(record: Any, text: str) -> None:  # noqa: ANN401  (JSON)
    """What was read where the stack is low must also be written where it is high.

    Raises:
        RecursionError: arrays and objects stand in one another more than `_DEEPEST` times.
    """
    level = [record] if text.count("[") + text.count("{") > _DEEPEST else []
    for _ in range(_DEEPEST):
        inner = [value.values() if isinstance(value, dict) else value for value in level]
        level = [value for values in inner for value in values if isinstance(value, dict | list)]
    if level:
        raise RecursionError


def _no_number(text: str) -> float:
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    raise json.JSONDecodeError(f"{shown} is no number", text, 0)


class _KeyTwiceError(ValueError):
    """An object of which a later value would hide an earlier one."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise _KeyTwiceError(f"the key {printable(twice)!r} stands there twice")
    return record


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _decoded(line: bytes, name: str, number: int, replace_errors: bool) -> tuple[str, tuple[LineWarning, ...]]:
    try:
        return decode_line(line, name, number, advice="; convert the text, or use --errors replace"), ()
    except InputError:
        if not replace_errors:
            raise
    return decode_line(line, name, number, "replace"), _REPLACED


def decode_line(line: bytes, name: str, number: int, errors: str = "strict", advice: str = "") -> str:
    """One line's text without its LF or CRLF (and, on the first line, without a byte order mark).

    Raises:
        InputError: not UTF-8; names the input, the line and the byte.
    """
    try:
        text = line.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: line {number}: byte {error.start + 1} is not UTF-8{advice}") from None
    if number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\n").removesuffix("\r")


def _without_surrogates(text: str, place: str, replace_errors: bool) -> str:
    """JSON can write halves of characters, which no text has."""
    if is_text(text):
        return text
    if not replace_errors:
        raise InputError(f"{place}: `source` has half a surrogate pair; mend it, or use --errors replace")
    return text.encode("utf-16", errors="surrogatepass").decode("utf-16", errors="replace")


def is_text(text: str) -> bool:
    """Whether it has whole characters only: halves come from JSON, and from arguments that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_input(path: Path, source: Path | None) -> bool:
    """Whether a path is the file that is read: `source`, or standard input where that is redirected from a file."""
    try:
        status = os.fstat(0) if source is None else source.stat()
        return stat.S_ISREG(status.st_mode) and os.path.samestat(status, path.stat())
    except OSError:  # one is not there, or closed
        return False


def redirected() -> Path | None:
    """The file that standard input is redirected from, if it is one, read from its beginning, and can be read again."""
    again = Path("/dev/stdin")
    try:
        if stat.S_ISREG(os.fstat(0).st_mode) and os.lseek(0, 0, os.SEEK_CUR) == 0:
            with again.open("rb", buffering=0) as stream:
                stream.seek(1)
                if os.lseek(0, 0, os.SEEK_CUR) == 0:
                    return again
                stream.seek(0)  # it is the same open file, as on macOS: reading it reads the input away
    except OSError:  # it is closed, or another user's
        pass
    return None


@contextmanager
def reading(
    path: Path | None, parser: Callable[[str, bool], LineParser], replace_errors: bool
) -> Iterator[LineStream[InputLine]]:
    """Lines of a file, or of standard input.

    Raises:
        InputError: it cannot be opened, or is closed.
    """
    name = "standard input" if path is None else str(path)
    if path is None and sys.__stdin__ is None:
        raise InputError(f"{name}: is closed; redirect it, or use -i FILE")
    # Unbuffered: a read that is still waiting when the program ends holds no lock.
    try:
        stream = FileIO(0, closefd=False) if path is None else FileIO(path)
    except OSError as error:
        raise InputError(f"{name}: {reason(error)}") from None
    with stream:
        lines = LineStream(stream, name, parser(name, replace_errors))
        try:
            yield lines
        finally:
            with lines.lock:
                lines.end()
