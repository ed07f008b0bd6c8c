"""The sweeps' own arithmetic: whose turn it is, what is counted, what chance may do, and what the tables say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sweep
import write_sweep
from sacrebleu.metrics.bleu import BLEU
from scripted import SENTENCES, ScriptedEngine, right_before, scripted_translator
from significance import compare, intervals
from write_sweep import FIGURES, filled

from specmt.bundles.bundle import DecodingDefaults
from specmt.corpus import Pair
from specmt.decoding.hypotheses import Iteration
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID
from specmt.translation import Translation

ROOT = Path(__file__).parent.parent


# -- significance

REFERENCES = ["the dog runs over the green field", "a man reads a book", "two children play in the snow"] * 10
WORSE = ["the dog runs over the green field", "a man is a book", "two dogs play in a snow"] * 10


def test_a_system_is_no_better_than_itself() -> None:
    (one,) = compare({"ar": WORSE, "strict": WORSE}, "ar", REFERENCES, samples=50)
    assert (one.baseline, one.system) == ("ar", "strict")
    assert (one.delta, one.low, one.high, one.p_value) == (0, 0, 0, None)


def test_a_difference_stands_between_the_ends_of_its_interval() -> None:
    (one,) = compare({"better": REFERENCES, "worse": WORSE}, "better", REFERENCES, samples=50)
    assert one.delta == pytest.approx(BLEU().corpus_score(WORSE, [REFERENCES]).score - 100)
    assert one.low < one.delta < one.high < 0
    assert one.p_value < 0.05


def test_an_interval_is_over_bleu_of_the_resampled_lines() -> None:
    # Lines that are all alike: every resample has the score of the whole.
    references, system = ["a man reads a book"] * 5, ["a man reads the book"] * 5
    ((low, high),) = intervals(references, [system], references, 20)
    delta = BLEU().corpus_score(system, [references]).score - 100
    assert (low, high) == pytest.approx((delta, delta))


# -- measuring


def settings_of(draft_length: int) -> DecodingSettings:
    return DecodingSettings.relaxed(DecodingDefaults(draft_length, beta=2, tau=0.3))


class Clock:
    """A clock that runs when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_runs_take_turns_block_by_block_and_seconds_are_sums_of_a_round() -> None:
    clock, turns = Clock(), []

    def run(name: str, seconds: float) -> sweep.Run:
        def translate(lines: Sequence[str]) -> None:
            turns.append((name, *lines))
            clock.now += seconds * len(lines)

        return translate

    found = sweep.race({"a": run("a", 1), "b": run("b", 10)}, [["x", "y"], ["z"]], rounds=2, clock=clock)
    assert found == {"a": [3, 3], "b": [30, 30]}
    assert [turn[0] for turn in turns] == ["a", "b", "a", "b", "b", "a", "b", "a", "b", "a"]
    assert turns[2:6] == [("a", "x", "y"), ("b", "x", "y"), ("b", "z"), ("a", "z")]


def test_emitted_tokens_are_counted_by_source_length_and_split_lines_left_out() -> None:
    def line(source_tokens: int, emitted: Sequence[int], segments: int = 1) -> Translation:
        iterations = tuple(Iteration(4, count - 1, (7,) * count) for count in emitted)
        return Translation(0, "", "", 0.0, (7,) * sum(emitted), iterations, (), (7,) * source_tokens, segments=segments)

    strict = [line(5, [1, 2]), line(6, [3]), line(4, [3]), line(41, [4]), line(7, [9], segments=2), line(0, [])]
    relaxed = [replace(one, iterations=(Iteration(4, 1, (7, 7)),)) for one in strict]
    found = sweep.by_source_tokens(strict, relaxed)
    assert found == [
        {"from": 1, "to": 5, "lines": 2, "strict": 2.0, "relaxed": 2.0},
        {"from": 6, "to": 10, "lines": 1, "strict": 3.0, "relaxed": 2.0},
        {"from": 41, "to": None, "lines": 1, "strict": 4.0, "relaxed": 2.0},
    ]


def test_the_drafter_alone_emits_every_token_that_it_drafts() -> None:
    engine = ScriptedEngine(right_before(1, rank=1))
    translator = scripted_translator(engine)
    spec = replace(DecodingSettings.relaxed(translator.defaults), beta=1, draft_length=3)
    alone = sweep.drafter_alone(translator).translate(SENTENCES, spec, batch_size=2)
    for line, translation in zip(SENTENCES, alone, strict=True):
        requests = translator.requests([line])
        if not requests:
            continue
        (request,) = requests
        expected: list[int] = []
        while len(expected) < request.max_tokens and EOS_ID not in expected:
            wrong = len(expected) % 4 == 1
            expected.append(engine.ranked(request.source_ids, expected)[wrong])
        assert list(translation.ids) == expected
        assert all(len(iteration.emitted) == 4 for iteration in translation.iterations[:-1])


def test_a_long_drafter_is_swept_thinly_up_to_its_last_slot() -> None:
    assert sweep.draft_lengths(4) == [1, 2, 3, 4]
    assert sweep.draft_lengths(18) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 18]


def test_beta_1_is_in_the_grid_once() -> None:
    settings = sweep.grid(settings_of(4))
    assert len(settings) == 13
    assert settings["β 1"].beta == 1
    assert (settings["β 5, τ 0.3"].beta, settings["β 5, τ 0.3"].tau) == (5, 0.3)


# -- tables


def section() -> dict[str, Any]:
    """Measurements of one test set by a drafter of two slots."""
    one = {"bleu": 40.0, "chrf": 60.0, "emitted": 2.5, "bleu_signature": "B", "chrf_signature": "C"}
    counts = {"emitted_without_ends": 2.25, "acceptance_rate": 0.75}
    strategies = {name: {**one, "differing_from_ar": 3, **counts} for name in ("ar", "beam 5", "strict", "relaxed")}
    comparison = {"baseline": "ar", "system": "relaxed", "delta": -0.25, "low": -0.5, "high": 0.125, "p_value": 0.25}
    turned = {**comparison, "baseline": "relaxed", "system": "ar", "delta": 0.25}
    classes = [{"from": 1, "to": 5, "lines": 12, "strict": 2.0, "relaxed": 2.5}]
    classes.append({"from": 41, "to": None, "lines": 11, "strict": 3.0, "relaxed": 3.5})
    parts: dict[str, Any] = {
        "quality": {
            "lines": 9,
            "strategies": strategies,
            "comparisons": [comparison, turned],
            "by_source_tokens": classes,
        }
    }
    grid = sweep.grid(settings_of(2))
    parts |= {f"grid/{name}": one for name in grid}
    for length in (1, 2):
        shares = [0.8, 0.5][:length]
        part = {"strict": 1.5 * length, "relaxed": 2.0 * length, "acceptance_by_position": shares}
        parts[f"draft length/{length}"] = part
    names = ["beam 5", "relaxed", *grid, *(f"{way}, k {k}" for way in ("strict", "relaxed") for k in (1, 2))]
    seconds = {"ar": [4.0, 6.0, 5.0], **{name: [2.0, 2.0, 5.0] for name in names}}
    parts["speed"] = {"lines": 3, "seconds": {**seconds, "strict, k 1": [1.0, 2.0, 1.0]}}
    times = {"ar": [2.0], "strict": [1.0], "strict, best k": [0.5], "relaxed": [4.0]}
    for size in sweep.BATCH_SIZES:
        parts[f"batch size/{size}"] = {"lines": 4, "best": 1, "seconds": times}
    conditions = {"cpu": "Some CPU", "cores": 2, "memory_gib": 1, "os": "Some OS", "python": "3", "versions": {}}
    conditions |= {"command": "python scripts/sweep.py", "date": "today", "load_average": 0}
    settings = {
        "quick": False,
        "engine": "some-engine",
        "clock": "cpu",
        "decoding": {"draft_length": 2, "beta": 2, "tau": 0.3},
    }
    return {
        "settings": settings,
        "conditions": conditions,
        "parts": {f"Tatoeba test/{name}": part for name, part in parts.items()},
    }


def row(text: str, start: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(start))


def test_a_speedup_is_of_times_within_one_round() -> None:
    text = write_sweep.quality(section())
    assert row(text, "| Tatoeba test | relaxed") == (
        "| Tatoeba test | relaxed | 40.0 | 60.0 | 2.50 | 0.75 | 3 of 9 | 2.00 (1.00–3.00) |"
    )


def test_a_difference_stands_with_its_interval_and_sign() -> None:
    text = write_sweep.comparisons(section())
    assert row(text, "| Tatoeba") == "| Tatoeba test | relaxed less ar | -0.25 | -0.50 to +0.12 | 0.250 |"
    assert text.count("Tatoeba") == 1, "not once more the other way round"


def test_tables_by_draft_length_slot_source_and_batch_size() -> None:
    found = section()
    assert row(write_sweep.lengths(found), "| 2 |") == "| 2 | 3.00 | 4.00 |"
    assert "| 1 | 4.00 (3.00–5.00) | 2.00 (1.00–3.00) |" in write_sweep.lengths(found)
    assert row(write_sweep.positions(found), "| 2 |") == "| 2 | 0.50 |"
    assert row(write_sweep.source_tokens(found), "| 41") == "| 41 and more | 11 | 3.00 | 3.50 |"
    assert row(write_sweep.batches(found), "| 64") == ("| 64 | 2.00 | 4.00, k = 1 | 0.50 |")


def test_the_papers_figures_stand_beside_the_fastest_of_ours() -> None:
    text = write_sweep.papers(section())
    assert row(text, "| mean emitted tokens, strict") == "| mean emitted tokens, strict |  | 2.50 |"
    assert row(text, "| – without end") == "| – without end-of-sentence | 3.55, three sentences | 2.25 |"
    assert row(text, "| × `ar`, batch size 1, strict").endswith("| about 3 × | 4.00 (3.00–5.00), k = 1 |")


def test_every_place_in_the_template_has_a_table_and_what_is_missing_is_said() -> None:
    template = (ROOT / "docs" / "sweep.template.md").read_text(encoding="utf-8")
    text = filled(template, section())
    assert "{{" not in text and "*Not measured.*" not in text
    assert "k = 2, β = 2, τ = 0.3, engine `some-engine`" in text
    interrupted = section()
    interrupted["parts"] = {"Tatoeba test/quality": interrupted["parts"]["Tatoeba test/quality"]}
    text = filled(template, interrupted)
    assert text.count("*Not measured.*") == 5
    assert "| Tatoeba test | ar | 40.0 | 60.0 | 2.50 | – | 3 of 9 | – |" in text


def test_the_figures_are_the_same_bytes_for_the_same_measurements(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_sweep.draw(json.loads(json.dumps(section())), tmp_path / name)
    for name in FIGURES:
        drawn = (tmp_path / "first" / name).read_bytes()
        assert drawn == (tmp_path / "second" / name).read_bytes()
        assert b"<svg" in drawn


def test_what_is_scored_is_counted_from_the_same_translations() -> None:
    translator = scripted_translator(ScriptedEngine())
    settings = replace(DecodingSettings.relaxed(translator.defaults), strategy="ar")
    pairs = [Pair(line, line) for line in SENTENCES]
    found = sweep.scored_with(translator, pairs, settings)
    assert found["emitted"] == 1.0
    assert found["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
