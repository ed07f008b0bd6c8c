"""The native engine's builds for each level of processors: the same bits, whatever the weights and activations are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from cpu_pair import ARCHITECTURE, FOREIGN, MARIAN, WIDE, random_weights, sentences, write_pair
from safetensors.numpy import load_file, save_file

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import RANGES, WEIGHTS
from specmt.bundles.tensors import scale_name
from specmt.bundles.weights import is_read_in_each_pass, save_weights
from specmt.engines.native_engine import NativeEngine
from specmt.engines.native_library import LEVELS, runnable
from specmt.exporting import write_cpu_files

TABLE = 256
"""Positions of which the library keeps the sinusoids."""
ALL_ACTIVE = 48
"""Hidden units of 200 that are active in all lines: few enough for the others to be passed over."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair's files."""
    return write_pair(tmp_path_factory.mktemp("pair"))


def skip_where_it_cannot_run(level: str) -> None:
    if level not in runnable():
        pytest.skip(f"this processor cannot run the build for {level}")


@pytest.mark.parametrize("shape", [ARCHITECTURE, FOREIGN, MARIAN, WIDE], ids=["plain", "foreign", "marian", "wide"])
@pytest.mark.parametrize("level", LEVELS)
def test_processors_without_the_newest_instructions_compute_the_same_bits(
    tmp_path: Path, level: str, shape: Architecture
) -> None:
    skip_where_it_cannot_run(level)
    write_pair(tmp_path, shape)
    fastest, other = NativeEngine(shape, tmp_path), NativeEngine(shape, tmp_path, level)
    results, texts = [], []
    for engine in (fastest, other):
        rows = engine.encode(sentences([3, 17, 40]))
        lattice = engine.draft(rows, np.array([2, 2, 2]), 5)
        candidates = engine.verify(rows, np.array([[2, 9, 8, 7], [2, 30, 31, 32], [2, 5, 6, 7]]), beta=4)
        engine.commit(rows, np.full(3, 4))
        for _ in range(9):
            run = engine.iterate(rows, [7, 32, 7], [400] * 3, 4, 2, 1.0, ends=3)
        assert max(rows.counts) > TABLE
        results.append((lattice.ids, lattice.scores, lattice.transitions, candidates.ids, candidates.log_probs))
        texts.append(run)
    for expected, found in zip(*results, strict=True):
        assert np.array_equal(expected, found)
    assert texts[0] == texts[1]


def check_against_any(shape: Architecture, folder: Path, level: str) -> None:
    """What a build computes has the bits of the one for any processor."""
    found = []
    for engine in (NativeEngine(shape, folder, "any"), NativeEngine(shape, folder, level)):
        rows = engine.encode(sentences([3, 17, 40]))
        found.append(engine.verify(rows, np.array([[2, 9, 8, 7, 6]] * 3), beta=4))
    assert np.array_equal(found[0].ids, found[1].ids)
    assert np.array_equal(found[0].log_probs, found[1].log_probs)


def narrow_ranges(folder: Path, share: float) -> None:
    """Leave activations a share of the room that they had: many go beyond it."""
    ranges = json.loads((folder / RANGES).read_text())
    narrower = {name: [low * share, high * share] for name, (low, high) in ranges.items()}
    (folder / RANGES).write_text(json.dumps(narrower))


@pytest.mark.parametrize("level", LEVELS[1:])
def test_activations_that_fill_or_leave_their_ranges_are_multiplied_exactly(
    folder: Path, tmp_path: Path, level: str
) -> None:
    skip_where_it_cannot_run(level)
    for name in (WEIGHTS, RANGES):
        shutil.copy(folder / name, tmp_path)
    for share in (0.5, 0.1):  # of the original, then of that
        narrow_ranges(tmp_path, share)
        check_against_any(ARCHITECTURE, tmp_path, level)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3, 0.95])
def test_weights_whose_products_leave_16_bits_are_multiplied_exactly(tmp_path: Path, level: str, share: float) -> None:
    # `share`: of large weights, so that nearly all fours of inputs find others, or hardly any.
    skip_where_it_cannot_run(level)
    write_pair(tmp_path, WIDE)
    random = np.random.default_rng(1)
    tensors = load_file(tmp_path / WEIGHTS)
    for name, matrix in tensors.items():
        if matrix.dtype == np.int8 and matrix.ndim == 2:
            large = random.choice([-128, 127], (len(matrix), 1)).astype(np.int8)  # of an output, all of one sign
            tensors[name] = np.where(random.random(matrix.shape) < share, large, matrix)
    save_file(tensors, tmp_path / WEIGHTS)
    narrow_ranges(tmp_path, 0.2)
    check_against_any(WIDE, tmp_path, level)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("few", ["all", "all but one weight of each matrix"])
def test_weights_of_4_bits_are_multiplied_exactly(tmp_path: Path, level: str, few: str) -> None:
    # Of as many lines as there may be, from one to more than two tiles of the matrix unit hold.
    skip_where_it_cannot_run(level)
    write_pair(tmp_path, WIDE)
    random = np.random.default_rng(1)
    tensors = load_file(tmp_path / WEIGHTS)
    for name, matrix in tensors.items():
        if is_read_in_each_pass(name) and matrix.dtype == np.int8:
            tensors[name] = random.integers(-8, 8, matrix.shape, dtype=np.int8)
            tensors[scale_name(name)] *= 16
            tensors[name][-1, -1] = -8 if few == "all" else 8
    save_file(tensors, tmp_path / WEIGHTS)
    found = []
    for engine in (NativeEngine(WIDE, tmp_path, "any"), NativeEngine(WIDE, tmp_path, level)):
        rows = engine.encode(sentences([1, 2, 3, 4, 5, 16, 17, 31, 32, 33, 70]))
        lattices = [engine.draft(rows, np.arange(11) + 5, length) for length in (1, 2, 3, 8)]
        tokens = np.arange(11 * 40).reshape(11, 40) % 100 + 5
        windows = [engine.verify(rows, tokens[:, :length], beta=4) for length in (1, 3, 9, 40)]
        for source in sentences([1, 2, 3, 4, 5, 6, 7]):  # of few lines, in the encoder and in windows
            row = engine.encode([source])
            windows.append(engine.verify(row, tokens[:1, : len(source)], beta=4))
            lattices.append(engine.draft(row, np.array([5]), len(source)))
        found.append(
            [array for lattice in lattices for array in (lattice.ids, lattice.scores)]
            + [array for window in windows for array in (window.ids, window.log_probs)]
        )
    for expected, array in zip(*found, strict=True):
        assert np.array_equal(expected, array)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("integer", [7, -8])
def test_the_largest_weights_of_4_bits_are_multiplied_exactly(tmp_path: Path, level: str, integer: int) -> None:
    # With the smallest and the largest activations: no sum of theirs leaves 16 bits.
    skip_where_it_cannot_run(level)
    write_pair(tmp_path, WIDE)
    tensors = load_file(tmp_path / WEIGHTS)
    for name, matrix in tensors.items():
        if is_read_in_each_pass(name) and matrix.dtype == np.int8:
            tensors[name] = np.where(np.arange(len(matrix))[:, None] % 3, matrix >> 4, np.int8(integer))
            tensors[scale_name(name)] *= 16
    save_file(tensors, tmp_path / WEIGHTS)
    narrow_ranges(tmp_path, 0.01)
    check_against_any(WIDE, tmp_path, level)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("share", [1, 0.5, 0.2])
@pytest.mark.parametrize("bits", [8, 4])
def test_hidden_units_that_are_hardly_ever_active_are_multiplied_exactly(
    tmp_path: Path, level: str, share: float, bits: int
) -> None:
    # The smaller the share of their range, the larger are those that are: products of a few leave 16 bits, with weights
    # of 4 bits those of the first units, which all are.
    skip_where_it_cannot_run(level)
    weights = {name: values - 3 * name.endswith("fc1.bias") for name, values in random_weights(1, WIDE).items()}
    for name in filter(lambda name: bits == 4 and name.endswith("fc1.bias"), weights):
        weights[name] = np.where(np.arange(len(weights[name])) < ALL_ACTIVE, 8, weights[name] - 3).astype(np.float32)
    save_weights(weights, tmp_path / WEIGHTS)
    write_cpu_files(tmp_path, WIDE, sentences(range(3, 43), seed=2))
    tensors = load_file(tmp_path / WEIGHTS)
    for name, matrix in tensors.items():
        if name.endswith("fc2.weight"):
            matrix[::2] = 127 if bits == 8 else -128
            np.right_shift(matrix, 8 - bits, out=matrix)
            tensors[scale_name(name)] *= 2 ** (8 - bits)
    save_file(tensors, tmp_path / WEIGHTS)
    narrow_ranges(tmp_path, share)
    check_against_any(WIDE, tmp_path, level)


@pytest.mark.parametrize(("level", "rows"), [("any", 0), ("avx2", 0), ("avx512", 1), ("amx", 1)])
def test_drafts_are_for_processors_that_multiply_fast(folder: Path, level: str, rows: int) -> None:
    skip_where_it_cannot_run(level)
    assert NativeEngine(ARCHITECTURE, folder, level).speculated_rows == rows
