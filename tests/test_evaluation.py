"""Evaluation: strategies, scores, counts, and the JSON that programs read."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import sacrebleu
from scripted import (
    DEFAULTS,
    SENTENCES,
    RankOf,
    ScriptedEngine,
    always_right,
    by_position,
    never_right,
    right_before,
    scripted_translator,
    tiny_vocabulary,
)

from specmt.errors import InputError, UsageError
from specmt.evaluation.measuring import Output, StrategyResult, evaluate, strategy_settings
from specmt.settings import DecodingSettings
from specmt.text.segmentation import Splitting
from specmt.translator import Translator

SPEC = DecodingSettings.from_defaults(DEFAULTS)
AR = replace(SPEC, strategy="ar")


@pytest.fixture(scope="module", autouse=True)
def what_others_left() -> Iterator[None]:
    """Out of reach of the collections before each timing: what earlier tests had imported takes them half a second."""
    gc.freeze()
    yield
    gc.unfreeze()


def measure(engine: ScriptedEngine, *strategies: str, lines: tuple[str, ...] = SENTENCES) -> dict[str, StrategyResult]:
    result = evaluate(scripted_translator(engine), lines, lines, strategies, batch_size=3, repeats=1)
    return {strategy.strategy: strategy for strategy in result.results}


def texts(engine: ScriptedEngine, settings: DecodingSettings, lines: tuple[str, ...] = SENTENCES) -> list[str]:
    return [translation.text for translation in scripted_translator(engine).translate(lines, settings, 3)]


# -- strategies


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ar", AR),
        ("beam2", replace(AR, beam=2)),
        ("beam12", replace(AR, beam=12)),
        ("spec-strict", replace(SPEC, beta=1)),
        ("spec", SPEC),
        ("replay", replace(AR, strategy="replay")),
        ("spec-reproducible", replace(SPEC, reproducible=True)),
    ],
)
def test_a_strategys_name_stands_for_settings(name: str, settings: DecodingSettings) -> None:
    assert strategy_settings(name, DEFAULTS) == replace(settings, scored=False)


@pytest.mark.parametrize("name", ["", "greedy", "beam", "beam0", "beam-5", "beam100000", "5beam", "spec strict", "AR"])
def test_an_unknown_strategy_is_refused_and_the_known_ones_named(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"ar, beam2 \(or another number\), replay, spec-strict, spec, spec-rep"
    ) as error:
        measure(ScriptedEngine(), "ar", name)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("asked", "reported"),
    [
        (["spec", "ar"], ["spec", "ar"]),
        (["spec-strict", "spec"], ["ar", "spec-strict", "spec"]),
        (["spec", "spec"], ["ar", "spec"]),
        ([], ["ar"]),
    ],
)
def test_results_come_in_the_order_asked_for_and_ar_is_always_there(asked: list[str], reported: list[str]) -> None:
    assert list(measure(ScriptedEngine(), *asked)) == reported


def test_sources_and_references_must_be_line_aligned() -> None:
    with pytest.raises(InputError, match="2 source lines, 1 reference lines"):
        evaluate(scripted_translator(ScriptedEngine()), ["a", "b"], ["a"], ["ar"], 1)


@pytest.mark.parametrize("lines", [[], ["", "  "], ["漢字", "☺"]])
def test_a_text_without_sentences_is_refused(lines: list[str]) -> None:
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(scripted_translator(ScriptedEngine()), lines, lines, ["ar"], 1)


# -- scores


def test_scores_and_signatures_are_sacrebleus_cased_on_13a_tokens() -> None:
    engine = ScriptedEngine()
    outputs = texts(engine, AR)
    references = [outputs[0].swapcase(), *outputs[1:]]
    result = evaluate(scripted_translator(engine), SENTENCES, references, ["ar"], 3, repeats=1).results[0]
    assert result.bleu == sacrebleu.corpus_bleu(outputs, [references], tokenize="13a").score
    assert result.bleu < sacrebleu.corpus_bleu(outputs, [references], lowercase=True).score
    assert result.chrf == sacrebleu.corpus_chrf(outputs, [references]).score
    version = sacrebleu.__version__
    assert result.bleu_signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}"
    assert result.chrf_signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}"


def test_a_strategy_is_scored_on_its_own_output() -> None:
    engine = ScriptedEngine(by_position((0, 1)))
    references = texts(engine, SPEC)
    results = evaluate(scripted_translator(engine), SENTENCES, references, ["ar", "spec"], 3, repeats=1).results
    assert results[1].bleu == pytest.approx(100)
    assert results[0].bleu < 50


# -- acceptance: every line has 8 tokens and an end-of-sentence; 4 slots


@dataclass(frozen=True)
class Counts:
    rank_of: RankOf
    mean: float
    rate: float
    by_position: tuple[float, ...]
    histogram: tuple[int, ...]
    """Of one line."""


@pytest.mark.parametrize(
    "expected",
    [
        # 5 tokens, then 3 and the end: 8 drafted, 8 accepted.
        Counts(always_right, 4.5, 1.0, (1, 1, 1, 1), (0, 0, 0, 0, 1, 1)),
        # 9 recovered tokens; the last iteration drafted one that counts, the others four.
        Counts(never_right, 1.0, 0.0, (0, 0, 0, 0), (0, 9)),
        # 3 + 3 + 3 tokens, the last of them the end: 4 + 4 + 3 drafted.
        Counts(right_before(2), 3.0, 6 / 11, (1, 1, 0, 0), (0, 0, 0, 3)),
        # The first rejection is at target place 3: 4 tokens, then 5 with the end as bonus token.
        Counts(by_position((0, 0, 0, -1, 0, 0, 0, 0, 0)), 4.5, 7 / 8, (1, 1, 1, 0.5), (0, 0, 0, 0, 1, 1)),
        # Rejections at target places 0 and 6: 1 token, 5, 1 (with three slots within the sentence), 1 and the end.
        Counts(
            by_position((-1, 0, 0, 0, 0, 0, -1, 0, 0)), 2.25, 6 / 13, (1 / 2, 1 / 2, 1 / 3, 1 / 2), (0, 2, 1, 0, 0, 1)
        ),
        # A rejection at target place 1: 2 tokens, then 5, then 1 and the end, where slots 3 and 4 do not count.
        Counts(by_position((0, -1, 0, 0, 0, 0, 0, 0, 0)), 3.0, 7 / 10, (1, 2 / 3, 1 / 2, 1 / 2), (0, 0, 2, 0, 0, 1)),
    ],
)
def test_acceptance_is_counted_by_hand(expected: Counts) -> None:
    result = measure(ScriptedEngine(expected.rank_of, length=lambda source: 8), "spec-strict")["spec-strict"]
    lines = len(SENTENCES)
    assert result.mean_emitted_tokens == pytest.approx(expected.mean)
    assert result.acceptance_rate == pytest.approx(expected.rate)
    assert result.acceptance_by_position == pytest.approx(expected.by_position)
    assert result.emitted_histogram == tuple(lines * count for count in expected.histogram)
    assert result.iterations == lines * sum(expected.histogram)


def test_ar_emits_one_token_an_iteration_and_drafts_none() -> None:
    result = measure(ScriptedEngine(length=lambda source: 8), "ar")["ar"]
    assert (result.mean_emitted_tokens, result.iterations) == (1.0, 9 * len(SENTENCES))
    assert (result.acceptance_rate, result.acceptance_by_position) == (None, ())
    assert result.emitted_histogram == (0, 9 * len(SENTENCES))


def test_identical_lines_are_counted_against_ar() -> None:
    engine = ScriptedEngine(by_position((0, 0, 0, 0, 0, 1)))
    lines = (*SENTENCES, "", "Ein Hund.")
    same = [ar == spec for ar, spec in zip(texts(engine, AR, lines), texts(engine, SPEC, lines), strict=True)]
    assert 0 < sum(same) < len(lines)
    results = measure(engine, "ar", "spec-strict", "spec", lines=lines)
    shares = {name: result.identical_to_ar for name, result in results.items()}
    assert shares == {"ar": 1.0, "spec-strict": 1.0, "spec": sum(same) / len(lines)}


def test_a_line_of_several_sentences_counts_as_so_many() -> None:
    sources = (" ".join(SENTENCES[:3]), f"{SENTENCES[0]} 2. {SENTENCES[1]}", SENTENCES[2], "2.", "")
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 200))
    lines = list(translator.translate(sources, AR, 3))
    assert [line.segments for line in lines] == [3, 3, 1, 1, 1]
    assert Output.of(lines).sentences == 3 + 2 + 1, "not what was copied"


# -- the result object


def test_json_has_the_documented_keys_and_no_number_that_json_lacks() -> None:
    engine = ScriptedEngine(right_before(2))
    lines = SENTENCES[:2]
    result = evaluate(
        scripted_translator(engine),
        lines,
        lines,
        ["ar", "beam5", "spec", "spec-strict"],
        batch_size=2,
        repeats=2,
        threads=7,
    )
    value = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert list(value) == ["machine", "lines", "batch_size", "repeats", "results"]
    assert (value["lines"], value["batch_size"], value["repeats"]) == (2, 2, 2)
    assert list(value["machine"]) == ["cpu", "cores", "threads", "os", "python", "torch", "engine", "precision"]
    machine = {key: value["machine"][key] for key in ("threads", "engine", "precision", "python")}
    python = ".".join(map(str, sys.version_info[:3]))
    assert machine == {"threads": 7, "engine": "scripted-cpu-fp32", "precision": "fp32", "python": python}
    keys = {"strategy", "settings", "bleu", "bleu_signature", "chrf", "chrf_signature"}
    keys |= {"seconds", "seconds_min", "seconds_max", "sentences_per_second", "latency_ms"}
    keys |= {"speedup_vs_ar", "speedup_vs_ar_min", "speedup_vs_ar_max", "identical_to_ar"}
    keys |= {
        "mean_emitted_tokens",
        "acceptance_rate",
        "acceptance_by_position",
        "emitted_histogram",
        "iterations",
        "replay",
    }
    assert [set(entry) for entry in value["results"]] == [keys] * 4
    assert [entry["strategy"] for entry in value["results"]] == ["ar", "beam5", "spec", "spec-strict"]
    assert [set(entry["latency_ms"]) for entry in value["results"]] == [{"mean", "p50", "p95", "p99"}] * 4
    assert [entry["settings"] for entry in value["results"]] == [
        {"beam": 1, "length_penalty": 1.0},
        {"beam": 5, "length_penalty": 1.0},
        {"draft_length": 4, "beta": 3, "tau": 1.0, "reproducible": False},
        {"draft_length": 4, "beta": 1, "reproducible": False},
    ]
    assert value["results"][0]["acceptance_rate"] is None


def test_without_torch_the_machine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    machine = evaluate(scripted_translator(ScriptedEngine()), SENTENCES, SENTENCES, ["ar"], 1, repeats=1).machine
    assert (machine.torch, machine.threads) == (None, None)


def test_importing_loads_no_heavy_package() -> None:
    code = "import sys; from specmt.evaluation import measuring, plotting, reporting; print(*sys.modules)"
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert {"sacrebleu", "matplotlib", "torch", "fairseq"}.isdisjoint(done.stdout.split())


def test_the_tiny_vocabulary_knows_every_character_of_its_sentences() -> None:
    vocabulary = tiny_vocabulary()
    assert [vocabulary.decode(vocabulary.encode(line)) for line in SENTENCES] == list(SENTENCES)


def test_what_is_replayed_is_not_counted_as_drafted() -> None:
    replay = measure(ScriptedEngine(), "ar", "replay")["replay"]
    assert (replay.acceptance_rate, replay.acceptance_by_position) == (None, ())
    assert replay.mean_emitted_tokens > 1
