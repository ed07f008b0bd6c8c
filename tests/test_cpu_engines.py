"""The engines for CPUs on a tiny pair with random weights: the same bits however called, close to the reference."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cpu_pair import ARCHITECTURE, FOREIGN, MARIAN, decoded, random_weights, read, sentences, write_pair
from numpy.typing import NDArray
from processors import skip_where_onnx_saturates

from specmt.alignment import Aligner
from specmt.arrays import FloatArray, IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import GRAPHS
from specmt.bundles.positions import position_table
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.bundles.weights import dequantised, read_stored, save_weights
from specmt.decoding.loops import Greedy, Speculative
from specmt.engines import onnx_engine
from specmt.engines.base import AnyEngine, Rows, step
from specmt.engines.drafting import draft_and_verify, walk
from specmt.engines.native_engine import NativeEngine
from specmt.engines.onnx_engine import OnnxEngine, _Tables
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import BundleError, EngineError
from specmt.exporting import write_cpu_files
from specmt.text.vocabulary import EOS_ID

TOLERANCE = 0.2
"""Nats between the engines' log-probabilities, for random weights; trained ones are closer."""


@dataclass(frozen=True)
class Pair:
    """A pair's files, and the engines that run them."""

    folder: Path
    engine: AnyEngine
    torch: TorchEngine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair's files."""
    return write_pair(tmp_path_factory.mktemp("pair"))


ENGINES: dict[str, Callable[[Architecture, Path], AnyEngine]] = {"native": NativeEngine, "onnx": OnnxEngine}


@pytest.fixture(scope="module", params=ENGINES)
def pair(request: pytest.FixtureRequest, folder: Path) -> Pair:
    """The pair in each of the engines."""
    weights = dequantised(read_stored(folder / "model.safetensors", ARCHITECTURE))
    reference = TorchEngine(ARCHITECTURE, {name: torch.from_numpy(array) for name, array in weights.items()})
    return Pair(folder, ENGINES[request.param](ARCHITECTURE, folder), reference)


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize("draft_length", [3, 8])
def test_strict_speculation_gives_greedys_ids_at_any_batch_size(pair: Pair, batch_size: int, draft_length: int) -> None:
    sources = sentences(np.random.default_rng(3).integers(1, 60, 40).tolist())
    greedy = decoded(pair.engine, Greedy(), sources, batch_size=1)
    assert len({len(ids) for ids in greedy}) > 10
    assert decoded(pair.engine, Greedy(), sources, batch_size) == greedy
    assert decoded(pair.engine, Speculative(draft_length, 1, 0.0), sources, batch_size) == greedy


@pytest.mark.parametrize(("foreign", "positions"), [(FOREIGN, 0), (FOREIGN, 30), (MARIAN, 30)])
@pytest.mark.parametrize("engine_name", [*ENGINES, "torch"])
def test_a_drafter_works_for_a_verifier_as_others_train_it(
    engine_name: str, foreign: Architecture, positions: int, tmp_path: Path
) -> None:
    skip_where_onnx_saturates(engine_name)
    foreign = replace(foreign, source_positions=0, target_positions=0)
    random = random_weights(1, foreign)
    if positions:
        foreign = replace(foreign, source_positions=positions, target_positions=2 * positions)
        for name in (SOURCE_POSITIONS, TARGET_POSITIONS):
            random[f"{name}.weight"] = position_table(getattr(foreign, name), foreign.width)
    save_weights(random, tmp_path / "model.safetensors")
    write_cpu_files(tmp_path, foreign, sentences(range(3, 23), seed=2))
    weights = dequantised(read_stored(tmp_path / "model.safetensors", foreign))
    engine: AnyEngine = TorchEngine(foreign, {name: torch.from_numpy(array) for name, array in weights.items()})
    if engine_name in ENGINES:
        reference, engine = engine, ENGINES[engine_name](foreign, tmp_path)
        gaps, agreements = reference_gap(Pair(tmp_path, engine, reference), sentences([4, 8, 15]), steps=8)
        assert gaps.max() < TOLERANCE
        assert agreements.mean() > 0.9
    sources = sentences([29, *np.random.default_rng(3).integers(1, 30, 12).tolist()])
    greedy = decoded(engine, Greedy(), sources, batch_size=1)
    assert max(map(len, greedy)) == 60  # the last drafts reach behind what was learned
    assert len({token for ids in greedy for token in ids}) > 3
    for batch_size in (1, 5):
        assert decoded(engine, Speculative(6, 1, 0.0), sources, batch_size) == greedy


@pytest.mark.parametrize("batch_size", [7, 32])
def test_relaxed_speculation_gives_the_same_ids_at_any_batch_size(pair: Pair, batch_size: int) -> None:
    sources = sentences(np.random.default_rng(4).integers(1, 60, 40).tolist())
    strategy = Speculative(5, beta=3, tau=1.0)
    assert decoded(pair.engine, strategy, sources, batch_size) == decoded(pair.engine, strategy, sources, batch_size=1)


@pytest.mark.parametrize("target_length", [0, 1, 15, 16, 31, 60, 63, 64, 127, 200, 300])
def test_log_probabilities_are_the_same_bits_one_by_one_and_in_a_window(pair: Pair, target_length: int) -> None:
    (source,) = sentences([20])
    prefix, window = np.arange(target_length) % 150 + 5, np.arange(9) + 7
    rows = pair.engine.encode([source])
    read(pair.engine, rows, prefix)
    together = pair.engine.verify(rows, window[None], beta=4)
    for position, token in enumerate(window):
        alone = step(pair.engine, rows, np.array([token]), beta=4)
        assert np.array_equal(alone.ids[:, 0], together.ids[:, position])
        assert np.array_equal(alone.log_probs[:, 0], together.log_probs[:, position])


def test_more_candidates_than_tokens_are_all_tokens(pair: Pair) -> None:
    (source,) = sentences([5])
    for engine in (pair.engine, pair.torch):
        candidates = engine.verify(engine.encode([source]), np.array([[EOS_ID]]), beta=10_000)
        size = pair.engine.architecture.target_vocabulary_size or pair.engine.architecture.vocabulary_size
        assert candidates.ids.shape == candidates.log_probs.shape == (1, 1, size)
        assert len(set(candidates.ids.ravel().tolist())) == size


@pytest.mark.parametrize("source_length", [1, 15, 16, 17, 47, 48, 63, 64, 65, 130, 300])
def test_log_probabilities_are_the_same_bits_alone_and_among_others(pair: Pair, source_length: int) -> None:
    """Neighbours with longer sources, longer prefixes and other prefixes; rows joined, selected and reordered."""
    engine = pair.engine
    mine, *others = sentences([source_length, 3, 350, 64, 20])
    alone = engine.encode([mine])
    read(engine, alone, [11, 12, 13])

    late = engine.encode(others)
    read(engine, late, np.arange(40) + 20)
    batch = engine.select(engine.join(late, alone), np.array([4, 2, 4, 0]))
    read(engine, alone, [14, 15])
    read(engine, batch, [14, 15])
    batch = engine.reorder(batch, np.array([2, 1, 0, 3]))
    read(engine, alone, [16, 17])
    read(engine, batch, [16, 17])
    assert batch.lengths.tolist() == [7, 44, 7, 44]

    window = np.arange(6) + 9
    expected = engine.verify(alone, window[None], beta=3)
    found = engine.verify(batch, np.stack([window, window + 1, window + 2, window]), beta=3)
    assert np.array_equal(found.ids[0], expected.ids[0])
    assert np.array_equal(found.log_probs[0], expected.log_probs[0])


def test_a_draft_is_the_same_alone_and_among_others(pair: Pair) -> None:
    engine = pair.engine
    mine, *others = sentences([12, 40, 300])
    alone = engine.encode([mine])
    read(engine, alone, [11, 12, 13])
    late = engine.encode(others)
    read(engine, late, np.arange(70) + 20)
    batch = engine.join(late, alone)
    expected = engine.draft(alone, np.array([14]), 6)
    found = engine.draft(batch, np.array([8, 9, 14]), 6)
    assert np.array_equal(found.ids[2], expected.ids[0])
    assert np.array_equal(found.scores[2], expected.scores[0])
    assert np.array_equal(found.transitions[2], expected.transitions[0])


@pytest.mark.parametrize("length", [1, 16, 37])
@pytest.mark.parametrize("drafted", [False, True])
def test_reordered_beams_are_copies_of_what_they_continue(pair: Pair, length: int, drafted: bool) -> None:
    """Prefixes that two beams continue, one that stays, and two that nobody does; each then goes its own way."""
    engine, order = pair.engine, np.array([1, 1, 0, 4, 5, 4])
    prefixes = np.random.default_rng(5).integers(9, 60, (6, length + 2))
    sources = [source for source in sentences([7, 20]) for _ in range(3)]

    def continued(rows: Rows, begin: int, tokens: IntArray) -> list[FloatArray]:
        """The scores of all drafts and candidates."""
        scores = []
        for column in tokens[:, begin:].T:
            if drafted:  # from the first token on, or never
                scores.append(engine.draft(rows, column, 3).scores)
            scores.append(step(engine, rows, column, beta=3).log_probs)
        return scores

    beams = engine.encode(sources)
    continued(beams, 0, prefixes[:, :length])
    whole = np.concatenate([prefixes[order, :length], prefixes[:, length:]], axis=1)
    found = continued(engine.reorder(beams, order), length, whole)
    expected = continued(engine.encode([sources[index] for index in order]), 0, whole)
    assert all(map(np.array_equal, found, expected[-len(found) :]))


def test_rolling_back_forgets_what_was_not_committed(pair: Pair) -> None:
    (source,) = sentences([10])
    plain, rolled = pair.engine.encode([source]), pair.engine.encode([source])
    pair.engine.verify(rolled, np.array([[EOS_ID, 90, 91, 92]]), beta=1)
    pair.engine.commit(rolled, np.array([1]))
    step(pair.engine, plain, np.array([EOS_ID]), beta=1)
    expected, found = (pair.engine.verify(rows, np.array([[33, 34]]), beta=2) for rows in (plain, rolled))
    assert np.array_equal(found.log_probs, expected.log_probs)


@pytest.mark.parametrize("draft_length", range(1, 9))
def test_the_fused_call_does_what_draft_walk_and_verify_do(pair: Pair, draft_length: int) -> None:
    rows = pair.engine.encode(sentences([5, 9, 14]))
    read(pair.engine, rows, [EOS_ID, 30])
    last_ids = np.array([40, 41, 42])
    draft = walk(pair.engine.draft(rows, last_ids, draft_length))
    candidates = pair.engine.verify(rows, np.concatenate([last_ids[:, None], draft], axis=1), beta=3)
    fused = draft_and_verify(pair.engine, rows, last_ids, draft_length, beta=3)
    assert np.array_equal(fused.draft, draft)
    assert np.array_equal(fused.candidates.ids, candidates.ids)
    assert np.array_equal(fused.candidates.log_probs, candidates.log_probs)


def reference_gap(pair: Pair, sources: Sequence[Sequence[int]], steps: int) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Over all steps: differences between the engines' best log-probabilities, and whether their best ids agree."""
    onnx_rows, torch_rows = pair.engine.encode(sources), pair.torch.encode(sources)
    last_ids = np.full(len(sources), EOS_ID)
    gaps, agreements = [], []
    for _ in range(steps):
        found = step(pair.engine, onnx_rows, last_ids, beta=1)
        expected = step(pair.torch, torch_rows, last_ids, beta=1)
        gaps.append(np.abs(found.log_probs - expected.log_probs))
        agreements.append(found.ids == expected.ids)
        last_ids = expected.ids[:, 0, 0]
    return np.concatenate(gaps), np.concatenate(agreements)


def test_log_probabilities_are_close_to_the_reference_engines(pair: Pair) -> None:
    skip_where_onnx_saturates(pair.engine.name)
    gaps, agreements = reference_gap(pair, sentences([4, 8, 15, 23, 42]), steps=20)
    assert gaps.max() < TOLERANCE
    assert agreements.mean() > 0.95


def test_attention_to_the_source_is_nearly_the_reference_s(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    reference = Aligner(ARCHITECTURE, lambda: dequantised(read_stored(folder / "model.safetensors", ARCHITECTURE)))
    own = Aligner(ARCHITECTURE, dict, engine.attention)
    for source, target in zip(sentences([4, 17, 1, 42]), sentences([9, 16, 3, 40], seed=5), strict=True):
        expected, found = reference.attention(source, target), own.attention(source, target)
        assert found.shape == expected.shape == (len(target), len(source))
        np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
        unlike_uniform = np.abs(expected - 1 / len(source)).mean()
        assert np.abs(found - expected).mean() < 0.1 * unlike_uniform
    assert (own.attention(source, target) == found).all()


def test_drafts_are_mostly_the_reference_engines(pair: Pair) -> None:
    skip_where_onnx_saturates(pair.engine.name)
    drafts = []
    for engine in (pair.engine, pair.torch):
        rows = engine.encode(sentences([4, 8, 15, 23, 42]))
        engine.draft(rows, np.full(5, EOS_ID), 1)
        read(engine, rows, [EOS_ID, 17])
        drafts.append(walk(engine.draft(rows, np.full(5, 18), 8)))
    assert (drafts[0] == drafts[1]).mean() > 0.6


def test_graphs_read_the_weights_file_and_hold_no_matrix(folder: Path) -> None:
    stored = read_stored(folder / "model.safetensors", ARCHITECTURE)
    matrices = [array for array in stored.values() if array.dtype == np.int8 and array.size > ARCHITECTURE.width]
    for name in GRAPHS:
        graph = (folder / name).read_bytes()
        assert not any(matrix.tobytes() in graph for matrix in matrices)


@pytest.mark.parametrize("most_rows", [0, 1, 3])
def test_plain_steps_with_more_rows_than_are_speculated_change_no_token(pair: Pair, most_rows: int) -> None:
    sources = sentences(np.random.default_rng(6).integers(1, 40, 12).tolist())
    strategy = Speculative(4, beta=1, tau=0.0, most_rows=most_rows)
    for batch_size in (1, 5):
        assert decoded(pair.engine, strategy, sources, batch_size) == decoded(pair.engine, Greedy(), sources, 1)


def test_masks_of_all_capacities_are_parts_of_one() -> None:
    tables = _Tables(8, None)
    small, large = tables.limits(32), tables.limits(64)
    assert (small == large[:32, :32]).all() and np.isneginf(large).sum() == 63 * 64 / 2
    assert np.shares_memory(tables.limits(32), large)


def test_onnx_runtime_keeps_no_id_and_reports_nothing(tmp_path: Path) -> None:
    """Where its version has telemetry, it writes beside the user's caches as soon as it is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    program = "import os, specmt.engines.onnx_calls; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    command = [sys.executable, "-c", program]
    asked = subprocess.run(
        command, capture_output=True, check=True, env={**environment, "XDG_CACHE_HOME": str(tmp_path)}
    )
    assert asked.stdout.strip() == b"1" and list(tmp_path.iterdir()) == []


def test_a_graph_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "encode.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match=r"encode\.onnx") as raised:
        OnnxEngine(ARCHITECTURE, tmp_path).encode(sentences([3]))
    assert "\n" not in str(raised.value)


def test_another_graph_than_its_name_says_is_one_line(folder: Path, tmp_path: Path) -> None:
    for name in ("encode.onnx", "model.safetensors"):
        (tmp_path / name).symlink_to(folder / name)
    (tmp_path / "draft.onnx").symlink_to(folder / "speculate.onnx")
    (tmp_path / "verify.onnx").symlink_to(folder / "encode.onnx")
    engine = OnnxEngine(ARCHITECTURE, tmp_path)
    rows = engine.encode(sentences([3]))
    with pytest.raises(BundleError, match=r"draft\.onnx: not the graph of this name; `specmt export .*` writes it"):
        engine.draft(rows, np.array([EOS_ID]), 2)
    with pytest.raises(BundleError, match=r"verify\.onnx: not the graph of this name"):
        engine.verify(rows, np.array([[EOS_ID]]), beta=1)
    (tmp_path / "draft.onnx").unlink()
    (tmp_path / "draft.onnx").symlink_to(folder / "draft.onnx")
    other = OnnxEngine(replace(ARCHITECTURE, width=2 * ARCHITECTURE.width), tmp_path)
    with pytest.raises(BundleError, match=r"encode\.onnx: does not fit the weights \(") as raised:
        other.encode(sentences([3]))
    assert "\n" not in str(raised.value)


def test_tables_grow_for_all_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread makes a short table while another makes a longer one, and ends last."""
    tables, begun, go_on = _Tables(8, None), threading.Event(), threading.Event()

    def slow(count: int, *rest: object) -> FloatArray:
        if count < 1000:
            begun.set()
            go_on.wait(5)
        return position_table(count, *rest)

    monkeypatch.setattr(onnx_engine, "position_table", slow)
    short = threading.Thread(target=tables.positions, args=(200,))
    short.start()
    assert begun.wait(20)
    longer = threading.Thread(target=tables.positions, args=(600,))
    longer.start()
    longer.join(1)
    go_on.set()
    short.join()
    longer.join()
    assert len(tables.numbers) >= 600
    assert len(tables.positions(1)) >= 600


@pytest.mark.parametrize("engine", ["native_engine.NativeEngine", "onnx_engine.OnnxEngine"])
def test_the_engine_needs_neither_torch_nor_onnx(folder: Path, engine: str) -> None:
    module, name = engine.split(".")
    script = f"""
import sys
import threading
import numpy
from pathlib import Path
from specmt.bundles.architecture import Architecture
from specmt.engines.{module} import {name}
engine = {name}({ARCHITECTURE!r}, Path({str(folder)!r}))
engine.draft_and_verify(engine.encode([[9, 8, 2]]), numpy.array([2]), 3, 1)
print(sorted(name for name in ("torch", "onnx", "fairseq") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
