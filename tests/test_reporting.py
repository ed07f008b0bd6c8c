"""The tables that `specmt eval` shows to people."""

from __future__ import annotations

from dataclasses import replace

from results import AR, EVALUATION, REPLAY
from rich.console import Console

from specmt.evaluation.measuring import Evaluation
from specmt.evaluation.reporting import render

EXPECTED = """\
strategy     BLEU  chrF  seconds  sentences/s     speedup vs ar  same as ar
ar           38.4  58.3    24.20         41.3  1.00 (1.00–1.00)      100.0%
beam5        38.9  58.3    24.20         41.3  0.62 (0.60–0.65)       71.0%
spec-strict  38.4  58.3    24.20         41.3  1.93 (1.85–2.02)      100.0%
spec         38.1  58.3    24.20         41.3  2.42 (2.30–2.51)       88.5%

             latency                          mean emitted
strategy     mean ms  p50 ms  p95 ms  p99 ms        tokens  accepted
ar              24.2    22.0    41.5    60.1          1.00         –
beam5           24.2    22.0    41.5    60.1          1.00         –
spec-strict     24.2    22.0    41.5    60.1          2.30     40.0%
spec            24.2    22.0    41.5    60.1          3.20     70.0%

       spec-strict       spec-strict             spec              spec
n  slot n accepted  n tokens emitted  slot n accepted  n tokens emitted
1            80.0%             20.0%            90.0%             10.0%
2            62.5%             30.0%            80.0%             10.0%
3                –             50.0%            62.5%             30.0%
4                –                 –                –             50.0%

1000 lines, median (range) of 3 rounds at batch size 1, latency line by line
torch-cpu-fp32, threads: 1, Some CPU, cores: 2
Python 3.11.7, torch 2.13.0, Linux
BLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
chrF nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
"""


def shown(evaluation: Evaluation) -> str:
    console = Console(width=80, color_system=None)
    with console.capture() as capture:
        console.print(render(evaluation))
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def test_the_tables_say_all_in_80_columns() -> None:
    assert shown(EVALUATION) == EXPECTED


def test_what_is_not_known_or_not_drafted_is_left_out() -> None:
    machine = replace(EVALUATION.machine, threads=None, torch=None)
    assert (
        shown(replace(EVALUATION, machine=machine, results=(AR,)))
        == """\
strategy  BLEU  chrF  seconds  sentences/s     speedup vs ar  same as ar
ar        38.4  58.3    24.20         41.3  1.00 (1.00–1.00)      100.0%

          latency                          mean emitted
strategy  mean ms  p50 ms  p95 ms  p99 ms        tokens  accepted
ar           24.2    22.0    41.5    60.1          1.00         –

1000 lines, median (range) of 3 rounds at batch size 1, latency line by line
torch-cpu-fp32, Some CPU, cores: 2
Python 3.11.7, Linux
BLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
chrF nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
"""
    )


def test_one_line_of_many_that_differs_is_seen() -> None:
    lines = shown(replace(EVALUATION, results=(replace(AR, identical_to_ar=0.99967),))).splitlines()
    assert lines[1].endswith(" 99.9%")


def test_what_is_replayed_is_no_draft() -> None:
    lines = shown(replace(EVALUATION, results=(AR, REPLAY))).splitlines()
    rows = [line.split() for line in lines if line.startswith(("ar ", "replay "))]
    assert [row[-2:] for row in rows[2:]] == [["1.00", "–"], ["–", "–"]]
    assert not any("accepted" in line and "slot" in line for line in lines)
