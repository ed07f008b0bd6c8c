"""The last resort: the text between the spans, translated piece by piece and joined. It keeps everything, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specmt.protection.lines import ProtectedLine, rewritten
from specmt.protection.spans import Element, Parts, Span, lacking, source
from specmt.text.capitals import without_capital
from specmt.text.punctuation import ends_abbreviated
from specmt.translation import Translation, distinct
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

    def filled(self, translation: Translation, first: bool) -> Translation:
        """The core's translation, with its alternatives, between the ends; `first`: see `as_piece`."""
        return rewritten(translation, lambda text: self.before + as_piece(self.core, text, first) + self.after)


def translate_pieces(line: ProtectedLine, run: Run) -> Translation:
    """A line's translation, cut at the spans that do not come out by themselves; if that loses others, at all."""
    if any(Piece.of(text).core for text in line.texts):
        made = _in_pieces(line, _loosened(line), run)
        wanted = [span for span in line.spans if span.is_soft]
        if not lacking(made.text, wanted, line.spans):
            return made
    return _in_pieces(line, line.parts, run)


def _loosened(line: ProtectedLine) -> Parts:
    """A line's parts, where numbers and terms that came out by themselves are text."""
    parts: Parts = []
    for part in line.parts:
        is_text = isinstance(part, str) or line.stays(part)
        if is_text and parts and isinstance(before := parts[-1], str):
            parts[-1] = before + source(part)
        else:
            parts.append(source(part) if is_text else part)
    return parts


def _in_pieces(line: ProtectedLine, between: Parts, run: Run) -> Translation:
    """A line whose parts are `between`; all pieces go through one call of `run`."""
    parts = [part if isinstance(part, Span) else Piece.of(part) for part in (*line.before, *between, *line.behind)]
    cores = [part.core for part in parts if isinstance(part, Piece) and part.core]
    translations = iter(list(run([cores])) if cores else [])
    said: list[str | Translation] = []
    for part in parts:
        if isinstance(part, Span):
            said.append(part.made if isinstance(part, Element) else part.target)
        elif part.core:
            said.append(part.filled(next(translations), first=not any(map(_text, said))))
        else:
            said.append(part.before + part.after)
    return combined(line, said)


def combined(line: ProtectedLine, said: Sequence[str | Translation]) -> Translation:
    """A line's translation, given what takes its parts' places, with as many alternatives as one of them has."""
    count = max((len(one.n_best) for one in said if isinstance(one, Translation)), default=0)
    wholes = [
        line.joined("".join(map(_text, way)), [one for one in way if isinstance(one, Translation)])
        for way in _best_ways(said, max(count, 1))
    ]
    alternatives = (whole.as_alternative for whole in sorted(wholes, key=lambda whole: -whole.score))
    return replace(wholes[0], n_best=tuple(distinct(alternatives)) if count else ())


def _text(one: str | Translation) -> str:
    return one if isinstance(one, str) else one.text


def _best_ways(said: Sequence[str | Translation], count: int) -> list[list[str | Translation]]:
    """Up to `count` ways to say a line, those with the highest scores (see `ProtectedLine.joined`), the best first."""
    # A way is known by what it loses against the best, in nats times source tokens, and by the places where it has
    # others than the best. All ways in full, after each part, would take time in the square of a long line.
    ways: list[tuple[float, dict[int, Translation]]] = [(0.0, {})]
    for place, one in enumerate(said):
        if isinstance(one, Translation):
            weight = len(one.source_ids)
            others = [one.with_alternative(other) for other in distinct(one.n_best) if other.text != one.text]
            ways += [
                (loss + weight * (one.score - other.score), changes | {place: other})
                for loss, changes in ways
                for other in others
            ]
            ways = sorted(ways, key=lambda way: way[0])[:count]
    return [[changes.get(place, one) for place, one in enumerate(said)] for _, changes in ways]


def as_piece(source: str, text: str, first: bool, required: str = "") -> str:
    """A piece's translation without the look of a sentence, which the model gives everything.

    Args:
        first: whether nothing stands before it.
        required: see `without_end`.
    """
    text = without_end(source, text, required)
    return text if first else without_capital(source, text)


def without_end(source: str, text: str, required: str = "") -> str:
    """A translation without a full stop or the like that its source has not, but for that of what it ends with."""
    if source[-1] in _ENDINGS or ends_abbreviated(text):
        return text
    bare, required_bare = text.rstrip(_ENDINGS) or text, required.rstrip(_ENDINGS)
    return bare + required[len(required_bare) :] if bare.endswith(required_bare) else bare
