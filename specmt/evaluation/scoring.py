"""How near translations are to their references: BLEU and chrF, by sacrebleu."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scores:
    """BLEU and chrF, 0–100, with sacrebleu's signatures."""

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str


_TOKENIZERS = {"zh": "zh", **dict.fromkeys(("ja", "ko", "th", "lo", "km", "my"), "char")}
"""sacrebleu's, where 13a, which parts words at blanks, is of no use. What it prefers for ja and ko needs MeCab."""


def scores(texts: Sequence[str], references: Sequence[str], language: str = "") -> Scores:
    """Compare texts in a language (ISO 639-1) with a reference each, cased."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    bleu, chrf = BLEU(tokenize=_TOKENIZERS.get(language, "13a"), lowercase=False), CHRF()
    bleu_score = bleu.corpus_score(texts, [references]).score
    chrf_score = chrf.corpus_score(texts, [references]).score
    return Scores(bleu_score, str(bleu.get_signature()), chrf_score, str(chrf.get_signature()))
