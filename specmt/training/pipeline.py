"""What every training run has: stages in a folder, the verifier's translations, a drafter, a bundle with its scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from specmt import __version__
from specmt.arrays import IntArray
from specmt.bundles import shortlist
from specmt.bundles.bundle import MANIFEST, WEIGHTS, Bundle, check_destination, is_bundle, load_bundle, write_bundle
from specmt.corpus import Pair, evenly_spread
from specmt.errors import BundleError, TrainingError, UsageError
from specmt.evaluation.measuring import evaluate
from specmt.exporting import copy_files
from specmt.fairseq_backend import checkpoints, driver, replicas
from specmt.files import write_json
from specmt.loading import load_translator
from specmt.machine import cpu_flags, package_version
from specmt.text.vocabulary import AnyVocabulary
from specmt.training.config import Config, CorpusConfig, OptimizerConfig, SampleConfig, Samples
from specmt.training.distillation import Decoding, translate_in_shards
from specmt.training.stages import Digests, Stage, exclusive, move_aside
from specmt.training.training_data import Encoded, TrainingData, shards_of
from specmt.translator import Translator
from specmt.tuning import counted_emission

EVALUATED_LINES = 400
"""Validation lines that the short evaluation at the end of training decodes."""
_RECORDED_PACKAGES = ("torch", "fairseq", "sentencepiece")


@dataclass(frozen=True)
class Reporter:
    """Where a run tells what it does: `announce` a line; `progress` of a stage, whose last update comes first."""

    announce: Callable[[str], None]
    progress: Callable[[str, int, driver.Progress], None]


_BF16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Of a processor that adds up products of bfloat16."""


class Pipeline(ABC):
    """The stages of one configuration. Each keeps its files in a folder of its own under `config.output`."""

    def __init__(self, config: Config, reporter: Reporter) -> None:
        self.config = config
        self.reporter = reporter
        self.data = TrainingData(config, reporter.announce)

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""

    @property
    @abstractmethod
    def vocabulary(self) -> AnyVocabulary:
        """The verifier's."""

    @abstractmethod
    def check_start(self) -> tuple[str, str] | None:
        """Refuse a `start_from` that cannot be gone on from; source and target of its bundle, if it is one.

        Raises:
            TrainingError: nothing that this run can go on from stands there.
            BundleError: a damaged bundle.
        """

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
        on_gpu = driver.on_gpu(self.config.runtime)  # refuses one that is not there
        for notice in self._doubts([only] if only else names, on_gpu):
            self.reporter.announce(notice)
        self.data.check()
        if (pair := self.check_start()) and pair != self.data.languages:
            self.reporter.announce(f"start_from: {self.config.start_from} translates {' to '.join(pair)}")
        with exclusive(Path(self.config.output)):
            for stage in self.stages:
                if only in {None, stage.name}:
                    self._complete(stage, restart)
        return self.bundle if only in {None, "evaluate"} else self.folder(str(only))

    def _doubts(self, stages: Iterable[str], on_gpu: bool) -> Iterator[str]:
        """Settings of some stages that can hardly be meant."""
        config, flags = self.config, cpu_flags()
        trained = {"verifier": config.verifier, "refine": config.refinement, "drafter": config.drafter}
        sections = [(name, trained[name]) for name in stages if trained.get(name)]
        if sections and config.runtime.bf16 and not on_gpu and flags is not None and not flags & _BF16:
            yield "runtime.bf16: this processor has no bfloat16 arithmetic, and is slower with it"
        for name, section in sections:
            if section and section.optimizer.warmup_updates >= section.optimizer.max_updates:
                yield f"{name}: training ends before the learning rate has risen: see warmup_updates"

    def _complete(self, stage: Stage, restart: bool) -> None:
        digests = Digests()
        for needed in stage.needs:
            if not needed.is_done(digests):
                why = f"which is not done, or what it read has changed since: run {needed.name} first, or all stages"
                raise TrainingError(f"stage {stage.name} needs stage {needed.name}, {why}")
        stage.complete(self.reporter.announce, restart, digests)

    @property
    def bundle(self) -> Path:
        """Where the finished bundle is."""
        return Path(self.config.output) / "bundle"

    def stage(
        self,
        name: str,
        run: Callable[[], None],
        outputs: Iterable[str],
        settings: tuple[Any, ...] = (),
        inputs: Iterable[Path] = (),
        needs: tuple[Stage, ...] = (),
        bundle: Path | None = None,
    ) -> Stage:
        """A stage in its folder; `bundle`: one that must be whole for it to be done."""
        intact = partial(is_bundle, bundle) if bundle else lambda: True
        return Stage(name, self.folder(name), settings, tuple(inputs), needs, tuple(outputs), run, intact)

    def folder(self, stage: str) -> Path:
        """Where a stage keeps its files."""
        return Path(self.config.output) / stage

    def load_verifier(self, bundle: Path) -> Translator:
        """The verifier that translates for training: on a CPU with its 8-bit weights, as it will, on a GPU in torch."""
        runtime = self.config.runtime
        if driver.on_gpu(runtime):
            return load_translator(bundle, "cuda", "bf16" if runtime.bf16 else "fp32")
        return load_translator(bundle, threads=runtime.cores)

    @property
    def distillation(self) -> Decoding:
        """How the verifier translates for its drafter."""
        settings = self.config.distillation
        return Decoding(settings.batch_size, settings.beam, settings.length_penalty, settings.nearest_reference)

    def write_distilled(
        self,
        stage: str,
        translator: Translator,
        decoding: Decoding,
        samples: Samples,
        encoded: Callable[[Iterable[Pair]], Encoded],
    ) -> None:
        """Binarise what the verifier says to the sources of all corpora.

        Args:
            encoded: a corpus' pairs as ids, those that are fit for training.
        """
        # On a CPU the engine that translates, with its 8-bit weights: a drafter learns what it will have to match.
        folder, engine = self.folder(stage), translator.engine
        self.reporter.announce(f"{stage}: {engine.name} translates")

        def distilled(entry: CorpusConfig, split: str) -> Encoded:
            sample = SampleConfig(repeat=entry.repeat)
            if split == "train":
                sample = samples.get(entry.path, sample)
            read = self.data.read(entry, sample.limit)
            pairs = encoded(read)
            fewer = f" of {len(read)}: others are blank or too long" if len(pairs) < len(read) else ""
            self.reporter.announce(f"{stage}: {entry.path}, {len(pairs)} sentences{fewer}")
            if sample.references:
                return pairs * sample.repeat
            shards = folder / "shards" / engine.name / shards_of(entry, sample)
            translations = translate_in_shards(engine, pairs, shards, decoding, translator.workers)
            sources = (source for source, _ in pairs)
            kept = self.data.kept(zip(sources, translations, strict=True))
            if lost := len(pairs) - len(kept):
                self.reporter.announce(f"{stage}: {entry.path}, {lost} left out: the translation is empty or too long")
            return kept * sample.repeat

        why = (
            "sources are blank or longer than data.max_tokens or the model's positions allow, or their translations "
            "are empty or too long, as those of a verifier that needs more training"
        )
        self.data.write_binarised(self.vocabulary, folder, distilled, why)

    def train_drafter(self, verifier: Path, initial: Path | None) -> None:
        """Train it on what `write_distilled` wrote in stage `distil`.

        Args:
            verifier: a checkpoint or a bundle.
            initial: a checkpoint of the drafter that it goes on from.
        """
        folder, settings = self.folder("drafter"), self.config.drafter
        if self.config.start_from:
            how = "goes on from" if initial else "anew, no such in"
            self.reporter.announce(f"drafter: {how} {self.config.start_from}")
        arguments = driver.drafter_arguments(
            self.config,
            binarised=self.folder("distil"),
            verifier=verifier,
            checkpoints=folder / "checkpoints",
            output_ids=self._draft_ids(folder, initial),
            initial=initial,
        )
        self.train("drafter", arguments, settings.optimizer, folder / "drafter.pt")

    def _draft_ids(self, folder: Path, initial: Path | None) -> Path | None:
        """The file with the tokens that the drafter can say, if those are not all; those of `initial` are kept."""
        size = self.config.drafter.vocabulary_size
        if not size:
            return None
        path = folder / "output_ids.json"
        own = checkpoints.load(initial)["model"]["output.ids"] if initial else None
        ids = shortlist.frequent_ids(self.target_counts("distil"), size) if own is None else own
        write_json(path, ids.tolist())
        return path

    def target_counts(self, stage: str) -> IntArray:
        """How often each token stands on the target side of what a stage binarised, shape (vocabulary_size,)."""
        return self.data.target_counts(self.folder(stage), len(self.vocabulary))

    def train(self, stage: str, arguments: list[str], optimizer: OptimizerConfig, output: Path) -> None:
        """Train to the end, and write the average of the last checkpoints."""
        log, folder = Path(self.config.output) / "logs" / f"{stage}.log", self.folder(stage) / "checkpoints"
        if not checkpoints.has_ended(folder, optimizer.max_updates):  # else fairseq would make one more
            report = partial(self.reporter.progress, stage, optimizer.max_updates)
            if optimizer.replicas > 1:
                replicas.train(arguments, optimizer, self.config.runtime, folder, log, report)
            else:
                driver.run(arguments, self.config.runtime.cores, log, report)
            if optimizer.patience:
                checkpoints.write_end(folder)
        last = checkpoints.last_checkpoints(folder, optimizer.average_checkpoints)
        checkpoints.write_average(last, output)

    def last_stages(
        self, drafter: Stage, export: Callable[[Path], None], tokenizer: Iterable[str], said: tuple[Any, ...] = ()
    ) -> tuple[Stage, Stage]:
        """Stages `export` and `evaluate`: a bundle, and the same with its scores.

        Args:
            export: writes the bundle.
            tokenizer: names of the bundle's files that hold its vocabulary.
            said: what else the bundle says.
        """
        without_scores = self.folder("export") / "bundle"
        outputs = [f"bundle/{name}" for name in (MANIFEST, *tokenizer, WEIGHTS)]
        settings = (self.config.export, self.config.name, *said)
        run = partial(export, without_scores)
        exported = self.stage("export", run, outputs, settings, needs=(drafter,), bundle=without_scores)
        outputs = ["evaluation.json", f"../{self.bundle.name}/{MANIFEST}"]  # with scores, it stands beside the stages
        return exported, self.stage("evaluate", self._evaluate, outputs, needs=(exported,), bundle=self.bundle)

    @property
    def record(self) -> dict[str, Any]:
        """What a manifest says of the run."""
        packages = {name: package_version(name) or "not installed" for name in _RECORDED_PACKAGES}
        return {"config": asdict(self.config), "packages": {"specmt": __version__, **packages}}

    def _evaluate(self) -> None:
        """Score the exported bundle on validation lines, and write the finished bundle with its scores."""
        exported = load_bundle(self.folder("export") / "bundle")
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
            languages=exported.languages,
            architecture=exported.architecture,
            decoding=exported.decoding,
            write_files=lambda folder: copy_files(exported, folder, exported.files),
            training=exported.training,
            scores={"validation": {**_scores(result), "emission": emission}},
        )
        write_json(self.folder("evaluate") / "evaluation.json", result)

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
