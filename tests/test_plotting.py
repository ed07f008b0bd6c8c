"""The figure of an evaluation: what its bars say, and files that are whole or not there."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from results import AR, EVALUATION, REPLAY

from specmt.errors import EngineError, InputError, UsageError
from specmt.evaluation import plotting
from specmt.evaluation.measuring import Evaluation
from specmt.evaluation.plotting import draw, plot

figure_module = pytest.importorskip("matplotlib.figure")


def only(*strategies: str) -> Evaluation:
    results = tuple(result for result in EVALUATION.results if result.strategy in strategies)
    return Evaluation(EVALUATION.machine, EVALUATION.lines, EVALUATION.batch_size, EVALUATION.repeats, results)


def test_speedup_and_bleu_stand_side_by_side_with_a_bar_a_strategy() -> None:
    speedup, bleu, _ = draw(EVALUATION).axes
    names = [label.get_text() for label in speedup.get_yticklabels()]
    assert names == ["ar", "beam5", "spec-strict", "spec"]
    assert [bar.get_width() for bar in speedup.patches] == [1.0, 0.62, 1.93, 2.42]
    assert [text.get_text() for text in speedup.texts] == ["1.00×", "0.62×", "1.93×", "2.42×"]
    assert [bar.get_width() for bar in bleu.patches] == [38.4, 38.9, 38.4, 38.1]
    assert [text.get_text() for text in bleu.texts] == ["38.4", "38.9", "38.4", "38.1"]


def test_speedups_have_the_range_of_the_rounds_as_error_bars() -> None:
    speedup = draw(EVALUATION).axes[0]
    (bars,) = speedup.collections
    ends = [float(x) for segment in bars.get_segments() for x in segment[:, 0]]
    assert ends == pytest.approx([1.0, 1.0, 0.6, 0.65, 1.85, 2.02, 2.3, 2.51])


def test_the_histogram_shows_shares_of_iterations_by_emitted_tokens_of_what_speculates() -> None:
    histogram = draw(EVALUATION).axes[2]
    strict, relaxed = histogram.containers
    assert [bar.get_height() for bar in strict] == [20.0, 30.0, 50.0]
    assert [bar.get_height() for bar in relaxed] == [10.0, 10.0, 30.0, 50.0]
    assert [round(bar.get_x() + bar.get_width() / 2) for bar in relaxed] == [1, 2, 3, 4]
    legend = [text.get_text() for text in histogram.get_legend().get_texts()]
    assert legend == ["spec-strict: mean 2.30", "spec: mean 3.20"]


def test_a_strategy_has_one_colour_in_every_panel_and_another_than_the_rest() -> None:
    speedup, bleu, histogram = draw(EVALUATION).axes
    colours = [bar.get_facecolor() for bar in speedup.patches]
    assert colours == [bar.get_facecolor() for bar in bleu.patches]
    assert colours[2:] == [container[0].get_facecolor() for container in histogram.containers]
    assert len(set(colours)) == 4


def test_axes_are_labelled_with_their_units() -> None:
    labels = [axes.get_xlabel() for axes in draw(EVALUATION).axes]
    assert labels == ["times as fast as ar (range of rounds)", "BLEU (0–100)", "tokens emitted per iteration"]
    assert draw(EVALUATION).axes[2].get_ylabel() == "share of iterations (%)"


def test_without_speculation_there_is_no_histogram() -> None:
    for evaluation in (only("ar", "beam5"), replace(EVALUATION, results=(AR, REPLAY))):
        assert [axes.get_title(loc="left") for axes in draw(evaluation).axes] == ["Speedup", "Quality"]


def test_a_png_is_written(tmp_path: Path) -> None:
    plot(EVALUATION, tmp_path / "eval.PNG")
    assert (tmp_path / "eval.PNG").read_bytes().startswith(b"\x89PNG\r\n")
    assert [path.name for path in tmp_path.iterdir()] == ["eval.PNG"]


def test_an_svg_is_written_and_the_same_evaluation_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    plot(EVALUATION, first)
    plot(EVALUATION, second)
    assert ElementTree.fromstring(first.read_bytes()).tag == "{http://www.w3.org/2000/svg}svg"
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", ["eval.pdf", "eval", "eval.png.txt"])
def test_another_suffix_is_refused_and_nothing_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"must end in \.png or \.svg"):
        plot(EVALUATION, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"no such folder: {tmp_path / 'nowhere'}$"):
        plot(EVALUATION, tmp_path / "nowhere" / "eval.png")


def test_a_folder_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "figure.png").mkdir()
    with pytest.raises(InputError, match=r"figure\.png: is a folder$"):
        plot(EVALUATION, tmp_path / "figure.png")


def test_without_matplotlib_one_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plotting, "find_spec", lambda name: None)
    with pytest.raises(EngineError) as error:
        plot(EVALUATION, tmp_path / "eval.png")
    assert str(error.value) == "plots need matplotlib: in the clone, pip install '.[plot]'"


def test_a_plot_that_fails_half_way_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(figure: object, path: Path, **options: object) -> None:
        path.write_bytes(b"half")
        raise OSError("disk full")

    target = tmp_path / "eval.png"
    target.write_bytes(b"old")
    monkeypatch.setattr(figure_module.Figure, "savefig", fail)
    with pytest.raises(OSError, match="disk full"):
        plot(EVALUATION, target)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("eval.png", b"old")]


def test_no_window_system_is_touched(tmp_path: Path) -> None:
    sys.modules.pop("matplotlib.pyplot", None)
    plot(EVALUATION, tmp_path / "eval.png")
    assert "matplotlib.pyplot" not in sys.modules
