"""What a run goes on from (`start_from`): the folder of a finished run, or a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np

from specmt.arrays import IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import MANIFEST, TOKENIZER, WEIGHTS, Bundle, load_bundle
from specmt.bundles.tensors import VERIFIER_OUTPUT, ids_name
from specmt.bundles.weights import load_weights
from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, restoring
from specmt.text.vocabulary import Vocabulary, add_characters
from specmt.training.config import DrafterConfig, TokenizerConfig, VerifierConfig
from specmt.training.stages import changed_since

TARGET_COUNTS = "target_counts.json"
"""How often each token stands on the target side of the training data, that of the runs before this one included."""
_OF_A_RUN = {"tokenizer": TOKENIZER, "binarise": TARGET_COUNTS, "verifier": "verifier.pt", "drafter": "drafter.pt"}
"""What a later run takes of each stage."""


class Earlier:
    """A run's folder, or a bundle's, whose weights are the 8-bit numbers that it translates with."""

    def __init__(self, folder: Path) -> None:
        """Look at nothing yet."""
        self.folder = folder

    @cached_property
    def _bundle(self) -> Bundle | None:
        return load_bundle(self.folder) if (self.folder / MANIFEST).is_file() else None

    @property
    def languages(self) -> tuple[str, str] | None:
        """Source and target of a bundle; of a run they are not known."""
        return self._bundle.languages if self._bundle else None

    def check(self, wanted: VerifierConfig) -> None:
        """Refuse what a run cannot go on from, before it does anything.

        Raises:
            TrainingError: it is no bundle of a pair that was trained here and no finished run, or of another shape.
            BundleError: it is a damaged bundle.
        """
        if self._bundle is None:
            if not all(path.is_file() for stage in _OF_A_RUN for path in self.files(stage)):
                raise TrainingError(f"start_from: {self.folder} is neither a bundle nor the folder of a finished run")
            shape = self._shape_of_run()
        else:
            restoring.check_kind(self._bundle)
            shape = self._bundle.architecture
        _check_shape(shape, wanted, self.folder)

    def _shape_of_run(self) -> Architecture:
        """The verifier's, if all files can be read and belong together."""
        with self._reading("tokenizer"):
            pieces = self._vocabulary_size
        with self._reading("binarise"):
            counted = len(self.target_counts())
        with self._reading("verifier") as path:
            shape = checkpoints.verifier_architecture(checkpoints.load(path))
        for path in self.files("drafter"):
            with self._reading("drafter"):
                checkpoints.load(path)
        if not shape.vocabulary_size == counted == pieces:
            raise TrainingError(f"start_from: {self.folder} has a tokenizer and a verifier that were not made together")
        for stage in _OF_A_RUN:
            if self.files(stage) and (before := changed_since(self.folder / stage)):
                raise TrainingError(
                    f"start_from: {self.folder}: {before} has changed since {stage}: finish that run first"
                )
        return shape

    @contextmanager
    def _reading(self, stage: str) -> Iterator[Path]:
        """What a stage left, while it is read."""
        (path,) = self.files(stage)
        try:
            yield path
        except checkpoints.DAMAGED as error:
            raise TrainingError(f"start_from: {path}: damaged: {str(error) or type(error).__name__}") from None

    def files(self, stage: str) -> tuple[Path, ...]:
        """What the stage of a later run depends on, beside that run's own data and settings."""
        if self._bundle is not None:
            return (self.folder / (TOKENIZER if stage == "tokenizer" else WEIGHTS),)
        path = self.folder / stage / _OF_A_RUN[stage]
        return (path,) if stage != "drafter" or path.is_file() else ()

    def tokenizer(self) -> Path:
        """The SentencePiece model."""
        return self.files("tokenizer")[0]

    def write_tokenizer(self, path: Path, settings: TokenizerConfig) -> None:
        """Write its SentencePiece model with the required characters that it lacks.

        Raises:
            TrainingError: that has another number of pieces than is wanted.
        """
        model = add_characters(self.tokenizer().read_bytes(), settings.required_characters)
        if (size := len(Vocabulary(model))) != settings.vocabulary_size:
            raise TrainingError(
                f"tokenizer.vocabulary_size: {self.tokenizer()}, which start_from names, has {size} pieces, "
                "required_characters included"
            )
        path.write_bytes(model)

    @cached_property
    def _vocabulary_size(self) -> int:
        return len(Vocabulary(self.tokenizer().read_bytes()))

    def target_counts(self) -> IntArray:
        """What `TARGET_COUNTS` has, shape (vocabulary_size,); of a bundle, 1 for each token that its verifier says."""
        if self._bundle is None:
            return np.array(json.loads(self.files("binarise")[0].read_text(encoding="utf-8")))
        tokens = np.arange(self._bundle.architecture.vocabulary_size)
        said = load_weights(self._bundle).get(ids_name(VERIFIER_OUTPUT), tokens)
        return np.isin(tokens, said).astype(np.int64)

    def verifier(self, folder: Path, vocabulary_size: int) -> Path:
        """The checkpoint to begin with, a run's that of before its refinement.

        One of a bundle, and one whose vocabulary grows, is written to `folder`.
        """
        initial = folder / "initial.pt"
        if self._bundle is None:
            return _grown(self.files("verifier")[0], initial, vocabulary_size)
        restoring.write_verifier(self._bundle, initial)
        return _grown(initial, initial, vocabulary_size)

    def drafter(self, folder: Path, wanted: DrafterConfig, vocabulary_size: int) -> Path | None:
        """The same of the drafter; None where there is none of the wanted shape."""
        shape = (wanted.layers, wanted.draft_length, wanted.bigram_rank, wanted.vocabulary_size)
        initial = folder / "initial.pt"
        if self._bundle is None:
            (path,) = self.files("drafter") or (None,)
            if not path or checkpoints.drafter_shape(found := checkpoints.load(path)) != shape:
                return None
            if len(found["model"]["bigram_left.weight"]) != self._vocabulary_size:
                return None
            return _grown(path, initial, vocabulary_size)
        own = self._bundle.architecture
        if (own.drafter_layers, own.draft_length, own.bigram_rank, own.draft_vocabulary_size) != shape:
            return None
        restoring.write_drafter(self._bundle, initial)
        return _grown(initial, initial, vocabulary_size)


def _grown(trained: Path, initial: Path, vocabulary_size: int) -> Path:
    return initial if checkpoints.write_grown(trained, initial, vocabulary_size) else trained


def _check_shape(found: Architecture, wanted: VerifierConfig, where: Path) -> None:
    for name in ("width", "heads", "feed_forward_width", "encoder_layers", "decoder_layers"):
        if getattr(found, name) != getattr(wanted, name):
            raise TrainingError(f"verifier.{name}: {where}, from which training goes on, has {getattr(found, name)}")
