"""Draft lengths that `specmt tune` found, in the user's cache: one file a model, processor and engine.

They are used under strict only, where any draft length gives the same text: no text depends on a clock.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_cache_path

from specmt.errors import InputError
from specmt.files import write_json
from specmt.machine import cpu_model

_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Key:
    """What a tuned draft length holds for."""

    model: str
    """`Bundle.digest`."""
    engine: str
    """`Engine.name`: with device and precision."""
    cpu: str

    @classmethod
    def here(cls, model: str, engine: str) -> Key:
        """The key of a model and an engine on this machine."""
        return cls(model, engine, cpu_model())

    @property
    def path(self) -> Path:
        """Where the draft length is kept."""
        name = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]
        return user_cache_path("specmt", appauthor=False) / "tuned" / f"{name}.json"


def store(key: Key, draft_length: int) -> Path:
    """Keep a draft length; where it is.

    Raises:
        InputError: the user's cache cannot be written.
    """
    path = key.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format_version": _FORMAT_VERSION, **asdict(key), "draft_length": draft_length})
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None
    return path


def stored(key: Key, longest: int) -> int | None:
    """The draft length kept for `key`, if there is one from 1 to `longest`. What cannot be read counts as not there."""
    try:
        kept = json.loads(key.path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(kept, dict) or kept.get("format_version") != _FORMAT_VERSION:
        return None
    if any(kept.get(name) != value for name, value in asdict(key).items()):
        return None
    draft_length = kept.get("draft_length")
    return draft_length if type(draft_length) is int and 1 <= draft_length <= longest else None
