"""What pays in the drafter? Variants, each trained for the same time of the processor, and what they emit.

    python scripts/ablate_drafter.py [--run DIR] [--seconds 60] [--lines 200] [--only NAME ...]

Every variant is trained anew on the same distilled data for the same verifier, those of a finished run. Twenty updates
are timed first; the budget over the time of an update gives the number of updates, over which the learning rate
rises and falls. Then the pair is exported and counted on validation lines with the native engine: mean emitted tokens,
strict. At last all variants translate the same lines in turn, for the processor's time a sentence, and the passes of
drafters of other shapes are timed, trained or not: how much more they have to emit to pay.

A finished variant is a file NAME.json in the folder, and is not measured again for the same seconds, lines and run; a
table is of what there is. Run it on one core that is yours:
`taskset 2 python scripts/ablate_drafter.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from bench_passes import calibration_text, random_weights, sentences
from benchmarking import ROOT
from drafter_study import VARIANTS, Study, Variant, train
from measure_tree import CORPORA, READ_TOKENS, SOURCE_TOKENS, timed
from sweep import blocks, race, translating
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import RANGES, WEIGHTS, load_bundle
from specmt.bundles.tensors import TARGET_POSITIONS, VERIFIER_OUTPUT, ids_name
from specmt.bundles.weights import dequantised, load_weights, read_stored, save_weights
from specmt.corpus import evenly_spread
from specmt.engines.base import AnyEngine
from specmt.engines.calibration import calibrate
from specmt.engines.native_engine import NativeEngine
from specmt.engines.torch_engine import TorchEngine
from specmt.engines.torch_networks import Networks
from specmt.engines.torch_rows import TorchRows
from specmt.exporting import calibration_sources
from specmt.fairseq_backend import checkpoints
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.training.config import load_config
from specmt.translator import Translator

DRAFT_LENGTHS = (4, 8)
TIMED_LINES, ROUNDS, COST_ROUNDS = 100, 5, 20
BLOCK = 20
BATCH_SIZE = 32
FINISHED = "as the run trained it"
SHAPES: dict[str, dict[str, Any]] = {
    "base": {},
    "layers-2": {"drafter_layers": 2},
    "layers-3": {"drafter_layers": 3},
    "bigram-rank-8": {"bigram_rank": 8},
    "bigram-rank-16": {"bigram_rank": 16},
    "bigram-rank-128": {"bigram_rank": 128},
    "all-tokens": {"draft_vocabulary_size": 0},
}
"""Drafters that cost another time, by what differs from the run's own."""


# -- the trained pair


class OverTokens(Networks):
    """The networks with a drafter that sees the prefix as tokens."""

    _ids: Tensor
    """What the verifier read last."""

    def decoder(self, rows: TorchRows, ids: Tensor, positions: Tensor, mask: Tensor | None, read: int) -> Tensor:
        """See `Networks.decoder`."""
        self._ids = ids
        return super().decoder(rows, ids, positions, mask, read)

    def cache_prefix(self, rows: TorchRows, states: Tensor, positions: Tensor) -> None:
        """See `Networks.cache_prefix`."""
        tokens = self.scaled_embeddings[self._ids] + self.position_rows(TARGET_POSITIONS, 0)[positions]
        super().cache_prefix(rows, tokens, positions)


class OverTokensEngine(TorchEngine):
    """The reference engine over them."""

    def __init__(self, architecture: Architecture, weights: Mapping[str, Tensor]) -> None:
        super().__init__(architecture, weights)
        self._networks = OverTokens(architecture, weights)


def export(study: Study, drafter: Path, folder: Path) -> Architecture:
    """Write a pair's weights and ranges to a folder: the run's verifier and a drafter's checkpoint."""
    verifier, own = checkpoints.load(study.verifier()), checkpoints.load(drafter)
    bundle = load_bundle(study.run / "bundle")
    weights, architecture = checkpoints.limit_targets(
        checkpoints.bundle_weights(verifier["model"], own["model"]),
        checkpoints.pair_architecture(verifier, own),
        load_weights(bundle)[ids_name(VERIFIER_OUTPUT)].astype(np.int64),
    )
    save_weights(weights, folder / WEIGHTS)
    lines = [pair.source for name in CORPORA for pair in study.pairs(name)]
    stored = dequantised(read_stored(folder / WEIGHTS, architecture))
    ranges = calibrate(architecture, stored, calibration_sources(bundle.vocabulary(), lines)).ranges
    write_json(folder / RANGES, ranges)
    return architecture


def translator_of(study: Study, architecture: Architecture, folder: Path, engine: str) -> Translator:
    """A translator that runs an exported pair."""
    made: AnyEngine
    if engine == "native":
        made = NativeEngine(architecture, folder)
    else:
        import torch

        torch.set_num_threads(1)
        stored = dequantised(read_stored(folder / WEIGHTS, architecture))
        weights = {name: torch.from_numpy(array) for name, array in stored.items()}
        made = (OverTokensEngine if engine == "tokens" else TorchEngine)(architecture, weights)
    like = load_translator(study.run / "bundle")
    return Translator(made, like.vocabulary, like.defaults, splitting=like.splitting)


def emitted(study: Study, translator: Translator) -> dict[str, dict[str, float]]:
    """Mean emitted tokens, strict, by draft length and file."""
    strict = DecodingSettings.from_defaults(translator.defaults).strict()
    found: dict[str, dict[str, float]] = {}
    for length in (length for length in DRAFT_LENGTHS if length <= translator.engine.max_draft_length):
        counts: dict[str, list[int]] = {}
        for name in CORPORA:
            lines = [pair.source for pair in study.pairs(name)]
            done = translator.translate(lines, replace(strict, draft_length=length), BATCH_SIZE)
            counts[name] = [len(iteration.emitted) for translation in done for iteration in translation.iterations]
        found[str(length)] = {"all": fmean(one for some in counts.values() for one in some)}
        found[str(length)] |= {name: fmean(some) for name, some in counts.items()}
    return found


def measure(study: Study, variant: Variant, seconds: float) -> dict[str, Any]:
    """Train a variant, export it, and count."""
    trained = train(study, variant, seconds)
    return {"variant": asdict(variant), "seconds": seconds * variant.share, **trained, **counted(study, variant)}


def counted(study: Study, variant: Variant) -> dict[str, Any]:
    """Export a trained variant and count what it emits, in the reference engine too where it is compared there."""
    folder = study.folder / variant.name
    architecture = export(study, folder / "drafter.pt", folder)
    counts = emitted(study, translator_of(study, architecture, folder, variant.engine))
    found: dict[str, Any] = {"architecture": asdict(architecture), "emitted": counts}
    if variant.name == "base":
        found["emitted_in_torch"] = emitted(study, translator_of(study, architecture, folder, "torch"))
    return found


def finished(study: Study) -> dict[str, Any]:
    """The run's own drafter, as it was trained, in the place of a variant."""
    folder = study.folder / FINISHED
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(study.run / "drafter" / "drafter.pt", folder / "drafter.pt")
    own = Variant(FINISHED, same_slots=False)
    updates = load_config(study.config, []).drafter.optimizer.max_updates
    return {"variant": asdict(own), "updates": updates, **counted(study, own)}


# -- time


def times(study: Study, rows: Mapping[str, Mapping[str, Any]], lines: Sequence[str]) -> dict[str, Any]:
    """Processor milliseconds per sentence of every variant that the native engine runs, all in turn; medians of rounds.

    Args:
        rows: what was measured of each variant, by its name.
    """
    runs: dict[str, Callable[[Sequence[str]], object]] = {}
    for name, row in rows.items():
        if row["variant"]["engine"] != "native":
            continue
        translator = translator_of(study, Architecture(**row["architecture"]), study.folder / name, "native")
        strict = DecodingSettings.from_defaults(translator.defaults).strict()
        for length in row["emitted"]:
            runs[f"{name}/{length}"] = translating(translator, replace(strict, draft_length=int(length)), 1)
        if name == "base":
            runs["ar"] = translating(translator, replace(strict, strategy="ar"), 1)
    seconds = race(runs, blocks(lines, BLOCK), ROUNDS, time.process_time)
    return {name: [1e3 * taken / len(lines) for taken in some] for name, some in seconds.items()}


def untrained(architecture: Architecture, folder: Path) -> NativeEngine:
    """A native engine with random weights, which cost what trained ones do; written to the folder."""
    folder.mkdir()
    save_weights(random_weights(architecture), folder / WEIGHTS)
    stored = dequantised(read_stored(folder / WEIGHTS, architecture))
    write_json(folder / RANGES, calibrate(architecture, stored, calibration_text(architecture)).ranges)
    return NativeEngine(architecture, folder)


def costs(architecture: Architecture, rounds: int) -> dict[str, dict[str, float]]:
    """Processor milliseconds of the encoder, a step and iterations in the native engine, of drafters by their shape.

    The passes of all shapes take turns.
    """
    calls: dict[str, Callable[[], object]] = {}
    last, read = np.full(1, 7), np.full((1, READ_TOKENS), 9)
    with TemporaryDirectory() as name:
        for shape, changes in SHAPES.items():
            changed = replace(architecture, **changes)
            engine, sources = untrained(changed, Path(name) / shape), sentences(changed, 1, SOURCE_TOKENS)
            rows = engine.encode(sources)
            engine.draft(rows, last, 1)
            engine.verify(rows, read, 1)
            engine.commit(rows, np.full(1, READ_TOKENS))
            calls[f"{shape}/encode"] = partial(engine.encode, sources)
            calls[f"{shape}/step"] = partial(engine.verify, rows, last[:, None], 1)
            for length in DRAFT_LENGTHS:
                calls[f"{shape}/{length}"] = partial(engine.draft_and_verify, rows, last, length, 1)
        milliseconds = timed(calls, rounds)
    found: dict[str, dict[str, float]] = {shape: {} for shape in SHAPES}
    for place, taken in milliseconds.items():
        shape, _, call = place.rpartition("/")
        found[shape][call] = taken
    return found


# -- tables


def cost_table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Milliseconds of an iteration by shape, and how many times the base's tokens it has to emit to be as fast.

    The drafter's part of the encoder's pass, the source's keys and values, is left out.
    """
    base = found["base"]
    header = [f"iteration, k = {length}, ms | emitted × to pay" for length in DRAFT_LENGTHS]
    lines = [f"| drafter | {' | '.join(header)} |", f"| --- |{' --- | --- |' * len(DRAFT_LENGTHS)}"]
    for shape, taken in found.items():
        pairs = [(taken[str(length)], taken[str(length)] / base[str(length)]) for length in DRAFT_LENGTHS]
        lines.append(f"| {shape} | {' | '.join(f'{one:.3f} | {ratio:.2f}' for one, ratio in pairs)} |")
    return lines


def table(rows: Mapping[str, Mapping[str, Any]], milliseconds: Mapping[str, Sequence[float]]) -> list[str]:
    """A Markdown table of the variants, in their order."""
    header = ["variant", "updates", "s an update", "validation loss"]
    header += [f"emitted, k = {length}" for length in DRAFT_LENGTHS]
    header += [f"ms per sentence, k = {length}" for length in DRAFT_LENGTHS]
    lines = [f"| {' | '.join(header)} |", f"| {' | '.join('---' for _ in header)} |"]
    for name, row in rows.items():
        known = row.get("valid_loss") is not None and row["variant"]["same_slots"]
        cells = [name, str(row.get("updates", "–")), _number(row.get("seconds_an_update"), 3)]
        cells += [_number(row["valid_loss"] if known else None, 3)]
        cells += [_number(row["emitted"].get(str(length), {}).get("all"), 2) for length in DRAFT_LENGTHS]
        timed = [milliseconds.get(f"{name}/{length}") for length in DRAFT_LENGTHS]
        cells += [_number(median(some) if some else None, 2) for some in timed]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def log_fit(updates: Sequence[float], means: Sequence[float]) -> tuple[float, float]:
    """Least squares of `mean = intercept + slope · log2(updates)`: intercept and slope, the gain of a doubling."""
    slope, intercept = np.polyfit(np.log2(updates), means, 1)
    return float(intercept), float(slope)


def curve(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Emitted tokens of the base and the run's own drafter by updates, and the line through them."""
    same = {one.name for one in VARIANTS if replace(one, name="", share=1.0) == Variant("")} | {FINISHED}
    points = [row for name, row in rows.items() if name in same]
    lines = []
    for length in map(str, DRAFT_LENGTHS):
        by_updates = sorted((row["updates"], row["emitted"][length]["all"]) for row in points)
        intercept, slope = log_fit(*zip(*by_updates, strict=True))
        said = ", ".join(f"{updates}: {mean:.2f}" for updates, mean in by_updates)
        lines.append(f"k = {length}: {said}; {intercept:.3f} + {slope:.3f} · log2(updates)")
    return lines


def main() -> None:
    """Measure every variant that has not been, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=ROOT / "runs" / "narrow-de-en", help="a finished run")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "narrow-de-en.yaml", help="its configuration")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "ablations", help="where results are kept")
    parser.add_argument("--seconds", type=float, default=60, help="processor time of each training (default: 60)")
    parser.add_argument("--lines", type=int, default=200, help="of each validation file (default: 200)")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in VARIANTS], help="train these, print no table")
    parser.add_argument("--tables", action="store_true", help="train nothing; print what there is")
    arguments = parser.parse_args()
    study = Study(arguments.config, arguments.run, arguments.folder, arguments.lines)
    study.folder.mkdir(parents=True, exist_ok=True)
    about = study.about(arguments.seconds)
    rows: dict[str, dict[str, Any]] = {}
    for variant in VARIANTS:
        path = study.folder / f"{variant.name}.json"
        wanted = not arguments.tables and (arguments.only is None or variant.name in arguments.only)
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if wanted and kept.get("about") != about:
            print(f"{time.strftime('%H:%M:%S')}  {variant.name}", file=sys.stderr, flush=True)
            kept = {"about": about, **measure(study, variant, arguments.seconds)}
            write_json(path, kept)
        if kept:
            rows[variant.name] = kept
    if arguments.only:
        return
    rows[FINISHED] = finished(study)
    lines = [pair.source for name in CORPORA for pair in evenly_spread(study.pairs(name), TIMED_LINES // len(CORPORA))]
    milliseconds = times(study, rows, lines)
    passes = costs(load_bundle(study.run / "bundle").architecture, COST_ROUNDS)
    write_json(study.folder / "milliseconds.json", {"sentences": milliseconds, "passes": passes})
    print(
        "\n".join(
            [
                *table(rows, milliseconds),
                f"ar: {median(milliseconds['ar']):.2f} ms per sentence",
                *cost_table(passes),
                *curve(rows),
            ]
        )
    )


if __name__ == "__main__":
    main()
