"""The benchmarks' own arithmetic: what is kept and resumed, whose turn it is, and what the tables say."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_passes
import benchmark_systems
import benchmarking
import pytest
import write_benchmarks
from benchmarking import Options, Results, rotated, with_range
from write_benchmarks import filled

from specmt.corpus import evenly_spread

ROOT = Path(__file__).parent.parent


@pytest.fixture
def options(tmp_path: Path) -> Options:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "manifest.json").write_text("{}")
    return Options(tmp_path / "bundle", None, tmp_path, tmp_path, quick=False, again=False)


def test_a_part_is_measured_once_and_taken_up_by_the_next_run(options: Options) -> None:
    measured: list[str] = []

    def measure() -> int:
        measured.append("x")
        return len(measured)

    results = Results(options, "section", {"rounds": 3})
    assert [results.part("a", measure), results.part("a", measure)] == [1, 1]
    with pytest.raises(KeyboardInterrupt):
        results.part("b", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    again = Results(options, "section", {"rounds": 3})
    assert again.part("a", measure) == 1
    assert again.part("b", measure) == 2


@pytest.mark.parametrize("change", ["settings", "again", "bundle", "quick", "cores", "version"])
def test_measurements_under_other_conditions_are_not_mixed(
    options: Options, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Results(options, "section", {"rounds": 3}).part("a", lambda: 1)
    if change == "cores":
        monkeypatch.setattr(benchmarking, "usable_cores", lambda: 1000)
    if change == "version":
        conditions = benchmarking.conditions()
        monkeypatch.setattr(benchmarking, "conditions", lambda: {**conditions, "versions": {"numpy": "0"}})
    if change == "bundle":
        (options.bundle / "manifest.json").write_text('{"another": 1}')
    values = {**vars(options), "again": change == "again", "quick": change == "quick"}
    results = Results(Options(**values), "section", {"rounds": 4 if change == "settings" else 3})
    assert results.part("a", lambda: 2) == 2


def benchmark_options(folder: Path, corpora: Path) -> list[str]:
    return ["--folder", str(folder / "results"), "--corpora", str(corpora)]


def test_what_a_fresh_clone_lacks_is_named_before_anything_is_written(tmp_path: Path) -> None:
    arguments = benchmarking.parser("").parse_args(benchmark_options(tmp_path, tmp_path))
    with pytest.raises(SystemExit, match=r"multi30k\.test2016\.de: no such file; `python scripts/fetch_corpora\.py`"):
        benchmarking.options(arguments)
    assert not (tmp_path / "results").exists()


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    for name in benchmarking.CORPORA.values():
        for language in benchmarking.LANGUAGES:
            (tmp_path / f"{name}.{language}").write_text("Ja.\n")
    return tmp_path


def test_a_pair_of_other_languages_is_refused(corpora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarking, "load_bundle", lambda _: SimpleNamespace(languages=("en", "de")))
    with pytest.raises(SystemExit, match="translates en to de; the test sets are German and English"):
        benchmarking.options(benchmarking.parser("").parse_args(benchmark_options(corpora, corpora)))


def test_an_engine_that_is_not_compiled_is_one_line(
    corpora: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarking.native_library, "runnable", tuple)
    arguments = benchmarking.parser("").parse_args(benchmark_options(corpora, corpora))
    with pytest.raises(SystemExit) as ended:
        benchmarking.ended(lambda: benchmarking.options(arguments, native=True) and 0)
    assert ended.value.code == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_another_pair_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert benchmarking.folder_of(benchmarking.BUNDLED) == ROOT / "runs" / "bench"
    (tmp_path / "manifest.json").write_text("{}")
    assert benchmarking.folder_of(tmp_path).name == f"bench-{sha256(b'{}').hexdigest()[:8]}"


def test_both_are_warm_when_a_pass_counts() -> None:
    calls: list[str] = []

    def ours() -> int:
        calls.append("ours")
        return 1

    def theirs() -> float:
        calls.append("theirs")
        return 0.001 * len(calls)

    found = bench_passes.measured({"pass": ours}, {"step": theirs}, rounds=1)
    assert calls == ["ours", "ours", "theirs", "theirs"] * 3
    assert found["step"] == pytest.approx(12)


def test_turns_change_from_round_to_round_and_miss_nobody() -> None:
    turns = [rotated("abcd", number) for number in range(4)]
    assert turns[0] == ["a", "b", "c", "d"]
    assert len({turn[0] for turn in turns}) > 2
    assert all(sorted(turn) == ["a", "b", "c", "d"] for turn in turns)


def test_a_slow_systems_lines_are_among_the_others_at_even_steps() -> None:
    lines = list(range(1000))
    assert evenly_spread(lines, 50) == evenly_spread(lines, 250)[::5]


def test_the_range_stands_beside_the_median() -> None:
    assert with_range([3.0, 1.0, 2.04], 1) == "2.0 (1.0–3.0)"
    assert with_range([2.04], 1) == "2.0", "of one round there is no range"


def test_their_step_is_the_slope_and_their_encoder_the_rest_of_the_faster_way() -> None:
    short, long = bench_passes.STEPS
    times = {f"1 0 {short}": 10 + 2.0 * short, f"1 0 {long}": 10 + 2.0 * long}
    times |= {f"1 1 {short}": 12 + 1.5 * short, f"1 1 {long}": 12 + 1.5 * long}
    costs = bench_passes.their_costs(times, beam=1)
    assert costs == pytest.approx({"step": 1.5, "encode": 12.0})
    assert bench_passes.their_costs(times, beam=5) is None


class Echo:
    def translate(self, lines: list[str], batch_size: int) -> Any:  # noqa: ANN401
        yield from (line.upper() for line in lines)


@pytest.mark.parametrize("batch_size", [1, 8])
def test_a_worker_marks_each_line_at_batch_size_1_only(batch_size: int) -> None:
    answer = benchmark_systems._answer(Echo(), ["a", "b"], batch_size)
    assert answer["texts"] == ["A", "B"]
    assert len(answer["marks"]) == (2 if batch_size == 1 else 0)
    assert sum(answer["marks"]) <= answer["seconds"] * 1e3


def test_fairseqs_answers_are_read_by_line_and_in_order() -> None:
    import subprocess
    import sys

    program = r"""
import sys
for number, line in enumerate(sys.stdin):
    text = line.strip()
    print(f"S-{number}\t{text}", f"H-{number}\t-0.1\tx y", f"D-{number}\t-0.1\t{text}: D-x\t!", sep="\n")
    print(f"P-{number}\t-1", flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert benchmark_systems._exchange(process, ["eins"]) == ["eins: D-x\t!"]
    assert benchmark_systems._exchange(process, ["zwei", "drei"]) == ["zwei: D-x\t!", "drei: D-x\t!"]
    process.communicate()


# -- the document


def run(seconds: float, marks: list[float], bleu: float = 40.0) -> dict[str, Any]:
    return {"stream_seconds": seconds, "sentences": 100, "bleu": bleu, "marks": marks}


def section(parts: dict[str, Any], **settings: object) -> dict[str, Any]:
    conditions = {
        "cpu": "Some CPU",
        "cores": 2,
        "memory_gib": 8.0,
        "os": "Linux",
        "python": "3.11.7",
        "date": "today",
        "load_average": 0.1,
        "versions": {"numpy": "2"},
        "command": "python bench.py",
    }
    return {"settings": {"quick": False, **settings}, "conditions": conditions, "parts": parts}


SYSTEMS = section(
    {
        "same weights": {"farthest_in_steps": 0.5, "same_tokens": 99, "lines": 100},
        "1 cores/choice/specmt spec": {"notes": {"stream": "batch 32", "latency": ""}},
        "1 cores/Multi30k test2016/0/specmt spec": run(2.0, [4.0, 6.0]),
        "1 cores/Multi30k test2016/0/CTranslate2 int8 greedy": run(4.0, [10.0, 10.0, 20.0, 20.0], bleu=39.5),
        "1 cores/Multi30k test2016/1/specmt spec": run(4.0, [5.0, 5.0]),
        "1 cores/Multi30k test2016/1/CTranslate2 int8 greedy": run(4.0, [10.0, 1000.0, 10.0, 1000.0]),
    },
    sampling={"rounds": 2, "lines": 1000, "latency_lines": 4, "choosing_lines": 3},
)
SIZE = {
    "ours": {"encode": 2.0, "step": 1.0, "draft 1": 0.5, "verify 1": 0.6, "both 1": 1.0, "both 4": 2.0}
    | {"draft 4": 0.7, "verify 4": 1.4},
    "CTranslate2": {"1": {"encode": 4.0, "step": 2.0}, "5": {"encode": 4.0, "step": 5.0}},
}
PASSES = section(
    {
        "emitted tokens": {
            "Tatoeba test": {"by_draft_length": [1.5, 2, 2.2, 4.0], "sentences": 9, "target_tokens": 8.0}
        },
        "size/big": SIZE,
    },
    draft_lengths=[1, 4],
)


def test_latency_is_compared_over_the_lines_that_both_translated() -> None:
    rows = list(write_benchmarks.latency_rows(SYSTEMS["parts"], cores=1))
    ours, theirs = rows
    # Of CTranslate2's four lines ours translated the first and the third: 15 / 5 and 10 / 5.
    assert ours == ["Multi30k test2016", "specmt spec", "5.0 (5.0–5.0)", "5.0", "5.5", "40.0", "2.50 (2.00–3.00)"]
    assert theirs[-2:] == ["39.5", "1.00 (1.00–1.00)"]


def test_throughput_is_sentences_over_seconds_round_by_round() -> None:
    ours, _ = write_benchmarks.throughput_rows(SYSTEMS["parts"])
    assert ours == ["1", "Multi30k test2016", "specmt spec", "37.5 (25.0–50.0)", "40.0", "1.50 (1.00–2.00)"]


def test_what_a_bigger_model_can_expect_takes_the_fastest_draft_length() -> None:
    (row,) = write_benchmarks.expected({"passes": PASSES}).splitlines()[2:]
    # k = 4: 2 ms for 4 tokens, 8 tokens: 2 + 4. ar: 2 + 8. CTranslate2: 4 + 16, beam 5: 4 + 40.
    assert row == "| big | Tatoeba test | 8.0 | 4 | 4.00 | 6.0 | 10.0 (1.67 ×) | 20.0 (3.33 ×) | 44.0 (7.33 ×) |"


def test_an_iteration_pays_from_the_tokens_whose_steps_cost_as_much() -> None:
    text = write_benchmarks.passes({"passes": PASSES})
    assert "| 4 | 0.700 | 1.400 | 2.000 | 2.00 | 1.00 |" in text


def test_a_step_that_scored_all_pieces_is_called_so() -> None:
    assert "CTranslate2, all pieces scored: encoder" in write_benchmarks.passes({"passes": PASSES})
    mapped = section({"size/big": {**SIZE, "vocabulary_map": True}}, draft_lengths=[1, 4])
    assert "CTranslate2: encoder" in write_benchmarks.passes({"passes": mapped})


def test_sections_of_different_bundles_make_no_document(tmp_path: Path) -> None:
    for name, bundle in (("systems", "12345678a"), ("passes", "12345678a")):
        (tmp_path / f"{name}.json").write_text(json.dumps(section({}, bundle=bundle)))
    assert list(write_benchmarks.kept(tmp_path)) == ["systems", "passes"]
    (tmp_path / "limit.json").write_text(json.dumps(section({}, bundle="another")))
    with pytest.raises(SystemExit, match="passes of 12345678, limit of another"):
        write_benchmarks.kept(tmp_path)


def test_the_document_says_what_was_not_measured_and_what_was_quick() -> None:
    text = filled("{{machine}} {{weights}} {{passes}}", {"systems": SYSTEMS})
    assert "Some CPU" in text
    assert "99 of 100 lines" in text
    assert text.endswith("*Not measured.*")
    assert "quick" not in text
    assert "Rounds: 2. Lines: 1,000 of each set, evenly spread, for latency 4" in filled(
        "{{sampling}}", {"systems": SYSTEMS}
    )
    hurried = {**SYSTEMS, "settings": {"quick": True}}
    assert "A quick run" in filled("{{machine}}", {"systems": hurried})


def test_every_place_in_the_template_has_a_table() -> None:
    template = (ROOT / "docs" / "benchmarks.template.md").read_text()
    sections = {"systems": SYSTEMS, "passes": PASSES}
    assert "{{" not in filled(template, sections)


def test_the_figure_is_the_same_bytes_for_the_same_measurements(tmp_path: Path) -> None:
    sections = json.loads(json.dumps({"systems": SYSTEMS, "passes": PASSES}))
    for name in ("first.svg", "second.svg"):
        write_benchmarks.draw(sections, tmp_path / name)
    first = (tmp_path / "first.svg").read_bytes()
    assert first == (tmp_path / "second.svg").read_bytes()
    assert b"<svg" in first
