"""Do the same sentences give the same bytes, whatever they are batched with?

    python scripts/check_reproducible.py FILE... [--lines N] [--engines native,onnx,torch-fp32,torch-bf16,dynamic-int8]
        [--strategies ar,replay,spec,spec-reproducible] [--batch-sizes 1,3,8,32,64] [--orders 3] [--in-flight both]

Every strategy translates every file at every batch size, in the file's order and in shuffled orders, with new sentences
entering while others are decoded and without. A line changes when a combination gives it other bytes than the first
combination does; its score changes when the log-probability does, be it in the last bit. Prints a Markdown table and an
example for each row in which a line changes; exits with 1 where what is promised does not hold.

`dynamic-int8` is the torch engine with stock dynamic quantisation: one activation scale for a whole batch.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from specmt.corpus import evenly_spread
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text_files import read_lines
from specmt.translator import Translator

BUNDLED = Path(__file__).parent.parent / "specmt" / "models" / "de-en"
PROMISED = ("replay", "spec-reproducible")


class DynamicInt8(TorchFunctionMode):
    """Runs every product with a weight as `torch.ao.nn.quantized.dynamic.Linear` does, in int8."""

    def __init__(self) -> None:
        super().__init__()
        self._packed: dict[int, object] = {}

    def __torch_function__(
        self,
        function: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if function is not torch.nn.functional.linear:
            return function(*args, **(kwargs or {}))
        x, weight, bias = (*args, None)[:3]
        key = weight.data_ptr()
        if key not in self._packed:
            scale = weight.abs().amax(dim=1).clamp(min=1e-8) / 127
            zeros = torch.zeros(len(weight), dtype=torch.int64)
            quantised = torch.quantize_per_channel(weight, scale.double(), zeros, 0, torch.qint8)
            self._packed[key] = torch.ops.quantized.linear_prepack(quantised, bias)
        return torch.ops.quantized.linear_dynamic(x.contiguous(), self._packed[key], reduce_range=True)


@dataclass
class Variation:
    """What came out of a file in all combinations: each line's first result, and those that differ from it."""

    first: list[tuple[str, float]] = field(default_factory=list)
    others: dict[int, tuple[str, str]] = field(default_factory=dict)
    """For a line that changes, another result and the combination that gave it."""
    scores: set[int] = field(default_factory=set)
    """Lines whose score changes."""
    runs: int = 0
    replays: int = 0
    mismatches: int = 0
    recomputed: int = 0
    tokens: int = 0


def settings_of(strategy: str, translator: Translator, window: int, group: int) -> DecodingSettings:
    """The settings that a strategy's name stands for."""
    settings = replace(DecodingSettings.relaxed(translator.defaults), replay_window=window, replay_group=group)
    return {
        "ar": replace(settings, strategy="ar"),
        "replay": replace(settings, strategy="replay"),
        "spec": settings,
        "spec-reproducible": replace(settings, reproducible=True),
    }[strategy]


def orders(count: int, number: int) -> Iterator[tuple[str, list[int]]]:
    """The order of the file, and `number` shuffles of it."""
    yield "in order", list(range(count))
    for seed in range(1, number + 1):
        shuffled = list(range(count))
        random.Random(seed).shuffle(shuffled)
        yield f"shuffle {seed}", shuffled


def vary(
    translator: Translator,
    lines: Sequence[str],
    settings: DecodingSettings,
    batch_sizes: Sequence[int],
    shuffles: int,
    in_flight: Sequence[bool],
) -> Variation:
    """Translate in every combination."""
    found = Variation()
    for batch_size, flying, (order, places) in product(batch_sizes, in_flight, list(orders(len(lines), shuffles))):
        chosen = replace(settings, in_flight=flying)
        results: list[tuple[str, float]] = [("", 0.0)] * len(lines)
        shuffled = [lines[place] for place in places]
        # One chunk, so that all lines may meet.
        for translation in translator.translate_chunks([shuffled], chosen, batch_size):
            results[places[translation.index]] = (translation.text, translation.score)
            found.tokens += len(translation.ids)
            if translation.replay:
                found.replays += translation.replay.replays
                found.mismatches += translation.replay.mismatches
                found.recomputed += translation.replay.recomputed
        found.runs += 1
        found.first = found.first or results
        for line, (result, first) in enumerate(zip(results, found.first, strict=True)):
            if result[1] != first[1]:
                found.scores.add(line)
            if result[0] != first[0]:
                where = f"batch size {batch_size}, {order}, in-flight batching {'on' if flying else 'off'}"
                found.others.setdefault(line, (result[0], where))
    return found


def load(engine: str, model: Path, threads: int) -> Translator:
    """An engine by the name that the table has for it."""
    if engine in {"native", "onnx"}:
        return load_translator(model, threads=threads, engine=engine)
    precision = "bf16" if engine == "torch-bf16" else "fp32"
    return load_translator(model, "cpu", precision, threads, "torch")


def _table_row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Vary, print, and tell by the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="text to translate")
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--engines", default="native")
    parser.add_argument("--strategies", default="ar,replay,spec-reproducible")
    parser.add_argument("--batch-sizes", default="1,3,8,32,64")
    parser.add_argument("--orders", type=int, default=3, help="shuffles, besides the file's order")
    parser.add_argument("--in-flight", choices=["on", "off", "both"], default="both")
    parser.add_argument("--lines", type=int, default=0, help="so many of each file, evenly spread; 0: all")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--replay-window", type=int, default=DecodingSettings.replay_window)
    parser.add_argument("--replay-group", type=int, default=DecodingSettings.replay_group)
    arguments = parser.parse_args()
    in_flight = {"on": [True], "off": [False], "both": [True, False]}[arguments.in_flight]
    broken, examples = False, []
    columns = ("engine", "strategy", "file", "lines", "runs", "lines that change", "scores that change", "replays")
    print(_table_row(*columns, "mismatches", "recomputed", "seconds"))
    print(_table_row(*["---"] * 11))
    for engine in arguments.engines.split(","):
        translator = load(engine, arguments.model, arguments.threads)
        for strategy, path in product(arguments.strategies.split(","), arguments.files):
            lines = read_lines(path)
            lines = evenly_spread(lines, arguments.lines or len(lines))
            begun = time.perf_counter()
            run = (
                translator,
                lines,
                settings_of(strategy, translator, arguments.replay_window, arguments.replay_group),
                [int(size) for size in arguments.batch_sizes.split(",")],
                arguments.orders,
                in_flight,
            )
            if engine == "dynamic-int8":
                with DynamicInt8():
                    found = vary(*run)
            else:
                found = vary(*run)
            share = 100 * found.recomputed / max(found.tokens, 1)
            changes = (len(found.others), len(found.scores), found.replays, found.mismatches)
            recomputed = f"{found.recomputed} ({share:.2f} %)"
            seconds = f"{time.perf_counter() - begun:.0f}"
            print(
                _table_row(engine, strategy, path.name, len(lines), found.runs, *changes, recomputed, seconds),
                flush=True,
            )
            for line, (text, where) in list(found.others.items())[:1]:
                examples.append(
                    f"{engine}, {strategy}, {path.name}\n  source  {lines[line]}\n"
                    f"  first   {found.first[line][0]}\n  other   {text}\n          ({where})"
                )
            broken |= bool(found.others or found.scores) and strategy in PROMISED
    print("\n" + "\n".join(examples))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
