"""An evaluation as one figure: speedup and BLEU side by side, and how many tokens emitted per iteration."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmt.errors import EngineError, InputError, UsageError
from specmt.evaluation.measuring import Evaluation, StrategyResult
from specmt.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")

# Colours that colour-blind readers can tell apart; greys for what is compared with.
_AR, _GREYS, _INK, _FAINT = "#9a9a9a", ("#c4c4c4", "#b0b0b0"), "#262626", "#6f6f6f"
_COLOURS = {"ar": _AR, "spec-strict": "#0072b2", "spec": "#e69f00"}
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _FAINT,
    "axes.labelcolor": _INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "xtick.color": _FAINT,
    "ytick.color": _FAINT,
    "ytick.labelcolor": _INK,
    "text.color": _INK,
    # The same bytes for the same evaluation.
    "svg.hashsalt": "specmt",
}


def check_plot(path: Path) -> None:
    """Whether a plot could be written to `path`; call it before the hour of measuring.

    Raises:
        UsageError: the suffix is not one of `SUFFIXES`.
        InputError: no such folder, or a folder itself.
        EngineError: matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: the name must end in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: no such folder: {path.parent}")
    if path.is_dir():
        raise InputError(f"--plot {path}: is a folder")
    if find_spec("matplotlib") is None:
        raise EngineError("plots need matplotlib: in the clone, pip install '.[plot]'")


def plot(evaluation: Evaluation, path: Path) -> None:
    """Draw an evaluation into a `.png` or `.svg` file, written whole or not at all.

    Raises:
        UsageError, InputError, EngineError: see `check_plot`.
    """
    check_plot(path)
    from matplotlib import rc_context

    file_format = path.suffix.lower()[1:]
    metadata = {"Date": None} if file_format == "svg" else None
    # Without pyplot, no window system is asked for and no global state is left behind.
    with rc_context(STYLE), atomic_path(path) as temporary:
        draw(evaluation).savefig(temporary, format=file_format, metadata=metadata)


def draw(evaluation: Evaluation) -> Figure:
    """The figure: speedup and BLEU of each strategy and, if any speculates, a histogram of emitted tokens."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        return _draw(evaluation)


def _draw(evaluation: Evaluation) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = evaluation.results
    speculative = [result for result in results if result.acceptance_rate is not None]
    widths = [1, 1, 1.5] if speculative else [1, 1]
    figure = Figure(figsize=(3.4 * sum(widths), 1.9 + 0.36 * max(len(results), 3)), dpi=160, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(widths), width_ratios=widths)
    _speedups(panels[0], results)
    _bleu(panels[1], results)
    if speculative:
        _emitted(panels[2], speculative)
    figure.supxlabel(_conditions(evaluation), fontsize=8, color=_FAINT)
    return figure


def _speedups(axes: Axes, results: Sequence[StrategyResult]) -> None:
    values = [result.speedup_vs_ar for result in results]
    below = [result.speedup_vs_ar - result.speedup_vs_ar_min for result in results]
    above = [result.speedup_vs_ar_max - result.speedup_vs_ar for result in results]
    _bars(axes, results, values, [f"{value:.2f}×" for value in values], ends=above)
    axes.errorbar(values, range(len(results)), xerr=[below, above], fmt="none", ecolor=_INK, elinewidth=1, capsize=2)
    axes.axvline(1, color=_FAINT, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
    axes.set(title="Speedup", xlabel="times as fast as ar (range of rounds)")


def _bleu(axes: Axes, results: Sequence[StrategyResult]) -> None:
    values = [result.bleu for result in results]
    _bars(axes, results, values, [f"{value:.1f}" for value in values], ends=[0.0] * len(values))
    axes.set(title="Quality", xlabel="BLEU (0–100)")
    axes.tick_params(axis="y", labelleft=False)


def _bars(
    axes: Axes, results: Sequence[StrategyResult], values: Sequence[float], labels: Sequence[str], ends: Sequence[float]
) -> None:
    """A bar a strategy, first on top, with its label `ends` beyond it."""
    widest = max(value + end for value, end in zip(values, ends, strict=True)) or 1
    axes.barh(range(len(results)), values, height=0.62, color=_colours(results))
    for row, (value, end, label) in enumerate(zip(values, ends, labels, strict=True)):
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(value + end + 0.04 * widest, row, label, va="center", fontweight="bold", bbox=box)
    axes.set_yticks(range(len(results)), [result.strategy for result in results])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.28 * widest)


def _emitted(axes: Axes, results: Sequence[StrategyResult]) -> None:
    from matplotlib.ticker import MaxNLocator

    longest = max(len(result.emitted_histogram) for result in results) - 1
    width = 0.8 / len(results)
    for place, (result, colour) in enumerate(zip(results, _colours(results), strict=True)):
        offset = (place - (len(results) - 1) / 2) * width
        counts = result.emitted_histogram[1:]
        at = [tokens + offset for tokens in range(1, len(counts) + 1)]
        shares = [100 * count / result.iterations for count in counts]
        axes.bar(at, shares, width=0.92 * width, color=colour, label=f"{result.strategy}: mean {_mean(result)}")
    axes.set(title="Emitted tokens", xlabel="tokens emitted per iteration", ylabel="share of iterations (%)")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    step = 1 + longest // 16
    axes.set_xticks(range(1, longest + 1, step))
    axes.tick_params(axis="x", length=0)
    axes.legend(frameon=False, loc="best", handlelength=1, handleheight=1)


def _mean(result: StrategyResult) -> str:
    return f"{result.mean_emitted_tokens:.2f}"


def _colours(results: Sequence[StrategyResult]) -> list[str]:
    others = [result.strategy for result in results if result.strategy not in _COLOURS]
    greys = {strategy: _GREYS[place % len(_GREYS)] for place, strategy in enumerate(others)}
    return [_COLOURS.get(result.strategy) or greys[result.strategy] for result in results]


def _conditions(evaluation: Evaluation) -> str:
    machine = evaluation.machine
    threads = "" if machine.threads is None else f", threads: {machine.threads}"
    return (
        f"{evaluation.lines} lines, batch size {evaluation.batch_size}, median of {evaluation.repeats} rounds · "
        f"{machine.engine}{threads} · {machine.cpu}"
    )
