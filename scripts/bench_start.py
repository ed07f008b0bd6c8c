"""Cold start, memory and installed size of specmt, CTranslate2 and fairseq.

Cold start: one line through a new process, from its start to its exit; in turn, over rounds. Peak memory: the largest
resident set of that process, and of one that translates a test set. Installed size (`--installed-size`, minutes, needs
a package index): what `pip install` adds to a new virtual environment.

    python scripts/bench_start.py [--checkpoint FILE] [--bundle DIR] [--installed-size [--torch-index URL]] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import benchmarking
import peers
from benchmark_systems import FAIRSEQ_PROGRAM
from benchmarking import ROOT, Options, Results, last_cores, rotated

from specmt.bundles.bundle import load_bundle

LINE = "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.\n"
THEIR_PROGRAM = """
import sys, ctranslate2, sentencepiece
model, tokenizer, beam = sys.argv[1:]
translator = ctranslate2.Translator(model, compute_type="int8", inter_threads=1, intra_threads=1)
pieces = sentencepiece.SentencePieceProcessor(tokenizer)
lines = [pieces.encode(line.strip(), out_type=str) for line in sys.stdin]
for result in translator.translate_batch(lines, beam_size=int(beam), max_batch_size=32):
    print(pieces.decode(result.hypotheses[0]))
"""


# A process's peak counts from the fork, when it is still a copy of its parent: the parent must be small.
LAUNCHER = """
import json, os, sys, time
result, cores, *command = sys.argv[1:]
os.sched_setaffinity(0, json.loads(cores))
begun = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawn(command[0], command, os.environ), 0)
seconds = time.perf_counter() - begun
with open(result, "w") as stream:
    json.dump({"seconds": seconds, "peak_mib": usage.ru_maxrss / 1024}, stream)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@dataclass(frozen=True)
class Process:
    """How a process went."""

    seconds: float
    peak_mib: float
    """Largest resident set."""


def programs(options: Options, models: peers.Peers | None) -> dict[str, list[str]]:
    """Command lines that translate standard input."""
    bundle = str(options.bundle)
    found = {
        "specmt": [sys.executable, "-m", "specmt", "translate", "-m", bundle, "--threads", "1"],
        "specmt --strategy ar": [
            *(sys.executable, "-m", "specmt", "translate", "-m", bundle, "--threads", "1", "--strategy", "ar")
        ],
        "python, nothing imported": [sys.executable, "-c", "import sys; print(sys.stdin.read())"],
    }
    if models:
        tokenizer = str(peers.tokenizer_path(options.bundle))
        found["CTranslate2 greedy"] = [sys.executable, "-c", THEIR_PROGRAM, str(models.converted), tokenizer, "1"]
        found["fairseq-interactive greedy"] = [
            *(sys.executable, "-c", FAIRSEQ_PROGRAM, str(models.data), "--path", str(models.checkpoint), "--cpu"),
            *("--task", "translation", "--source-lang", "de", "--target-lang", "en", "--beam", "1"),
            *("--bpe", "sentencepiece", "--sentencepiece-model", tokenizer),
            *("--max-len-a", "2", "--max-len-b", "10", "--buffer-size", "1000", "--batch-size", "32"),
        ]
    return found


def run(command: Sequence[str], text: str, cores: Sequence[int]) -> Process:
    """Run a command on some cores, from start to exit."""
    # Compiled modules are kept, as those are that pip installed: the first run, which does not count, compiles them.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = {
        **kept,
        "OMP_NUM_THREADS": str(len(cores)),
        "PYTHONPATH": str(ROOT),
        "PYTHONWARNINGS": "ignore",
    }
    with tempfile.TemporaryDirectory() as folder:
        source, target, result = (Path(folder) / name for name in ("source", "target", "result"))
        source.write_text(text, encoding="utf-8")
        launcher = [sys.executable, "-S", "-E", "-c", LAUNCHER, str(result), json.dumps(list(cores)), *command]
        with source.open("rb") as stdin, target.open("wb") as stdout:
            subprocess.run(launcher, stdin=stdin, stdout=stdout, env=environment, check=True)
        if not target.read_text(encoding="utf-8").strip():
            raise RuntimeError(f"{command}: no output")
        return Process(**json.loads(result.read_text()))


def cold_starts(commands: dict[str, list[str]], rounds: int, cores: Sequence[int]) -> dict[str, Any]:
    """Seconds of each round, and the largest peak; the first round, which fills the file cache, does not count."""
    found: dict[str, Any] = {name: {"seconds": [], "peak_mib": 0.0} for name in commands}
    for number in range(rounds + 1):
        for name in rotated(list(commands), number):
            done = run(commands[name], LINE, cores)
            if number:
                found[name]["seconds"].append(done.seconds)
                found[name]["peak_mib"] = max(found[name]["peak_mib"], done.peak_mib)
    return found


def streams(options: Options, commands: dict[str, list[str]], cores: Sequence[int]) -> dict[str, Any]:
    """Seconds and peak of a whole test set, process start to exit."""
    pairs = benchmarking.corpus(options, "Multi30k test2016", 50 if options.quick else 1000)
    text = "".join(f"{pair.source}\n" for pair in pairs)
    found = {}
    for name, command in commands.items():
        done = run(command, text, cores)
        found[name] = {"seconds": done.seconds, "peak_mib": done.peak_mib, "lines": len(pairs)}
    return found


# -- installed size

_RECIPES = {
    "specmt (translation)": [[str(ROOT)]],
    "CTranslate2 and SentencePiece": [["ctranslate2", "sentencepiece"]],
    "specmt[train] and fairseq (CPU build of torch)": [[f"{ROOT}[train]"], ["--no-deps", "fairseq==0.12.2"]],
}


def installed_size(recipe: list[list[str]], torch_index: str) -> dict[str, float]:
    """MiB that pip adds to a new virtual environment, and packages."""
    always = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
    if torch_index:
        always += ["--extra-index-url", torch_index]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        before, packages = _size(folder), _packages(folder)
        for arguments in recipe:
            command = [f"{folder}/bin/python", "-m", "pip", "install", *always, *arguments]
            subprocess.run(command, check=True, stdout=sys.stderr)
        return {"mib": (_size(folder) - before) / 2**20, "packages": _packages(folder) - packages}


def _size(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file() and not path.is_symlink())


def _packages(folder: str) -> int:
    return len(list(Path(folder).glob("lib/python*/site-packages/*.dist-info")))


def main() -> None:
    """Measure, and keep what was measured."""
    parser: argparse.ArgumentParser = benchmarking.parser(str(__doc__))
    parser.add_argument("--installed-size", action="store_true", help="also install everything into new environments")
    parser.add_argument(
        "--torch-index",
        default="https://download.pytorch.org/whl/cpu",
        help="where pip may also look for torch; '' for nowhere else",
    )
    arguments = parser.parse_args()
    options = benchmarking.options(arguments)
    models = None
    if options.checkpoint:
        models = peers.prepared(load_bundle(options.bundle), options.checkpoint, options.folder)
    cores = last_cores(1)
    results = Results(options, "start", {"line": LINE})
    commands = programs(options, models)
    results.part("cold start", partial(cold_starts, commands, 3 if options.quick else 15, cores))
    results.part("streams", partial(streams, options, commands, cores))
    if arguments.installed_size:
        for name, recipe in _RECIPES.items():
            results.part(f"installed size/{name}", partial(installed_size, recipe, arguments.torch_index))


if __name__ == "__main__":
    benchmarking.ended(main)
