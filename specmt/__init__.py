"""Machine translation by drafting and verifying.

From Python: `load_translator()` and its `translate`, with what these take. Each is imported when it is first used: the
command needs only some of it.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specmt.errors import SpecmtError
    from specmt.loading import load_translator
    from specmt.protection.protection import Protection
    from specmt.protection.terminology import Terminology
    from specmt.settings import DecodingSettings
    from specmt.streams.inputs import InputLine

__all__ = [
    "BUNDLED_MODEL",
    "DecodingSettings",
    "InputLine",
    "Protection",
    "SpecmtError",
    "Terminology",
    "__version__",
    "load_translator",
]
__version__ = "0.1.0"
BUNDLED_MODEL = Path(__file__).parent / "models" / "de-en"
"""The German–English pair that is part of the package."""

_MODULES = {
    "DecodingSettings": "settings",
    "InputLine": "streams.inputs",
    "Protection": "protection.protection",
    "SpecmtError": "errors",
    "Terminology": "protection.terminology",
    "load_translator": "loading",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
