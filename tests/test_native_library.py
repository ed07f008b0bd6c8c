"""The compiled library behind the native engine: which build of it is loaded, and what counts as none."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from specmt.engines import native_library
from specmt.engines.native_library import BUILD_VARIABLE, LEVELS, build, is_built, is_fast, library, runnable
from specmt.errors import EngineError

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""How Linux on x86 is asked for tiles."""


@pytest.mark.parametrize(
    ("levels", "missing", "expected"),
    [
        (0b0001, (), ("any",)),
        (0b0011, (), ("any", "avx2")),
        (0b0111, (), ("any", "avx2", "avxvnni")),
        (0b1011, (), ("any", "avx2", "avx512")),
        (0b1111, ("avx512",), ("any", "avx2", "avxvnni")),
        (0b1011, ("avx512",), ("any", "avx2")),
        (0b11011, (), ("any", "avx2", "avx512", "amx")),
        (0b11011, ("amx",), ("any", "avx2", "avx512")),
        (0b100001, (), ("any", "dotprod")),
        (0b1111, LEVELS, ()),
    ],
)
def test_a_build_runs_where_it_is_and_the_processor_has_its_instructions(
    levels: int, missing: Sequence[str], expected: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for level in set(LEVELS) - set(missing):
        (tmp_path / f"specmt-{level}.so").touch()

    def load(path: str) -> SimpleNamespace:
        if not Path(path).exists():
            raise OSError
        return SimpleNamespace(specmt_processor_levels=lambda: levels)

    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    monkeypatch.setattr(native_library.ctypes, "CDLL", load)
    assert runnable.__wrapped__() == expected


def test_a_library_of_another_version_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library.ctypes, "CDLL", lambda path: SimpleNamespace())
    assert runnable.__wrapped__() == ()
    monkeypatch.setattr(native_library, "runnable", tuple)
    assert not is_built() and not is_fast()
    with pytest.raises(EngineError, match="install specmt again"):
        build()


def test_a_library_of_other_sources_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "network.cc").write_text("// changed since")
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    built = SimpleNamespace(specmt_processor_levels=lambda: 1, specmt_sources=Sources(b"of before"))
    monkeypatch.setattr(native_library.ctypes, "CDLL", lambda path: built)
    assert runnable.__wrapped__() == ()


def test_a_build_of_other_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "network.cc").write_text("// changed since")
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    monkeypatch.setattr(native_library.ctypes, "CDLL", lambda path: SimpleNamespace(specmt_sources=Sources(b"before")))
    with pytest.raises(EngineError, match="build for avx2 is of another version"):
        library.__wrapped__("avx2")


class Sources:
    """A function of the library."""

    def __init__(self, digest: bytes) -> None:
        self.digest, self.restype = digest, object

    def __call__(self) -> bytes:
        return self.digest


def test_a_library_that_cannot_be_loaded_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specmt-any.so").write_bytes(b"no library")
    monkeypatch.setattr(native_library, "FOLDER", tmp_path)
    monkeypatch.setattr(native_library, "runnable", tuple)
    with pytest.raises(EngineError, match=r"cannot be loaded: .*specmt-any\.so"):
        build()


def test_a_build_that_this_processor_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "runnable", lambda: ("any",))
    with pytest.raises(EngineError, match="build for avx512 is not here"):
        build("avx512")


def test_the_environment_chooses_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_library, "runnable", lambda: LEVELS[:3])
    assert build() == "avxvnni"
    monkeypatch.setenv(BUILD_VARIABLE, "avx2")
    assert (build(), build("any")) == ("avx2", "any")
    monkeypatch.setenv(BUILD_VARIABLE, "sse9")
    with pytest.raises(EngineError, match="build for sse9 is not here"):
        build()


def test_this_processors_best_build_is_the_one_for_its_instructions() -> None:
    needed = {
        "any": set(),
        "avx2": {"avx2"},
        "avxvnni": {"avx_vnni"},
        "avx512": {"avx512_vnni"},
        "amx": {"amx_int8"},
        "dotprod": {"asimddp"},
    }
    if platform.machine() in {"x86_64", "aarch64"} and platform.system() == "Linux":
        flags = set(Path("/proc/cpuinfo").read_text().split())
        asked = (SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
        if "amx_int8" in flags and ctypes.CDLL(None).syscall(*asked):
            flags.discard("amx_int8")  # Linux, or what stands in for it, does not let us
        built = {level for level in LEVELS if (native_library.FOLDER / f"specmt-{level}.so").exists()}
        assert runnable() == tuple(level for level in LEVELS if level in built and needed[level] <= flags)
