"""What a measurement ran on: processors that virtual machines name alike are told apart."""

from __future__ import annotations

from specmt.machine import name_of

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
