"""What the `bench_*.py` scripts share: their options, results that survive an interruption, cores, spreads.

Each script measures one section and keeps it as `FOLDER/SECTION.json`, part by part: interrupted, it goes on where it
stopped; run again with the same settings, bundle, programs and machine, it measures nothing. `write_benchmarks.py`
turns the files into a document.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median
from typing import Any, NoReturn, TypeVar

from specmt.bundles.bundle import MANIFEST, load_bundle
from specmt.corpus import Pair, evenly_spread, read_parallel
from specmt.engines import native_library
from specmt.errors import SpecmtError, TrainingError
from specmt.files import file_digest, write_json
from specmt.machine import cpu_model, usable_cores

ROOT = Path(__file__).parent.parent
BUNDLED = ROOT / "specmt" / "models" / "de-en"
LANGUAGES = ("de", "en")
"""Of the test sets."""
CORPORA = {"Multi30k test2016": "multi30k.test2016", "Tatoeba test": "tatoeba.test", "newstest2021": "newstest2021"}
T = TypeVar("T")
_PACKAGES = ("specmt", "onnxruntime", "ctranslate2", "fairseq", "torch", "sentencepiece", "numpy", "openvino")


@dataclass(frozen=True)
class Options:
    """What every benchmark is told."""

    bundle: Path
    checkpoint: Path | None
    """The bundle's verifier as a fairseq checkpoint; None leaves out what needs it."""
    corpora: Path
    folder: Path
    quick: bool
    again: bool


def parser(description: str) -> argparse.ArgumentParser:
    """A parser with the options that all sections have; `options` reads them."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", type=Path, default=BUNDLED, help="the pair (default: the bundled one)")
    made.add_argument("--checkpoint", type=Path, help="the pair's verifier, for other tools (default: the bundle's)")
    made.add_argument("--corpora", type=Path, default=ROOT / "data" / "corpora")
    made.add_argument("--folder", type=Path, help="where results are kept (default: runs/bench, or the pair's own)")
    made.add_argument("--quick", action="store_true", help="few lines and rounds: to see that it runs")
    made.add_argument("--again", action="store_true", help="measure anew what has been measured")
    return made


def options(arguments: argparse.Namespace, native: bool = False) -> Options:
    """The shared options among parsed arguments; ends the program, before it writes, where something is missing.

    Args:
        native: whether the native engine is needed.
    """
    for path in filter(None, (arguments.bundle, arguments.checkpoint)):
        if not path.exists():
            sys.exit(f"{path}: no such file or folder")
    if (languages := load_bundle(arguments.bundle).languages) != LANGUAGES:
        sys.exit(f"{arguments.bundle} translates {' to '.join(languages)}; the test sets are German and English")
    for name in (f"{corpus}.{language}" for corpus in CORPORA.values() for language in LANGUAGES):
        if not (arguments.corpora / name).exists():
            sys.exit(f"{arguments.corpora / name}: no such file; `python scripts/fetch_corpora.py` gets the test sets")
    if native:
        native_library.build()
    arguments.folder = arguments.folder or folder_of(arguments.bundle)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    arguments.checkpoint = arguments.checkpoint or restored(arguments.bundle, arguments.folder)
    names = ("bundle", "checkpoint", "corpora", "folder", "quick", "again")
    return Options(**{name: getattr(arguments, name) for name in names})


def folder_of(bundle: Path) -> Path:
    """Where a pair's results are kept: the bundled one's in `runs/bench`, each other's in a folder of its own."""
    own, bundled = (file_digest(path / MANIFEST) for path in (bundle, BUNDLED))
    return ROOT / "runs" / ("bench" if own == bundled else f"bench-{own[:8]}")


def ended(main: Callable[[], int | None]) -> NoReturn:
    """Run a script and end with its exit code; what is the user's to mend is said in a line."""
    try:
        sys.exit(main())
    except SpecmtError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def restored(bundle: Path, folder: Path) -> Path | None:
    """A bundle's verifier as a checkpoint, its weights as they run; None without fairseq, or for another's model."""
    path = folder / "models" / f"verifier-{file_digest(bundle / MANIFEST)[:16]}.pt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            from specmt.fairseq_backend.restoring import write_verifier

            write_verifier(load_bundle(bundle), path)
        except (ImportError, TrainingError) as error:
            print(f"no checkpoint of {bundle}: {error}", file=sys.stderr)
            return None
    return path


class Results:
    """One section's measurements, kept part by part."""

    def __init__(self, options: Options, section: str, settings: dict[str, Any]) -> None:
        """Take up what stands in the file if it was measured with the same settings.

        Args:
            settings: what the measurements depend on; JSON values.
        """
        self._path = options.folder / f"{section}.json"
        self.parts: dict[str, Any] = {}
        self._conditions = conditions()
        machine = {"cpu": self._conditions["cpu"], "cores": usable_cores(), "versions": self._conditions["versions"]}
        digests = {**_digests(options), "scripts": _scripts_digest(section)}
        self._settings = {**settings, "quick": options.quick, **digests, **machine}
        if self._path.exists() and not options.again:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            if kept["settings"] == json.loads(json.dumps(self._settings)):
                self.parts, self._conditions = kept["parts"], kept["conditions"]

    def part(self, name: str, measure: Callable[[], Any]) -> Any:  # noqa: ANN401  (JSON)
        """The part `name`, measured if it has not been, and kept at once."""
        if name not in self.parts:
            print(f"{datetime.datetime.now():%H:%M:%S}  {self._path.stem}: {name}", file=sys.stderr, flush=True)
            self.parts[name] = measure()
            self.save()
        return self.parts[name]

    def save(self) -> None:
        """Write the file whole."""
        content = {"settings": self._settings, "conditions": self._conditions, "parts": self.parts}
        content["conditions"]["command"] = " ".join(["python", *sys.argv])
        write_json(self._path, content)


def _digests(options: Options) -> dict[str, str]:
    sources = sorted(path for kind in ("*.py", "*.cc", "*.h") for path in (ROOT / "specmt").rglob(kind))
    digests = {"specmt": _digest_of(sources), "bundle": file_digest(options.bundle / MANIFEST)}
    if options.checkpoint:
        digests["checkpoint"] = file_digest(options.checkpoint)
    return digests


def _scripts_digest(section: str) -> str:
    """Of the section's own script and what all share."""
    names = (f"bench_{section}.py", f"{section}.py", "benchmarking.py", "benchmark_systems.py", "peers.py")
    return _digest_of([path for name in names if (path := ROOT / "scripts" / name).exists()])


def _digest_of(paths: Iterable[Path]) -> str:
    return sha256("".join(file_digest(path) for path in paths).encode()).hexdigest()


def conditions() -> dict[str, Any]:
    """The machine, the versions, the day, and how busy the machine is before anything is measured."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "os": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
        "date": f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
        "versions": versions,
    }


def stat_seconds(stat: str) -> float:
    """User and system time of a line of `/proc/PID/stat`, whose second field is a name in parentheses."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def last_cores(count: int) -> list[int]:
    """`count` of the cores that this process may use, the last ones: the first serves most interrupts."""
    return sorted(os.sched_getaffinity(0))[-count:]


def corpus(options: Options, name: str, lines: int) -> list[Pair]:
    """Pairs of a test set, spread evenly over it; blank ones are left out."""
    start = options.corpora / CORPORA[name]
    pairs = [pair for pair in read_parallel(Path(f"{start}.de"), Path(f"{start}.en")) if pair.source.strip()]
    return evenly_spread(pairs, lines)


def rotated(items: Sequence[T], places: int) -> list[T]:
    """The items there, back, then from the next one on there, back: no one always goes first or after the same."""
    first = places // 2 % len(items)
    turned = [*items[first:], *items[:first]]
    return turned[::-1] if places % 2 else turned


def with_range(values: Sequence[float], digits: int = 1) -> str:
    """Median for a table, and the range where there is more than one value."""
    middle, low, high = (f"{value:.{digits}f}" for value in (median(values), min(values), max(values)))
    return f"{middle} ({low}–{high})" if len(values) > 1 else middle


# -- what was kept

Parts = Mapping[str, Any]


def core_counts(parts: Parts) -> list[int]:
    """Numbers of cores that were measured."""
    return sorted({int(found[1]) for name in parts if (found := re.match(r"(\d+) cores/", name))})


def rounds_of(parts: Parts, cores: int, corpus: str) -> dict[str, list[dict[str, Any]]]:
    """The rounds of each system on a test set, systems in the order of the first round."""
    found: dict[str, list[dict[str, Any]]] = {}
    pattern = re.compile(rf"{cores} cores/{re.escape(corpus)}/\d+/(.+)")
    for name, part in parts.items():
        if match := pattern.fullmatch(name):
            found.setdefault(match[1], []).append(part)
    return found


def timed_sizes(sections: Parts) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of the sizes of models whose passes were timed, and their times."""
    for name, part in sections["passes"]["parts"].items():
        if name.startswith("size/"):
            yield name.removeprefix("size/"), part


def timed_lengths(sections: Parts) -> list[int]:
    """Draft lengths at which they were."""
    return list(sections["passes"]["settings"]["draft_lengths"])
