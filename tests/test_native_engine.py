"""What is the native engine's own: its calls, its builds, its files.

On a tiny pair with random weights, and on the bundled one where drafts have to be right.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import safetensors
from cpu_pair import ARCHITECTURE, FOREIGN, MARIAN, WIDE, Queue, decoded, random_weights, sentences, write_pair
from safetensors.numpy import load_file, save_file
from scripted import beams

from specmt import BUNDLED_MODEL
from specmt.architecture import Architecture
from specmt.bundle import WEIGHTS, load_bundle
from specmt.decoding import Greedy, Hypothesis, Iteration, Request, Speculative, Strategy, decode
from specmt.engines import native_engine
from specmt.engines.native_engine import NativeEngine, _Row, read_ranges
from specmt.engines.native_library import LEVELS, runnable
from specmt.errors import BundleError, EngineError
from specmt.exporting import write_cpu_files
from specmt.tensors import ids_name, scale_name
from specmt.vocabulary import EOS_ID
from specmt.weights import is_read_in_each_pass, save_weights

TABLE = 256
"""Positions of which the library keeps the sinusoids."""
SAMPLE = Path(__file__).parent.parent / "data" / "sample.de"


class InSingleCalls(NativeEngine):
    """Leaves iterating to the strategies."""

    iterate = None  # type: ignore[assignment]


def hypotheses_of(
    engine: NativeEngine, requests: Sequence[Request], strategy: Strategy, batch_size: int
) -> dict[int, Hypothesis]:
    return {done.request.index: done for done in decode(engine, Queue(requests), strategy, batch_size)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair's files."""
    return write_pair(tmp_path_factory.mktemp("pair"))


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
    sources = sentences(np.random.default_rng(5).integers(1, 40, 25).tolist())
    requests = [Request(index, source, 2 * len(source), source_repeats=1) for index, source in enumerate(sources)]
    engines = NativeEngine(ARCHITECTURE, folder), InSingleCalls(ARCHITECTURE, folder)
    own, single = (hypotheses_of(engine, requests, strategy, 6) for engine in engines)
    assert own == single
    assert any(hypothesis.runaway for hypothesis in own.values())
    iterations = [iteration for hypothesis in own.values() for iteration in hypothesis.iterations]
    assert any(iteration.accepted for iteration in iterations) or strategy == Greedy()


def first_whole_draft(hypothesis: Hypothesis, draft_length: int) -> int | None:
    """Where the first draft begins that was accepted as a whole; its bonus token follows it."""
    begin = 0
    for iteration in hypothesis.iterations:
        if len(iteration.emitted) == draft_length + 1:
            return begin
        begin += len(iteration.emitted)
    return None


@pytest.mark.parametrize("strategy", [Speculative(3, 1, 0.0), Speculative(3, 3, 1.0)], ids=["strict", "relaxed"])
def test_right_drafts_are_taken_up_to_their_bonus_token_their_end_or_the_length_limit(strategy: Speculative) -> None:
    """By the engine's own iterations as by single calls, and when strict as `ar` says."""
    bundle = load_bundle(BUNDLED_MODEL)
    engine, calls = (kind(bundle.architecture, BUNDLED_MODEL) for kind in (NativeEngine, InSingleCalls))
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()[:20]
    unlimited = [Request(index, [*bundle.vocabulary().encode(line), EOS_ID], 100) for index, line in enumerate(lines)]
    free = hypotheses_of(calls, unlimited, strategy, 6)
    begins = {index: first_whole_draft(one, strategy.draft_length) for index, one in free.items()}
    # Sentences again, each with a limit behind the second token of a draft that is right.
    limited = [
        Request(len(lines) + index, unlimited[index].source_ids, begin + 2)
        for index, begin in begins.items()
        if begin is not None
    ]
    requests = [*unlimited, *limited]
    own, single = (hypotheses_of(one, requests, strategy, 6) for one in (engine, calls))
    assert own == single
    if strategy.beta == 1:
        greedy = hypotheses_of(calls, requests, Greedy(), 6)
        assert {index: one.ids for index, one in own.items()} == {index: one.ids for index, one in greedy.items()}
    last = [own[request.index].iterations[-1] for request in unlimited]
    assert any(one.emitted[-1] == EOS_ID and one.accepted == len(one.emitted) for one in last), "an end inside a draft"
    assert limited, "a bonus token, and a limit inside a draft"
    for request in limited:
        said = free[request.index - len(lines)].ids[request.max_tokens - 2 : request.max_tokens]
        assert own[request.index].iterations[-1] == Iteration(2, 2, tuple(said))
    for request in requests:
        rows, room = engine.encode([request.source_ids]), [request.max_tokens]
        run = engine.iterate(rows, [EOS_ID], room, strategy.draft_length, strategy.beta, strategy.tau)
        assert len(run.accepted[0]) == len(own[request.index].iterations), "none follows that in which a row ended"


@pytest.mark.parametrize("draft_length", [0, 4])
@pytest.mark.parametrize("ends", [1, 2, 3])
def test_iterations_go_on_until_so_many_rows_have_ended(folder: Path, draft_length: int, ends: int) -> None:
    """Those that ended take no more part, and the others emit what they emit alone."""
    engine, sources, room = NativeEngine(ARCHITECTURE, folder), sentences([9, 4, 30]), [11, 3, 7]
    together, alone = engine.encode(sources), [engine.encode([source]) for source in sources]
    run = engine.iterate(together, [2] * 3, room, draft_length, 2, 1.0, ends)
    single = [engine.iterate(rows, [2], [most], draft_length, 2, 1.0) for rows, most in zip(alone, room, strict=True)]
    for row, (accepted, ids, log_probs) in enumerate(zip(*run, strict=True)):
        assert len(ids) == len(log_probs) == sum(accepted) + len(accepted) == together.counts[row]
        assert accepted == single[row].accepted[0][: len(accepted)]
        assert ids == single[row].ids[0][: len(ids)]
        assert log_probs == single[row].log_probs[0][: len(ids)]
    ended = [len(ids) >= most or EOS_ID in ids for ids, most in zip(run.ids, room, strict=True)]
    assert sum(ended) >= ends
    assert ended[1] and len(run.accepted[1]) == len(single[1].accepted[0])


@pytest.mark.parametrize("draft_length", [0, 4])
def test_a_row_without_room_takes_no_part(folder: Path, draft_length: int) -> None:
    engine, sources = NativeEngine(ARCHITECTURE, folder), sentences([9, 4, 30])
    rows, alone = engine.encode(sources), engine.encode(sources[2:])
    run = engine.iterate(rows, [2] * 3, [0, 0, 7], draft_length, 1, 0.0, ends=2)
    assert rows.counts == [0, 0, len(run.ids[2])]
    assert [one[:2] for one in run] == [[[], []]] * 3
    assert [one[2:] for one in run] == [*engine.iterate(alone, [2], [7], draft_length, 1, 0.0)]


@pytest.mark.parametrize(
    "entry", [[math.nan, math.nan], [-math.inf, math.inf], [5, -5], [-1e39, 1e39], [0, 10**400]], ids=str
)
def test_ranges_that_are_none_are_refused(folder: Path, tmp_path: Path, entry: list[float]) -> None:
    ranges = json.loads((folder / "ranges.json").read_text())
    (tmp_path / "ranges.json").write_text(json.dumps({**ranges, next(iter(ranges)): entry}))
    assert read_ranges(folder / "ranges.json").keys() == ranges.keys()
    with pytest.raises(BundleError, match=r"ranges\.json: missing or damaged"):
        read_ranges(tmp_path / "ranges.json")


@pytest.mark.parametrize("sizes", [(100, 90), (0, 0), (128, 72)], ids=str)
@pytest.mark.parametrize("rows", [slice(None), slice(-1, None)], ids=["all", "the last"])
def test_whatever_the_scores_are_tokens_are_chosen_that_there_are(
    tmp_path: Path, sizes: tuple[int, int], rows: slice
) -> None:
    """Of outputs that fill no group of 64 as well: what is not a number must not lead to the places behind them."""
    shape = replace(ARCHITECTURE, target_vocabulary_size=sizes[0], draft_vocabulary_size=sizes[1])
    write_pair(tmp_path, shape)
    with safetensors.safe_open(tmp_path / WEIGHTS, "np") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    for output in ("output", "drafter.output") if sizes[0] else ("embeddings",):
        stored[scale_name(f"{output}.weight")][rows] = math.nan
    save_file(stored, tmp_path / WEIGHTS)
    engine = NativeEngine(shape, tmp_path)
    states = engine.encode(sentences([3, 40]))
    last_ids = np.array([2, 2])
    speculation = engine.draft_and_verify(states, last_ids, 5, 3)
    run = engine.iterate(states, [2, 2], [9, 9], 5, 3, 1.0)
    said = set(stored[ids_name("output")].tolist() if sizes[0] else range(shape.vocabulary_size))
    drafted = set(stored[ids_name("drafter.output")].tolist() if sizes[1] else range(shape.vocabulary_size))
    assert {*speculation.draft.ravel().tolist(), *engine.draft(states, last_ids, 5).ids.ravel().tolist()} <= drafted
    assert {*speculation.candidates.ids.ravel().tolist()} <= said
    assert {*chain(*run.ids)} <= said


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


@pytest.mark.parametrize("level", LEVELS[1:])
def test_activations_that_fill_or_leave_their_ranges_are_multiplied_exactly(
    folder: Path, tmp_path: Path, level: str
) -> None:
    skip_where_it_cannot_run(level)
    shutil.copy(folder / "model.safetensors", tmp_path)
    for share in (0.5, 0.05):
        ranges = json.loads((folder / "ranges.json").read_text())
        narrower = {name: [low * share, high * share] for name, (low, high) in ranges.items()}
        (tmp_path / "ranges.json").write_text(json.dumps(narrower))
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
    ranges = json.loads((tmp_path / "ranges.json").read_text())
    narrower = {name: [low * 0.2, high * 0.2] for name, (low, high) in ranges.items()}
    (tmp_path / "ranges.json").write_text(json.dumps(narrower))
    check_against_any(WIDE, tmp_path, level)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("few", ["all", "all but one weight of each matrix"])
def test_weights_of_4_bits_are_multiplied_exactly(tmp_path: Path, level: str, few: str) -> None:
    # Lines from one to more than two tiles of the matrix unit hold.
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
        found.append(
            [array for lattice in lattices for array in (lattice.ids, lattice.scores)]
            + [array for window in windows for array in (window.ids, window.log_probs)]
        )
    for expected, array in zip(*found, strict=True):
        assert np.array_equal(expected, array)


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("share", [1, 0.5, 0.2])
def test_hidden_units_that_are_hardly_ever_active_are_multiplied_exactly(
    tmp_path: Path, level: str, share: float
) -> None:
    # The smaller the share of their range, the larger are those that are: products of a few leave 16 bits.
    skip_where_it_cannot_run(level)
    weights = {name: values - 3 * name.endswith("fc1.bias") for name, values in random_weights(1, WIDE).items()}
    save_weights(weights, tmp_path / WEIGHTS)
    write_cpu_files(tmp_path, WIDE, sentences(range(3, 43), seed=2))
    tensors = load_file(tmp_path / WEIGHTS)
    for name, matrix in tensors.items():
        if name.endswith("fc2.weight"):
            matrix[::2] = 127
    save_file(tensors, tmp_path / WEIGHTS)
    ranges = json.loads((tmp_path / "ranges.json").read_text())
    narrower = {name: [low * share, high * share] for name, (low, high) in ranges.items()}
    (tmp_path / "ranges.json").write_text(json.dumps(narrower))
    check_against_any(WIDE, tmp_path, level)


def test_beams_are_the_same_alone_and_among_others(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    requests = [Request(index, source, 20) for index, source in enumerate(sentences([5, 9, 14, 3]))]
    together = beams(engine, requests, 4, 1.0)
    alone = [beams(engine, [request], 4, 1.0)[0] for request in requests]
    assert [[found.ids for found in beams] for beams in together] == [[found.ids for found in beams] for beams in alone]


def test_a_token_that_is_none_is_refused(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    for id_ in (-1, ARCHITECTURE.vocabulary_size):
        with pytest.raises(EngineError, match=f"token id {id_}"):
            engine.encode([[5, id_, EOS_ID]])


def test_a_draft_of_no_slots_and_a_window_of_no_tokens_are_refused(folder: Path) -> None:
    engine = NativeEngine(ARCHITECTURE, folder)
    rows, ids = engine.encode([[5, EOS_ID]] * 2), np.array([EOS_ID, EOS_ID])
    with pytest.raises(EngineError, match="no slots"):
        engine.draft(rows, ids, 0)
    with pytest.raises(EngineError, match="no slots"):
        engine.draft_and_verify(rows, ids, 0, 1)
    with pytest.raises(EngineError, match="no tokens"):
        engine.verify(rows, np.empty((2, 0), dtype=np.int64), 1)
    with pytest.raises(EngineError, match="no slots"):
        engine.draft(engine.encode([]), np.empty(0, dtype=np.int64), 3)


def test_a_range_that_is_not_there_is_named_and_others_are_not_read(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "model.safetensors", tmp_path)
    ranges = json.loads((folder / "ranges.json").read_text())
    missing = "verifier.decoder.layers.1.fc2.weight"
    (tmp_path / "ranges.json").write_text(json.dumps({**ranges, "\ud800": [0, 1]}))
    NativeEngine(ARCHITECTURE, tmp_path)
    del ranges[missing]
    (tmp_path / "ranges.json").write_text(json.dumps(ranges))
    with pytest.raises(BundleError, match=f"no range of {missing}"):
        NativeEngine(ARCHITECTURE, tmp_path)


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


def test_a_row_that_a_signal_left_half_made_is_dropped_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", said.append)
    row = _Row.__new__(_Row)
    del row
    assert said == []


@pytest.mark.parametrize(("level", "rows"), [("any", 0), ("avx2", 0), ("avx512", 1), ("amx", 1)])
def test_drafts_are_for_processors_that_multiply_fast(folder: Path, level: str, rows: int) -> None:
    skip_where_it_cannot_run(level)
    assert NativeEngine(ARCHITECTURE, folder, level).speculated_rows == rows
