"""What a measurement ran on."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of installed packages."""
    from importlib.metadata import PackageNotFoundError, version  # which every start would wait for

    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
