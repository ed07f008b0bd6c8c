"""The last resort: the text between the spans, translated piece by piece and joined. It keeps everything, in order."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from specmt.protection.lines import ProtectedLine, as_alternative
from specmt.protection.spans import Span
from specmt.translation import Translation
from specmt.wrapping import Run

_OPENING = re.compile(r"[\W_]*")
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
        opening = _OPENING.match(text)
        assert opening, "it may be empty"
        core = text[opening.end() :].rstrip()
        return cls(opening[0], core, text[opening.end() + len(core) :])


def translate_pieces(line: ProtectedLine, run: Run) -> Translation:
    """A line's translation; all its pieces go through one call of `run`."""
    parts = [part if isinstance(part, Span) else Piece.of(part) for part in (*line.before, *line.parts, *line.behind)]
    cores = [part.core for part in parts if isinstance(part, Piece) and part.core]
    translations = iter(list(run([cores])) if cores else [])
    text = ""
    used: list[Translation] = []
    for part in parts:
        if isinstance(part, Span):
            text += part.target
            used += [part.made] if part.made else []
        elif part.core:
            translation = next(translations)
            text += part.before + as_piece(part.core, translation.text, first=not text) + part.after
            used.append(translation)
        else:
            text += part.before + part.after
    whole = line.joined(text, used)
    return replace(whole, n_best=(as_alternative(whole),)) if any(one.n_best for one in used) else whole


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
