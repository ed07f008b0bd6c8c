"""The native engine's products for Arm: compiled for it, emulated, and compared with this processor's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLAGS = ("-std=c++17", "-O2", "-pthread", "-Wno-psabi", "-ffp-contract=off", f"-I{ROOT}/specmt/native")
SOURCES = (ROOT / "tests" / "native" / "products.cc", ROOT / "specmt" / "native" / "crew.cc")
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"


def compiled(target: Path, *command: str) -> Path:
    subprocess.run([*command, *FLAGS, *map(str, SOURCES), "-o", str(target)], check=True)
    return target


def printed(*command: str | Path) -> list[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.skipif(not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"no {COMPILER} or {EMULATOR}")
@pytest.mark.parametrize("flags", [(), ("-march=armv8.2-a+dotprod",)], ids=["any", "dotprod"])
def test_products_on_arm_have_the_same_bits(tmp_path: Path, flags: tuple[str, ...]) -> None:
    here = printed(compiled(tmp_path / "here", "g++"))
    there = printed(EMULATOR, compiled(tmp_path / "there", COMPILER, "-static", *flags))
    assert len(set(here)) == 6 * 3 * 4 * 9
    assert there == here
