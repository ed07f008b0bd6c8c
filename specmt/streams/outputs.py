"""Where translations go: a stream, a file that appears whole or not at all, or one that a later run goes on with.

Every record is handed to the system whole, at once and unbuffered: what was written is there whatever ends the run.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from select import select
from typing import Any

from specmt.errors import InputError, ReaderGoneError, reason
from specmt.files import atomic_path, write_json
from specmt.streams.line_digests import LineDigests
from specmt.streams.line_stream import LineStream

STANDARD_OUTPUT = Path("/dev/stdout")
"""As shells call it."""
_CHUNK = 1 << 20
_MOST_LINKS = 40
"""Links behind one another that a system follows."""


@dataclass
class Output:
    """An open output.

    `finished_before`: lines of input that an earlier run has done. `digests`: of the lines that it is made of.
    """

    stream: io.FileIO
    name: str
    finished_before: int = 0
    digests: LineDigests | None = None

    def write(self, text: str) -> None:
        """Write what a line of input became, in UTF-8, all of it, now.

        Raises:
            ReaderGoneError: nobody reads it any more.
            InputError: it cannot be written, as when a disk is full; names the output.
        """
        data = memoryview(text.encode())
        try:
            if self.digests:
                self.digests.write_next()
            while data:
                written = self.stream.write(data)
                if written is None:  # it does not block, and is full
                    select([], [self.stream], [])
                data = data[written or 0 :]
        except BrokenPipeError:
            raise ReaderGoneError from None
        except OSError as error:
            raise _unwritable(self.name, error) from None

    def pass_over(self, lines: LineStream[Any]) -> None:
        """Skip the lines of input that an earlier run has done.

        Raises:
            InputError: there are fewer, or they are not those.
        """
        found = lines.skip(self.finished_before, self.digests.add if self.digests else None)
        if found < self.finished_before:
            raise InputError(f"{self.name}: holds {self.finished_before} lines, {lines.name} has only {found}")
        if self.digests and not self.digests.as_before(self.finished_before):
            raise _another_input(lines.name, Path(self.name))


@dataclass(frozen=True)
class Resumable:
    """What a later run needs to know to go on with a file.

    `lines_each`: lines of output for each line of input; what an earlier run left incomplete is cut off. `options`: all
    that changes the output; they must be those with which the file was begun. `source`: the input, where it is a file:
    what of it was there must not have changed, but it may have grown. `digests`: of the lines of an input that is none.
    """

    lines_each: int
    options: Mapping[str, Any]
    source: Path | None
    digests: LineDigests | None = None


def writing(path: Path | None, resumable: Resumable | None) -> AbstractContextManager[Output]:
    """Standard output, or a file."""
    number = 1 if path is None else descriptor(path)
    if number is not None:
        return opened_before(number, "standard output" if number == 1 else str(path))
    assert path
    return whole_file(path) if resumable is None else resumable_file(path, resumable)


def _unwritable(name: str, error: OSError) -> InputError:
    return InputError(f"{name}: cannot be written: {reason(error)}")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Say of a file what goes wrong with it."""
    try:
        yield
    except OSError as error:
        raise _unwritable(str(path), error) from None


def descriptor(path: Path) -> int | None:
    """The number of the open file that a path stands for, as `/dev/stdout`, `/dev/fd/3` and `>(command)` do."""
    opened = Path("/dev/fd").resolve()
    with suppress(OSError, RuntimeError):
        for _ in range(_MOST_LINKS):
            if path.name.isdecimal() and path.parent.resolve() == opened:
                return int(path.name)
            path = path.parent / path.readlink()
    return None


@contextmanager
def opened_before(number: int, name: str) -> Iterator[Output]:
    """Standard output, or what else a shell has opened: it is added to, never replaced.

    Raises:
        InputError: it is closed.
    """
    try:
        if not os.get_inheritable(number):  # so this program has opened it
            raise OSError
        stream = io.FileIO(number, "wb", closefd=False)
    except OSError:
        raise InputError(f"{name}: is closed; redirect it, or use -o FILE") from None
    with stream:
        yield Output(stream, name)


@contextmanager
def whole_file(path: Path) -> Iterator[Output]:
    """A file that takes its place when the block ends without an exception; a pipe or device is written as it is.

    Raises:
        InputError: it cannot be written.
    """
    with ExitStack() as opened:
        with _named(path):
            resolved = _followed(path)
            special = resolved.exists() and not resolved.is_file()
            written = opened.enter_context(nullcontext(resolved) if special else atomic_path(resolved))
            stream = opened.enter_context(io.FileIO(written, "wb"))
        yield Output(stream, str(path))
        with _named(path):
            if not special:
                _forget(resolved)
                if resolved.exists():
                    written.chmod(resolved.stat().st_mode)  # who may read it does not change
            opened.close()


@contextmanager
def resumable_file(path: Path, resumable: Resumable) -> Iterator[Output]:
    """A file that holds what is finished at any moment, and that the same command goes on with after it was stopped.

    Beside it stands `.NAME.resume`, which says with what options and from which input it was begun; and of an input
    that is no file `.NAME.lines`, its lines' digests.

    Raises:
        InputError: it cannot be written, another run is writing it, or it belongs to other options or another input.
    """
    with ExitStack() as opened:
        with _named(path):
            path = _followed(path)
            beside = _beside(path)
            beside.exists()  # raises where its name is too long, before anything is written
            stream = opened.enter_context(io.FileIO(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "rb+"))
            _lock(stream, path)
            begun = _begun(path, beside, resumable.options, resumable.source)
            if begun is not None:
                write_json(beside, begun)
            finished = _cut_to_records(stream, resumable.lines_each)
            if resumable.digests:
                opened.enter_context(resumable.digests.kept(_line_digests(path), finished))
        try:
            yield Output(stream, str(path), finished, resumable.digests)
        except InputError:
            with suppress(OSError):
                _hold_to_finished(beside, resumable.source, _cut_to_records(stream, resumable.lines_each))
            raise
        with _named(path):
            os.fsync(stream.fileno())


def _hold_to_finished(beside: Path, source: Path | None, lines: int) -> None:
    """A later run needs only the input's first `lines` as they were: what comes after them has to be mended."""
    begun = json.loads(beside.read_text(encoding="utf-8"))
    if source is None or begun["input"] is None or not _begins_with(source, begun["input"]):
        return
    with source.open("rb") as stream:
        size = sum(len(line) for line in islice(stream, lines))
    write_json(beside, {**begun, "input": {"bytes": size, "sha256": _digest(source, size)}})


def _followed(path: Path) -> Path:
    """What a path leads to: a link stays a link."""
    try:
        return path.resolve()
    except RuntimeError:  # as Python before 3.13 says it
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None


def _beside(path: Path) -> Path:
    """What says how a resumable file was begun."""
    return path.with_name(f".{path.name}.resume")


def _line_digests(path: Path) -> Path:
    return path.with_name(f".{path.name}.lines")


def _another_input(name: str, path: Path) -> InputError:
    return InputError(f"{name}: not what {path.name} was begun from; remove {path.name} and {_beside(path).name}")


def _forget(path: Path) -> None:
    """Nothing can go on with a file that is written anew."""
    try:
        _beside(path).unlink(missing_ok=True)
        _line_digests(path).unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # so nothing can be there
            raise


def _begun(path: Path, beside: Path, options: Mapping[str, Any], source: Path | None) -> dict[str, Any] | None:
    """What to write beside a file, if anything; refuses a file that was begun otherwise."""
    now: dict[str, Any] = {"options": dict(options), "input": _fingerprint(source)}
    now = json.loads(json.dumps(now))
    if not path.stat().st_size:
        return now
    if not beside.exists():
        raise InputError(f"{path}: was not begun with --append-resume; move it away, or choose another file")
    try:
        before = json.loads(beside.read_text(encoding="utf-8"))
        options_before, input_before = dict(before["options"]), before["input"]
        if input_before is not None:
            input_before = {"bytes": int(input_before["bytes"]), "sha256": str(input_before["sha256"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{beside}: damaged; remove it and {path.name} to begin anew") from None
    for key in sorted(options_before.keys() | now["options"].keys(), key=lambda key: (key != "strategy", key)):
        old, new = (_shown(options.get(key)) for options in (options_before, now["options"]))
        if old != new:
            raise InputError(
                f"{path}: was begun with {key} {old}, this run has {new}: use the same, or remove it and {beside.name}"
            )
    if input_before == now["input"]:
        return None
    if input_before is None or source is None or not _begins_with(source, input_before):
        raise _another_input(str(source or "standard input"), path)
    return now


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _fingerprint(source: Path | None) -> dict[str, Any] | None:
    """Size (bytes) and SHA-256 of an input that is a regular file."""
    if source is None or not source.is_file():
        return None
    size = source.stat().st_size
    return {"bytes": size, "sha256": _digest(source, size)}


def _begins_with(source: Path, before: Mapping[str, Any]) -> bool:
    """Whether a file still begins with the lines that it had."""
    size = before["bytes"]
    if source.stat().st_size < size or _digest(source, size) != before["sha256"]:
        return False
    if not size:
        return True
    with source.open("rb") as stream:
        stream.seek(size - 1)
        return stream.read(1) == b"\n" or stream.read(2).startswith((b"\n", b"\r\n"))


def _digest(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while size and (data := stream.read(min(_CHUNK, size))):
            digest.update(data)
            size -= len(data)
    return digest.hexdigest()


def _lock(stream: io.FileIO, path: Path) -> None:
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        raise InputError(f"{path}: --append-resume needs a regular file")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{path}: another run is writing it") from None


def _cut_to_records(stream: io.FileIO, lines_each: int) -> int:
    """Cut off what is behind the last complete record and stand there; how many records there are."""
    lines, end, place = 0, 0, stream.seek(0)
    while data := stream.read(_CHUNK):
        start = 0
        while (found := data.find(b"\n", start)) >= 0:
            start = found + 1
            lines += 1
            if lines % lines_each == 0:
                end = place + start
        place += len(data)
    stream.truncate(end)
    stream.seek(end)
    return lines // lines_each
