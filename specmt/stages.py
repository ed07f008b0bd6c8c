"""Resumable stages: each is skipped when its outputs stand and nothing that it read has changed.

A stage's fingerprint covers the settings and files that it reads and the fingerprints of the stages before it. It is
written when the stage begins (so that half-made work is only ever resumed with the same inputs) and sealed with its
outputs' digests when the stage ends. All writes are atomic: a run killed at any moment goes on where it stood.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any

from specmt.errors import TrainingError
from specmt.files import file_digest, write_json


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

    def fingerprint(self) -> str:
        """SHA-256 of everything that the stage's result depends on."""
        settings = [asdict(part) if is_dataclass(part) and not isinstance(part, type) else part for part in self.settings]
        described = {
            "settings": settings,
            "inputs": {path.name: file_digest(path) for path in self.inputs},
            "needs": [stage.fingerprint() for stage in self.needs],
        }
        return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()

    def is_done(self) -> bool:
        """Whether the stage has ended with the present inputs and its outputs are as it left them."""
        seal = _read_seal(self._seal)
        return (
            seal.get("fingerprint") == self.fingerprint()
            and all((self.folder / name).is_file() for name in self.outputs)
            and seal.get("outputs") == self._output_digests()
        )

    def complete(self, announce: Callable[[str], None]) -> None:
        """Run the stage unless it is done. Work begun with other inputs is moved aside, not mixed and not deleted.

        Raises:
            TrainingError: the stage ended without its outputs.
        """
        if self.is_done():
            announce(f"{self.name}: up to date")
            return
        begun = _read_seal(self._seal)
        if self.folder.exists() and begun.get("fingerprint") != self.fingerprint():
            announce(f"{self.name}: inputs have changed; what stood there is now {self._move_aside()}")
        announce(f"{self.name}: {'goes on' if self.folder.exists() else 'begins'}")
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self._seal, {"fingerprint": self.fingerprint()})
        self.run()
        missing = [name for name in self.outputs if not (self.folder / name).is_file()]
        if missing:
            raise TrainingError(f"stage {self.name} did not write {', '.join(missing)}")
        write_json(self._seal, {"fingerprint": self.fingerprint(), "outputs": self._output_digests()})
        announce(f"{self.name}: done")

    @property
    def _seal(self) -> Path:
        return self.folder / "stage.json"

    def _output_digests(self) -> dict[str, str]:
        return {name: file_digest(self.folder / name) for name in self.outputs}

    def _move_aside(self) -> Path:
        number = 1
        while (aside := self.folder.with_name(f"{self.folder.name}.old-{number}")).exists():
            number += 1
        self.folder.rename(aside)
        return aside


def _read_seal(path: Path) -> dict[str, Any]:
    try:
        seal = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return seal if isinstance(seal, dict) else {}
