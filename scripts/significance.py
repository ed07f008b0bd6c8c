"""Does one system translate better than another? sacrebleu's paired bootstrap, and an interval of the difference.

sacrebleu gives each system's own interval and the p-value of a pair, not how large the difference may be: `intervals`
takes that from the same resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result

SAMPLES = 1000
SEED = 12345
"""sacrebleu's own, so that the resamples are the same."""


@dataclass(frozen=True)
class Comparison:
    """A system against a baseline, BLEU 0–100. `p_value`: of a difference as large by chance."""

    baseline: str
    system: str
    delta: float
    """System less baseline."""
    low: float
    """95 % of the resamples' differences lie between this and `high`."""
    high: float
    p_value: float | None
    """None where the texts are the same, of which sacrebleu's p says nothing."""


def compare(
    systems: Mapping[str, Sequence[str]], baseline: str, references: Sequence[str], samples: int = SAMPLES
) -> list[Comparison]:
    """Each other system against `baseline`, line by line."""
    others = [name for name in systems if name != baseline]
    named = [(name, systems[name]) for name in (baseline, *others)]
    _, found = PairedTest(named, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=samples)()
    own, *results = _results(found["BLEU"])
    ranges = list(intervals(systems[baseline], [systems[name] for name in others], references, samples))
    same = (list(systems[name]) == list(systems[baseline]) for name in others)
    return [
        Comparison(baseline, name, result.score - own.score, *limits, p_value=None if equal else result.p_value)
        for name, result, limits, equal in zip(others, results, ranges, same, strict=True)
    ]


def _results(column: Sequence[str | Result]) -> list[Result]:
    return [result for result in column if isinstance(result, Result)]


def intervals(
    baseline: Sequence[str], systems: Sequence[Sequence[str]], references: Sequence[str], samples: int = SAMPLES
) -> Iterator[tuple[float, float]]:
    """What 95 % of the differences of each system's BLEU from the baseline's lie between, over resampled lines."""
    lines = len(references)
    drawn = np.random.default_rng(SEED).choice(lines, size=(samples, lines), replace=True)
    times = np.stack([np.bincount(sample, minlength=lines) for sample in drawn])
    theirs = _resampled(baseline, references, times)
    for system in systems:
        low, high = np.percentile(_resampled(system, references, times) - theirs, [2.5, 97.5]).tolist()
        yield low, high


def _resampled(texts: Sequence[str], references: Sequence[str], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """BLEU of each resample; `times`: how often it has each line, shape (samples, lines)."""
    bleu = BLEU()
    order = bleu.max_ngram_order
    scores = (bleu.corpus_score([text], [[reference]]) for text, reference in zip(texts, references, strict=True))
    # Counts of matches and of n-grams by order, and both lengths: what corpus BLEU is computed from.
    statistics = np.array([[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores])
    sums = (times @ statistics).tolist()
    found = (
        BLEU.compute_bleu(row[:order], row[order : 2 * order], row[-2], row[-1], smooth_method=bleu.smooth_method).score
        for row in sums
    )
    return np.array(list(found))
