"""A larger pair that translates as a smaller one does, to measure what its size costs at the acceptance of the small.

Every unit stands twice, every weight that reads it is halved, and further decoder layers add nothing: each layer gives
what it gave, to the last bits. Positions become a table, as wider sinusoids are others.

    python scripts/widen.py [--bundle DIR] [--to DIR] [--decoder-layers N] [--positions N]
    specmt eval -m runs/widened --source FILE --reference FILE

With `--trainable` it is what a training may start from (`start_from`). Positions stay sinusoids, so that the pair says
only nearly what the small one says, and the two halves of a unit are read unequally, or they would learn the same (Chen
et al. 2016, arXiv 1511.05641).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarking import BUNDLED, ROOT
from numpy.typing import NDArray

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import TOKENIZER, WEIGHTS, load_bundle, write_bundle
from specmt.bundles.positions import position_table
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.bundles.weights import load_weights, save_weights
from specmt.exporting import calibration_sources, copy_files, write_cpu_files
from specmt.text_files import read_lines

Weights = dict[str, NDArray[Any]]
_DECODER = "verifier.decoder.layers."
_LAST_NORMS = ("verifier.decoder.layer_norm.", "drafter.layer_norm.")
"""What output matrices read. Those are embeddings, which are smaller by the square root of 2: so is what they read."""
_READ_LAST_STATES = (".prefix_attn.", "drafter.bigram_gate.")
_WRITE_HIDDEN = {"out_proj", "fc2"}
"""They read what lies within a sublayer, and write hidden states; the next do the reverse."""
_READ_HIDDEN = {"q_proj", "k_proj", "v_proj", "fc1", "bigram_gate"}
_OF_TOKENS = {"bigram_left", "bigram_right"}


def main() -> None:
    """Write the larger bundle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=BUNDLED, help="a pair that specmt trained")
    parser.add_argument("--to", type=Path, default=ROOT / "runs" / "widened")
    parser.add_argument("--decoder-layers", type=int, default=6)
    parser.add_argument("--positions", type=int, default=512, help="the longest source and target, in tokens")
    parser.add_argument("--calibration", type=Path, default=ROOT / "data" / "everyday.de")
    parser.add_argument("--trainable", action="store_true", help="to be trained, not timed; positions stay sinusoids")
    options = parser.parse_args()
    bundle = load_bundle(options.bundle)
    architecture = widened_shape(bundle.architecture, options.decoder_layers, options.positions)
    weights = widened(bundle.architecture, load_weights(bundle), architecture)
    if options.trainable:
        architecture = replace(architecture, source_positions=0, target_positions=0)
        weights = trainable(weights)

    def write_files(folder: Path) -> None:
        copy_files(bundle, folder, [TOKENIZER])
        save_weights(weights, folder / WEIGHTS)
        if not options.trainable:
            sources = calibration_sources(bundle.vocabulary(), read_lines(options.calibration))
            write_cpu_files(folder, architecture, sources)

    write_bundle(
        options.to,
        languages=bundle.languages,
        architecture=architecture,
        decoding=bundle.decoding,
        write_files=write_files,
        training=bundle.training,
        scores=bundle.scores,
    )
    print(options.to)


def widened_shape(small: Architecture, decoder_layers: int, positions: int) -> Architecture:
    """Twice as wide, with more heads of the same size."""
    if decoder_layers < small.decoder_layers:
        raise SystemExit(f"--decoder-layers: the pair has {small.decoder_layers}, and none can be left out")
    return replace(
        small,
        width=2 * small.width,
        heads=2 * small.heads,
        feed_forward_width=2 * small.feed_forward_width,
        decoder_layers=decoder_layers,
        source_positions=positions,
        target_positions=positions,
    )


def widened(small: Architecture, weights: Mapping[str, NDArray[Any]], large: Architecture) -> Weights:
    """The weights of the larger pair."""
    result = dict(_deepened(weights, small.decoder_layers, large.decoder_layers))
    for name, weight in result.items():
        result[name] = _widened(name, weight, small.width)
    table = position_table(large.source_positions, small.width)
    return {**result, **dict.fromkeys((f"{SOURCE_POSITIONS}.weight", f"{TARGET_POSITIONS}.weight"), _twice(table))}


def trainable(weights: Mapping[str, NDArray[Any]]) -> Weights:
    """What `widened` gives, without tables of positions and with halves of a unit that are read unequally.

    The halves of a hidden state's units lie beside each other: so do those of sinusoids that are nearly the same.
    """
    generator = np.random.default_rng(1)
    result = {}
    for name in sorted(weights.keys() - {f"{SOURCE_POSITIONS}.weight", f"{TARGET_POSITIONS}.weight"}):
        weight, module = weights[name], name.split(".")[-2]
        if module in _WRITE_HIDDEN and weight.ndim == 2:
            weight = _paired(_read_unequally(weight, 0.5, generator), axis=0)
        elif module in _READ_HIDDEN and weight.ndim == 2:
            weight = _paired(_read_unequally(weight, 0.15, generator), axis=1)
        elif module not in _READ_HIDDEN | _OF_TOKENS and not name.endswith(".ids"):
            weight = _paired(weight, axis=-1)
        result[name] = weight
    return result


def _paired(weight: NDArray[Any], axis: int) -> NDArray[Any]:
    """Units and their other halves, which follow all units, put beside each other."""
    order = np.arange(weight.shape[axis]).reshape(2, -1).T.ravel()
    return np.take(weight, order, axis=axis)


def _read_unequally(weight: NDArray[Any], share: float, generator: np.random.Generator) -> NDArray[Any]:
    """The same product with two equal halves of what is read, one of them read more; `share` of the weights' spread."""
    first, _ = np.split(weight, 2, axis=1)
    spread = float(f"{share * first.std():.3g}")  # the same on every machine
    more = generator.normal(0, spread, first.shape).astype(first.dtype)
    return np.concatenate([first + more, first - more], axis=1)


def _deepened(weights: Mapping[str, NDArray[Any]], layers: int, wanted: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """All weights, and those of further decoder layers, like the last one but that what they add is zero."""
    yield from weights.items()
    last = f"{_DECODER}{layers - 1}."
    for layer in range(layers, wanted):
        for name, weight in weights.items():
            if name.startswith(last):
                adds = ".out_proj." in name or ".fc2." in name
                yield name.replace(last, f"{_DECODER}{layer}."), np.zeros_like(weight) if adds else weight


def _widened(name: str, weight: NDArray[Any], width: int) -> NDArray[Any]:
    if name.endswith(".ids") or name.startswith(("drafter.bigram_left", "drafter.bigram_right")):
        return weight
    if name.startswith(_LAST_NORMS):
        return _twice(weight) / math.sqrt(2)
    if name.startswith("drafter.slots"):
        return _twice(weight)
    if name in {"embeddings.weight", "output.weight", "drafter.output.weight"}:
        return _twice(weight) / math.sqrt(2)  # the square root of the width makes up for it
    if weight.ndim == 1:
        return _twice(weight)
    halved = _twice(weight) / (math.sqrt(2) if any(part in name for part in _READ_LAST_STATES) else 2)
    return halved if name.startswith("drafter.bigram_gate") else np.concatenate([halved, halved])


def _twice(weight: NDArray[Any]) -> NDArray[Any]:
    """Along the last axis."""
    return np.concatenate([weight, weight], axis=-1)


if __name__ == "__main__":
    main()
