"""Write `docs/benchmarks.md` and its figure from what the `bench_*.py` scripts have kept.

Tables take the place of `{{NAME}}` in `docs/benchmarks.template.md`; what has not been measured is said so.

    python scripts/write_benchmarks.py [--bundle DIR] [--folder DIR] [--to DIR]

It takes the options of those scripts, of which the bundle and the folder matter: another pair's document is written
into its folder.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import benchmarking
import numpy as np
from benchmark_figure import draw
from benchmarking import (
    BUNDLED,
    CORPORA,
    ROOT,
    Parts,
    core_counts,
    folder_of,
    rounds_of,
    timed_lengths,
    timed_sizes,
    with_range,
)

from specmt.bundles.bundle import MANIFEST
from specmt.files import atomic_path

PEER = "CTranslate2 int8 greedy"
SECTIONS = ("systems", "passes", "limit", "start")
NOT_MEASURED = "*Not measured.*"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# -- systems


def latency_rows(parts: Parts, cores: int) -> Iterator[list[str]]:
    """A row a test set and system."""
    for corpus in CORPORA:
        rounds = {name: runs for name, runs in rounds_of(parts, cores, corpus).items() if runs[0]["marks"]}
        for name, runs in rounds.items():
            marks = np.median([run["marks"] for run in runs], axis=0)
            means = [fmean(run["marks"]) for run in runs]
            p50, p95 = np.percentile(marks, [50, 95]).tolist()
            yield [
                corpus,
                name,
                with_range(means),
                f"{p50:.1f}",
                f"{p95:.1f}",
                f"{runs[0]['bleu']:.1f}",
                _ratio(rounds.get(PEER), runs, _latency_ratio),
            ]


def throughput_rows(parts: Parts) -> Iterator[list[str]]:
    """A row a number of cores, test set and system."""
    for cores in core_counts(parts):
        for corpus in CORPORA:
            rounds = rounds_of(parts, cores, corpus)
            for name, runs in rounds.items():
                speeds = [run["sentences"] / run["stream_seconds"] for run in runs]
                ratio = _ratio(rounds.get(PEER), runs, _stream_ratio)
                yield [str(cores), corpus, name, with_range(speeds), f"{runs[0]['bleu']:.1f}", ratio]


def _latency_ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> float:
    """Of mean times, over the lines that both translated: a slow system translates every so many of the peer's."""
    shared = theirs["marks"][:: max(1, len(theirs["marks"]) // len(ours["marks"]))]
    return fmean(shared) / fmean(ours["marks"])


def _stream_ratio(theirs: dict[str, Any], ours: dict[str, Any]) -> float:
    return float(theirs["stream_seconds"] / ours["stream_seconds"])


def _ratio(
    peer: Sequence[dict[str, Any]] | None,
    runs: Sequence[dict[str, Any]],
    ratio: Callable[[dict[str, Any], dict[str, Any]], float],
) -> str:
    """The peer's time over this one's, round by round."""
    if not peer:
        return "–"
    return with_range([ratio(theirs, ours) for theirs, ours in zip(peer, runs, strict=False)], 2)


def latency(sections: Parts) -> str:
    """The table on one core, and on more for the one test set that is measured there."""
    parts = sections["systems"]["parts"]
    header = ["test set", "system", "mean ms", "p50", "p95", "BLEU", "× CTranslate2 greedy"]
    texts = []
    for cores in core_counts(parts):
        heading = [] if cores == 1 else [f"On {cores} cores:", ""]
        texts.append("\n".join([*heading, table(header, latency_rows(parts, cores))]))
    return "\n\n".join(texts)


def over_ar(sections: Parts) -> str:
    """Speculation beside `ar` of the same engine, one sentence at a time."""
    parts, rows = sections["systems"]["parts"], []
    for corpus in CORPORA:
        rounds = rounds_of(parts, 1, corpus)
        if plain := rounds.get("specmt ar"):
            pairs = [rounds.get(name, []) for name in ("specmt spec-strict", "specmt spec")]
            rows.append([corpus, *(_ratio(plain, runs, _latency_ratio) for runs in pairs)])
    return table(["test set", "spec-strict × ar", "spec × ar"], rows)


def throughput(sections: Parts) -> str:
    """The table for all numbers of cores."""
    header = ["cores", "test set", "system", "sentences/s", "BLEU", "× CTranslate2 greedy"]
    return table(header, throughput_rows(sections["systems"]["parts"]))


def choices(sections: Parts) -> str:
    """How each system was run."""
    rows = []
    for name, part in sections["systems"]["parts"].items():
        if match := re.fullmatch(r"(\d+) cores/choice/(.+)", name):
            notes = part["notes"]
            rows.append([match[1], match[2], notes["stream"], notes["latency"] or "–"])
    return table(["cores", "system", "stream", "latency"], rows)


def weights(sections: Parts) -> str:
    """What shows that all run the same verifier."""
    shown = sections["systems"]["parts"]["same weights"]
    steps = f"no farther than {shown['farthest_in_steps']:.2f} steps of their row's 8-bit integers (0.5 is rounding)"
    apart = steps if shown["farthest_in_steps"] else "the very numbers"
    return (
        f"The checkpoint that the other tools get has the bundle's weights, {apart}. CTranslate2 in float32, converted "
        f"from it, and our torch engine in float32 give the same greedy tokens on {shown['same_tokens']} of "
        f"{shown['lines']} lines."
    )


# -- passes


def passes(sections: Parts) -> str:
    """A table a size: by draft length, draft, verify, both, and from how many emitted tokens an iteration pays."""
    texts = []
    for size, part in timed_sizes(sections):
        ours, theirs = part["ours"], part["CTranslate2"]["1"]
        step = ours["step"]
        about = f"encoder {ours['encode']:.2f} ms, step {step:.3f} ms"
        if theirs:
            beam = part["CTranslate2"]["5"]["step"]
            said = "" if part.get("vocabulary_map") else ", all pieces scored"
            about += (
                f"; CTranslate2{said}: encoder {theirs['encode']:.2f}, step {theirs['step']:.3f}, of beam 5 {beam:.3f}"
            )
        rows = [
            [
                str(length),
                *(f"{ours[f'{name} {length}']:.3f}" for name in ("draft", "verify", "both")),
                f"{ours[f'both {length}'] / step:.2f}",
                f"{ours[f'both {length}'] / theirs['step']:.2f}" if theirs else "–",
            ]
            for length in timed_lengths(sections)
        ]
        header = ["k", "draft", "verify", "iteration", "break-even: our step", "CTranslate2's step"]
        texts.append(f"**{size}** – {about}.\n\n{table(header, rows)}")
    return "\n\n".join(texts)


def expected(sections: Parts) -> str:
    """For each size and test set, the draft length that is fastest by the table, and the time of a sentence."""
    rows = []
    for size, part in timed_sizes(sections):
        ours, theirs = part["ours"], part["CTranslate2"]
        for corpus, emission in sections["passes"]["parts"]["emitted tokens"].items():
            means = emission["by_draft_length"]
            known = [length for length in timed_lengths(sections) if length <= len(means)]
            best = min(known, key=lambda length: ours[f"both {length}"] / means[length - 1])
            tokens = emission["target_tokens"]
            time = ours["encode"] + tokens / means[best - 1] * ours[f"both {best}"]
            others = [theirs[beam] and theirs[beam]["encode"] + tokens * theirs[beam]["step"] for beam in ("1", "5")]
            ar = ours["encode"] + tokens * ours["step"]
            rows.append(
                [
                    *(size, corpus, f"{tokens:.1f}", str(best), f"{means[best - 1]:.2f}", f"{time:.1f}"),
                    *(f"{ar:.1f} ({ar / time:.2f} ×)",),
                    *(f"{other:.1f} ({other / time:.2f} ×)" if other else "–" for other in others),
                ]
            )
    header = ["size", "emitted tokens of", "tokens", "k", "emitted", "strict, ms", "ar", "CTranslate2 greedy", "beam 5"]
    return table(header, rows)


# -- limit, profile


def limit(sections: Parts) -> str:
    """Measured over limit."""
    rows = []
    for name, part in sections["limit"]["parts"].items():
        if name.startswith("limit/"):
            _, corpus, way = name.split("/")
            length = "–" if way == "ar" else str(part["draft_length"])
            times = [f"{part[key]:.2f}" for key in ("measured", "limit")]
            rows.append(
                [corpus, way, length, f"{part['emitted']:.2f}", *times, f"{part['measured'] / part['limit']:.2f}"]
            )
    return table(["test set", "strategy", "k", "emitted tokens", "measured ms", "limit ms", "measured / limit"], rows)


def profile(sections: Parts) -> str:
    """Milliseconds a sentence by part."""
    names = (
        "tokenise",
        "encode",
        "iterations",
        "draft and verify",
        "draft",
        "verify",
        "bookkeeping",
        "detokenise",
        "total",
    )
    rows = []
    for name, part in sections["limit"]["parts"].items():
        if name.startswith("profile/"):
            _, corpus, batch_size, way = name.split("/")
            rows.append([corpus, batch_size, way, *(f"{part[key]:.2f}" if key in part else "–" for key in names)])
    return table(["test set", "batch", "strategy", *names], rows)


# -- start


def start(sections: Parts) -> str:
    """Cold start and memory."""
    parts = sections["start"]["parts"]
    rows = []
    for name, part in parts["cold start"].items():
        stream = parts["streams"][name]
        memory = [f"{part['peak_mib']:.0f}", f"{stream['peak_mib']:.0f}"]
        rows.append([name, with_range(part["seconds"], 2), *memory, f"{stream['seconds']:.1f}"])
    return table(["", "one line, s", "peak, MiB", "a test set: peak, MiB", "start to exit, s"], rows)


def size(sections: Parts) -> str:
    """Installed sizes."""
    rows = [
        [name.removeprefix("installed size/"), f"{part['mib']:.0f}", str(part["packages"])]
        for name, part in sections["start"]["parts"].items()
        if name.startswith("installed size/")
    ]
    return table(["", "MiB installed", "packages"], rows) if rows else NOT_MEASURED


def machine(sections: Parts) -> str:
    """The machine of each section, once where it is the same."""
    about: dict[str, list[str]] = {}
    for name, section in sections.items():
        where = section["conditions"]
        versions = ", ".join(f"{package} {version}" for package, version in where["versions"].items())
        quick = " **A quick run: figures only show that it runs.**" if section["settings"]["quick"] else ""
        text = (
            f"{where['cores']} cores of {where['cpu']}, {where['memory_gib']} GiB, {where['os']}, "
            f"Python {where['python']}; {versions}.{quick}"
        )
        begun = f"`{where['command']}` ({where['date']}, load average {where['load_average']} before it)"
        about.setdefault(text, []).append(f"- {name}: {begun}")
    return "\n\n".join(f"{text}\n\n" + "\n".join(commands) for text, commands in about.items())


def sampling(sections: Parts) -> str:
    """How much text was timed, and how often."""
    of = sections["systems"]["settings"]["sampling"]
    return (
        f"Rounds: {of['rounds']}. Lines: {of['lines']:,} of each set, evenly spread, for latency "
        f"{of['latency_lines']} of them; settings are chosen on {of['choosing_lines']} of the first set."
    )


NEEDS: dict[str, tuple[str, Callable[[Parts], str]]] = {
    "sampling": ("systems", sampling),
    "latency": ("systems", latency),
    "over_ar": ("systems", over_ar),
    "throughput": ("systems", throughput),
    "choices": ("systems", choices),
    "weights": ("systems", weights),
    "passes": ("passes", passes),
    "expected": ("passes", expected),
    "limit": ("limit", limit),
    "profile": ("limit", profile),
    "start": ("start", start),
    "size": ("start", size),
}


def filled(template: str, sections: Parts) -> str:
    """The template with its tables. A section whose measuring was interrupted may lack what a table needs."""

    def text(name: str) -> str:
        if name == "machine":
            return machine(sections) or NOT_MEASURED
        section, make = NEEDS[name]
        return make(sections) if section in sections else NOT_MEASURED

    return substituted(template, text)


def substituted(template: str, text: Callable[[str], str]) -> str:
    """The template with `text(NAME)` in the place of `{{NAME}}`, or that it is not measured where a key is missing."""

    def known(match: re.Match[str]) -> str:
        try:
            return text(match[1])
        except KeyError:
            return NOT_MEASURED

    return re.sub(r"\{\{(\w+)\}\}", known, template)


def parsed_options(description: str | None) -> argparse.Namespace:
    """`folder`, with what was measured, and `to`, for the document and its figures."""
    parser = benchmarking.parser(description or "")
    parser.add_argument("--to", type=Path, help="folder of the document and its figures (default: docs, or the pair's)")
    options = parser.parse_args()
    if not (options.bundle / MANIFEST).exists():
        sys.exit(f"{options.bundle}: no such bundle")
    own = folder_of(options.bundle)
    options.folder = options.folder or own
    options.to = options.to or (ROOT / "docs" if own == folder_of(BUNDLED) else options.folder)
    return options


def kept(folder: Path) -> dict[str, Any]:
    """The sections that were measured; ends the program where they are of different bundles."""
    files = {name: folder / f"{name}.json" for name in SECTIONS}
    sections = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in files.items() if path.exists()}
    bundles = {name: section["settings"]["bundle"][:8] for name, section in sections.items()}
    if len(set(bundles.values())) > 1:
        measured = ", ".join(f"{name} of {bundle}" for name, bundle in bundles.items())
        sys.exit(f"{folder}: measured of different bundles ({measured}); run the scripts again")
    return sections


def write(name: str, fill: Callable[[str], str], folder: Path) -> None:
    """Fill `docs/NAME.template.md`, write `NAME.md` into a folder, and say where it is."""
    template = (ROOT / "docs" / f"{name}.template.md").read_text(encoding="utf-8")
    with atomic_path(folder / f"{name}.md") as temporary:
        temporary.write_text(fill(template), encoding="utf-8")
    print(folder / f"{name}.md")


def main() -> None:
    """Read, fill, draw."""
    options = parsed_options(__doc__)
    sections = kept(options.folder)
    draw(sections, options.to / "benchmarks.svg")
    write("benchmarks", lambda template: filled(template, sections), options.to)


if __name__ == "__main__":
    main()
