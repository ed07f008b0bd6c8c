"""Stand-ins for trained models: an engine that follows a script, and a tiny vocabulary. No framework, no weights.

The verifier's next token is a function of the source and the prefix that it has read, so a row whose cache was
committed, rolled back, selected or joined wrongly goes on with other tokens than it should. The drafter proposes, slot
by slot, the verifier's token of a chosen rank: rank 0 always is greedy's token, rank 1 is accepted when relaxed only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.bundle import DecodingDefaults
from specmt.decoding.beam import beam_search
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.decoding.loops import Plan, Strategy, decode
from specmt.engines.base import AnyEngine, Candidates, Lattice, Size
from specmt.text.vocabulary import EOS_ID, MASK_ID, Vocabulary, train_vocabulary
from specmt.translator import Translator

FIRST_PIECE_ID = MASK_ID + 1
VOCABULARY_SIZE = 96

RankOf = Callable[[int, int], int]
"""The rank of what is drafted, given the slot (from 0) and the number of target tokens before it."""


def always_right(slot: int, position: int) -> int:
    """Draft greedy's token in every slot."""
    return 0


def never_right(slot: int, position: int) -> int:
    """Draft the verifier's least probable token in every slot."""
    return -1


def right_before(wrong_slot: int, rank: int = -1) -> RankOf:
    """Draft greedy's token in every slot but one, which gets the verifier's token of `rank`."""
    return lambda slot, position: rank if slot == wrong_slot else 0


def by_position(ranks: Sequence[int]) -> RankOf:
    """Draft by the place in the target, whatever the slot: `ranks` in turn, again and again."""
    return lambda slot, position: ranks[position % len(ranks)]


def source_length(source: tuple[int, ...]) -> int:
    """As many target tokens as source tokens, end-of-sentence included on both sides."""
    return len(source) - 1


@dataclass
class ScriptedRows:
    """`committed`: what the verifier has read and keeps; `read`: what its last pass read, until it is committed."""

    sources: list[tuple[int, ...]]
    committed: list[tuple[int, ...]]
    read: list[tuple[int, ...]] | None = None
    size: Size | None = None
    """Of a group of fixed shape."""

    @property
    def lengths(self) -> IntArray:
        return np.array([len(tokens) for tokens in self.committed], dtype=np.int64)


@dataclass
class ScriptedEngine:
    """An `Engine` whose verifier and drafter follow rules.

    `rank_of` is the drafter's rule. `length`: target tokens before end-of-sentence, which is the verifier's best token
    from there on and its last choice before. `gaps`: nats between a token and the next less probable one; which gap
    holds at a position is drawn by a hash of source and prefix.
    """

    rank_of: RankOf = always_right
    length: Callable[[tuple[int, ...]], int] = source_length
    gaps: tuple[float, ...] = (0.25, 0.75, 2.0)
    vocabulary_size: int = VOCABULARY_SIZE
    max_draft_length: int = 8
    name: str = "scripted-cpu-fp32"
    row_exact: bool = False
    speculated_rows: int | None = None
    strict_draft_length: int | None = None
    source_step: int = 4
    target_step: int = 8
    calls: list[tuple[str, int]] = field(default_factory=list)
    """Each network pass: its method and its number of rows."""

    # -- the script

    def ranked(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]:
        """All that may follow target tokens `prefix`, most probable first: pieces and end-of-sentence."""
        pieces = self.vocabulary_size - FIRST_PIECE_ID
        first = _hash(source, prefix) % pieces
        order = [FIRST_PIECE_ID + (first + i) % pieces for i in range(pieces)]
        return [EOS_ID, *order] if len(prefix) >= self.length(tuple(source)) else [*order, EOS_ID]

    def log_probs(self, source: Sequence[int], prefix: Sequence[int]) -> FloatArray:
        """Log-probabilities (nats) of `ranked`, shape (vocabulary_size - FIRST_PIECE_ID + 1,)."""
        gap = self.gaps[_hash(prefix, source) % len(self.gaps)]
        scores = -gap * np.arange(self.vocabulary_size - FIRST_PIECE_ID + 1)
        log_probs: FloatArray = (scores - np.log(np.exp(scores).sum())).astype(np.float32)
        return log_probs

    def greedy(self, source: Sequence[int], max_tokens: int) -> list[int]:
        """The verifier's greedy output, end-of-sentence included unless the limit comes first."""
        ids: list[int] = []
        while len(ids) < max_tokens and (not ids or ids[-1] != EOS_ID):
            ids.append(self.ranked(source, ids)[0])
        return ids

    # -- the interface

    def encode(self, sources: Sequence[Sequence[int]]) -> ScriptedRows:
        assert all(source[-1] == EOS_ID for source in sources), "a source ends with end-of-sentence"
        self.calls.append(("encode", len(sources)))
        return ScriptedRows([tuple(source) for source in sources], [()] * len(sources))

    def draft(self, rows: ScriptedRows, last_ids: IntArray, draft_length: int) -> Lattice:
        assert 1 <= draft_length <= self.max_draft_length
        assert len(last_ids) == len(rows.sources)
        self.calls.append(("draft", len(rows.sources)))
        drafts = [
            self._draft_row(source, [*committed, last_id], draft_length)
            for source, committed, last_id in zip(rows.sources, rows.committed, last_ids.tolist(), strict=True)
        ]
        best = np.array(drafts, dtype=np.int64)
        other = np.where(best == FIRST_PIECE_ID, FIRST_PIECE_ID + 1, FIRST_PIECE_ID)
        scores = np.broadcast_to(np.array([1, 0], dtype=np.float32), (*best.shape, 2))
        return Lattice(np.stack([best, other], axis=2), scores, np.zeros((*best.shape, 2, 2), dtype=np.float32))

    def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
        assert len(token_ids) == len(rows.sources)
        self.calls.append(("verify", len(rows.sources)))
        assert rows.size is None or max(rows.lengths) + token_ids.shape[1] <= rows.size.target, "the shape is fixed"
        rows.read = [tuple(tokens) for tokens in token_ids.tolist()]
        ids, log_probs = [], []
        for source, committed, read in zip(rows.sources, rows.committed, rows.read, strict=True):
            assert (*committed, *read)[0] == EOS_ID, "decoding starts from end-of-sentence"
            # The first token read is the end-of-sentence that decoding starts from.
            prefixes = [(*committed, *read[:end])[1:] for end in range(1, len(read) + 1)]
            ids.append([self.ranked(source, prefix)[:beta] for prefix in prefixes])
            log_probs.append([self.log_probs(source, prefix)[:beta] for prefix in prefixes])
        return Candidates(np.array(ids, dtype=np.int64), np.array(log_probs, dtype=np.float32))

    def commit(self, rows: ScriptedRows, counts: IntArray) -> None:
        assert rows.read is not None, "nothing was read since the last commit"
        assert len(counts) == len(rows.read)
        for row, (read, count) in enumerate(zip(rows.read, counts.tolist(), strict=True)):
            assert 0 <= count <= len(read)
            rows.committed[row] += read[:count]
        rows.read = None

    def select(self, rows: ScriptedRows, indices: Sequence[int] | IntArray) -> ScriptedRows:
        return ScriptedRows([rows.sources[i] for i in indices], [rows.committed[i] for i in indices])

    def reorder(self, rows: ScriptedRows, indices: IntArray) -> ScriptedRows:
        assert [rows.sources[i] for i in indices] == rows.sources, "only rows of the same source may be exchanged"
        return self.select(rows, indices)

    def join(self, rows: ScriptedRows, others: ScriptedRows) -> ScriptedRows:
        return ScriptedRows(rows.sources + others.sources, rows.committed + others.committed)

    def encode_fixed(self, sources: Sequence[Sequence[int]], group: int) -> ScriptedRows:
        for first in range(0, len(sources), group):
            self.calls.append((f"encode {group}", len(sources[first : first + group])))
        return ScriptedRows([tuple(source) for source in sources], [()] * len(sources))

    def size(self, source_tokens: int, target_tokens: int) -> Size:
        return Size(
            -(-source_tokens // self.source_step) * self.source_step,
            -(-target_tokens // self.target_step) * self.target_step,
        )

    def gather(self, rows: ScriptedRows, indices: IntArray, lengths: IntArray, size: Size) -> ScriptedRows:
        pairs = list(zip(indices.tolist(), lengths.tolist(), strict=True))
        assert all(length <= len(rows.committed[row]) for row, length in pairs), "what is gathered has been read"
        assert all(len(rows.sources[row]) <= size.source for row, _ in pairs)
        return ScriptedRows(
            [rows.sources[row] for row, _ in pairs], [rows.committed[row][:length] for row, length in pairs], size=size
        )

    def scatter(self, rows: ScriptedRows, indices: IntArray, group: ScriptedRows, counts: IntArray) -> None:
        assert group.read is not None, "nothing was read since the last commit"
        for place, (row, count) in enumerate(zip(indices.tolist(), counts.tolist(), strict=True)):
            start, read = len(group.committed[place]), group.read[place][:count]
            assert len(read) == count
            rows.committed[row] = (*rows.committed[row][:start], *read, *rows.committed[row][start + count :])

    def keep(self, rows: ScriptedRows, lengths: IntArray) -> None:
        assert all(length <= len(read) for length, read in zip(lengths.tolist(), rows.committed, strict=True))
        rows.committed = [read[:length] for length, read in zip(lengths.tolist(), rows.committed, strict=True)]

    def _draft_row(self, source: tuple[int, ...], read: list[int], draft_length: int) -> list[int]:
        assert read[0] == EOS_ID, "decoding starts from end-of-sentence"
        prefix = read[1:]
        for slot in range(draft_length):
            rank = self.rank_of(slot, len(prefix))
            prefix.append(self.ranked(source, prefix)[rank])
        return prefix[-draft_length:]


@dataclass
class TableEngine(ScriptedEngine):
    """A verifier whose every answer is written down: for each prefix, tokens and log-probabilities, best first.

    Every column of the table has the same number of tokens. The source does not matter.
    """

    table: Mapping[tuple[int, ...], Sequence[tuple[int, float]]] = field(default_factory=dict)

    def ranked(self, source: Sequence[int], prefix: Sequence[int]) -> list[int]:
        return [id_ for id_, _ in self._column(prefix)]

    def log_probs(self, source: Sequence[int], prefix: Sequence[int]) -> FloatArray:
        return np.array([log_prob for _, log_prob in self._column(prefix)], dtype=np.float32)

    def _column(self, prefix: Sequence[int]) -> Sequence[tuple[int, float]]:
        """What the table says; what it does not say may follow anything but in a passed-over draft."""
        unknown = [(EOS_ID, 0.0), *((id_, -50.0) for id_ in range(FIRST_PIECE_ID, self.vocabulary_size))]
        width = len(next(iter(self.table.values())))
        return self.table.get(tuple(prefix), unknown[:width])


class Arrivals:
    """Requests for `decode`, all there from the start. `asked` keeps each call of `take`."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self.waiting = list(requests)
        self.asked: list[tuple[int, bool]] = []

    def take(self, count: int, wait: bool) -> list[Request]:
        self.asked.append((count, wait))
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken


def decoded(
    engine: AnyEngine, requests: Iterable[Request], plan: Plan | Strategy, batch_size: int
) -> dict[int, Hypothesis]:
    """Every request's hypothesis, by the request's index."""
    hypotheses = list(decode(engine, Arrivals(requests), plan, batch_size))
    by_index = {hypothesis.request.index: hypothesis for hypothesis in hypotheses}
    assert len(by_index) == len(hypotheses), "each request is answered once"
    return by_index


def beams(engine: AnyEngine, requests: Sequence[Request], beam: int, length_penalty: float) -> list[list[Hypothesis]]:
    """What beam search finds for each request, in their order."""
    found = {one[0].request.index: one for one in beam_search(engine, requests, beam, length_penalty)}
    return [found[request.index] for request in requests]


def _hash(first: Sequence[int], second: Sequence[int]) -> int:
    """The same in every process, unlike `hash`."""
    return zlib.crc32(np.array([*first, -1, *second], dtype=np.int64).tobytes())


SENTENCES = (
    "Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.",
    "A man in a blue shirt is standing on a ladder cleaning a window.",
    "Zwei junge Hunde spielen im Schnee mit einem roten Ball.",
    "Two young dogs are playing in the snow with a red ball.",
    "Die alte Frau verkauft frisches Obst auf dem großen Markt.",
    "The old woman is selling fresh fruit at the large market.",
    "Kinder laufen fröhlich über die grüne Wiese hinter dem Haus.",
    "Children run happily across the green meadow behind the house.",
)
"""Lines that the tiny vocabulary knows every character of."""


@cache
def tiny_tokenizer() -> bytes:
    """A SentencePiece model of `VOCABULARY_SIZE` pieces learnt from `SENTENCES`; made once a test session."""
    return train_vocabulary(SENTENCES, VOCABULARY_SIZE, character_coverage=1.0, threads=1)


@cache
def tiny_vocabulary() -> Vocabulary:
    """The vocabulary of `tiny_tokenizer`."""
    return Vocabulary(tiny_tokenizer())


DEFAULTS = DecodingDefaults(draft_length=4, beta=3, tau=1.0, strict=False)


def scripted_translator(engine: ScriptedEngine, defaults: DecodingDefaults = DEFAULTS) -> Translator:
    """A translator over the scripted engine and the tiny vocabulary."""
    return Translator(engine, tiny_vocabulary(), defaults)
