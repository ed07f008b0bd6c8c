"""Caches and rows of the torch engine: parts against one whole pass, batches against single rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from pairs import random_weights
from torch_pair import PAIR, REAL_IDS, SEED, assert_close, assert_same_lattice, read, sentences, targets

from specmt.arrays import IntArray
from specmt.engines.base import Lattice
from specmt.engines.torch_engine import TorchEngine, TorchRows
from specmt.text.vocabulary import EOS_ID


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return TorchEngine(PAIR, random_weights(PAIR, SEED))


# -- caches


@pytest.mark.parametrize("parts", [[1] * 20, [20], [1, 4, 7, 8], [19, 1]])
def test_reading_in_parts_gives_what_one_pass_gives(engine: TorchEngine, parts: list[int]) -> None:
    ids, sources = targets(3, 20), sentences(3)
    whole = read(engine, engine.encode(sources), ids, 20)
    rows, start, found = engine.encode(sources), 0, []
    for part in parts:
        found.append(read(engine, rows, ids[:, start : start + part], part))
        start += part
    assert_close(np.concatenate(found, axis=1), whole)
    assert rows.lengths.tolist() == [20, 20, 20]


def test_a_position_does_not_see_what_follows_it(engine: TorchEngine) -> None:
    ids = targets(1, 12)
    other = ids.copy()
    other[0, 7:] = ids[0, 7:][::-1]
    one, two = (read(engine, engine.encode(sentences(1)), tokens, 12) for tokens in (ids, other))
    assert_close(one[:, :7], two[:, :7])
    assert np.abs(one[:, 8:] - two[:, 8:]).max() > 1


def test_every_earlier_token_and_the_source_matter(engine: TorchEngine) -> None:
    """Else the tests of the caches could not fail."""
    ids, source = targets(1, 12), sentences(1)[0]
    last = read(engine, engine.encode([source]), ids, 12)[0, -1]
    for place in range(1, 11):
        other = ids.copy()
        other[0, place] = REAL_IDS[0] if ids[0, place] != REAL_IDS[0] else REAL_IDS[1]
        assert np.abs(read(engine, engine.encode([source]), other, 12)[0, -1] - last).max() > 0.01
    assert np.abs(read(engine, engine.encode([source[1:]]), ids, 12)[0, -1] - last).max() > 0.01


@pytest.mark.parametrize("kept", [0, 1, 3, 6])
def test_tokens_that_were_not_committed_leave_no_trace(engine: TorchEngine, kept: int) -> None:
    """Neither in the verifier's caches nor in those that the drafter reads."""
    sources, ids = sentences(2), targets(2, 16)
    other = targets(2, 16, seed=9)
    rolled, straight = engine.encode(sources), engine.encode(sources)
    for rows in (rolled, straight):
        engine.draft(rows, ids[:, 0], 3)
        read(engine, rows, ids[:, :4], 4)
    read(engine, rolled, np.concatenate([ids[:, 4 : 4 + kept], other[:, 4 + kept : 10]], axis=1), kept)
    read(engine, straight, ids[:, 4 : 4 + kept], kept) if kept else None
    assert rolled.lengths.tolist() == straight.lengths.tolist() == [4 + kept] * 2
    rest = ids[:, 4 + kept :]
    assert_same_lattice(engine.draft(rolled, rest[:, 0], 5), engine.draft(straight, rest[:, 0], 5))
    assert_close(read(engine, rolled, rest, 3), read(engine, straight, rest, 3))
    assert_same_lattice(engine.draft(rolled, rest[:, 3], 5), engine.draft(straight, rest[:, 3], 5))


def test_a_draft_leaves_no_trace_in_the_verifier(engine: TorchEngine) -> None:
    ids = targets(2, 8)
    drafted, plain = engine.encode(sentences(2)), engine.encode(sentences(2))
    read(engine, drafted, ids[:, :4], 4)
    read(engine, plain, ids[:, :4], 4)
    engine.draft(drafted, ids[:, 4], 6)
    assert_close(read(engine, drafted, ids[:, 4:], 4), read(engine, plain, ids[:, 4:], 4))


def test_the_drafter_sees_the_committed_prefix_and_the_last_token(engine: TorchEngine) -> None:
    ids = targets(1, 6)

    def lattice(tokens: IntArray) -> Lattice:
        rows = engine.encode(sentences(1))
        engine.draft(rows, tokens[:, 0], 1)
        read(engine, rows, tokens[:, :5], 5)
        return engine.draft(rows, tokens[:, 5], 4)

    for place in range(1, 6):
        other = ids.copy()
        other[0, place] = REAL_IDS[0] if ids[0, place] != REAL_IDS[0] else REAL_IDS[1]
        changed, straight = lattice(other), lattice(ids)
        assert changed.ids.tolist() != straight.ids.tolist() or np.abs(changed.scores - straight.scores).max() > 0.01


# -- rows


def rows_of_unequal_lengths(engine: TorchEngine) -> tuple[list[TorchRows], TorchRows, list[IntArray]]:
    """Three rows apart and joined, with 3, 7 and 0 committed tokens, and tokens to read next."""
    sources, lengths = [sentences(3)[i] for i in (1, 0, 2)], (3, 7, 0)
    assert len({len(source) for source in sources}) == 3
    apart, tokens = [], []
    for place, (source, length) in enumerate(zip(sources, lengths, strict=True)):
        ids = targets(1, length + 6, seed=20 + place)
        rows = engine.encode([source])
        engine.draft(rows, ids[:, 0], 2)
        if length:
            read(engine, rows, ids[:, :length], length)
        apart.append(rows)
        tokens.append(ids[:, length:])
    joined = engine.join(engine.join(apart[0], apart[1]), apart[2])
    return apart, joined, tokens


def assert_each_is(
    engine: TorchEngine, rows: TorchRows, apart: Sequence[TorchRows], tokens: Sequence[IntArray]
) -> None:
    """`rows` draft and read as each of `apart` does alone, also when they keep different numbers of tokens."""
    together = np.concatenate(tokens)
    lattice = engine.draft(rows, together[:, 0], 4)
    keep = [1 + place % 4 for place in range(len(apart))]
    first = read(engine, rows, together[:, :4], keep)
    rest = np.concatenate([ids[:, count : count + 2] for ids, count in zip(tokens, keep, strict=True)])
    second = read(engine, rows, rest[:, :1], 1)
    after = engine.draft(rows, rest[:, -1], 4)
    for place, (alone, ids) in enumerate(zip(apart, tokens, strict=True)):
        row = slice(place, place + 1)
        single = engine.reorder(alone, np.array([0]))
        assert_same_lattice(_row(lattice, row), engine.draft(single, ids[:, 0], 4))
        assert_close(first[row], read(engine, single, ids[:, :4], keep[place]))
        assert_close(second[row], read(engine, single, rest[row, :1], 1))
        assert_same_lattice(_row(after, row), engine.draft(single, rest[row][:, -1], 4))


def _row(lattice: Lattice, row: slice) -> Lattice:
    return Lattice(lattice.ids[row], lattice.scores[row], lattice.transitions[row])


def test_joined_rows_do_what_each_does_alone(engine: TorchEngine) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    assert joined.lengths.tolist() == [3, 7, 0]
    assert_each_is(engine, joined, apart, tokens)


@pytest.mark.parametrize("indices", [[0], [2], [1, 0], [2, 0, 1], [0, 2], [1, 1, 0, 1]])
def test_selected_rows_do_what_each_does_alone(engine: TorchEngine, indices: list[int]) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array(indices))
    assert chosen.lengths.tolist() == [[3, 7, 0][i] for i in indices]
    assert_each_is(engine, chosen, [apart[i] for i in indices], [tokens[i] for i in indices])


def test_a_row_selected_twice_goes_two_ways(engine: TorchEngine) -> None:
    """Beams start so: what one of them reads is not seen by the other."""
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array([1, 1]))
    assert_each_is(engine, chosen, [apart[1], apart[1]], [tokens[1], tokens[0]])


def test_selecting_leaves_the_rows_as_they_were(engine: TorchEngine) -> None:
    apart, joined, tokens = rows_of_unequal_lengths(engine)
    chosen = engine.select(joined, np.array([2, 1, 0]))
    read(engine, chosen, np.concatenate(tokens[::-1])[:, :5], 5)
    assert_each_is(engine, joined, apart, tokens)


def test_reordered_beams_do_what_their_prefixes_say(engine: TorchEngine) -> None:
    sources = sentences(2)
    ids = targets(4, 9)
    beams = engine.select(engine.encode(sources), np.array([0, 0, 1, 1]))
    read(engine, beams, ids[:, :5], 5)
    order = np.array([1, 1, 3, 2])
    found = read(engine, engine.reorder(beams, order), ids[:, 5:], 4)
    whole = np.concatenate([ids[order, :5], ids[:, 5:]], axis=1)
    expected = read(engine, engine.encode([sources[0], sources[0], sources[1], sources[1]]), whole, 9)
    assert_close(found, expected[:, 5:])


@pytest.mark.parametrize("longer", [1, 5, 30])
def test_padding_beside_a_longer_source_changes_nothing(engine: TorchEngine, longer: int) -> None:
    ids, source = targets(1, 10), sentences(1)[0]
    neighbour = [*np.random.default_rng(3).choice(REAL_IDS, len(source) + longer - 1).tolist(), EOS_ID]
    alone = engine.encode([source])
    beside = engine.encode([neighbour, source])
    lattices = [
        engine.draft(alone, ids[:, 0], 6),
        _row(engine.draft(beside, np.repeat(ids[:, 0], 2), 6), slice(1, 2)),
    ]
    assert_same_lattice(*lattices)
    assert_close(read(engine, beside, np.repeat(ids, 2, axis=0), 10)[1:], read(engine, alone, ids, 10))


def test_a_longer_row_that_leaves_changes_nothing(engine: TorchEngine) -> None:
    """The caches stay as wide as it was."""
    ids = targets(2, 40)
    short, long = sentences(1)[0], [*REAL_IDS.tolist(), *REAL_IDS.tolist(), EOS_ID]
    rows = engine.join(engine.encode([long]), engine.encode([short]))
    engine.draft(rows, ids[:, 0], 1)
    read(engine, rows, ids[:, :33], [33, 2])
    left = engine.select(rows, np.array([1]))
    assert_each_is(engine, left, [_read_alone(engine, short, ids[1:, :2])], [ids[1:, 2:10]])


def _read_alone(engine: TorchEngine, source: list[int], ids: IntArray) -> TorchRows:
    rows = engine.encode([source])
    engine.draft(rows, ids[:, 0], 1)
    read(engine, rows, ids, ids.shape[1])
    return rows
