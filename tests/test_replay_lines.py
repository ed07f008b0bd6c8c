"""Reproducible decoding of lines: who asks for it, with which settings, what is counted and shown."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from faults import FaultyEngine
from rich.console import Console
from scripted import (
    DEFAULTS,
    SENTENCES,
    ScriptedEngine,
    always_right,
    scripted_translator,
    tiny_vocabulary,
)
from typer.testing import CliRunner

from specmt.cli import app
from specmt.errors import InputError, UsageError
from specmt.evaluation.measuring import evaluate
from specmt.evaluation.reporting import render as render_evaluation
from specmt.replay_explanation import explain, render
from specmt.settings import DecodingSettings
from specmt.streams.inputs import InputLine
from specmt.translator import Translator

ROOT = Path(__file__).parent.parent
SPEC = DecodingSettings.from_defaults(DEFAULTS)
REPLAY = replace(SPEC, strategy="replay", replay_window=4, replay_group=3)


def test_lines_that_ask_for_it_are_reproducible_among_others() -> None:
    translator = scripted_translator(ScriptedEngine())
    asking = [InputLine(line, options={"reproducible": True}) for line in SENTENCES]
    lines = [asking[place] if place % 2 else line for place, line in enumerate(SENTENCES)]
    ar = replace(SPEC, strategy="ar")
    translations = list(translator.translate(lines, ar, 4))
    assert [one.text for one in translations] == [one.text for one in translator.translate(SENTENCES, ar, 1)]
    assert [one.replay is not None for one in translations] == [False, True] * 4


def test_a_line_that_asks_for_it_with_a_beam_is_named() -> None:
    beam = replace(SPEC, strategy="ar", beam=2)
    asking = InputLine("ein", options={"reproducible": True})
    with pytest.raises(InputError, match="line 2: `reproducible`: not with --beam"):
        list(scripted_translator(ScriptedEngine()).translate(["ein", asking], beam, 4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"strategy": "replay", "replay_window": 0}, "--replay-window"),
        ({"strategy": "replay", "replay_window": 4097, "replay_group": 4}, "at most 16,384 positions"),
        ({"strategy": "replay", "beam": 2}, "--beam"),
        ({"strategy": "ar", "beam": 2, "reproducible": True}, "--reproducible"),
        ({"strategy": "play"}, "none of spec, replay, ar"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(SPEC, **wrong).checked(ScriptedEngine())


def test_eval_has_rows_with_the_counters() -> None:
    translator = scripted_translator(ScriptedEngine(always_right))
    result = evaluate(translator, SENTENCES, SENTENCES, ["replay", "spec-reproducible"], batch_size=3, repeats=1)
    by_name = {one.strategy: one for one in result.results}
    counts = by_name["replay"].replay
    assert counts is not None and counts.replays >= len(SENTENCES)
    assert by_name["replay"].identical_to_ar == 1
    assert by_name["spec-reproducible"].replay is None
    described = result.to_json()["results"]
    assert described[1]["replay"]["replays"] == counts.replays
    assert described[1]["settings"] == {"replay_window": 16, "replay_group": 8}
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render_evaluation(result))
    assert "tokens recomputed" in console.export_text()


def test_explain_shows_what_was_generated_replayed_and_compared() -> None:
    translator = Translator(FaultyEngine(ScriptedEngine(), noise=0.6, seed=3), tiny_vocabulary(), DEFAULTS)
    settings = replace(REPLAY, trace=True)
    (translation,) = translator.translate([SENTENCES[0]], settings, 1)
    explanation = explain(translation, settings, tiny_vocabulary())
    verdicts = [verdict for replayed in explanation.iterations for verdict in replayed.verdicts]
    assert {"accepted", "replaced"} <= set(verdicts)
    assert verdicts.count("replaced") == explanation.counts.mismatches
    prefix: tuple[str, ...] = ()
    for replayed in explanation.iterations:
        taken = [
            own for own, verdict in zip(replayed.replayed, replayed.verdicts, strict=True) if verdict != "recomputed"
        ]
        assert replayed.prefix == prefix and replayed.output == (*prefix, *taken)
        assert replayed.first_position % 4 == 0 and replayed.first_position <= len(prefix)
        same = [own == other for own, other in zip(replayed.replayed, replayed.generated, strict=True)]
        accepted = replayed.verdicts.count("accepted")
        assert all(same[:accepted]) and not any(same[accepted : accepted + 1])
        prefix = replayed.output
    assert prefix == tuple(tiny_vocabulary().piece(id_) for id_ in translation.ids)
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(render(explanation))
    assert console.export_text().count("✗ replaced ") == explanation.counts.mismatches + 1  # and the legend


def test_the_command_line_replays(tmp_path: Path) -> None:
    source = tmp_path / "input.de"
    source.write_text("Ein Mann spielt Gitarre.\n\nZwei Hunde laufen.\n")
    plain, replayed = ([], [])
    for options, records in ((["--strategy", "ar"], plain), (["--strategy", "replay"], replayed)):
        arguments = ["translate", *options, "--format", "jsonl", "-i", str(source), "-o", str(tmp_path / "out")]
        assert CliRunner().invoke(app, arguments).exit_code == 0
        records += [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [one["translation"] for one in replayed] == [one["translation"] for one in plain]
    assert [one["score"] for one in replayed] == [one["score"] for one in plain]
    assert [one.get("replay", {}).get("replays") for one in replayed] == [1, None, 1]
    assert not any("replay" in one for one in plain)


@pytest.mark.slow
def test_the_script_finds_nothing_on_a_sample() -> None:
    command = [sys.executable, "-W", "ignore", str(ROOT / "scripts" / "check_reproducible.py"), "data/sample.de"]
    options = (
        "--engines native,onnx,torch-bf16 --strategies replay,spec-reproducible --lines 4 --batch-sizes 1,3 --orders 1"
    )
    done = subprocess.run([*command, *options.split()], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:] if line.startswith("|")]
    assert len(rows) == 6
    assert all(row[4:7] == ["8", "0", "0"] for row in rows)
