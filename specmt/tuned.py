"""What `specmt tune` found, in the user's cache: one file per model, engine, processor and number of cores.

They are used under strict only, where any draft length gives the same text, and so do plain steps: no text depends on a
clock.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from specmt.engines import native_library
from specmt.errors import InputError, reason
from specmt.files import write_json
from specmt.machine import cpu_model
from specmt.settings import DecodingSettings

if TYPE_CHECKING:
    from specmt.translator import Translator

_FORMAT_VERSION = 2


@dataclass(frozen=True)
class Key:
    """What was tuned."""

    model: str
    """`Bundle.digest`."""
    engine: str
    """`Engine.name`: with device and precision."""
    cpu: str
    cores: int
    """`Translator.workers`: on more of them a lone line's steps gain more than its drafts."""

    @classmethod
    def here(cls, translator: Translator) -> Key:
        """The key of a model and an engine on this machine; another build or GPU is another engine."""
        engine = translator.engine.name
        if engine.startswith("native"):
            engine += f", {native_library.build()}"
        elif hardware := getattr(translator.engine, "hardware", ""):
            engine += f", {hardware}"
        return cls(translator.model_digest, engine, cpu_model(), translator.workers)

    @property
    def path(self) -> Path:
        """Where it is kept."""
        name = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:32]
        return user_cache_path("specmt", appauthor=False) / "tuned" / f"{name}.json"


@dataclass(frozen=True)
class Tuned:
    """What is fastest: how many tokens to draft, and up to how many rows in flight; with more, plain steps are."""

    draft_length: int
    rows: int


def store(key: Key, tuned: Tuned) -> Path:
    """Keep what was found; where it is.

    Raises:
        InputError: the user's cache cannot be written.
    """
    try:
        path = key.path
    except RuntimeError:
        raise InputError("no home directory is known; XDG_CACHE_HOME in the environment may name a folder") from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {"format_version": _FORMAT_VERSION, **asdict(key), **asdict(tuned)})
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {reason(error)}") from None
    return path


def stored(key: Key, longest: int) -> Tuned | None:
    """What is kept for `key`, if the draft length is from 1 to `longest`. What cannot be read counts as not there."""
    try:
        kept = json.loads(key.path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # the last: no home is known, or JSON is nested too deeply
        return None
    if not isinstance(kept, dict) or kept.get("format_version") != _FORMAT_VERSION:
        return None
    if any(kept.get(name) != value for name, value in asdict(key).items()):
        return None
    draft_length, rows = kept.get("draft_length"), kept.get("rows")
    if type(draft_length) is not int or type(rows) is not int or not (1 <= draft_length <= longest and rows >= 0):
        return None
    return Tuned(draft_length, rows)


def default_settings(translator: Translator) -> DecodingSettings:
    """How the command decodes without options: as the model's manifest says, as fast as is known here."""
    settings = DecodingSettings.from_defaults(translator.defaults)
    return fastest(settings if translator.has_drafter else replace(settings, strategy="ar"), translator)


def fastest(settings: DecodingSettings, translator: Translator, reproducible: bool = False) -> DecodingSettings:
    """Strict settings with what is fastest here: as it was tuned, else as the engine has it. Others as they are.

    Args:
        reproducible: whether any line may ask for it: where the shape of a pass decides its bits, no clock may.
    """
    engine = translator.engine
    if settings.strategy != "spec" or settings.beta != 1 or (reproducible and not engine.row_exact):
        return settings
    found = stored(Key.here(translator), engine.max_draft_length)
    if not found:
        length = min(settings.draft_length, engine.strict_draft_length or settings.draft_length)
        return replace(settings, draft_length=length, speculated_rows=engine.speculated_rows)
    return replace(settings, draft_length=found.draft_length, speculated_rows=found.rows)
