"""Write `docs/sweep.md` and its figures from what `sweep.py` has kept.

Tables take the place of `{{NAME}}` in `docs/sweep.template.md`; what has not been measured is said so.

    python scripts/write_sweep.py [--bundle DIR] [--folder DIR] [--to DIR]
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarking import CORPORA, with_range
from sweep import BATCH_SIZES, BETAS, TAUS
from write_benchmarks import machine, parsed_options, substituted, table, write

from specmt.evaluation.plotting import STYLE
from specmt.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Section = Mapping[str, Any]
"""What `sweep.py` has kept: settings, conditions, parts."""
COLOURS = dict(zip(CORPORA, ("#0072b2", "#e69f00", "#009e73"), strict=True))
FIGURES = ("sweep-tokens.svg", "sweep-speed.svg")


# -- what stands in the parts


def on(section: Section, part: str) -> dict[str, Any]:
    """A part by test set, of those where it has been measured.

    Raises:
        KeyError: it has been measured nowhere.
    """
    found = {name: section["parts"][f"{name}/{part}"] for name in CORPORA if f"{name}/{part}" in section["parts"]}
    if not found:
        raise KeyError(part)
    return found


def by_number(section: Section, corpus: str, group: str) -> dict[int, Any]:
    """The parts of a test set that are named `GROUP/NUMBER`, smallest number first."""
    start = f"{corpus}/{group}/"
    found = {int(name.removeprefix(start)): part for name, part in section["parts"].items() if name.startswith(start)}
    return dict(sorted(found.items()))


def speedups(seconds: Mapping[str, Sequence[float]], name: str) -> list[float]:
    """Times as fast as `ar`, round by round."""
    return [ar / own for ar, own in zip(seconds["ar"], seconds[name], strict=True)]


def speedup(seconds: Mapping[str, Sequence[float]], name: str) -> str:
    """Median and range over rounds."""
    return with_range(speedups(seconds, name), 2)


def default_length(section: Section) -> int:
    """The pair's own draft length."""
    return int(section["settings"]["decoding"]["draft_length"])


def beside(columns: Iterable[str], corpora: Iterable[str]) -> list[str]:
    """A heading for each column of each test set."""
    columns = list(columns)
    return [f"{corpus}: {column}" for corpus in corpora for column in columns]


# -- tables


def defaults(section: Section) -> str:
    """How the pair decodes unless told otherwise, and in which engine."""
    decoding, engine = section["settings"]["decoding"], section["settings"]["engine"]
    return f"k = {decoding['draft_length']}, β = {decoding['beta']}, τ = {decoding['tau']:g}, engine `{engine}`"


def clock(section: Section) -> str:
    """What time is."""
    kinds = {"wall": "wall time", "cpu": "the processor's time, without what the process waited for (`--clock cpu`)"}
    return kinds[section["settings"]["clock"]]


def quality(section: Section) -> str:
    """A row a test set and strategy."""
    speed_of = {corpus: part["seconds"] for corpus, part in _if_measured(section, "speed").items()}
    rows = []
    for corpus, part in on(section, "quality").items():
        for name, found in part["strategies"].items():
            timed = speed_of.get(corpus, {})
            key = "β 1" if name == "strict" else name
            rows.append(
                [
                    *(corpus, name, f"{found['bleu']:.1f}", f"{found['chrf']:.1f}", f"{found['emitted']:.2f}"),
                    f"{found['acceptance_rate']:.2f}" if name in {"strict", "relaxed"} else "–",
                    f"{found['differing_from_ar']} of {part['lines']}",
                    speedup(timed, key) if key in timed else "–",
                ]
            )
    header = [
        "test set",
        "strategy",
        "BLEU",
        "chrF",
        "mean emitted tokens",
        "acceptance rate",
        "lines unlike `ar`",
        "× `ar`, batch 1",
    ]
    return table(header, rows)


def signatures(section: Section) -> str:
    """sacrebleu's signatures."""
    found = next(iter(on(section, "quality").values()))["strategies"]["ar"]
    return f"`{found['bleu_signature']}`, `{found['chrf_signature']}`"


def comparisons(section: Section) -> str:
    """A row a test set and pair of systems; the same pair the other way round is left out."""
    rows = []
    for corpus, part in on(section, "quality").items():
        shown: set[frozenset[str]] = set()
        for one in part["comparisons"]:
            names = frozenset((one["system"], one["baseline"]))
            if names in shown:
                continue
            shown.add(names)
            interval = f"{one['low']:+.2f} to {one['high']:+.2f}"
            pair = f"{one['system']} less {one['baseline']}"
            chance = "the same text" if one["p_value"] is None else f"{one['p_value']:.3f}"
            rows.append([corpus, pair, f"{one['delta']:+.2f}", interval, chance])
    return table(["test set", "difference", "BLEU", "95 % interval", "p"], rows)


def grid(section: Section) -> str:
    """A row a β and τ."""
    names = {"β 1": ["1", "–"]}
    names |= {f"β {beta}, τ {tau:g}": [str(beta), f"{tau:g}"] for beta in BETAS[1:] for tau in TAUS}
    corpora = list(on(section, "speed"))
    rows = []
    for name, row in names.items():
        for corpus in corpora:
            found, timed = section["parts"][f"{corpus}/grid/{name}"], section["parts"][f"{corpus}/speed"]["seconds"]
            row += [f"{found['bleu']:.1f}", f"{found['emitted']:.2f}", speedup(timed, name)]
        rows.append(row)
    return table(["β", "τ", *beside(("BLEU", "emitted", "× `ar`"), corpora)], rows)


def lengths(section: Section) -> str:
    """Two tables by draft length: what is emitted, and how fast that is."""
    corpora = list(on(section, "speed"))
    found = {corpus: by_number(section, corpus, "draft length") for corpus in corpora}
    emitted, times = [], []
    for length in found[corpora[0]]:
        emitted.append([str(length)])
        times.append([str(length)])
        for corpus in corpora:
            seconds = section["parts"][f"{corpus}/speed"]["seconds"]
            emitted[-1] += [f"{found[corpus][length][way]:.2f}" for way in ("strict", "relaxed")]
            times[-1] += [speedup(seconds, f"{way}, k {length}") for way in ("strict", "relaxed")]
    header = ["k", *beside(("strict", "relaxed"), corpora)]
    return f"Mean emitted tokens:\n\n{table(header, emitted)}\n\nTimes as fast as `ar`:\n\n{table(header, times)}"


def positions(section: Section) -> str:
    """A row per slot: the share of strict drafts, as long as the drafter makes them, that are accepted so far."""
    shares = {corpus: _longest(section, corpus)["acceptance_by_position"] for corpus in on(section, "speed")}
    slots = range(max(map(len, shares.values())))
    rows = [
        [str(slot + 1), *(f"{row[slot]:.2f}" if slot < len(row) else "–" for row in shares.values())] for slot in slots
    ]
    return table(["slot", *shares], rows)


def source_tokens(section: Section) -> str:
    """A row a class of lengths."""
    classes = {corpus: part["by_source_tokens"] for corpus, part in on(section, "quality").items()}
    names = sorted({(one["from"], one["to"] or 0) for found in classes.values() for one in found})
    rows = []
    for first, last in names:
        row = [f"{first} to {last}" if last else f"{first} and more"]
        for found in classes.values():
            one = next((one for one in found if one["from"] == first), None)
            row += [str(one["lines"]), f"{one['strict']:.2f}", f"{one['relaxed']:.2f}"] if one else ["0", "–", "–"]
        rows.append(row)
    return table(["source tokens", *beside(("lines", "strict", "relaxed"), classes)], rows)


def batches(section: Section) -> str:
    """A row a batch size."""
    corpora = list(on(section, f"batch size/{BATCH_SIZES[-1]}"))
    rows = []
    for size in BATCH_SIZES:
        row = [str(size)]
        for corpus in corpora:
            part = section["parts"][f"{corpus}/batch size/{size}"]
            times = [speedup(part["seconds"], name) for name in ("strict", "strict, best k", "relaxed")]
            row += [times[0], f"{times[1]}, k = {part['best']}", times[2]]
        rows.append(row)
    columns = (f"strict, k = {default_length(section)}", "strict, best k", "relaxed")
    return table(["batch size", *beside(columns, corpora)], rows)


def papers(section: Section) -> str:
    """The paper's figures beside ours, each with what it was measured on."""
    found, seconds = on(section, "quality"), {name: part["seconds"] for name, part in on(section, "speed").items()}
    large = {name: section["parts"][f"{name}/batch size/32"] for name in found}

    def emitted(strategy: str, count: str = "emitted") -> Iterator[str]:
        return (f"{part['strategies'][strategy][count]:.2f}" for part in found.values())

    def fastest(way: str) -> Iterator[str]:
        for timed in seconds.values():
            names = [name for name in timed if name.startswith(f"{way}, k ")]
            half = len(timed["ar"]) // 2  # of the rounds chooses, the other is what is told
            best = max(names, key=lambda name: median(speedups(timed, name)[:half]))
            yield f"{with_range(speedups(timed, best)[half:], 2)}, k = {best.rpartition(' ')[2]}"

    rows = [
        ["mean emitted tokens, strict", "", *emitted("strict")],
        ["– without end-of-sentence", "3.55, three sentences", *emitted("strict", "emitted_without_ends")],
        ["mean emitted tokens, relaxed", "", *emitted("relaxed")],
        ["– without end-of-sentence", "6.18, three sentences", *emitted("relaxed", "emitted_without_ends")],
        ["× `ar`, batch size 1, strict, best k", "about 3 ×", *fastest("strict")],
        ["× `ar`, batch size 1, relaxed, best k", "5.1 × en→de, 5.5 × de→en", *fastest("relaxed")],
        [
            "× `ar`, batch size 32, relaxed",
            "about 4.4 ×",
            *(speedup(part["seconds"], "relaxed") for part in large.values()),
        ],
    ]
    return table(["", "SpecDec, WMT14, on a GPU", *found], rows)


def _if_measured(section: Section, part: str) -> dict[str, Any]:
    try:
        return on(section, part)
    except KeyError:
        return {}


def _longest(section: Section, corpus: str) -> Any:  # noqa: ANN401  (JSON)
    found = by_number(section, corpus, "draft length")
    return found[max(found)]


# -- figures


def draw(section: Section, folder: Path) -> None:
    """Both figures: how many tokens are accepted, and how fast that is."""
    panels = {
        FIGURES[0]: (_draw_lengths, _draw_positions, _draw_source_tokens),
        FIGURES[1]: (_draw_speed, _draw_batches, _draw_grid),
    }
    for name, panel in panels.items():
        _draw(section, folder / name, panel)


def _draw(section: Section, path: Path, panels: Sequence[Callable[[Axes, Section], None]]) -> None:
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Letters stay letters, which keeps the file small.
    style = {**STYLE, "svg.fonttype": "none", "font.size": 9, "font.family": "DejaVu Sans"}
    with rc_context(style), atomic_path(path) as temporary:
        figure = Figure(figsize=(3.7 * len(panels), 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, panel in zip(figure.subplots(1, len(panels)), panels, strict=True):
            panel(axes, section)
        figure.savefig(temporary, format="svg", metadata={"Date": None})


def _draw_lengths(axes: Axes, section: Section) -> None:
    for corpus in on(section, "speed"):
        found = by_number(section, corpus, "draft length")
        for way, line in (("strict", "-"), ("relaxed", ":")):
            axes.plot(list(found), [part[way] for part in found.values()], line, color=COLOURS[corpus])
    axes.set(title="Emitted tokens by draft length", xlabel="k (dotted: relaxed)", ylabel="mean emitted tokens")


def _draw_positions(axes: Axes, section: Section) -> None:
    for corpus in on(section, "speed"):
        shares = _longest(section, corpus)["acceptance_by_position"]
        axes.plot(range(1, len(shares) + 1), shares, ".-", color=COLOURS[corpus], label=corpus)
    axes.legend(frameon=False)
    axes.set(title="Accepted drafts, strict", xlabel="slot, and all before it", ylabel="share of drafts", ylim=(0, 1))


def _draw_source_tokens(axes: Axes, section: Section) -> None:
    for corpus, part in on(section, "quality").items():
        found = [one for one in part["by_source_tokens"] if one["lines"] >= 10]
        middles = [((one["from"] + one["to"]) / 2 if one["to"] else one["from"] + 5) for one in found]
        axes.plot(middles, [one["strict"] for one in found], ".-", color=COLOURS[corpus])
        axes.plot(middles, [one["relaxed"] for one in found], ":", color=COLOURS[corpus])
    axes.set(title="Emitted tokens by source", xlabel="source tokens (dotted: relaxed)", ylabel="mean emitted tokens")


def _draw_speed(axes: Axes, section: Section) -> None:
    for corpus, part in on(section, "speed").items():
        found = list(by_number(section, corpus, "draft length"))
        _with_ranges(axes, found, [speedups(part["seconds"], f"strict, k {k}") for k in found], corpus)
    axes.set(title="Strict by draft length, batch size 1", xlabel="k", ylabel="times as fast as ar")
    axes.legend(frameon=False)


def _draw_batches(axes: Axes, section: Section) -> None:
    for corpus in on(section, f"batch size/{BATCH_SIZES[-1]}"):
        found = by_number(section, corpus, "batch size")
        _with_ranges(
            axes, list(found), [speedups(part["seconds"], "strict, best k") for part in found.values()], corpus
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(BATCH_SIZES, [str(size) for size in BATCH_SIZES])
    axes.set(title="Strict by batch size, best k", xlabel="batch size", ylabel="times as fast as ar")


def _with_ranges(axes: Axes, places: Sequence[int], rounds: Sequence[Sequence[float]], corpus: str) -> None:
    """Medians as a line, the range of rounds around it."""
    middles = [median(values) for values in rounds]
    axes.plot(places, middles, ".-", color=COLOURS[corpus], label=corpus)
    axes.fill_between(
        places, list(map(min, rounds)), list(map(max, rounds)), color=COLOURS[corpus], alpha=0.15, linewidth=0
    )
    axes.axhline(1, color="#6f6f6f", linewidth=0.6, linestyle=":")


def _draw_grid(axes: Axes, section: Section) -> None:
    for corpus in on(section, "speed"):
        strict = section["parts"][f"{corpus}/grid/β 1"]
        for beta, marker in zip(BETAS[1:], "o^s", strict=True):
            found = [section["parts"][f"{corpus}/grid/β {beta}, τ {tau:g}"] for tau in TAUS]
            gains = [part["emitted"] - strict["emitted"] for part in found]
            losses = [part["bleu"] - strict["bleu"] for part in found]
            axes.plot(gains, losses, marker=marker, markersize=3.5, linewidth=0.7, color=COLOURS[corpus])
    axes.set(
        title="Relaxed against strict",
        xlabel="more emitted tokens (β: ○ 2, △ 3, □ 5)",
        ylabel="BLEU less strict's",
    )


# -- the document

TABLES: dict[str, Callable[[Section], str]] = {
    "defaults": defaults,
    "clock": clock,
    "quality": quality,
    "signatures": signatures,
    "comparisons": comparisons,
    "grid": grid,
    "lengths": lengths,
    "positions": positions,
    "source_tokens": source_tokens,
    "batches": batches,
    "papers": papers,
    "machine": lambda section: machine({"sweep": section}),
}


def filled(template: str, section: Section) -> str:
    """The template with its tables; where measuring was interrupted, what is missing is said so."""
    return substituted(template, lambda name: TABLES[name](section))


def main() -> None:
    """Read, fill, draw."""
    options = parsed_options(__doc__)
    section = json.loads((options.folder / "sweep.json").read_text(encoding="utf-8"))
    draw(section, options.to)
    write("sweep", lambda template: filled(template, section), options.to)


if __name__ == "__main__":
    main()
