"""Resumable stages: each is skipped when its outputs stand and nothing that it read has changed.

A stage's fingerprint covers the settings and files that it reads, and the fingerprints and outputs of the stages before
it. It is written when the stage begins (so that half-made work is only ever resumed with the same inputs) and sealed
with its outputs' digests when the stage ends. A run that was killed, at whatever moment, goes on from the checkpoints
or texts that the stage had finished, which are written atomically, or begins the stage anew.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, TextIO

from specmt.errors import InputError, TrainingError, reason
from specmt.files import file_digest, write_json

_SEAL = "stage.json"
_LOCK_ATTEMPTS = 5
"""Seconds that a run waits for the trainer of a killed one to notice and end."""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a write fails with, naming no file, when a disk, a quota or a limit is full."""


class Digests:
    """SHA-256 of files, each of which is read once: several stages read the same corpora, which may be large."""

    def __init__(self) -> None:
        self._found: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """In hexadecimal.

        Raises:
            InputError: it cannot be read.
        """
        if path not in self._found:
            try:
                self._found[path] = file_digest(path)
            except OSError as error:
                raise InputError(f"{path}: {reason(error)}") from None
        return self._found[path]


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline.

    `folder` holds all that the stage writes. `settings` are dataclasses or plain values, `inputs` are files that do
    not come from another stage, `needs` are the stages before it. `outputs` are what must stand in `folder` at the end.
    """

    name: str
    folder: Path
    settings: tuple[Any, ...]
    inputs: tuple[Path, ...]
    needs: tuple[Stage, ...]
    outputs: tuple[str, ...]
    run: Callable[[], None]
    intact: Callable[[], bool] = lambda: True
    """Whether what stands beside the outputs, and belongs to them, is whole."""

    def fingerprint(self, digests: Digests | None = None) -> str:
        """SHA-256 of everything that the stage's result depends on."""
        digests = digests or Digests()
        settings = [
            asdict(part) if is_dataclass(part) and not isinstance(part, type) else part for part in self.settings
        ]
        described = {
            "settings": settings,
            "inputs": [(path.name, digests.of(path)) for path in self.inputs],
            "needs": [(stage.fingerprint(digests), _read_seal(stage._seal).get("outputs")) for stage in self.needs],
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def is_done(self, digests: Digests | None = None) -> bool:
        """Whether the stage has ended with the present inputs and its outputs are as it left them."""
        return self._is_done(self.fingerprint(digests))

    def _is_done(self, fingerprint: str) -> bool:
        seal = _read_seal(self._seal)
        return (
            seal.get("fingerprint") == fingerprint
            and all((self.folder / name).is_file() for name in self.outputs)
            and seal.get("outputs") == self._output_digests()
            and self.intact()
        )

    def complete(self, announce: Callable[[str], None], restart: bool = False, digests: Digests | None = None) -> None:
        """Run the stage unless it is done. Work begun with other inputs is moved aside, not mixed and not deleted.

        Args:
            restart: move aside whatever stands, and begin anew.
            digests: of files as they are now, if some were read already.

        Raises:
            TrainingError: the stage ended without its outputs, or there was no room for what it writes.
        """
        # Of the inputs as they are now: the result is theirs, should they change meanwhile.
        fingerprint = self.fingerprint(digests)
        if self._is_done(fingerprint) and not restart:
            announce(f"{self.name}: up to date")
            return
        changed = _read_seal(self._seal).get("fingerprint") != fingerprint
        if self.folder.exists() and (changed or restart):
            why = "inputs have changed" if changed else "restarted"
            announce(f"{self.name}: {why}; what stood there is now {move_aside(self.folder)}")
        announce(f"{self.name}: {'goes on from what was kept' if self.folder.exists() else 'begins'}")
        try:
            self._run(fingerprint)
        except OSError as error:
            if error.errno not in _NO_ROOM or error.filename:
                raise
            raise TrainingError(f"{self.folder}: cannot be written: {reason(error)}") from error
        announce(f"{self.name}: done")

    def _run(self, fingerprint: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._seal, {"fingerprint": fingerprint})
        self.run()
        missing = [name for name in self.outputs if not (self.folder / name).is_file()]
        if missing:
            raise TrainingError(f"stage {self.name} did not write {', '.join(missing)}")
        needs = {stage.name: _read_seal(stage._seal).get("outputs") for stage in self.needs}
        write_json(self._seal, {"fingerprint": fingerprint, "needs": needs, "outputs": self._output_digests()})

    @property
    def _seal(self) -> Path:
        return self.folder / _SEAL

    def _output_digests(self) -> dict[str, str]:
        return {name: file_digest(self.folder / name) for name in self.outputs}


def changed_since(folder: Path) -> str | None:
    """Of the stages before that of `folder`, one whose outputs are no longer those that the next was made from, if any.

    Of stages that were finished before seals said so, nothing is known.
    """
    for name, outputs in _read_seal(folder / _SEAL).get("needs", {}).items():
        if _read_seal(folder.parent / name / _SEAL).get("outputs") != outputs:
            return str(name)
        if earlier := changed_since(folder.parent / name):
            return earlier
    return None


def move_aside(folder: Path) -> Path:
    """Give a folder the first free name of `FOLDER.old-1`, `FOLDER.old-2` …; the new name."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.old-{number}")).exists():
        number += 1
    folder.rename(aside)
    return aside


def _read_seal(path: Path) -> dict[str, Any]:
    try:
        seal = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return seal if isinstance(seal, dict) else {}


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder while the block runs, also after this one was killed without notice.

    Raises:
        TrainingError: another run holds it, or nothing can be written there.
    """
    with _lock_file(folder) as lock:
        for attempt in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == _LOCK_ATTEMPTS:
                    raise TrainingError(f"{folder}: another training run works there") from None
                time.sleep(1)
        os.set_inheritable(lock.fileno(), True)
        yield


def _lock_file(folder: Path) -> TextIO:
    """The file in a folder that a run locks; the folder is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise TrainingError(f"{folder}: is a file; a training run needs a folder to write into") from None
    except OSError as error:
        raise TrainingError(f"{folder}: this folder cannot be made: {reason(error)}") from None
    try:
        return (folder / ".lock").open("w")
    except OSError as error:
        raise TrainingError(f"{folder}: nothing can be written into this folder: {reason(error)}") from None
