"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as the system gives it; its family and model too, as virtual machines name many alike."""
    try:
        named = name_of(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        named = ""
    return named or platform.processor() or platform.machine()


def name_of(cpuinfo: str) -> str:
    """The first processor of Linux's `/proc/cpuinfo`; empty where it has no name, as on ARM."""
    name, family, model = (
        re.search(rf"^{field}\s*: *(.*)$", cpuinfo, re.MULTILINE) for field in ("model name", "cpu family", "model")
    )
    if not name:
        return ""
    return f"{name[1]} (family {family[1]}, model {model[1]})" if family and model else name[1]


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(name: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # which every start would wait for

    try:
        return version(name)
    except PackageNotFoundError:
        return None
