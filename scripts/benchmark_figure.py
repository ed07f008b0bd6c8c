"""The figure of `docs/benchmarks.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from benchmarking import CORPORA, Parts, rounds_of, timed_lengths, timed_sizes

from specmt.files import atomic_path


def draw(sections: Parts, path: Path) -> None:
    """Latency of the systems on each test set, and time a token by mean emitted tokens for each size."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context({**style, "svg.hashsalt": "specmt"}), atomic_path(path) as temporary:
        sizes = list(timed_sizes(sections)) if "passes" in sections else []
        figure = Figure(figsize=(11, 3.2 * (1 + bool(sizes))), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(1 + bool(sizes), 3, squeeze=False)
        if "systems" in sections:
            for axes, corpus in zip(grid[0], CORPORA, strict=True):
                _draw_latency(axes, sections["systems"]["parts"], corpus)
        for axes, (name, part) in zip(grid[-1] if sizes else [], sizes, strict=False):
            _draw_tokens(axes, name, part, timed_lengths(sections))
        figure.savefig(temporary, format="svg", metadata={"Date": None})


def _draw_latency(axes: Any, parts: Parts, corpus: str) -> None:  # noqa: ANN401  (matplotlib)
    rounds = rounds_of(parts, 1, corpus)
    fast = {name: runs for name, runs in rounds.items() if "torch" not in name and "fairseq" not in name}
    means = [[fmean(run["marks"]) for run in runs] for runs in fast.values()]
    middles = [median(values) for values in means]
    spans = [[median(v) - min(v) for v in means], [max(v) - median(v) for v in means]]
    colours = ["#e69f00" if name.startswith("specmt spec") else "#9a9a9a" for name in fast]
    axes.barh(range(len(fast)), middles, xerr=spans, color=colours, error_kw={"elinewidth": 1, "capsize": 2})
    axes.set_yticks(range(len(fast)), list(fast))
    axes.invert_yaxis()
    axes.set_title(f"{corpus}, batch size 1", loc="left")
    axes.set_xlabel("ms per sentence, one core")


def _draw_tokens(axes: Any, name: str, part: Mapping[str, Any], lengths: Sequence[int]) -> None:  # noqa: ANN401
    ours, theirs = part["ours"], part["CTranslate2"]["1"]
    for length in [length for length in lengths if length in {3, 6, 10, 25}]:
        emitted = np.linspace(1, length + 1, 50)
        axes.plot(emitted, ours[f"both {length}"] / emitted, label=f"k = {length}")
    axes.axhline(ours["step"], color="#262626", linewidth=0.8, linestyle=":", label="our step")
    if theirs:
        axes.axhline(theirs["step"], color="#9a9a9a", linewidth=0.8, linestyle="--", label="CTranslate2's step")
    axes.set_xlim(1, 12)
    axes.set_ylim(0)
    axes.set_title(name, loc="left")
    axes.set_xlabel("mean emitted tokens")
    axes.set_ylabel("ms per token, without encoder")
    axes.legend(frameon=False)
