"""The training pipeline: tokenizer, binarise, verifier, refine (where asked), distil, drafter, export, evaluate.

Each stage is resumable.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from specmt import __version__, shortlist
from specmt.architecture import Architecture
from specmt.bundle import (
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    Bundle,
    DecodingDefaults,
    check_destination,
    is_bundle,
    load_bundle,
    write_bundle,
)
from specmt.config import Config, CorpusConfig, OptimizerConfig, SampleConfig, Samples
from specmt.corpus import evenly_spread
from specmt.distillation import Decoding, translate_in_shards
from specmt.earlier import TARGET_COUNTS, Earlier
from specmt.engines.base import IntArray
from specmt.errors import BundleError, TrainingError, UsageError
from specmt.evaluation import evaluate
from specmt.exporting import calibration_sources, copy_files, write_cpu_files
from specmt.fairseq_backend import checkpoints, driver
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.machine import package_versions
from specmt.stages import Stage, exclusive, move_aside
from specmt.training_data import Encoded, TrainingData, shards_of
from specmt.translator import Translator
from specmt.tuning import counted_emission
from specmt.vocabulary import Vocabulary
from specmt.weights import save_weights

EVALUATED_LINES = 400
"""Validation lines that the short evaluation at the end of training decodes."""
_RECORDED_PACKAGES = ("torch", "fairseq", "sentencepiece")


@dataclass(frozen=True)
class Reporter:
    """Where a run tells what it does: `announce` a line; `progress` of a stage, whose last update comes first."""

    announce: Callable[[str], None]
    progress: Callable[[str, int, driver.Progress], None]


class Pipeline:
    """The stages of one configuration. Each keeps its files in a folder of its own under `config.output`."""

    def __init__(self, config: Config, reporter: Reporter) -> None:
        self.config = config
        self.reporter = reporter
        self.data = TrainingData(config, reporter.announce)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        config = self.config
        data, numerics = config.data, (config.runtime.seed, config.runtime.bf16)
        tokenizer = self._stage(
            "tokenizer",
            self._train_tokenizer,
            (TOKENIZER,),
            (config.tokenizer, self.data.languages, [(entry.skip, entry.limit, entry.swapped) for entry in data.train]),
            inputs=[*self.data.files(data.train), *self._earlier_files("tokenizer")],
        )
        corpora = [*data.train, *data.valid]
        binarised = self._stage(
            "binarise",
            self._binarise,
            [*self.data.binarised_files(), TARGET_COUNTS],
            (
                *(data.max_tokens, data.max_length_ratio, len(data.train)),
                [(entry.skip, entry.limit, entry.repeat, entry.swapped) for entry in corpora],
            ),
            inputs=[*self.data.files(corpora), *self._earlier_files("binarise")],
            needs=(tokenizer,),
        )
        verifier = self._stage(
            "verifier",
            self._train_verifier,
            ("verifier.pt",),
            (config.verifier, *numerics),
            inputs=self._earlier_files("verifier"),
            needs=(binarised,),
        )
        refined = self._stage(
            "refine", self._refine, ("verifier.pt",), (config.refinement, *numerics), needs=(verifier,)
        )
        refinement = (refined,) if config.refinement else ()
        distilled = self._stage(
            "distil",
            self._distil,
            self.data.binarised_files(),
            (config.distillation, *numerics),
            needs=refinement or (verifier,),
        )
        drafter = self._stage(
            "drafter",
            self._train_drafter,
            ("drafter.pt",),
            (config.drafter, *numerics),
            inputs=self._earlier_files("drafter"),
            needs=(distilled,),
        )
        without_scores = self._folder("export") / "bundle"
        outputs, settings = [f"bundle/{name}" for name in (MANIFEST, TOKENIZER, WEIGHTS)], (config.export, config.name)
        exported = self._stage("export", self._export, outputs, settings, needs=(drafter,), bundle=without_scores)
        outputs = ["evaluation.json", f"../{self.bundle.name}/{MANIFEST}"]  # with scores, it stands beside the stages
        evaluated = self._stage("evaluate", self._evaluate, outputs, needs=(exported,), bundle=self.bundle)
        return tokenizer, binarised, verifier, *refinement, distilled, drafter, exported, evaluated

    def run(self, only: str | None = None, restart: bool = False) -> Path:
        """Complete all stages in their order, or the one named; where the finished bundle is, or what the stage wrote.

        Raises:
            UsageError: no stage of that name.
            TrainingError: a stage failed, an earlier one is not done, another run works in the same folder, or there
                is nothing to go on from.
            InputError: a corpus cannot be read.
        """
        names = [stage.name for stage in self.stages]
        if only is not None and only not in names:
            raise UsageError(f"--stage {only}: expected one of {', '.join(names)}")
        check_destination(self.bundle)
        self.data.check()
        if self._earlier:
            self._earlier.check(self.config.verifier)
            if (pair := self._earlier.languages) and pair != self.data.languages:
                self.reporter.announce(f"start_from: {self.config.start_from} translates {' to '.join(pair)}")
        with exclusive(Path(self.config.output)):
            for stage in self.stages:
                if only in {None, stage.name}:
                    self._complete(stage, restart)
        return self.bundle if only in {None, "evaluate"} else self._folder(str(only))

    def _complete(self, stage: Stage, restart: bool) -> None:
        for needed in stage.needs:
            if not needed.is_done():
                why = f"which is not done, or what it read has changed since: run {needed.name} first, or all stages"
                raise TrainingError(f"stage {stage.name} needs stage {needed.name}, {why}")
        stage.complete(self.reporter.announce, restart)

    @property
    def bundle(self) -> Path:
        """Where the finished bundle is."""
        return Path(self.config.output) / "bundle"

    def _stage(
        self,
        name: str,
        run: Callable[[], None],
        outputs: Iterable[str],
        settings: tuple[Any, ...] = (),
        inputs: Iterable[Path] = (),
        needs: tuple[Stage, ...] = (),
        bundle: Path | None = None,
    ) -> Stage:
        intact = partial(is_bundle, bundle) if bundle else lambda: True
        return Stage(name, self._folder(name), settings, tuple(inputs), needs, tuple(outputs), run, intact)

    def _folder(self, stage: str) -> Path:
        return Path(self.config.output) / stage

    @cached_property
    def _earlier(self) -> Earlier | None:
        return Earlier(Path(self.config.start_from)) if self.config.start_from else None

    def _earlier_files(self, stage: str) -> tuple[Path, ...]:
        return self._earlier.files(stage) if self._earlier else ()

    @property
    def _verifier(self) -> Path:
        """The finished verifier's checkpoint."""
        return self._folder("refine" if self.config.refinement else "verifier") / "verifier.pt"

    @property
    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary((self._folder("tokenizer") / TOKENIZER).read_bytes())

    # -- stages

    def _train_tokenizer(self) -> None:
        folder = self._folder("tokenizer")
        if self._earlier:
            self._earlier.write_tokenizer(folder / TOKENIZER, self.config.tokenizer)
        else:
            self.data.train_tokenizer(folder)

    def _binarise(self) -> None:
        folder = self._folder("binarise")
        self.data.binarise(self.vocabulary, folder)
        counts = self._target_counts("binarise")
        if self._earlier:
            before = self._earlier.target_counts()
            counts[: len(before)] += before
        write_json(folder / TARGET_COUNTS, counts.tolist())

    def _train_verifier(self) -> None:
        initial = self._earlier.verifier(self._folder("verifier"), len(self.vocabulary)) if self._earlier else None
        self._train_verifier_further("verifier", self.config.verifier, "binarise", initial)

    def _refine(self) -> None:
        refinement = self.config.refinement
        assert refinement is not None
        trained = self._folder("verifier") / "verifier.pt"
        self._write_distilled(
            "refine",
            trained,
            Decoding(refinement.batch_size, refinement.beam, refinement.length_penalty, refinement.nearest_reference),
            refinement.sample,
        )
        self._train_verifier_further("refine", refinement, "refine", trained)
        if refinement.blend < 1:
            refined = self._folder("refine") / "verifier.pt"
            checkpoints.write_average([trained, refined], refined, [1 - refinement.blend, refinement.blend])

    def _train_verifier_further(
        self, stage: str, settings: driver.VerifierStage, binarised: str, initial: Path | None
    ) -> None:
        folder = self._folder(stage)
        arguments = driver.verifier_arguments(
            self.config, settings, self._folder(binarised), folder / "checkpoints", initial
        )
        self._train(stage, arguments, settings.optimizer, folder / "verifier.pt")

    def _distil(self) -> None:
        distillation = self.config.distillation
        self._write_distilled("distil", self._verifier, Decoding(distillation.batch_size), distillation.sample)

    def _write_distilled(self, stage: str, verifier: Path, decoding: Decoding, samples: Samples) -> None:
        folder, vocabulary = self._folder(stage), self.vocabulary
        # The engine that translates, with its 8-bit weights: a drafter learns what it will have to match.
        translator = self._load_verifier(verifier, folder / "verifier")
        self.reporter.announce(f"{stage}: {translator.engine.name} translates")

        def distilled(entry: CorpusConfig, split: str) -> Encoded:
            sample = SampleConfig(repeat=entry.repeat)
            if split == "train":
                sample = samples.get(entry.path, sample)
            pairs = self.data.encoded(vocabulary, self.data.read(entry, sample.limit))
            self.reporter.announce(f"{stage}: {entry.path}, {len(pairs)} sentences")
            if sample.references:
                return pairs * sample.repeat
            shards = folder / "shards" / translator.engine.name / shards_of(entry, sample)
            translations = translate_in_shards(translator.engine, pairs, shards, decoding, translator.workers)
            sources = (source for source, _ in pairs)
            return self.data.kept(zip(sources, translations, strict=True)) * sample.repeat

        why = "the verifier's translations are empty or too long; it needs more training"
        self.data.write_binarised(vocabulary, folder, distilled, why)

    def _train_drafter(self) -> None:
        folder, settings = self._folder("drafter"), self.config.drafter
        initial = self._earlier.drafter(folder, settings, len(self.vocabulary)) if self._earlier else None
        if self._earlier:
            how = "goes on from" if initial else "anew, no such in"
            self.reporter.announce(f"drafter: {how} {self.config.start_from}")
        arguments = driver.drafter_arguments(
            *(self.config, self._folder("distil"), self._verifier, folder / "checkpoints"),
            self._draft_ids(folder, initial),
            initial,
        )
        self._train("drafter", arguments, settings.optimizer, folder / "drafter.pt")

    def _draft_ids(self, folder: Path, initial: Path | None) -> Path | None:
        """The file with the tokens that the drafter can say, if those are not all; those of `initial` are kept."""
        size = self.config.drafter.vocabulary_size
        if not size:
            return None
        path = folder / "output_ids.json"
        own = checkpoints.load(initial)["model"]["output.ids"] if initial else None
        ids = shortlist.frequent_ids(self._target_counts("distil"), size) if own is None else own
        write_json(path, ids.tolist())
        return path

    def _target_counts(self, stage: str) -> IntArray:
        return self.data.target_counts(self._folder(stage), len(self.vocabulary))

    def _train(self, stage: str, arguments: list[str], optimizer: OptimizerConfig, output: Path) -> None:
        """Train to the end, and write the average of the last checkpoints."""
        log, folder = Path(self.config.output) / "logs" / f"{stage}.log", self._folder(stage) / "checkpoints"
        if checkpoints.last_update(folder) < optimizer.max_updates:  # else fairseq would make one more
            updates, threads = optimizer.max_updates, self.config.runtime.cores
            driver.run(arguments, threads, log, lambda progress: self.reporter.progress(stage, updates, progress))
        last = checkpoints.last_checkpoints(folder, optimizer.average_checkpoints)
        checkpoints.write_average(last, output)

    def _export(self) -> None:
        verifier = checkpoints.load(self._verifier)
        drafter = checkpoints.load(self._folder("drafter") / "drafter.pt")
        export = self.config.export
        self._write_bundle(
            self._folder("export") / "bundle",
            checkpoints.bundle_weights(verifier["model"], drafter["model"]),
            checkpoints.pair_architecture(verifier, drafter),
            DecodingDefaults(export.draft_length, export.beta, export.tau, export.strict),
        )

    def _load_verifier(self, path: Path, bundle: Path) -> Translator:
        """A verifier's checkpoint as a bundle without a drafter, which is written unless it stands, and that loaded."""
        if not bundle.exists():
            verifier = checkpoints.load(path)
            self._write_bundle(
                bundle,
                checkpoints.bundle_weights(verifier["model"], {}),
                checkpoints.verifier_architecture(verifier),
                DecodingDefaults(draft_length=1, beta=1, tau=0.0),
            )
        return load_translator(bundle, threads=self.config.runtime.cores)

    def _write_bundle(
        self, path: Path, weights: dict[str, Tensor], architecture: Architecture, decoding: DecodingDefaults
    ) -> None:
        """Write a bundle whose verifier says the tokens that occur in the training data."""
        counts = json.loads((self._folder("binarise") / TARGET_COUNTS).read_text(encoding="utf-8"))
        said = shortlist.seen_ids(np.array(counts))
        weights, architecture = checkpoints.limit_targets(weights, architecture, said)
        sources = calibration_sources(self.vocabulary, [pair.source for pair in self.data.validation_pairs()])

        def write_files(folder: Path) -> None:
            shutil.copyfile(self._folder("tokenizer") / TOKENIZER, folder / TOKENIZER)
            save_weights(weights, folder / WEIGHTS)
            if without_graphs := write_cpu_files(folder, architecture, sources):
                self.reporter.announce(f"{path}: no graphs for the onnx engine: {without_graphs}")

        write_bundle(
            path,
            languages=self.data.languages,
            architecture=architecture,
            decoding=decoding,
            write_files=write_files,
            training={
                "config": asdict(self.config),
                "packages": {"specmt": __version__} | package_versions(_RECORDED_PACKAGES),
            },
            scores={},
        )

    def _evaluate(self) -> None:
        """Score the exported bundle on validation lines, and write the finished bundle with its scores."""
        exported = load_bundle(self._folder("export") / "bundle")
        pairs = evenly_spread(self.data.validation_pairs(), EVALUATED_LINES)
        translator = load_translator(exported.path, threads=self.config.runtime.cores)
        sources = [pair.source for pair in pairs]
        result = evaluate(
            translator,
            sources,
            [pair.target for pair in pairs],
            ["ar", "spec-strict", "spec"],
            batch_size=1,
            repeats=1,
            report=self.reporter.announce,
            threads=self.config.runtime.cores,
        ).to_json()
        emission = counted_emission(translator, sources, "validation").to_json()
        self._make_way(exported)
        write_bundle(
            self.bundle,
            languages=self.data.languages,
            architecture=exported.architecture,
            decoding=exported.decoding,
            write_files=lambda folder: copy_files(exported, folder, exported.files),
            training=exported.training,
            scores={"validation": {**_scores(result), "emission": emission}},
        )
        write_json(self._folder("evaluate") / "evaluation.json", result)

    def _make_way(self, exported: Bundle) -> None:
        """Move a finished bundle aside that is not this one with other scores, as after `specmt export` on it."""
        try:
            is_this = load_bundle(self.bundle).files == exported.files
        except BundleError:
            is_this = not self.bundle.exists()
        if not is_this:
            aside = move_aside(self.bundle)
            self.reporter.announce(f"evaluate: {self.bundle} has other files than this run's; it is now {aside}")


def _scores(evaluation: dict[str, Any]) -> dict[str, Any]:
    kept = ("bleu", "bleu_signature", "chrf", "mean_emitted_tokens")
    return {result["strategy"]: {key: result[key] for key in kept} for result in evaluation["results"]}
