"""The engines for CPUs on a tiny pair with random weights: the same bits however called, close to the reference."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from specmt.architecture import Architecture
from specmt.beam import beam_search
from specmt.bundle import GRAPHS, WEIGHTS
from specmt.decoding import Greedy, Request, Speculative, Strategy, decode
from specmt.drafting import draft_and_verify, walk
from specmt.engines import native_engine
from specmt.engines.base import AnyEngine, FloatArray, Rows, step
from specmt.engines.native_engine import NativeEngine, read_ranges
from specmt.engines.native_library import LEVELS, runnable
from specmt.engines.onnx_engine import OnnxEngine
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import BundleError, EngineError
from specmt.exporting import write_cpu_files
from specmt.positions import SOURCE_POSITIONS, TARGET_POSITIONS, position_table
from specmt.vocabulary import EOS_ID
from specmt.weights import dequantised, expected_shapes, ids_name, read_stored, save_weights

ARCHITECTURE = Architecture(
    vocabulary_size=160,
    width=32,
    heads=2,
    feed_forward_width=64,
    encoder_layers=2,
    decoder_layers=2,
    drafter_layers=2,
    draft_length=8,
    bigram_rank=8,
    target_vocabulary_size=128,
    draft_vocabulary_size=72,
)
FOREIGN = replace(
    ARCHITECTURE,
    source_vocabulary_size=168,
    tied_output=False,
    encoder_heads=4,
    encoder_feed_forward_width=48,
    encoder_pre_norm=False,
    decoder_pre_norm=False,
    encoder_final_norm=False,
    decoder_final_norm=False,
    scaled_embeddings=False,
    activation="gelu",
)
"""Post-norm, three matrices, another encoder, gelu: what a converted verifier may be."""
WIDE = replace(ARCHITECTURE, width=128, heads=2, feed_forward_width=200)
"""Heads of 64 units, as the bundled pair has, and a width that fills no group."""
TOLERANCE = 0.2
"""Nats between the engines' log-probabilities, for random weights; trained ones are closer."""


@dataclass(frozen=True)
class Pair:
    """A pair's files, and the engines that run them."""

    folder: Path
    engine: AnyEngine
    torch: TorchEngine


def random_weights(seed: int, architecture: Architecture = ARCHITECTURE) -> dict[str, NDArray[Any]]:
    """Large enough that what was read matters for what comes next."""
    random = np.random.default_rng(seed)
    weights: dict[str, NDArray[Any]] = {}
    for name, shape in expected_shapes(architecture).items():
        if name.endswith(ids_name("")):
            said = np.arange(EOS_ID + 1, architecture.vocabulary_size)
            weights[name] = np.sort([EOS_ID, *random.choice(said, shape[0] - 1, replace=False)])
            continue
        values = random.standard_normal(shape) * (2 * shape[-1] ** -0.5 if len(shape) == 2 else 0.1)
        weights[name] = (values + ("norm.weight" in name)).astype(np.float32)
    return weights


def sentences(lengths: Sequence[int], seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(5, ARCHITECTURE.vocabulary_size, length).tolist(), EOS_ID] for length in lengths]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights, graphs and ranges of the pair."""
    folder = tmp_path_factory.mktemp("pair")
    save_weights(random_weights(seed=1), folder / "model.safetensors")
    write_cpu_files(folder, ARCHITECTURE, sentences(range(3, 43), seed=2))
    return folder


ENGINES: dict[str, Callable[[Architecture, Path], AnyEngine]] = {"native": NativeEngine, "onnx": OnnxEngine}


@pytest.fixture(scope="module", params=ENGINES)
def pair(request: pytest.FixtureRequest, folder: Path) -> Pair:
    """The pair in each of the engines."""
    weights = dequantised(read_stored(folder / "model.safetensors", ARCHITECTURE))
    reference = TorchEngine(ARCHITECTURE, {name: torch.from_numpy(array) for name, array in weights.items()})
    return Pair(folder, ENGINES[request.param](ARCHITECTURE, folder), reference)


class Queue:
    """Requests in memory, handed out in their order."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)

    def take(self, count: int, wait: bool) -> list[Request]:
        return list(islice(self._requests, count))


def decoded(
    engine: AnyEngine, strategy: Strategy, sources: Sequence[Sequence[int]], batch_size: int
) -> list[list[int]]:
    requests = [Request(index, source, 2 * len(source)) for index, source in enumerate(sources)]
    hypotheses = decode(engine, Queue(requests), strategy, batch_size)
    return [hypothesis.ids for hypothesis in sorted(hypotheses, key=lambda done: done.request.index)]


def read(engine: AnyEngine, rows: Rows, ids: Iterable[int]) -> None:
    for token in ids:
        step(engine, rows, np.full(len(rows.lengths), token), beta=1)


@pytest.mark.parametrize("batch_size", [1, 7, 32])
@pytest.mark.parametrize("draft_length", [3, 8])
def test_strict_speculation_gives_greedys_ids_at_any_batch_size(pair: Pair, batch_size: int, draft_length: int) -> None:
    sources = sentences(np.random.default_rng(3).integers(1, 60, 40).tolist())
    greedy = decoded(pair.engine, Greedy(), sources, batch_size=1)
    assert len({len(ids) for ids in greedy}) > 10
    assert decoded(pair.engine, Greedy(), sources, batch_size) == greedy
    assert decoded(pair.engine, Speculative(draft_length, 1, 0.0), sources, batch_size) == greedy


@pytest.mark.parametrize("positions", [0, 30])
@pytest.mark.parametrize("engine_name", [*ENGINES, "torch"])
def test_a_drafter_works_for_a_verifier_as_fairseq_trains_it_by_default(
    engine_name: str, positions: int, tmp_path: Path
) -> None:
    foreign = FOREIGN
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
    gaps, agreements = reference_gap(pair, sentences([4, 8, 15, 23, 42]), steps=20)
    assert gaps.max() < TOLERANCE
    assert agreements.mean() > 0.95


def test_drafts_are_mostly_the_reference_engines(pair: Pair) -> None:
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


def test_a_model_that_is_overwritten_while_it_is_used_changes_nothing(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    engine, sources = NativeEngine(ARCHITECTURE, copy), sentences(range(5, 20))
    before = decoded(engine, Speculative(5, 2, 1.0), sources, batch_size=4)
    size = (copy / WEIGHTS).stat().st_size
    with (copy / WEIGHTS).open("r+b") as file:
        file.write(bytes(size))
    assert decoded(engine, Speculative(5, 2, 1.0), sources, batch_size=4) == before


@pytest.mark.parametrize("strategy", [Greedy(), Speculative(5, 1, 0.0), Speculative(6, 4, 2.0)])
def test_iterations_of_the_engines_own_are_the_strategys(folder: Path, strategy: Strategy) -> None:
    """Tokens, log-probabilities and what each iteration accepted, in batches whose rows come and go."""

    class InSingleCalls(NativeEngine):
        iterate = None  # type: ignore[assignment]

    sources = sentences(np.random.default_rng(5).integers(1, 40, 25).tolist())
    requests = [Request(index, source, 2 * len(source), source_repeats=1) for index, source in enumerate(sources)]
    engines = NativeEngine(ARCHITECTURE, folder), InSingleCalls(ARCHITECTURE, folder)
    own, single = (
        {done.request.index: done for done in decode(engine, Queue(requests), strategy, 6)} for engine in engines
    )
    assert own == single
    assert any(hypothesis.runaway for hypothesis in own.values())
    iterations = [iteration for hypothesis in own.values() for iteration in hypothesis.iterations]
    assert any(iteration.accepted for iteration in iterations) or strategy == Greedy()


@pytest.mark.parametrize("most_rows", [0, 1, 3])
def test_plain_steps_with_more_rows_than_are_speculated_change_no_token(pair: Pair, most_rows: int) -> None:
    sources = sentences(np.random.default_rng(6).integers(1, 40, 12).tolist())
    strategy = Speculative(4, beta=1, tau=0.0, most_rows=most_rows)
    for batch_size in (1, 5):
        assert decoded(pair.engine, strategy, sources, batch_size) == decoded(pair.engine, Greedy(), sources, 1)


@pytest.mark.parametrize("entry", [[math.nan, math.nan], [-math.inf, math.inf], [5, -5], [-1e39, 1e39]], ids=str)
def test_ranges_that_are_none_are_refused(folder: Path, tmp_path: Path, entry: list[float]) -> None:
    ranges = json.loads((folder / "ranges.json").read_text())
    (tmp_path / "ranges.json").write_text(json.dumps({**ranges, next(iter(ranges)): entry}))
    assert read_ranges(folder / "ranges.json").keys() == ranges.keys()
    with pytest.raises(BundleError, match=r"ranges\.json: missing or damaged"):
        read_ranges(tmp_path / "ranges.json")


def test_sources_beyond_one_pass_are_encoded_as_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_engine, "_ENCODED_TOKENS", 40)
    engine, sources = NativeEngine(ARCHITECTURE, folder), sentences([3, 30, 5, 60, 4, 4, 4, 31])
    alone = [engine.verify(engine.encode([source]), np.array([[2, 9]]), 3).log_probs[0] for source in sources]
    together = engine.verify(engine.encode(sources), np.array([[2, 9]] * 8), 3).log_probs
    assert np.array_equal(np.array(alone), together)


def test_other_integers_are_converted_and_another_number_of_them_is_refused(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    rows = engine.encode(sentences([3, 4]))
    wide = engine.draft(rows, np.array([7, 9]), 3)
    narrow = engine.draft(rows, np.array([7, 9], dtype=np.int32), 3)
    assert np.array_equal(wide.ids, narrow.ids)
    for call in (
        lambda: engine.draft(rows, np.array([7]), 3),
        lambda: engine.verify(rows, np.array([[7]]), 1),
        lambda: engine.draft_and_verify(rows, np.array([7]), 3, 1),
        lambda: engine.iterate(rows, np.array([7]), np.array([5, 5]), 3, 1, 0.0),
        lambda: engine.iterate(rows, np.array([7, 9]), np.array([5]), 3, 1, 0.0),
    ):
        with pytest.raises(ValueError, match="1 entries for 2 rows"):
            call()


@pytest.mark.parametrize("shape", [ARCHITECTURE, FOREIGN, WIDE], ids=["plain", "foreign", "wide"])
@pytest.mark.parametrize("level", LEVELS[:-1])
def test_processors_without_the_newest_instructions_compute_the_same_bits(
    tmp_path: Path, level: str, shape: Architecture
) -> None:
    if level not in runnable():
        pytest.skip(f"this processor cannot run the build for {level}")
    save_weights(random_weights(1, shape), tmp_path / WEIGHTS)
    write_cpu_files(tmp_path, shape, sentences(range(3, 23), seed=2))
    fastest, other = NativeEngine(shape, tmp_path), NativeEngine(shape, tmp_path, level)
    results, texts = [], []
    for engine in (fastest, other):
        rows = engine.encode(sentences([3, 17, 40]))
        lattice = engine.draft(rows, np.array([2, 2, 2]), 5)
        candidates = engine.verify(rows, np.array([[2, 9, 8, 7], [2, 30, 31, 32], [2, 5, 6, 7]]), beta=4)
        engine.commit(rows, np.full(3, 4))
        run = engine.iterate(rows, np.array([7, 32, 7]), np.full(3, 300), 4, 2, 1.0)  # beyond the table of positions
        emitted = [
            (ids[: accepted + 1], log_probs[: accepted + 1])
            for iteration in zip(*run, strict=True)
            for accepted, ids, log_probs in zip(*iteration, strict=True)
        ]
        results.append((lattice.ids, lattice.scores, lattice.transitions, candidates.ids, candidates.log_probs))
        texts.append(emitted)
    for expected, found in zip(*results, strict=True):
        assert np.array_equal(expected, found)
    assert texts[0] == texts[1]


def test_beams_are_the_same_alone_and_among_others(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    requests = [Request(index, source, 20) for index, source in enumerate(sentences([5, 9, 14, 3]))]
    together = beam_search(engine, requests, 4, 1.0)
    alone = [beam_search(engine, [request], 4, 1.0)[0] for request in requests]
    assert [[found.ids for found in beams] for beams in together] == [[found.ids for found in beams] for beams in alone]


def test_a_token_that_is_none_is_refused(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    for id_ in (-1, ARCHITECTURE.vocabulary_size):
        with pytest.raises(EngineError, match=f"token id {id_}"):
            engine.encode([[5, id_, EOS_ID]])


@pytest.mark.parametrize(
    "ranges", [None, "[]", "{}", '{"embeddings.weight": [1]}', '{"embeddings.weight": ["a", "b"]}']
)
def test_ranges_that_cannot_be_used_are_one_line(folder: Path, tmp_path: Path, ranges: str | None) -> None:
    shutil.copy(folder / "model.safetensors", tmp_path)
    if ranges is not None:
        (tmp_path / "ranges.json").write_text(ranges)
    with pytest.raises(BundleError, match=r"ranges\.json: .*specmt export") as raised:
        NativeEngine(ARCHITECTURE, tmp_path)
    assert "\n" not in str(raised.value)


def test_a_graph_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "encode.onnx").write_bytes(b"no graph")
    with pytest.raises(EngineError, match=r"encode\.onnx") as raised:
        OnnxEngine(ARCHITECTURE, tmp_path).encode(sentences([3]))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("engine", ["native_engine.NativeEngine", "onnx_engine.OnnxEngine"])
def test_the_engine_needs_neither_torch_nor_onnx(folder: Path, engine: str) -> None:
    module, name = engine.split(".")
    script = f"""
import sys
import numpy
from pathlib import Path
from specmt.architecture import Architecture
from specmt.engines.{module} import {name}
engine = {name}({ARCHITECTURE!r}, Path({str(folder)!r}))
engine.draft_and_verify(engine.encode([[9, 8, 2]]), numpy.array([2]), 3, 1)
print(sorted(name for name in ("torch", "onnx", "fairseq") if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
