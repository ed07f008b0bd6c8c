"""The last resort: the text between the spans, translated piece by piece and joined. It keeps everything, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from specmt.protection.lines import ProtectedLine
from specmt.protection.spans import Span
from specmt.translation import Alternative, Translation
from specmt.wrapping import Run

_EDGES = re.compile(r"^([\W_]*)(.*?)(\s*)$", re.DOTALL)
_ENDINGS = ".!?…"


@dataclass(frozen=True)
class Piece:
    """Text between spans: what is kept of its ends, and what the model translates."""

    before: str
    core: str
    after: str

    @classmethod
    def of(cls, text: str) -> Piece:
        """A text cut into the three."""
        match = _EDGES.match(text)
        assert match, "every text has two ends"
        return cls(*match.groups())


def translate_pieces(lines: Sequence[ProtectedLine], run: Run) -> dict[int, Translation]:
    """Translations by the lines' indices; all pieces of all lines go through one call of `run`."""
    pieces = {
        (line.index, place): Piece.of(part)
        for line in lines
        for place, part in enumerate(line.parts)
        if isinstance(part, str)
    }
    asked = {key: piece for key, piece in pieces.items() if piece.core}
    cores = [piece.core for piece in asked.values()]
    translated = dict(zip(asked, run([cores]), strict=True)) if asked else {}
    done = {}
    for line in lines:
        text, used = line.prefix, []
        for place, part in enumerate(line.parts):
            if isinstance(part, Span):
                text += part.target
                continue
            piece, translation = pieces[line.index, place], translated.get((line.index, place))
            text += piece.before + (as_piece(piece.core, translation.text, first=not text) if translation else "")
            text += piece.after
            used += [translation] if translation else []
        done[line.index] = _joined(line, text + line.suffix, used)
    return done


def as_piece(source: str, text: str, first: bool) -> str:
    """A piece's translation without the look of a sentence, which the model gives everything.

    Args:
        first: whether nothing stands before it.
    """
    if source[-1] not in _ENDINGS:
        text = text.rstrip(_ENDINGS) or text
    if not first and source[0].islower() and text[1:2].islower():
        text = text[0].lower() + text[1:]
    return text


def _joined(line: ProtectedLine, text: str, pieces: Sequence[Translation]) -> Translation:
    ids = tuple(id_ for piece in pieces for id_ in piece.ids)
    weights = [max(len(piece.ids), 1) for piece in pieces]
    score = sum(piece.score * weight for piece, weight in zip(pieces, weights, strict=True)) / max(sum(weights), 1)
    iterations = tuple(iteration for piece in pieces for iteration in piece.iterations)
    n_best = (Alternative(text, score),) if any(piece.n_best for piece in pieces) else ()
    return Translation(line.index, line.text, text, score, ids, iterations, n_best)
