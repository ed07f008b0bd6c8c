"""What a run goes on from (`start_from`): the folder of a finished run, or a bundle."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from specmt.bundle import MANIFEST, TOKENIZER, Bundle, load_bundle
from specmt.config import DrafterConfig
from specmt.engines.base import IntArray
from specmt.errors import TrainingError
from specmt.fairseq_backend import checkpoints, restoring
from specmt.tensors import VERIFIER_OUTPUT, ids_name
from specmt.weights import load_weights

TARGET_COUNTS = "target_counts.json"
"""How often each token stands on the target side of the training data, that of the runs before this one included."""


@dataclass(frozen=True)
class Earlier:
    """A run's folder, or a bundle's, whose weights are the 8-bit numbers that it translates with."""

    folder: Path

    @cached_property
    def _bundle(self) -> Bundle | None:
        return load_bundle(self.folder) if (self.folder / MANIFEST).is_file() else None

    def files(self, stage: str) -> tuple[Path, ...]:
        """What the stage of a later run depends on, beside that run's own data and settings."""
        if (self.folder / MANIFEST).is_file():
            return (self.folder / MANIFEST,)  # it has the digests of the others
        names = {"tokenizer": TOKENIZER, "binarise": TARGET_COUNTS, "verifier": "verifier.pt", "drafter": "drafter.pt"}
        path = self.folder / stage / names[stage]
        return (path,) if stage != "drafter" or path.is_file() else ()

    def tokenizer(self) -> Path:
        """The SentencePiece model.

        Raises:
            TrainingError: there is none in the bundle.
        """
        if self._bundle and not self._bundle.has_own_tokenizer:
            raise TrainingError(f"start_from: {self.folder} has no SentencePiece model of this program's")
        return self.folder / TOKENIZER if self._bundle else self.files("tokenizer")[0]

    def target_counts(self) -> IntArray:
        """What `TARGET_COUNTS` has, shape (vocabulary_size,); of a bundle, 1 for each token that its verifier says."""
        if not self._bundle:
            return np.array(json.loads(self.files("binarise")[0].read_text(encoding="utf-8")))
        size = self._bundle.architecture.vocabulary_size
        said = load_weights(self._bundle).get(ids_name(VERIFIER_OUTPUT), np.arange(size))
        return np.isin(np.arange(size), said).astype(np.int64)

    def verifier(self, folder: Path) -> Path:
        """The checkpoint to begin with, a run's that of before its refinement; a bundle's is written to `folder`."""
        if not self._bundle:
            return self.files("verifier")[0]
        restoring.write_verifier(self._bundle, folder / "initial.pt")
        return folder / "initial.pt"

    def drafter(self, folder: Path, wanted: DrafterConfig) -> Path | None:
        """The same of the drafter; None where there is none of the wanted shape."""
        if self._bundle and self._bundle.has_drafter:
            path = folder / "initial.pt"
            restoring.write_drafter(self._bundle, path)
        elif files := self.files("drafter"):
            path = files[0]
        else:
            return None
        has_shape = checkpoints.drafter_shape(checkpoints.load(path)) == (
            *(wanted.layers, wanted.draft_length, wanted.bigram_rank),
            wanted.vocabulary_size,
        )
        return path if has_shape else None
