"""The machine: its processor, the cores that may be used, and what is installed."""

from __future__ import annotations

import math
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


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str] | None:
    """What the first processor can do, by Linux's names; None where that is not known."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return frozenset(found[1].split()) if found else None


def usable_cores(control_groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: those it may run on, in a container as many of them as it is granted."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _granted(control_groups) or cores))


def _granted(control_groups: Path) -> int | None:
    """How many cores' time Linux grants to a container, rounded up; None: no limit. Both versions' files are read."""
    for files in (["cpu.max"], ["cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"]):
        try:
            quota, period = " ".join((control_groups / file).read_text(encoding="ascii") for file in files).split()
            return None if quota in ("max", "-1") else math.ceil(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):  # not there, or something else
            continue
    return None


def package_version(name: str) -> str | None:
    """The version of an installed package; None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # which every start would wait for

    try:
        return version(name)
    except PackageNotFoundError:
        return None
