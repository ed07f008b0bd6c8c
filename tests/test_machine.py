"""What a measurement ran on: processors that virtual machines name alike are told apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from specmt.machine import cpu_flags, name_of, usable_cores

CPUINFO = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
stepping\t: 1

processor\t: 1
model name\t: another
"""


def test_a_processor_is_named_with_its_family_and_model() -> None:
    assert name_of(CPUINFO) == "AMD EPYC (family 25, model 17)"
    assert name_of(CPUINFO.replace("25", "26")) != name_of(CPUINFO)


def test_what_is_not_there_is_left_out() -> None:
    assert name_of("model name : A processor\n") == "A processor"
    assert name_of("processor : 0\nBogoMIPS : 50.00\n") == ""


def test_what_a_processor_can_do_is_read_where_it_stands(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    assert cpu_flags(cpuinfo) is None
    cpuinfo.write_text(CPUINFO)
    assert cpu_flags(cpuinfo) is None
    cpuinfo.write_text(f"{CPUINFO}flags\t\t: fpu avx2\nflags\t\t: other\n")
    assert cpu_flags(cpuinfo) == {"fpu", "avx2"}


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="Linux's limits")
@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "5000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 8),
        ({"cpu.max": "a b c"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
    ],
)
def test_a_container_uses_the_cores_that_it_is_granted(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert usable_cores(tmp_path) == cores
