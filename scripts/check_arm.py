"""Translate as a 64-bit Arm processor does, emulated, and compare with this one: the same bytes, scores included.

Run as `python scripts/check_arm.py [TEXT]` on Debian or Ubuntu, x86-64, as root, after `dpkg --add-architecture arm64`,
`apt update` and `apt install qemu-user g++-aarch64-linux-gnu`. Arm's Python and packages are fetched into `--folder`.
A line takes about a second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parent.parent
DEBIAN = ("libc6", "libgcc-s1", "libstdc++6", "zlib1g", "libffi8", "libexpat1", "libssl3", "libbz2-1.0", "liblzma5")
PACKAGES = ("numpy", "onnxruntime", "platformdirs", "rich", "sacrebleu", "safetensors", "sentencepiece", "sentencex")
OTHERS = ("typer<0.29", "setuptools", "wheel")
PROCESSOR, BUILD = "neoverse-n1", "dotprod"
"""That is emulated, and the build that it should run."""


def fetch(folder: Path) -> None:
    """Arm's Python of this one's version, its libraries, and what specmt requires."""
    python = f"python{sysconfig.get_python_version()}"
    debian = (f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib", *DEBIAN)
    files, site = folder / "files", folder / "site"
    files.mkdir(parents=True)
    subprocess.run(["apt-get", "-q", "download", *(f"{name}:arm64" for name in debian)], cwd=files, check=True)
    for package in files.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, folder], check=True)
    platforms = [f"--platform={name}_aarch64" for name in ("manylinux2014", "manylinux_2_17", "manylinux_2_28")]
    install = [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", f"--target={site}", *platforms]
    subprocess.run([*install, f"-c{ROOT / 'constraints.txt'}", *PACKAGES, *OTHERS], check=True)


def emulated(folder: Path, specmt: Path, *arguments: str, text: bytes = b"") -> bytes:
    """What Arm's Python writes."""
    python = folder / "usr/bin" / f"python{sysconfig.get_python_version()}"
    command = ["qemu-aarch64", "-cpu", PROCESSOR, "-L", str(folder), str(python), *arguments]
    environment = {**os.environ, "CXX": "aarch64-linux-gnu-g++", "PYTHONPATH": f"{folder / 'site'}:{specmt}"}
    return subprocess.run(command, cwd=specmt, env=environment, input=text, check=True, stdout=subprocess.PIPE).stdout


def main() -> int:
    """Fetch, compile, translate on both, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?", default=ROOT / "data" / "sample.de")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "arm")
    options = parser.parse_args()
    folder, text = options.folder.resolve(), options.text.read_bytes()
    if not (folder / "site").exists():
        shutil.rmtree(folder, ignore_errors=True)
        fetch(folder)
    specmt = folder / "specmt"
    shutil.rmtree(specmt, ignore_errors=True)
    specmt.mkdir()
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, specmt)
    shutil.copytree(ROOT / "specmt", specmt / "specmt", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    emulated(folder, specmt, "setup.py", "-q", "build_ext", "--inplace")
    which = ("-c", "from specmt.engines.native_library import build; print(build())")
    assert emulated(folder, specmt, *which).decode().strip() == BUILD
    translate = ("-m", "specmt", "translate", "-q", "--threads=1", "--draft-length=3", "--format=jsonl")
    here = subprocess.run([sys.executable, *translate], cwd=ROOT, input=text, check=True, stdout=subprocess.PIPE).stdout
    there = emulated(folder, specmt, *translate, text=text)
    same = sum(a == b for a, b in zip(here.splitlines(), there.splitlines(), strict=True))
    print(f"{same} of {len(here.splitlines())} lines are the same")
    return int(there != here)


if __name__ == "__main__":
    sys.exit(main())
