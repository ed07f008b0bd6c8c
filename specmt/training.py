"""The training pipeline: tokenizer, binarise, verifier, refine (where asked), distil, drafter, export, evaluate.

Each stage is resumable.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import Tensor

from specmt import __version__, corpus, shortlist
from specmt.architecture import Architecture
from specmt.bundle import MANIFEST, TOKENIZER, WEIGHTS, DecodingDefaults, load_bundle, write_bundle
from specmt.config import Config, CorpusConfig, OptimizerConfig, SampleConfig, Samples
from specmt.corpus import Pair
from specmt.distillation import Decoding, Ids, translate_in_shards
from specmt.engines.base import IntArray
from specmt.errors import TrainingError, UsageError
from specmt.evaluation import evaluate
from specmt.exporting import calibration_sources, copy_files, write_cpu_files
from specmt.fairseq_backend import binarise, checkpoints, driver
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.stages import Stage, exclusive
from specmt.translator import Translator
from specmt.tuning import counted_emission
from specmt.vocabulary import Vocabulary, train_vocabulary
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
        self.languages = (config.data.source_language, config.data.target_language)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        config = self.config
        numerics = (config.runtime.seed, config.runtime.bf16)
        tokenizer = self._stage(
            "tokenizer",
            self._train_tokenizer,
            (TOKENIZER,),
            (config.tokenizer, config.data),
            inputs=[*self._corpus_files(), *self._earlier("tokenizer", TOKENIZER)],
        )
        binarised = self._stage("binarise", self._binarise, self._binarised_files(), needs=(tokenizer,))
        verifier = self._stage(
            "verifier",
            self._train_verifier,
            ("verifier.pt",),
            (config.verifier, *numerics),
            inputs=self._earlier("verifier", "verifier.pt"),
            needs=(binarised,),
        )
        refined = self._stage(
            "refine",
            self._refine,
            ("verifier.pt",),
            (config.refinement, *numerics),
            needs=(verifier,),
        )
        refinement = (refined,) if config.refinement else ()
        distilled = self._stage(
            "distil",
            self._distil,
            self._binarised_files(),
            (config.distillation, *numerics),
            needs=refinement or (verifier,),
        )
        drafter = self._stage(
            "drafter",
            self._train_drafter,
            ("drafter.pt",),
            (config.drafter, *numerics),
            needs=(distilled,),
        )
        exported = self._stage(
            "export",
            self._export,
            [f"bundle/{name}" for name in (MANIFEST, TOKENIZER, WEIGHTS)],
            (config.export, config.name),
            needs=(drafter,),
        )
        finished = f"../{self.bundle.name}/{MANIFEST}"  # the bundle with its scores stands beside the stages
        evaluated = self._stage("evaluate", self._evaluate, ("evaluation.json", finished), needs=(exported,))
        return tokenizer, binarised, verifier, *refinement, distilled, drafter, exported, evaluated

    def run(self, only: str | None = None, restart: bool = False) -> Path:
        """Complete all stages in their order, or the one named; where the finished bundle is.

        Raises:
            UsageError: no stage of that name.
            TrainingError: a stage failed, an earlier one is not done, or another run works in the same folder.
            InputError: a corpus cannot be read.
        """
        names = [stage.name for stage in self.stages]
        if only is not None and only not in names:
            raise UsageError(f"--stage {only}: expected one of {', '.join(names)}")
        with exclusive(Path(self.config.output)):
            for stage in self.stages:
                if only in {None, stage.name}:
                    self._complete(stage, restart)
        return self.bundle

    def _complete(self, stage: Stage, restart: bool) -> None:
        for needed in stage.needs:
            if not needed.is_done():
                raise TrainingError(f"stage {stage.name} needs stage {needed.name}, which is not done")
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
    ) -> Stage:
        return Stage(name, self._folder(name), settings, tuple(inputs), needs, tuple(outputs), run)

    def _folder(self, stage: str) -> Path:
        return Path(self.config.output) / stage

    def _earlier(self, stage: str, name: str) -> tuple[Path, ...]:
        """A file of the run that this one goes on from, if it goes on from one."""
        return (Path(self.config.start_from) / stage / name,) if self.config.start_from else ()

    @property
    def _verifier(self) -> Path:
        """The finished verifier's checkpoint."""
        return self._folder("refine" if self.config.refinement else "verifier") / "verifier.pt"

    # -- corpora

    def _corpus_path(self, entry: CorpusConfig) -> Path:
        return Path(self.config.data.folder) / entry.path

    def _corpus_files(self) -> Iterator[Path]:
        for entry in [*self.config.data.train, *self.config.data.valid]:
            yield from corpus.corpus_files(self._corpus_path(entry), *self.languages)

    def _read(self, entry: CorpusConfig, limit: int = 0) -> list[Pair]:
        pairs = corpus.read_corpus(self._corpus_path(entry), *self.languages, entry.swapped)[: entry.limit or None]
        return pairs[: limit or None]

    def _validation_pairs(self) -> list[Pair]:
        return [pair for entry in self.config.data.valid for pair in self._read(entry)]

    def _kept(self, pairs: Iterable[tuple[Ids, Ids]]) -> list[tuple[Ids, Ids]]:
        data = self.config.data
        return [
            (source, target)
            for source, target in pairs
            if corpus.keep_pair(len(source), len(target), data.max_tokens, data.max_length_ratio)
        ]

    def _encoded(self, entry: CorpusConfig, limit: int = 0) -> list[tuple[Ids, Ids]]:
        vocabulary = self.vocabulary
        pairs = self._read(entry, limit)
        return self._kept((vocabulary.encode(source), vocabulary.encode(target)) for source, target in pairs)

    @property
    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary((self._folder("tokenizer") / TOKENIZER).read_bytes())

    # -- stages

    def _train_tokenizer(self) -> None:
        settings, folder = self.config.tokenizer, self._folder("tokenizer")
        for earlier in self._earlier("tokenizer", TOKENIZER):
            shutil.copyfile(earlier, folder / TOKENIZER)
            return
        sentences = (text for entry in self.config.data.train for pair in self._read(entry) for text in pair)
        threads = self.config.runtime.threads
        try:
            train_vocabulary(
                sentences, folder / "training", settings.vocabulary_size, settings.character_coverage, threads
            )
        except RuntimeError as error:
            raise TrainingError(f"tokenizer.vocabulary_size: {settings.vocabulary_size}: {error}") from None
        (folder / "training.model").rename(folder / TOKENIZER)

    def _binarised_files(self) -> Iterator[str]:
        for language in self.languages:
            yield f"dict.{language}.txt"
            for split in ("train", "valid"):
                yield from (f"{split}.{'-'.join(self.languages)}.{language}.{kind}" for kind in ("bin", "idx"))

    def _binarise(self) -> None:
        self._write_binarised("binarise", lambda entry: self._encoded(entry) * entry.repeat)

    def _write_binarised(self, stage: str, encoded: Callable[[CorpusConfig], list[tuple[Ids, Ids]]]) -> None:
        vocabulary, folder = self.vocabulary, self._folder(stage)
        binarise.write_dictionary(vocabulary, folder, self.languages)
        for split, entries in (("train", self.config.data.train), ("valid", self.config.data.valid)):
            pairs = (pair for entry in entries for pair in encoded(entry))
            binarise.write_split(folder, split, self.languages, pairs, len(vocabulary))

    def _train_verifier(self) -> None:
        initial = next(iter(self._earlier("verifier", "verifier.pt")), None)
        self._train_verifier_further("verifier", self.config.verifier.optimizer, "binarise", initial)

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
        self._train_verifier_further("refine", refinement.optimizer, "refine", trained)

    def _train_verifier_further(
        self, stage: str, optimizer: OptimizerConfig, binarised: str, initial: Path | None
    ) -> None:
        folder = self._folder(stage)
        arguments = driver.verifier_arguments(
            self.config, optimizer, self._folder(binarised), folder / "checkpoints", initial
        )
        self._train(stage, arguments, optimizer, folder / "verifier.pt")

    def _distil(self) -> None:
        distillation = self.config.distillation
        self._write_distilled("distil", self._verifier, Decoding(distillation.batch_size), distillation.sample)

    def _write_distilled(self, stage: str, verifier: Path, decoding: Decoding, samples: Samples) -> None:
        folder = self._folder(stage)
        # The engine that translates, with its 8-bit weights: a drafter learns what it will have to match.
        translator = self._load_verifier(verifier, folder / "verifier")
        self.reporter.announce(f"{stage}: {translator.engine.name} translates")

        def distilled(entry: CorpusConfig) -> list[tuple[Ids, Ids]]:
            sample = samples.get(entry.path, SampleConfig(repeat=entry.repeat))
            pairs = self._encoded(entry, sample.limit)
            self.reporter.announce(f"{stage}: {entry.path}, {len(pairs)} sentences")
            name = f"{entry.path.replace('/', '_')}.{entry.limit}.{sample.limit}{'.swapped' if entry.swapped else ''}"
            shards = folder / "shards" / translator.engine.name / name
            translations = translate_in_shards(translator.engine, pairs, shards, decoding, translator.workers)
            sources = (source for source, _ in pairs)
            return self._kept(zip(sources, translations, strict=True)) * sample.repeat

        self._write_binarised(stage, distilled)

    def _train_drafter(self) -> None:
        folder, optimizer = self._folder("drafter"), self.config.drafter.optimizer
        arguments = driver.drafter_arguments(
            self.config, self._folder("distil"), self._verifier, folder / "checkpoints", self._draft_ids(folder)
        )
        self._train("drafter", arguments, optimizer, folder / "drafter.pt")

    def _draft_ids(self, folder: Path) -> Path | None:
        """The file with the tokens that the drafter can say, if those are not all."""
        size = self.config.drafter.vocabulary_size
        if not size:
            return None
        path = folder / "output_ids.json"
        write_json(path, shortlist.frequent_ids(self._target_counts("distil"), size).tolist())
        return path

    def _target_counts(self, stage: str) -> IntArray:
        prefix = self._folder(stage) / f"train.{'-'.join(self.languages)}.{self.languages[1]}"
        return binarise.token_counts(prefix, len(self.vocabulary))

    def _train(self, stage: str, arguments: list[str], optimizer: OptimizerConfig, output: Path) -> None:
        """Train to the end, and write the average of the last checkpoints."""
        log = Path(self.config.output) / "logs" / f"{stage}.log"
        driver.run(
            arguments,
            self.config.runtime.threads,
            log,
            lambda progress: self.reporter.progress(stage, optimizer.max_updates, progress),
        )
        last = checkpoints.last_checkpoints(self._folder(stage) / "checkpoints", optimizer.average_checkpoints)
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
        return load_translator(bundle, threads=self.config.runtime.threads)

    def _write_bundle(
        self, path: Path, weights: dict[str, Tensor], architecture: Architecture, decoding: DecodingDefaults
    ) -> None:
        """Write a bundle whose verifier says the tokens that occur in the training data."""
        said = shortlist.seen_ids(self._target_counts("binarise"))
        weights, architecture = checkpoints.limit_targets(weights, architecture, said)
        sources = calibration_sources(self.vocabulary, [pair.source for pair in self._validation_pairs()])

        def write_files(folder: Path) -> None:
            shutil.copyfile(self._folder("tokenizer") / TOKENIZER, folder / TOKENIZER)
            save_weights(weights, folder / WEIGHTS)
            if without_graphs := write_cpu_files(folder, architecture, sources):
                self.reporter.announce(f"{path}: no graphs for the onnx engine: {without_graphs}")

        write_bundle(
            path,
            languages=self.languages,
            architecture=architecture,
            decoding=decoding,
            write_files=write_files,
            training={"config": asdict(self.config), "packages": _package_versions()},
            scores={},
        )

    def _evaluate(self) -> None:
        """Score the exported bundle on validation lines, and write the finished bundle with its scores."""
        exported = load_bundle(self._folder("export") / "bundle")
        pairs = self._validation_pairs()
        pairs = pairs[:: max(1, len(pairs) // EVALUATED_LINES)][:EVALUATED_LINES]
        translator = load_translator(exported.path, threads=self.config.runtime.threads)
        sources = [pair.source for pair in pairs]
        result = evaluate(
            translator,
            sources,
            [pair.target for pair in pairs],
            ["ar", "spec-strict", "spec"],
            batch_size=1,
            repeats=1,
            report=self.reporter.announce,
            threads=self.config.runtime.threads,
        ).to_json()
        emission = counted_emission(translator, sources, "validation").to_json()
        write_bundle(
            self.bundle,
            languages=self.languages,
            architecture=exported.architecture,
            decoding=exported.decoding,
            write_files=lambda folder: copy_files(exported, folder, exported.files),
            training=exported.training,
            scores={"validation": {**_scores(result), "emission": emission}},
        )
        write_json(self._folder("evaluate") / "evaluation.json", result)


def _scores(evaluation: dict[str, Any]) -> dict[str, Any]:
    kept = ("bleu", "bleu_signature", "chrf", "mean_emitted_tokens")
    return {result["strategy"]: {key: result[key] for key in kept} for result in evaluation["results"]}


def _package_versions() -> dict[str, str]:
    versions = {"specmt": __version__}
    for package in _RECORDED_PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions
