"""The training of a pair: tokenizer, binarise, verifier, refine (where asked), distil, drafter, export, evaluate.

Each stage is resumable.
"""

from __future__ import annotations

import json
import shutil
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from torch import Tensor

from specmt.bundles import shortlist
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import TOKENIZER, WEIGHTS, DecodingDefaults, is_bundle, load_bundle, write_bundle
from specmt.bundles.tensors import vector_type
from specmt.bundles.weights import save_weights
from specmt.exporting import calibration_sources, moments_for, write_cpu_files
from specmt.fairseq_backend import checkpoints, driver
from specmt.files import write_json
from specmt.text.vocabulary import Vocabulary
from specmt.training.config import Config, Samples, VerifierConfig
from specmt.training.distillation import Decoding
from specmt.training.drafter_training import DrafterPipeline
from specmt.training.earlier import TARGET_COUNTS, Earlier
from specmt.training.pipeline import Pipeline, Reporter
from specmt.training.stages import Stage
from specmt.translator import Translator

_TRANSLATED = "translated"
"""Stands beside what a refinement learns from, once that is whole."""


def pipeline(config: Config, reporter: Reporter) -> Pipeline:
    """What a configuration asks for: a pair, or a drafter for a verifier that there is."""
    return PairPipeline(config, reporter) if config.verifier else DrafterPipeline(config, reporter)


class PairPipeline(Pipeline):
    """Trains a verifier, if not its tokenizer, and a drafter for it."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        config = self.config
        data, numerics = config.data, (config.runtime.seed, config.runtime.bf16)
        tokenizer = self.stage(
            "tokenizer",
            self._train_tokenizer,
            (TOKENIZER,),
            (config.tokenizer, self.data.languages, [(entry.skip, entry.limit, entry.swapped) for entry in data.train]),
            inputs=[*self.data.files(data.train), *self._earlier_files("tokenizer")],
        )
        corpora = [*data.train, *data.valid]
        binarised = self.stage(
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
        verifier = self.stage(
            "verifier",
            self._train_verifier,
            ("verifier.pt",),
            (config.verifier, *numerics),
            inputs=self._earlier_files("verifier"),
            needs=(binarised,),
        )
        refined = self.stage(
            "refine", self._refine, ("verifier.pt",), (config.refinement, *numerics), needs=(verifier,)
        )
        refinement = (refined,) if config.refinement else ()
        distilled = self.stage(
            "distil",
            self._distil,
            self.data.binarised_files(),
            (config.distillation, *numerics),
            needs=refinement or (verifier,),
        )
        drafter = self.stage(
            "drafter",
            self._train_drafter,
            ("drafter.pt",),
            (config.drafter, *numerics),
            inputs=self._earlier_files("drafter"),
            needs=(distilled,),
        )
        exported = self.last_stages(drafter, self._export, (TOKENIZER,))
        return tokenizer, binarised, verifier, *refinement, distilled, drafter, *exported

    @property
    def _settings(self) -> VerifierConfig:
        """The verifier's."""
        assert self.config.verifier, "another pipeline is for that"
        return self.config.verifier

    def check_start(self) -> tuple[str, str] | None:
        """See `Pipeline.check_start`."""
        if not self._earlier:
            return None
        self._earlier.check(self._settings)
        return self._earlier.languages

    @cached_property
    def _earlier(self) -> Earlier | None:
        return Earlier(Path(self.config.start_from)) if self.config.start_from else None

    def _earlier_files(self, stage: str) -> tuple[Path, ...]:
        return self._earlier.files(stage) if self._earlier else ()

    @property
    def _verifier(self) -> Path:
        """The finished verifier's checkpoint."""
        return self.folder("refine" if self.config.refinement else "verifier") / "verifier.pt"

    @property
    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary((self.folder("tokenizer") / TOKENIZER).read_bytes())

    # -- stages

    def _train_tokenizer(self) -> None:
        folder = self.folder("tokenizer")
        if self._earlier:
            self._earlier.write_tokenizer(folder / TOKENIZER, self.config.tokenizer)
        else:
            self.data.train_tokenizer(folder)

    def _binarise(self) -> None:
        folder = self.folder("binarise")
        self.data.binarise(self.vocabulary, folder)
        counts = self.target_counts("binarise")
        if self._earlier:
            before = self._earlier.target_counts()
            counts[: len(before)] += before
        write_json(folder / TARGET_COUNTS, counts.tolist())

    def _train_verifier(self) -> None:
        initial = self._earlier.verifier(self.folder("verifier"), len(self.vocabulary)) if self._earlier else None
        self._train_verifier_further("verifier", self._settings, "binarise", initial)

    def _refine(self) -> None:
        refinement = self.config.refinement
        assert refinement is not None
        trained = self.folder("verifier") / "verifier.pt"
        decoding = Decoding(
            batch_size=refinement.batch_size,
            beam=refinement.beam,
            length_penalty=refinement.length_penalty,
            nearest_reference=refinement.nearest_reference,
            reference_below=refinement.reference_below,
        )
        translated = self.folder("refine") / _TRANSLATED
        if not translated.exists():  # else training may have begun: another engine would say it a little otherwise
            self._write_distilled("refine", trained, decoding, refinement.sample)
            translated.touch()
        self._train_verifier_further("refine", refinement, "refine", trained)
        if refinement.blend < 1:
            refined = self.folder("refine") / "verifier.pt"
            checkpoints.write_average([trained, refined], refined, [1 - refinement.blend, refinement.blend])

    def _train_verifier_further(
        self, stage: str, settings: driver.VerifierStage, binarised: str, initial: Path | None
    ) -> None:
        folder = self.folder(stage)
        arguments = driver.verifier_arguments(
            self.config,
            verifier=self._settings,
            stage=settings,
            binarised=self.folder(binarised),
            checkpoints=folder / "checkpoints",
            initial=initial,
        )
        self.train(stage, arguments, settings.optimizer, folder / "verifier.pt")

    def _distil(self) -> None:
        self._write_distilled("distil", self._verifier, self.distillation, self.config.distillation.sample)

    def _write_distilled(self, stage: str, verifier: Path, decoding: Decoding, samples: Samples) -> None:
        translator = self._load_verifier(verifier, self.folder(stage) / "verifier")
        self.write_distilled(stage, translator, decoding, samples, partial(self.data.encoded, self.vocabulary))
        del translator
        driver.free_memory(self.config.runtime)

    def _train_drafter(self) -> None:
        settings, size = self.config.drafter, len(self.vocabulary)
        initial = self._earlier.drafter(self.folder("drafter"), settings, size) if self._earlier else None
        self.train_drafter(self._verifier, initial)

    def _export(self, path: Path) -> None:
        verifier = checkpoints.load(self._verifier)
        drafter = checkpoints.load(self.folder("drafter") / "drafter.pt")
        export = self.config.export
        self._write_bundle(
            path,
            checkpoints.bundle_weights(verifier["model"], drafter["model"]),
            checkpoints.pair_architecture(verifier, drafter),
            DecodingDefaults(export.draft_length, export.beta, export.tau, export.strict),
            weight_bits=export.weight_bits,
        )

    def _load_verifier(self, path: Path, bundle: Path) -> Translator:
        """A verifier's checkpoint as a bundle without a drafter, and that loaded.

        It is written unless a whole one stands, with what a CPU needs if one translates: a GPU may have begun.
        """
        on_gpu = driver.on_gpu(self.config.runtime)
        if not (is_bundle(bundle) and (on_gpu or load_bundle(bundle).has_ranges)):
            verifier = checkpoints.load(path)
            self._write_bundle(
                bundle,
                checkpoints.bundle_weights(verifier["model"], {}),
                checkpoints.verifier_architecture(verifier),
                DecodingDefaults(draft_length=1, beta=1, tau=0.0),
                for_cpu=not on_gpu,
            )
        return self.load_verifier(bundle)

    def _write_bundle(
        self,
        path: Path,
        weights: dict[str, Tensor],
        architecture: Architecture,
        decoding: DecodingDefaults,
        for_cpu: bool = True,
        weight_bits: int = 8,
    ) -> None:
        """Write a bundle whose verifier says the tokens that occur in the training data.

        Args:
            for_cpu: whether with what the engines for CPUs need.
            weight_bits: see `moments_for`.
        """
        counts = json.loads((self.folder("binarise") / TARGET_COUNTS).read_text(encoding="utf-8"))
        said = shortlist.seen_ids(np.array(counts))
        weights, architecture = checkpoints.limit_targets(weights, architecture, said)
        arrays = {name: np.asarray(tensor, vector_type(name)) for name, tensor in weights.items()}
        sources = calibration_sources(self.vocabulary, [pair.source for pair in self.data.validation_pairs()])

        def write_files(folder: Path) -> None:
            shutil.copyfile(self.folder("tokenizer") / TOKENIZER, folder / TOKENIZER)
            moments = moments_for(weight_bits, architecture, arrays, sources)
            save_weights(arrays, folder / WEIGHTS, moments=moments)
            if for_cpu and (without_graphs := write_cpu_files(folder, architecture, sources)):
                self.reporter.announce(f"{path}: no graphs for the onnx engine: {without_graphs}")

        write_bundle(
            path,
            languages=self.data.languages,
            architecture=architecture,
            decoding=decoding,
            write_files=write_files,
            training=self.record,
            scores={},
        )
