"""Pairs of words of whole lines: segment by segment as they were translated, or of two finished texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specmt.assembly import Part, Rendered, word_places
from specmt.text.segmentation import Segmenter, whole
from specmt.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from specmt.alignment import Aligner, Pairs

_LONGEST = 1024
"""Tokens of a text that is aligned as a whole: the time and memory that it takes grow with their square."""


@dataclass(frozen=True)
class LineAligner:
    """Aligns lines; words are what blanks part. `segmenter`: how texts are cut into sentences, None: not at all."""

    aligner: Aligner
    vocabulary: Vocabulary
    segmenter: Segmenter | None

    def parts(self, parts: Sequence[Part], rendered: Rendered) -> Pairs:
        """Of a line and one of its translations, segment by segment."""
        return self._pairs(parts, rendered.parts or (rendered,), [part.segment.glue for part in parts])

    def _pairs(self, parts: Sequence[Part], chosen: Sequence[Rendered], glues: Sequence[str]) -> Pairs:
        """See `word_places`."""
        pairs: set[tuple[int, int]] = set()
        for part, one, (sources, targets) in zip(parts, chosen, word_places(parts, chosen, glues), strict=True):
            if one.kept_ids:
                found = self.aligner.words(part.segment.ids, one.kept_ids, self.vocabulary)
                theirs, ours = self._words(part.segment.text, part.segment.ids), self._words(one.text, one.kept_ids)
                pairs |= {(theirs[source] + sources, ours[target] + targets) for source, target in found}
        return tuple(sorted(pairs))

    def texts(self, source: str, target: str) -> Pairs:
        """Of two texts, sentence by sentence where both have as many, else as a whole; none of what is too long."""
        sources, targets = whole(source, self.vocabulary.encode), whole(target, self.vocabulary.encode)
        if self.segmenter is not None:
            sentences, others = self.segmenter.split(source), self.segmenter.split(target)
            if len(sentences) == len(others):
                sources, targets = sentences, others
        if not sources or not targets or any(len(one.ids) > _LONGEST for one in (*sources, *targets)):
            return ()
        renderings = tuple(Rendered(one.text, 0.0, kept_ids=tuple(one.ids)) for one in targets)
        parts = [Part(one, (rendered,)) for one, rendered in zip(sources, renderings, strict=True)]
        return self._pairs(parts, renderings, [one.glue for one in targets])

    def _words(self, text: str, ids: Sequence[int]) -> Sequence[int]:
        """For each word that an aligner counts in a text's ids, the place of the text's word that it is a part of.

        They differ where normalising makes a blank of something (`´`), or nothing.
        """
        starts = self.vocabulary.starts_word
        counted = 1 + sum(map(starts, ids[1:]))
        words = text.split()
        if len(words) != counted:
            places = [place for place, word in enumerate(words) for id_ in self.vocabulary.encode(word) if starts(id_)]
            if len(places) == counted:
                return places
        return [min(word, max(len(words) - 1, 0)) for word in range(counted)]
