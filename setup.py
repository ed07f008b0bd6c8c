"""Compiles the native engine at installation; everything else stands in setup.cfg.

Needs a C++ compiler, `$CXX` or one on the path: GCC (from 9 on; for AVX-VNNI and AMX, from 11 on) or Clang. Where there
is none, specmt is installed without the engine and runs on ONNX Runtime.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70.1
    from wheel.bdist_wheel import bdist_wheel

FOLDER = Path("specmt/native")
HEADERS = sorted(FOLDER.glob("*.h"))
SOURCES = sorted(str(path) for path in FOLDER.glob("*.cc"))
EXACT = ["-fno-fast-math", "-ffp-contract=off"]  # the same bits, whatever the compiler makes of it
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wno-psabi", *EXACT]
AVX512 = ["-mavx2", *(f"-mavx512{part}" for part in ("f", "bw", "dq", "vl", "vnni"))]
X86 = {
    "avx2": ["-mavx2"],
    "avxvnni": ["-mavx2", "-mavxvnni"],
    "avx512": AVX512,
    "amx": [*AVX512, "-mamx-tile", "-mamx-int8"],
}
ARM = {"dotprod": ["-march=armv8.2-a+dotprod"]}
MACHINES = {"x86_64": X86, "amd64": X86, "aarch64": ARM}
LEVELS: dict[str, list[str]] = {"any": [], **MACHINES.get(platform.machine().lower(), {})}
"""One library for each level of processors; which one runs is found out when it is loaded."""


class BuildNative(build_ext):
    """Builds plain shared libraries, which Python loads with ctypes: they fit any Python."""

    def run(self) -> None:
        """Compile what can be compiled."""
        folder = (Path() if self.inplace else Path(self.build_lib)) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        # As `native_library` computes it, which takes no library of other sources.
        digest = sha256(b"".join(path.read_bytes() for path in [*map(Path, SOURCES), *HEADERS])).hexdigest()
        targets = {level: folder / f"specmt-{level}.so" for level in LEVELS}
        for target in targets.values():  # all at first: no interruption leaves builds of two versions
            target.unlink(missing_ok=True)
        for level, flags in LEVELS.items():
            target = targets[level]
            try:
                compiler = shlex.split(os.environ.get("CXX") or "c++")
                command = [*compiler, *FLAGS, *flags, f'-DSPECMT_SOURCES="{digest}"', *SOURCES]
                subprocess.run([*command, "-o", f"{target}.new"], check=True)
                Path(f"{target}.new").replace(target)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                sys.stderr.write(f"specmt: the native engine ({level}) is left out: {error}\n")

    def get_outputs(self) -> list[str]:
        """None that setuptools must know of."""
        return []

    def get_output_mapping(self) -> dict[str, str]:
        """None either."""
        return {}


class WheelForAnyPython(bdist_wheel):
    """The libraries know nothing of Python, so one wheel serves all versions of it on a platform."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, its binary interface, platform."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension("specmt.native", SOURCES, depends=[str(path) for path in HEADERS])],
    cmdclass={"build_ext": BuildNative, "bdist_wheel": WheelForAnyPython},
)
