"""The training of a drafter for a verifier that there is, whoever trained it: distil, drafter, export, evaluate.

The verifier stays as it is. Of the corpora, only sources are used, and the references that validation compares with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from specmt.arrays import FloatArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import (
    GRAPHS,
    RANGES,
    WEIGHTS,
    Bundle,
    DecodingDefaults,
    is_bundle,
    load_bundle,
    write_bundle,
)
from specmt.bundles.tensors import DRAFTER_OUTPUT, ids_name
from specmt.bundles.weights import dequantised, read_stored, save_weights
from specmt.corpus import Pair
from specmt.errors import TrainingError
from specmt.exporting import calibration_sources, copy_files, moments_for, write_cpu_files
from specmt.fairseq_backend import checkpoints, driver
from specmt.fairseq_backend.frozen import load_frozen
from specmt.text.vocabulary import AnyVocabulary
from specmt.training.distillation import EXTRA_TOKENS
from specmt.training.earlier import Earlier
from specmt.training.pipeline import Pipeline
from specmt.training.stages import Stage
from specmt.training.training_data import Encoded

_DRAFTER = "drafter."


class DrafterPipeline(Pipeline):
    """Trains a drafter for the verifier of the bundle that `start_from` names; the bundle itself is not changed."""

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        config, start = self.config, self._earlier.files("verifier")
        data, numerics = config.data, (config.runtime.seed, config.runtime.bf16)
        corpora = [*data.train, *data.valid]
        distilled = self.stage(
            "distil",
            self._distil,
            self.data.binarised_files(),
            (
                *(config.distillation, data.max_tokens, data.max_length_ratio, len(data.train), *numerics),
                self._bundle.architecture,
                [(entry.skip, entry.limit, entry.repeat, entry.swapped) for entry in corpora],
            ),
            inputs=[*self.data.files(corpora), *start, *(self._bundle.path / name for name in self._verbatim)],
        )
        drafter = self.stage(
            "drafter", self._train_drafter, ("drafter.pt",), (config.drafter, *numerics), start, (distilled,)
        )
        said = (self._bundle.decoding, self._bundle.languages, self._bundle.training)
        return distilled, drafter, *self.last_stages(drafter, self._export, self._verbatim, said)

    @cached_property
    def _earlier(self) -> Earlier:
        return Earlier(Path(self.config.start_from))

    @cached_property
    def _bundle(self) -> Bundle:
        return load_bundle(self._earlier.folder)

    @property
    def _verbatim(self) -> tuple[str, ...]:
        """The bundle's files that hold its vocabulary: no weights, nor what is calibrated."""
        return tuple(name for name in self._bundle.files if name not in (WEIGHTS, RANGES, *GRAPHS))

    @cached_property
    def vocabulary(self) -> AnyVocabulary:
        """See `Pipeline.vocabulary`."""
        return self._bundle.vocabulary()

    def check_start(self) -> tuple[str, str]:
        """See `Pipeline.check_start`."""
        bundle, drafter = self._bundle, self.config.drafter
        shape = bundle.architecture
        if self._bundle.languages == self.data.languages[::-1]:
            raise TrainingError(
                f"start_from: {bundle.path} translates {' to '.join(self._bundle.languages)}: exchange "
                "data.source_language and data.target_language"
            )
        if drafter.layers > shape.decoder_layers:
            raise TrainingError(f"drafter.layers: {bundle.path} has {shape.decoder_layers}, from which they start")
        if drafter.vocabulary_size >= shape.vocabulary_size:
            raise TrainingError(
                f"drafter.vocabulary_size: must be less than the {shape.vocabulary_size} of {bundle.path}"
            )
        try:
            shape.with_drafter(drafter.layers, drafter.draft_length, drafter.bigram_rank, drafter.vocabulary_size)
        except ValueError as error:
            raise TrainingError(f"drafter.vocabulary_size: {bundle.path}: {error}") from None
        return self._bundle.languages

    # -- stages

    def _distil(self) -> None:
        path = self.folder("distil") / "verifier"
        if not is_bundle(path):
            self._write_bundle(path, self._bundle.architecture.with_drafter(0, 0, 0, 0), {}, self._bundle.decoding)
        translator = self.load_verifier(path)
        self.write_distilled("distil", translator, self.distillation, self.config.distillation.sample, self._encoded)
        del translator
        driver.free_memory(self.config.runtime)

    def _encoded(self, pairs: Iterable[Pair]) -> Encoded:
        """Sources that are fit for training, with no target."""
        shape, most = self._bundle.architecture, self.config.data.max_tokens
        most = min(most, shape.max_source_tokens or most)
        if shape.max_target_tokens:
            most = min(most, (shape.max_target_tokens - EXTRA_TOKENS) // 2)
        sources = (self.vocabulary.encode(pair.source) for pair in pairs)
        return [(source, []) for source in sources if 0 < len(source) <= most]

    def _train_drafter(self) -> None:
        folder, size = self.folder("drafter"), len(self.vocabulary)
        self.train_drafter(self._bundle.path, self._earlier.drafter(folder, self.config.drafter, size))

    def _export(self, path: Path) -> None:
        drafter = checkpoints.load(self.folder("drafter") / "drafter.pt")
        weights = {f"{_DRAFTER}{name}": tensor for name, tensor in drafter["model"].items()}
        if (ids := weights.get(ids_name(DRAFTER_OUTPUT))) is not None:
            weights[f"{DRAFTER_OUTPUT}.weight"] = load_frozen(self._bundle.path).output[ids]
        export = self.config.export
        self._write_bundle(
            path,
            self._bundle.architecture.with_drafter(*checkpoints.drafter_shape(drafter)),
            {name: tensor.numpy() for name, tensor in weights.items()},
            replace(
                self._bundle.decoding,
                draft_length=export.draft_length,
                beta=export.beta,
                tau=export.tau,
                strict=export.strict,
            ),
            export.weight_bits,
        )

    def _write_bundle(
        self,
        path: Path,
        architecture: Architecture,
        drafter: dict[str, FloatArray],
        decoding: DecodingDefaults,
        weight_bits: int = 8,
    ) -> None:
        """Write the bundle with another drafter or none, calibrated on validation sources.

        Args:
            weight_bits: of the drafter (see `moments_for`).
        """
        start = self._bundle
        stored = read_stored(start.weights_path, start.architecture)
        verifier = {name: array for name, array in stored.items() if not name.startswith(_DRAFTER)}
        sources = calibration_sources(self.vocabulary, [pair.source for pair in self.data.validation_pairs()])

        def write_files(folder: Path) -> None:
            copy_files(start, folder, self._verbatim)
            moments = moments_for(weight_bits, architecture, dequantised(verifier) | drafter, sources)
            save_weights(drafter, folder / WEIGHTS, verifier, moments)
            if without_graphs := write_cpu_files(folder, architecture, sources):
                self.reporter.announce(f"{path}: no graphs for the onnx engine: {without_graphs}")

        write_bundle(
            path,
            languages=self._bundle.languages,
            architecture=architecture,
            decoding=decoding,
            write_files=write_files,
            training={**start.training, "drafter": {**self.record, "verifier_of": start.digest}},
            scores={},
        )
