"""What the engines for CPUs need beside the weights: ranges and graphs. Needs torch and onnx; translation does not."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from specmt.arrays import FloatArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import GRAPHS, RANGES, WEIGHTS, Bundle, load_bundle, write_bundle
from specmt.bundles.weights import dequantised, load_weights, read_stored, save_weights
from specmt.corpus import evenly_spread
from specmt.engines.calibration import calibrate, input_moments
from specmt.engines.onnx_export import export_graphs
from specmt.errors import EngineError, InputError
from specmt.files import write_json
from specmt.text.vocabulary import EOS_ID, AnyVocabulary
from specmt.text_files import read_lines

CALIBRATION_SENTENCES = 1000
"""Sentences of which weights in 4 bits are rounded for what they are multiplied by."""
_RANGE_SENTENCES = 200
"""Of them, those whose activations fix the scales of the 8-bit engines: with more, single ones widen the ranges."""
_CALIBRATION_TOKENS = 200
"""That are read of each: translation splits what is longer than a model has seen, and attention takes their square."""


def read_calibration(path: Path) -> list[str]:
    """Lines of a text in the source language alone.

    Raises:
        InputError: unreadable, or a line with a tab, as of a file with source and target.
    """
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if "\t" in line:
            raise InputError(f"{path}: line {number}: has a tab; --calibration takes text of the source language alone")
    return lines


def calibration_sources(vocabulary: AnyVocabulary, lines: Sequence[str]) -> list[list[int]]:
    """Ids with end-of-sentence of sentences spread evenly over the lines that are not blank; of long ones the start.

    Raises:
        InputError: all lines are blank.
    """
    full = [ids for line in lines if (ids := vocabulary.encode(line))]
    if not full:
        raise InputError("calibration needs text, and there is none")
    return [[*ids[:_CALIBRATION_TOKENS], EOS_ID] for ids in evenly_spread(full, CALIBRATION_SENTENCES)]


def moments_for(
    weight_bits: int, architecture: Architecture, weights: Mapping[str, FloatArray], sources: Sequence[Sequence[int]]
) -> dict[str, FloatArray] | None:
    """What `save_weights` needs for so many bits: for 8 nothing.

    Args:
        weights: all of the pair's, in float32.
        sources: see `write_cpu_files`.
    """
    return input_moments(architecture, weights, sources) if weight_bits == 4 else None


def write_cpu_files(folder: Path, architecture: Architecture, sources: Sequence[Sequence[int]]) -> str | None:
    """Write the native engine's ranges and the onnx engine's graphs beside the weights in `folder`.

    Args:
        sources: sentences (ids with end-of-sentence) like those to be translated; a few hundred.

    Returns:
        Why there are no graphs, if there are none.

    Raises:
        BundleError: weights that do not fit the architecture.
    """
    stored = read_stored(folder / WEIGHTS, architecture)
    calibration = calibrate(architecture, dequantised(stored), evenly_spread(sources, _RANGE_SENTENCES))
    write_json(folder / RANGES, calibration.ranges)
    try:
        export_graphs(folder, architecture, stored, calibration)
    except EngineError as error:
        return str(error)
    return None


def export_bundle(path: Path, lines: Sequence[str], weight_bits: int | None = None) -> str | None:
    """Write a bundle's ranges and graphs anew, calibrated on `lines`; why there are no graphs, if there are none.

    What lies beside the bundle's own files stays.

    Args:
        weight_bits: 8 or 4, in which its weights are stored anew (see `moments_for`); None: they stay.

    Raises:
        BundleError: see `load_bundle`.
        InputError: all lines are blank.
    """
    bundle = load_bundle(path)
    sources = calibration_sources(bundle.vocabulary(), lines)
    without_graphs = None

    def write_files(folder: Path) -> None:
        nonlocal without_graphs
        written = (*GRAPHS, RANGES) if weight_bits is None else (*GRAPHS, RANGES, WEIGHTS)
        copy_files(bundle, folder, (name for name in bundle.files if name not in written))
        if weight_bits is not None:
            weights = load_weights(bundle)
            moments = moments_for(weight_bits, bundle.architecture, weights, sources)
            save_weights(weights, folder / WEIGHTS, moments=moments)
        without_graphs = write_cpu_files(folder, bundle.architecture, sources)

    write_bundle(
        path,
        languages=bundle.languages,
        architecture=bundle.architecture,
        decoding=bundle.decoding,
        write_files=write_files,
        training={**bundle.training, **({} if weight_bits is None else {"weight_bits": weight_bits})},
        scores=bundle.scores if weight_bits is None else {},  # they are of the weights before
        others_stay=True,
    )
    return without_graphs


def copy_files(bundle: Bundle, folder: Path, names: Iterable[str]) -> None:
    """Copy some of a bundle's files into another folder."""
    for name in names:
        shutil.copyfile(bundle.path / name, folder / name)
