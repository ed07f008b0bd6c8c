"""Files written whole or not at all: whatever happens in between, the old one stands."""

from __future__ import annotations

import errno
import json
import os
import threading
from pathlib import Path

import pytest

from specmt import files
from specmt.files import atomic_path, file_digest, write_json


@pytest.fixture
def cannot_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that cannot let two folders change places at once."""
    monkeypatch.setattr(files, "_exchange", lambda one, other: False)


class Interruption(BaseException):
    """What stops a program without being an `Exception`, as Ctrl-C does."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_appears_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]


def test_the_old_file_stands_until_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, SystemExit, Interruption])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path, stop: type[BaseException]) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")
    with pytest.raises(stop), atomic_path(path) as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise stop
    assert path.read_text() == "old"
    assert names(tmp_path) == ["out.txt"]


def test_an_exception_leaves_no_file_where_there_was_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), atomic_path(tmp_path / "out.txt") as temporary:  # noqa: PT012
        temporary.write_text("half")
        raise ValueError("stop")
    assert names(tmp_path) == []


def test_there_is_a_folder_at_any_moment(tmp_path: Path) -> None:
    path, missed, done = tmp_path / "model", 0, threading.Event()
    path.mkdir()

    def watch() -> None:
        nonlocal missed
        while not done.is_set():
            missed += not path.is_dir()

    watching = threading.Thread(target=watch)
    watching.start()
    for _ in range(200):
        with atomic_path(path) as temporary:
            temporary.mkdir()
    done.set()
    watching.join()
    assert not missed


def test_a_file_that_can_be_written_but_not_replaced_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted by itself, which is busy."""

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "busy")

    path = tmp_path / "out.txt"
    path.write_text("a longer old one")
    inode = path.stat().st_ino
    monkeypatch.setattr(Path, "replace", busy)
    with atomic_path(path) as temporary:
        temporary.write_text("new")
    assert (path.read_text(), path.stat().st_ino) == ("new", inode)
    assert names(tmp_path) == ["out.txt"]


def test_a_file_in_a_folder_that_cannot_be_written_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To which a user has no rights, as to the file; whoever runs the tests may have all."""
    make = os.mkdir

    def refused(path: Path | str, *_: object) -> None:
        if Path(path).parent == tmp_path:
            raise PermissionError(errno.EACCES, "denied")
        make(path)

    path = tmp_path / "out.txt"
    path.write_text("a longer old one")
    monkeypatch.setattr("os.mkdir", refused)
    monkeypatch.setattr(Path, "replace", refused)
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "a longer old one"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["out.txt"]
    with pytest.raises(PermissionError), atomic_path(tmp_path / "another.txt"):
        pass


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_takes_the_place_of_a_folder(tmp_path: Path, request: pytest.FixtureRequest, exchanges: bool) -> None:
    if not exchanges:
        request.getfixturevalue("cannot_exchange")
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with atomic_path(path) as temporary:
        temporary.mkdir()
        (temporary / "new").touch()
        assert names(path) == ["old"]
    assert names(path) == ["new"]
    assert names(tmp_path) == ["model"]


def test_an_exception_leaves_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(ValueError, match="stop"), atomic_path(path) as temporary:  # noqa: PT012
        temporary.mkdir()
        (temporary / "new").touch()
        raise ValueError("stop")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


def test_a_block_that_writes_nothing_leaves_the_old_folder(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(FileNotFoundError), atomic_path(path):
        pass
    assert names(path) == ["old"]


@pytest.mark.usefixtures("cannot_exchange")
def test_a_folder_that_cannot_take_its_place_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a lost network drive: the last step fails."""

    def fail(*_: object) -> None:
        raise OSError("no")

    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    monkeypatch.setattr("os.replace", fail)
    monkeypatch.setattr("os.rename", fail)
    with pytest.raises(OSError, match="no"), atomic_path(path) as temporary:  # noqa: PT012
        temporary.mkdir()
        (temporary / "new").touch()
    assert names(path) == ["old"]


def test_a_file_does_not_take_the_place_of_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "translations"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(IsADirectoryError), atomic_path(path) as temporary:
        temporary.write_text("new")
    assert names(path) == ["old"]
    assert names(tmp_path) == ["translations"]


@pytest.mark.usefixtures("cannot_exchange")
def test_a_folder_already_moved_away_is_moved_back_when_the_new_one_cannot_take_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        calls.append(self.name)
        if len(calls) == 2:
            raise OSError("no")
        return original(self, target)

    path = tmp_path / "model"
    path.mkdir()
    (path / "old").touch()
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="no"), atomic_path(path) as temporary:
        temporary.mkdir()
    assert len(calls) == 3
    assert names(path) == ["old"]
    assert names(tmp_path) == ["model"]


def test_two_programs_that_write_the_same_path_each_write_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with atomic_path(path) as first:
        first.write_text("first, ")
        with atomic_path(path) as second:
            second.write_text("second")
        assert path.read_text() == "second"
        with first.open("a") as stream:
            stream.write("to its end")
    assert path.read_text() == "first, to its end"
    assert names(tmp_path) == ["out.txt"]


def test_json_is_written_as_utf_8_that_a_person_can_read(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"b": "Grüße", "a": [1, 2.5, None]})
    assert path.read_bytes() == '{\n  "b": "Grüße",\n  "a": [\n    1,\n    2.5,\n    null\n  ]\n}\n'.encode()


def test_a_value_that_is_no_json_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
    assert names(tmp_path) == ["value.json"]


def test_a_digest_is_the_files_sha_256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")
    assert file_digest(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(tmp_path / "empty") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
