"""A bundle's files: weights, and the graphs that the onnx engine runs. Needs torch and onnx; translation does not."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from specmt.bundle import GRAPHS, Bundle, load_bundle, write_bundle
from specmt.engines.onnx_export import export_graphs
from specmt.errors import InputError
from specmt.vocabulary import EOS_ID, AnyVocabulary

CALIBRATION_SENTENCES = 200
"""Sentences whose activations fix the scales of the 8-bit engine."""


def calibration_sources(vocabulary: AnyVocabulary, lines: Sequence[str]) -> list[list[int]]:
    """Ids with end-of-sentence of sentences spread evenly over the lines that are not blank.

    Raises:
        InputError: all lines are blank.
    """
    full = [ids for line in lines if (ids := vocabulary.encode(line))]
    if not full:
        raise InputError("calibration needs text, and there is none")
    count = min(len(full), CALIBRATION_SENTENCES)
    return [[*full[place * len(full) // count], EOS_ID] for place in range(count)]


def export_bundle(path: Path, lines: Sequence[str]) -> None:
    """Write a bundle's graphs anew, calibrated on `lines`.

    Raises:
        BundleError: see `load_bundle`.
        InputError: all lines are blank.
    """
    bundle = load_bundle(path)
    sources = calibration_sources(bundle.vocabulary(), lines)

    def write_files(folder: Path) -> None:
        copy_files(bundle, folder, (name for name in bundle.files if name not in GRAPHS))
        export_graphs(folder, bundle.architecture, sources)

    write_bundle(
        path,
        languages=(bundle.source_language, bundle.target_language),
        architecture=bundle.architecture,
        decoding=bundle.decoding,
        write_files=write_files,
        training=bundle.training,
        scores=bundle.scores,
    )


def copy_files(bundle: Bundle, folder: Path, names: Iterable[str]) -> None:
    """Copy some of a bundle's files into another folder."""
    for name in names:
        shutil.copyfile(bundle.path / name, folder / name)
