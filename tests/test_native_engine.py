"""What is the native engine's own: its calls, its files. Its builds: test_native_builds.py.

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
from cpu_pair import ARCHITECTURE, Queue, decoded, sentences, write_pair
from safetensors.numpy import save_file
from scripted import beams

from specmt import BUNDLED_MODEL
from specmt.bundles import tensors
from specmt.bundles.bundle import WEIGHTS, load_bundle
from specmt.bundles.tensors import ids_name, scale_name
from specmt.decoding.hypotheses import Hypothesis, Iteration, Request
from specmt.decoding.loops import Greedy, Speculative, Strategy, decode
from specmt.engines import native_engine
from specmt.engines.native_engine import NativeEngine, _Row, read_ranges
from specmt.errors import BundleError, EngineError
from specmt.text.vocabulary import EOS_ID

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int], rows: slice
) -> None:
    """Of outputs that fill no group of 64 as well: what is not a number must not lead to the places behind them.

    Bundles with such weights are refused, but a pass may yet come to such numbers.
    """
    monkeypatch.setattr(tensors, "_are_usual", lambda floats: True)
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


def test_a_draft_of_no_slots_and_a_window_or_source_of_no_tokens_are_refused(folder: Path) -> None:
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
    with pytest.raises(EngineError, match="a source of no tokens"):
        engine.encode([[5, EOS_ID], []])


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
