"""Forms of output: plain text, JSON objects, fairseq's lines. A pure function from a translation to its lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specmt.choices import OutputFormat
from specmt.text.characters import printable
from specmt.text.vocabulary import EOS_ID, AnyVocabulary
from specmt.translation import Alternative, Translation


@dataclass(frozen=True)
class Form:
    """How a translation is written. `n_best` alternatives stand one below the other in text."""

    format: OutputFormat
    vocabulary: AnyVocabulary
    n_best: int = 1
    scores: bool = False
    """In text: the score and a tab before each translation."""
    alignment: bool = False
    """In text: ` ||| ` and pairs of words such as `0-0 1-2` behind each translation."""

    @property
    def has_scores(self) -> bool:
        """Whether scores come out."""
        return self.scores or self.format is not OutputFormat.text

    @property
    def lines_each(self) -> int:
        """Lines of output for each line of input."""
        if self.format is OutputFormat.jsonl:
            return 1
        if self.format is OutputFormat.text:
            return self.n_best
        return 1 + self.n_best * (3 + self.alignment)

    def render(self, translation: Translation) -> str:
        """`lines_each` lines with their ends."""
        if self.format is OutputFormat.jsonl:
            return self._jsonl(translation)
        # A line with fewer alternatives takes as many lines as any other: nothing may shift.
        missing = Alternative("", -math.inf if translation.n_best or translation.text else 0.0)
        alternatives = [*(translation.n_best or (translation.as_alternative,)), *[missing] * self.n_best][: self.n_best]
        lines = (
            self._text(alternatives) if self.format is OutputFormat.text else self._fairseq(translation, alternatives)
        )
        return "".join(f"{line}\n" for line in lines)

    def _text(self, alternatives: Sequence[Alternative]) -> list[str]:
        lines = []
        for alternative in alternatives:
            score = f"{alternative.score:.4f}\t" if self.scores else ""
            pairs = f" ||| {_pharaoh(alternative)}" if self.alignment else ""
            text = _one_line(alternative.text) if score or pairs else _cells(alternative.text)
            lines.append(f"{score}{text}{pairs}")
        return lines

    def _jsonl(self, translation: Translation) -> str:
        record: dict[str, Any] = {
            **{key: value for key, value in translation.fields.items() if key not in _SAID_OF_SOME},
            "source": translation.source,
            "translation": translation.text,
            "score": translation.score,
            "iterations": len(translation.iterations),
            "emitted_tokens": [len(iteration.emitted) for iteration in translation.iterations],
        }
        if translation.segments > 1:
            record["segments"] = translation.segments
        if translation.warnings:
            record["warnings"] = translation.warnings
        if translation.unplaced:
            record["unplaced"] = translation.unplaced
        if translation.replay:
            record["replay"] = asdict(translation.replay)
        if self.alignment:
            record["alignment"] = translation.alignment
        if self.n_best > 1:
            alternatives = translation.n_best or (translation.as_alternative,)
            record["n_best"] = [self._alternative(alternative) for alternative in alternatives]
        try:
            line = json.dumps(record, ensure_ascii=False)
            line.encode()
        except UnicodeEncodeError:  # half a surrogate pair in a field that passes through
            line = json.dumps(record)
        return line + "\n"

    def _alternative(self, alternative: Alternative) -> dict[str, Any]:
        record: dict[str, Any] = {"translation": alternative.text, "score": alternative.score}
        if self.alignment:
            record["alignment"] = alternative.alignment
        return record

    def _fairseq(self, translation: Translation, alternatives: Sequence[Alternative]) -> list[str]:
        """As `fairseq-interactive` prints them: S and H in pieces, D as text, scores and P to base 2."""
        number = translation.index
        lines = [f"S-{number}\t{self._pieces(translation.source_ids, self.vocabulary.source_piece)}"]
        for alternative in alternatives:
            score = round(alternative.score / math.log(2), 6)
            lines.append(f"H-{number}\t{score}\t{self._pieces(alternative.ids, self.vocabulary.piece)}")
            lines.append(f"D-{number}\t{score}\t{_one_line(alternative.text)}")
            log_probs = " ".join(f"{log_prob / math.log(2):.4f}" for log_prob in alternative.token_log_probs)
            lines.append(f"P-{number}\t{log_probs}")
            if self.alignment:
                lines.append(f"A-{number}\t{_pharaoh(alternative)}")
        return lines

    @staticmethod
    def _pieces(ids: Sequence[int], piece: Callable[[int], str]) -> str:
        return " ".join(piece(id_) for id_ in ids if id_ != EOS_ID)


_SAID_OF_SOME = frozenset({"segments", "warnings", "unplaced", "replay", "alignment", "n_best"})
"""Fields of some lines only: in a line of input they are another translation's, and do not pass through."""


def _pharaoh(alternative: Alternative) -> str:
    return " ".join(f"{source}-{target}" for source, target in alternative.alignment)


def _cells(text: str) -> str:
    """As `_one_line`, where there is nothing beside a text that tabs might be taken for: those of the source stay."""
    return "\t".join(map(_one_line, text.split("\t")))


def _one_line(text: str) -> str:
    """What ends lines or cells, and other characters that are no text, are blanks in a form of one line a translation.

    They come from JSON sources and from what stands around protected spans.
    """
    return printable(" ".join(text.splitlines()))
