"""Sequence-level distillation: the verifier's own output for many sources (Kim and Rush 2016).

A drafter is as good as it predicts *its* verifier, so it learns from what that verifier says. A verifier that learns
from its own beam output says greedily what it would otherwise have to search for; of the hypotheses in a beam, the one
nearest the reference teaches it most (*sequence-level interpolation* there).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU

from specmt.decoding.beam import beam_decode
from specmt.decoding.hypotheses import Hypothesis, Request
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.engines.base import AnyEngine
from specmt.errors import TrainingError
from specmt.files import write_json
from specmt.text.vocabulary import EOS_ID
from specmt.workers import run_in_parallel

SHARD_SENTENCES = 5000
"""Sentences translated between two points from which a killed run can go on."""
EXTRA_TOKENS = 10
"""A translation has at most twice the tokens of its source and so many."""
_COMMON_SHARE = 0.05
"""Of the references: from there on, a last token is no accident."""
_BLEU = BLEU(tokenize="none", effective_order=True)

Ids = list[int]


@dataclass(frozen=True)
class Decoding:
    """How sources are translated: `batch_size` sentences at once, greedily where `beam` is 1."""

    batch_size: int
    beam: int = 1
    length_penalty: float = 1.0
    nearest_reference: bool = False
    """Of a beam's hypotheses, the one nearest the reference; else the one with the best score."""
    reference_below: float = 0.0
    """The least BLEU of the nearest, from 0 to 100: where it has less, the reference is taken."""


def translate_in_shards(
    engine: AnyEngine, pairs: Sequence[tuple[Ids, Ids]], folder: Path, decoding: Decoding, workers: int = 1
) -> list[Ids]:
    """The verifier's translation of each pair's source; ids without end-of-sentence on both sides.

    One that the length limit cut is empty: who learned it would learn to stop there.

    Each shard is written to `folder` as it is finished, and read from there if it stands.

    Args:
        workers: threads that take sentences from one queue.
    """
    folder.mkdir(parents=True, exist_ok=True)
    translations: list[Ids] = []
    for start in range(0, len(pairs), SHARD_SENTENCES):
        path = folder / f"{start:08}.json"
        shard = pairs[start : start + SHARD_SENTENCES]
        if not path.exists():
            write_json(path, _translate(engine, shard, decoding, workers))
        translations += _read_shard(path, len(shard))
    return translations


def _read_shard(path: Path, sentences: int) -> list[Ids]:
    try:
        translations: list[Ids] = json.loads(path.read_text())
        if len(translations) == sentences:
            return translations
    except (ValueError, TypeError):
        pass
    raise TrainingError(f"{path}: damaged; remove it, and its sentences are translated anew")


def _translate(engine: AnyEngine, pairs: Sequence[tuple[Ids, Ids]], decoding: Decoding, workers: int) -> list[Ids]:
    requests = [
        Request(index, [*source, EOS_ID], 2 * len(source) + EXTRA_TOKENS) for index, (source, _) in enumerate(pairs)
    ]
    queue = RequestQueue(requests, decoding.batch_size)
    translations: list[Ids] = [[] for _ in pairs]
    ends = common_ends(reference for _, reference in pairs)
    for hypotheses in run_in_parallel(lambda: _decoded(engine, queue, decoding), workers):
        index, said = hypotheses[0].request.index, [_without_end(hypothesis) for hypothesis in hypotheses]
        translations[index] = said[0] or []
        if decoding.nearest_reference:
            whole = [ids for ids in said if ids is not None]
            translations[index] = nearest(whole, pairs[index][1], ends, decoding.reference_below)
    return translations


def _decoded(engine: AnyEngine, queue: RequestQueue, decoding: Decoding) -> Iterator[list[Hypothesis]]:
    """Each sentence's hypotheses, best first."""
    if decoding.beam == 1:
        return ([hypothesis] for hypothesis in decode(engine, queue, Greedy(), decoding.batch_size))
    return beam_decode(engine, queue, decoding.batch_size, decoding.beam, decoding.length_penalty)


def _without_end(hypothesis: Hypothesis) -> Ids | None:
    """Its ids before end-of-sentence; None where it has none, for it was cut."""
    return hypothesis.ids[:-1] if hypothesis.ids[-1:] == [EOS_ID] else None


def nearest(
    hypotheses: Sequence[Ids], reference: Ids, ends: Set[int] = frozenset(), reference_below: float = 0.0
) -> Ids:
    """The hypothesis with the greatest BLEU of its tokens against the reference; the first of equals.

    Without any hypothesis it is the reference.

    Args:
        reference_below: the reference itself, if that BLEU (0 to 100) is less than this.
        ends: what most sentences end with. It is a hypothesis with such an end, if the reference has one and any has:
            a beam often holds the reference's words without the full stop, and who learns them leaves it out.
    """
    if not hypotheses:
        return reference
    if reference and reference[-1] in ends:
        hypotheses = [ids for ids in hypotheses if ids and ids[-1] in ends] or hypotheses
    words = [" ".join(map(str, ids)) for ids in (*hypotheses, reference)]
    scores = [_BLEU.sentence_score(said, words[-1:]).score for said in words[:-1]]
    return reference if max(scores) < reference_below else hypotheses[scores.index(max(scores))]


def common_ends(references: Iterable[Ids]) -> Set[int]:
    """The tokens that many of the references end with: full stops and the like, whatever the language."""
    counts = Counter(ids[-1] for ids in references if ids)
    return {id_ for id_, count in counts.items() if count >= _COMMON_SHARE * counts.total()}
