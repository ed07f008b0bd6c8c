"""The compiled library behind the native engine: which build of it runs, and its functions' types.

It is compiled from `specmt/native` when specmt is installed (`setup.py`), once for each level of processors.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmt.errors import EngineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER = Path(__file__).parent.parent / "native"
LEVELS = ("any", "avx2", "avxvnni", "avx512", "amx", "dotprod")
"""Processors that builds are made for, the slowest first: any; with AVX2, AVX-VNNI, AVX-512 VNNI, AMX; with Arm's dot
product of bytes."""
_FAST = LEVELS[1:]
"""Those whose builds are faster than ONNX Runtime."""
WAITING_FOR_WEIGHTS = ("avx512", "amx")
"""Those in which a step of one row takes as long as its weights take to come from memory."""
BUILD_VARIABLE = "SPECMT_NATIVE_BUILD"
"""Of the environment: which of `LEVELS` runs in place of the fastest, to see what others' processors do."""
SIZES = (
    "width",
    "heads",
    "encoder_layers",
    "decoder_layers",
    "drafter_layers",
    "source_vocabulary_size",
    "tied_output",
    "encoder_heads",
    "encoder_pre_norm",
    "decoder_pre_norm",
    "encoder_final_norm",
    "decoder_final_norm",
    "scaled_embeddings",
    "source_positions",
    "target_positions",
    "starts_from_padding",
)
"""What the library wants to know of an architecture, in the order of its struct; last comes the activation's place."""
_NO_MEMORY = 1
_POINTER, _INTEGER, _REAL, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_char_p
_WINDOW = (_POINTER, _POINTER, _POINTER, _INTEGER, _POINTER, _INTEGER)
"""Network, rows, their lengths, their number, tokens, positions per row."""
_TYPES: dict[str, tuple[Any, ...]] = {
    "tensors_matrix": (_POINTER, _TEXT, _POINTER, _POINTER, _INTEGER, _INTEGER),
    "tensors_vector": (_POINTER, _TEXT, _POINTER),
    "tensors_ids": (_POINTER, _TEXT, _POINTER),
    "tensors_range": (_POINTER, _TEXT, _REAL, _REAL),
    "network_new": (_POINTER, _POINTER, _INTEGER, _POINTER),
    "row_copy": (_POINTER, _POINTER),
    "encode": (_POINTER, _POINTER, _POINTER, _INTEGER, _POINTER),
    "verify": (*_WINDOW, _INTEGER, _POINTER, _POINTER),
    "reorder": (_POINTER, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER),
    "attention": (_POINTER, _POINTER, _POINTER, _INTEGER, _INTEGER, _POINTER),
    "draft": (*_WINDOW, _INTEGER, _POINTER, _POINTER, _POINTER),
    "iterate": (
        *(_POINTER, _POINTER, _POINTER, _INTEGER, _POINTER, _POINTER, _INTEGER, _INTEGER, _INTEGER, _REAL),
        *(_INTEGER, ctypes.c_int64, _INTEGER, _INTEGER, _POINTER, _POINTER, _POINTER, _POINTER),
    ),
    "speculate": (*_WINDOW, _INTEGER, _INTEGER, _POINTER, _POINTER, _POINTER),
}


def _path(level: str) -> Path:
    return FOLDER / f"specmt-{level}.so"


def is_built() -> bool:
    """Whether the library was compiled at installation, for this version of specmt."""
    return bool(runnable())


def is_fast() -> bool:
    """Whether it was, for this processor's instructions: the builds for older ones are several times slower."""
    return any(level in _FAST for level in runnable())


@cache
def runnable() -> tuple[str, ...]:
    """Of `LEVELS`, the builds that are here and that this processor can run, the slowest first."""
    try:
        loaded = ctypes.CDLL(str(_path(LEVELS[0])))
        if not _is_of_these_sources(loaded):
            return ()
        levels: int = loaded.specmt_processor_levels()
    except (OSError, AttributeError):  # not there, or compiled for an older version
        return ()
    return tuple(level for place, level in enumerate(LEVELS) if levels >> place & 1 and _path(level).exists())


def _is_of_these_sources(loaded: ctypes.CDLL) -> bool:
    """Whether it was compiled from the sources beside it. A wheel has none: there, both are of one version."""
    digest = _digest_of_sources(FOLDER)
    if digest is None:
        return True
    loaded.specmt_sources.restype = _TEXT
    return bool(loaded.specmt_sources() == digest)


@cache
def _digest_of_sources(folder: Path) -> bytes | None:
    sources = [*sorted(folder.glob("*.cc")), *sorted(folder.glob("*.h"))]
    return sha256(b"".join(path.read_bytes() for path in sources)).hexdigest().encode() if sources else None


def _why_not() -> str:
    """Why no build can be used."""
    if _path(LEVELS[0]).exists():
        try:
            ctypes.CDLL(str(_path(LEVELS[0])))
        except OSError as error:
            return f"the native engine cannot be loaded: {error}"
    return "the native engine is not compiled here, or for another version: install specmt again"


def build(level: str = "") -> str:
    """Which of `LEVELS` runs: the one that is asked for, here or in the environment, or the fastest there is.

    Raises:
        EngineError: it is not there.
    """
    if not runnable():
        raise EngineError(_why_not())
    level = level or os.environ.get(BUILD_VARIABLE) or runnable()[-1]
    if level not in runnable():
        raise EngineError(f"the native engine's build for {level} is not here, or not for this processor")
    return level


@cache
def library(level: str) -> ctypes.CDLL:
    """The build for processors of `level`.

    Raises:
        EngineError: it is not there.
    """
    try:
        loaded = ctypes.CDLL(str(_path(level)))
    except OSError as error:
        raise EngineError(f"the native engine cannot be loaded: {error}") from None
    if not _is_of_these_sources(loaded):
        raise EngineError(f"the native engine's build for {level} is of another version: install specmt again")
    loaded.specmt_error.restype = _TEXT
    loaded.specmt_tensors_new.restype = _POINTER
    for name in ("tensors_delete", "network_delete", "row_delete"):
        function = getattr(loaded, f"specmt_{name}")
        function.argtypes, function.restype = [_POINTER], None
    for name, types in _TYPES.items():
        getattr(loaded, f"specmt_{name}").argtypes = types
    return loaded


def check(functions: ctypes.CDLL, result: int) -> None:
    """Raise what a function's result says.

    Raises:
        MemoryError: there is not enough.
        EngineError: what the library was given cannot be used.
    """
    if result == _NO_MEMORY:
        raise MemoryError
    if result:
        raise EngineError(f"native engine: {functions.specmt_error().decode()}")


def address(array: NDArray[Any]) -> int:
    """Where an array begins that has no gaps."""
    assert array.flags.c_contiguous
    return array.ctypes.data
