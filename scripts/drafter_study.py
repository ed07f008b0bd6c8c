"""Variants of the drafter, and how one is trained for a given time of the processor: for `ablate_drafter.py`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarking import ROOT, stat_seconds

from specmt.bundles.bundle import MANIFEST, load_bundle
from specmt.corpus import Pair, evenly_spread, keep_pair, read_corpus
from specmt.fairseq_backend import binarise, checkpoints, driver
from specmt.files import file_digest, write_json
from specmt.training.config import Config, SampleConfig, load_config

VARIANTS_FOLDER = Path(__file__).parent / "drafter_variants"
WITHOUT_BIGRAM, OVER_TOKENS = "specmt_drafter_without_bigram", "specmt_drafter_over_tokens"
TIMED_BETWEEN = (10, 30)
"""Updates between which an update is timed."""


@dataclass(frozen=True)
class Variant:
    """How a drafter differs from the run's own."""

    name: str
    changes: tuple[str, ...] = ()
    """Of the configuration, `key=value`."""
    arch: str = "specmt_drafter"
    references: bool = False
    """Whether it learns from references, not from the verifier's translations."""
    share: float = 1.0
    """Of the budget."""
    costs_as_base: bool = True
    """Whether an update takes as long as one of the base, so that it need not be timed."""
    same_slots: bool = True
    """Whether the validation loss is over the same slots as the base's, so that the two can be compared."""
    engine: str = "native"
    """That counts what it emits: native, torch (the reference), or tokens (the same, for a drafter over tokens)."""


VARIANTS = (
    Variant("base"),
    Variant("layers-2", ("drafter.layers=2",), costs_as_base=False),
    Variant("no-bigram", ("drafter.bigram_rank=8",), arch=WITHOUT_BIGRAM),
    Variant("references", references=True),
    Variant("base-seed-2", ("runtime.seed=2",)),
    Variant("glancing", ("drafter.glancing_start=0.5", "drafter.glancing_end=0.3"), costs_as_base=False),
    Variant("all-tokens", ("drafter.vocabulary_size=0",), costs_as_base=False, same_slots=False),
    Variant("blocks-1", ("drafter.blocks=1",), costs_as_base=False, same_slots=False),
    Variant("blocks-6", ("drafter.blocks=6",), costs_as_base=False, same_slots=False),
    Variant("over-tokens", arch=OVER_TOKENS, engine="tokens"),
    Variant("draft-length-6", ("drafter.draft_length=6",), costs_as_base=False, same_slots=False),
    Variant("draft-length-16", ("drafter.draft_length=16",), costs_as_base=False, same_slots=False),
    Variant("bigram-rank-16", ("drafter.bigram_rank=16",)),
    Variant("bigram-rank-128", ("drafter.bigram_rank=128",), costs_as_base=False),
    Variant("dropout-0.1", ("drafter.dropout=0.1",)),
    Variant("layers-3", ("drafter.layers=3",), costs_as_base=False),
    Variant("base-quarter", share=0.25),
    Variant("base-half", share=0.5),
    Variant("base-twice", share=2.0),
    Variant("no-smoothing", ("drafter.label_smoothing=0",)),
)


@dataclass(frozen=True)
class Study:
    """A finished run, whose verifier and distilled data all variants have, and where results go."""

    config: Path
    run: Path
    folder: Path
    lines: int

    def settings(self, variant: Variant, updates: int) -> Config:
        """The variant's configuration, with a schedule that ends after so many updates."""
        schedule = {
            "max_updates": updates,
            "warmup_updates": updates // 10,
            "checkpoint_updates": updates,
            "average_checkpoints": 1,
        }
        overrides = [f"drafter.optimizer.{key}={value}" for key, value in schedule.items()]
        return load_config(self.config, [*variant.changes, *overrides, "export.draft_length=4"])

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target."""
        data = load_config(self.config, []).data
        return data.source_language, data.target_language

    def verifier(self) -> Path:
        """The run's finished verifier."""
        refined = self.run / "refine" / "verifier.pt"
        return refined if refined.exists() else self.run / "verifier" / "verifier.pt"

    def run_digest(self) -> str:
        """Of the run's finished bundle."""
        return file_digest(self.run / "bundle" / MANIFEST)

    def about(self, seconds: float) -> dict[str, Any]:
        """What a result depends on, by which it is known again: the time of a training, lines, the run."""
        return {"seconds": seconds, "lines": self.lines, "run": self.run_digest()}

    def pairs(self, name: str) -> list[Pair]:
        """Validation lines, spread evenly over a file."""
        folder = ROOT / load_config(self.config, []).data.folder
        return evenly_spread(read_corpus(folder / name, *self.languages), self.lines)


# -- training


@dataclass
class Watch:
    """Hears of a training run's progress, with the trainer's processor time at each line that it logs."""

    stop_after: int = sys.maxsize
    """Updates after which the trainer is stopped."""
    seconds: dict[int, float] = field(default_factory=dict)
    """By update."""
    valid_loss: float | None = None
    """Of the last validation, bits per slot."""

    def __call__(self, progress: driver.Progress) -> None:
        """Note a line; raises `EnoughSeenError` where the trainer is to be stopped."""
        if progress.valid_loss is not None:
            self.valid_loss = progress.valid_loss
            return
        self.seconds[progress.update] = children_seconds()
        if progress.update >= self.stop_after:
            raise EnoughSeenError


class EnoughSeenError(Exception):
    """The trainer has shown what was asked of it."""


def children_seconds() -> float:
    """Processor time that this process's children have had so far (Linux)."""
    pids = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return sum(stat_seconds(Path(f"/proc/{pid}/stat").read_text()) for pid in pids)


def trainer_arguments(study: Study, variant: Variant, updates: int, data: Path, checkpoints_folder: Path) -> list[str]:
    """What fairseq is told."""
    config = study.settings(variant, updates)
    output_ids = study.run / "drafter" / "output_ids.json" if config.drafter.vocabulary_size else None
    arguments = driver.drafter_arguments(config, data, study.verifier(), checkpoints_folder, output_ids, None)
    return [*arguments, "--user-dir", str(VARIANTS_FOLDER.resolve()), "--arch", variant.arch]


def seconds_an_update(study: Study, variant: Variant, folder: Path) -> float:
    """Processor time of an update, from the first few of a long run; kept in the folder, for the study's run."""
    path, run = folder / "seconds.json", study.run_digest()
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if isinstance(kept, dict) and kept["run"] == run:
        return float(kept["seconds"])
    watch = Watch(stop_after=TIMED_BETWEEN[1])
    arguments = trainer_arguments(study, variant, 10_000, study.run / "distil", folder / "checkpoints")
    with suppress(EnoughSeenError):
        driver.run([*arguments, "--log-interval", str(TIMED_BETWEEN[0])], 1, folder / "train.log", watch)
    first, last = TIMED_BETWEEN
    seconds = (watch.seconds[last] - watch.seconds[first]) / (last - first)
    write_json(path, {"run": run, "seconds": seconds})
    return seconds


def train(study: Study, variant: Variant, seconds: float) -> dict[str, Any]:
    """Train a variant into `FOLDER/NAME/drafter.pt`; how that went."""
    folder = study.folder / variant.name
    shutil.rmtree(folder, ignore_errors=True)
    data = references(study) if variant.references else study.run / "distil"
    timed = VARIANTS[0] if variant.costs_as_base else variant
    cost = seconds_an_update(study, timed, study.folder / "probes" / timed.name)
    updates = round(seconds * variant.share / cost)
    watch = Watch()
    arguments = trainer_arguments(study, variant, updates, data, folder / "checkpoints")
    driver.run(arguments, 1, folder / "train.log", watch)
    last = checkpoints.last_checkpoints(folder / "checkpoints", 1)
    checkpoints.write_average(last, folder / "drafter.pt")
    shutil.rmtree(folder / "checkpoints")
    return {"updates": updates, "seconds_an_update": cost, "valid_loss": watch.valid_loss}


def references(study: Study) -> Path:
    """The distilled sources with their references, binarised; validation stays the verifier's translations."""
    folder, run = study.folder / "references-data", study.run_digest()
    done = folder / "done"
    if done.exists() and done.read_text(encoding="utf-8") == run:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    config, languages = load_config(study.config, []), study.languages
    vocabulary = load_bundle(study.run / "bundle").vocabulary()
    binarise.write_dictionary(vocabulary, folder, languages)
    pairs: list[tuple[list[int], list[int]]] = []
    for entry in config.data.train:
        sample = config.distillation.sample.get(entry.path, SampleConfig(repeat=entry.repeat))
        read = read_corpus(ROOT / config.data.folder / entry.path, *languages, entry.swapped)[: entry.limit or None]
        encoded = [
            (vocabulary.encode(pair.source), vocabulary.encode(pair.target)) for pair in read[: sample.limit or None]
        ]
        data = config.data
        pairs += [
            (source, target)
            for source, target in encoded
            if keep_pair(len(source), len(target), data.max_tokens, data.max_length_ratio)
        ] * sample.repeat
    binarise.write_split(folder, "train", languages, pairs, len(vocabulary))
    for path in (study.run / "distil").glob("valid.*"):
        shutil.copyfile(path, folder / path.name)
    done.write_text(run, encoding="utf-8")
    return folder
