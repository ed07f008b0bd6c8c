"""Carriers: words that models copy, in place of what they would not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from specmt.protection.lines import ProtectedLine, rewritten
from specmt.protection.numbers import as_written
from specmt.protection.ordinals import ENDING, with_ending
from specmt.protection.pieces import Piece
from specmt.protection.spans import Element, Number, Placeholder, Span, lacking, source
from specmt.protection.terminology import forms
from specmt.text.sentences import CARRIER_NAMES
from specmt.text.vocabulary import UNK_ID, AnyVocabulary
from specmt.translation import Translation

NUMBERS = ("12", "47", "17", "50", "100", "23", "7")
"""Carriers of numbers, and of placeholders that stand for numbers, as the words beside them agree with these."""
YEARS = ("1995", "2013", "1990")
"""Carriers of numbers of four digits."""
_FOUR_DIGITS = re.compile(r"\d{4}")
_DATE = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?:\d\d){1,2}")
_WEEKDAYS = (
    ("Montag", "Monday"),
    ("Dienstag", "Tuesday"),
    ("Mittwoch", "Wednesday"),
    ("Donnerstag", "Thursday"),
    ("Freitag", "Friday"),
)
"""Carriers of dates from German into English, and how they come out: prepositions are those of dates."""
_DATE_BEHIND = re.compile(r"\b(?:ab|am|bis|de[mnr]|seit|und|vo[mn]|zum)\s+$", re.IGNORECASE)
_FEWEST_WORDS = 4
"""Where weekdays carry dates: in what reads like a sentence, where a weekday may stand."""
_BY_NUMBERS = 2
"""Attempts in which placeholders that stand for numbers have carriers that are numbers."""


class Carrier(NamedTuple):
    """What is put in place of a span, and what must come out."""

    sent: str
    said: str


@dataclass(frozen=True)
class Attempt:
    """A line with carriers, and the span that each carries."""

    text: str
    carried: dict[str, Span]

    def restored(self, line: ProtectedLine, translation: Translation) -> Translation | None:
        """The translation with everything in its place; None if something is not, which `line.missing` then knows."""
        numbers = [span.target for span in line.spans if isinstance(span, Number) and not span.time]
        said = rewritten(translation, partial(as_written, numbers))
        text = self._put_back(said.text)
        # An element may stand as its carrier does in the text, which is there once.
        wanted = [span for span in line.spans if not isinstance(span, Element)]
        lost = lacking(text or said.text, wanted, line.spans)
        line.missing |= self._to_carry(line, lost)
        if text is None or lost:
            return None
        alternatives = []
        for one in said.n_best:
            other = self._put_back(one.text)
            if other is not None and not lacking(other, wanted, line.spans):
                alternatives.append(replace(one, text=other))
        elements = [span for span in self.carried.values() if isinstance(span, Element)]
        inner = [element.made for element in elements if not self._is_own_carrier(element)]
        warnings = [warning for one in (translation, *inner) for warning in one.warnings]
        return line.with_edges(
            replace(translation, text=text, n_best=tuple(alternatives), warnings=tuple(dict.fromkeys(warnings)))
        )

    def _to_carry(self, line: ProtectedLine, lost: Sequence[Span]) -> set[str]:
        """Numbers and terms that are lost and have no carriers; if none, terms in whose targets what is lost may be."""
        carried = {span.text for span in self.carried.values()}
        own = {span.text for span in lost if span.is_soft} - carried
        terms = {span for span in line.spans if span.kind == "term" and span.text not in carried}
        return own or {term.text for term in terms if any(one.taken_from(term.target, 1)[1] for one in lost)}

    def _put_back(self, text: str) -> str | None:
        """`text` with spans for carriers; None unless each is there once, and those of positional ones in order."""
        if not self.carried:
            return text
        by_form = {form: carrier for carrier in self.carried for form in {carrier, *forms(carrier)}}
        longest_first = "|".join(map(re.escape, sorted(by_form, key=len, reverse=True)))
        pattern = re.compile(rf"(?<![^\W_])({longest_first})((?<=\d){ENDING})?(?![^\W_])([.!?]?)")
        found = [by_form[match[1]] for match in pattern.finditer(text)]
        if sorted(found) != sorted(self.carried) or self._positional(found) != self._positional(self.carried):
            return None
        return pattern.sub(lambda match: self._filled(self.carried[by_form[match[1]]], match), text)

    def _positional(self, carriers: Iterable[str]) -> list[str]:
        return [carrier for carrier in carriers if self.carried[carrier].is_positional]

    def _filled(self, span: Span, match: re.Match[str]) -> str:
        """What takes a carrier's place: an ordinal has its own ending, what is none has no ending.

        An element whose text was its own carrier takes that between its tags; one that ends a sentence has its own end.
        """
        if isinstance(span, Element) and span.around and self._is_own_carrier(span):
            return match[1].join(span.around) + match[3]
        if isinstance(span, Element) and span.sentence_end and not self._is_own_carrier(span):
            return span.target
        return (with_ending(span.target) if match[2] and span.target.isdecimal() else span.target) + match[3]

    def _is_own_carrier(self, element: Element) -> bool:
        return bool(element.translated) and element.translated in self.carried


class Carriers:
    """Those carriers that a vocabulary has."""

    def __init__(self, vocabulary: AnyVocabulary, of_dates: bool = False) -> None:
        """`of_dates`: whether weekdays carry dates, from German into English."""
        words = {
            "names": zip(CARRIER_NAMES, CARRIER_NAMES, strict=True),
            "numbers": zip(NUMBERS, NUMBERS, strict=True),
            "years": zip(YEARS, YEARS, strict=True),
            "dates": _WEEKDAYS if of_dates else (),
        }
        self._carriers = {
            kind: [Carrier(*pair) for pair in pairs if not any(UNK_ID in vocabulary.encode(word) for word in pair)]
            for kind, pairs in words.items()
        }

    def attempt(self, line: ProtectedLine, number: int) -> Attempt | None:
        """Attempt `number`, from 0: the line with carriers in place of what needs them.

        At first, an element stands as its content, and its tags go around that content's translation. None where this
        attempt cannot tell what it has put in; another may.
        """
        if any(span.kind == "tag" for span in line.spans) or not any(Piece.of(part).core for part in line.texts):
            return None  # a tag without its pair parts the text; and where there is none, nothing is to be translated
        free = {kind: self._free(line, carriers, number) for kind, carriers in self._carriers.items()}
        texts, carried = [], {}
        for part in line.parts:
            if isinstance(part, str) or line.stays(part):
                texts.append(source(part))
                continue
            if number == 0 and isinstance(part, Element) and part.translated:
                sent, said = part.content, part.translated
            else:
                pools = [free[kind] for kind in _kinds(part, line, "".join(texts[-1:]), number)]
                sent, said = next((pool.pop(0) for pool in pools if pool), ("", ""))
                sent += part.sentence_end if isinstance(part, Element) and sent else ""
            if not said or said in carried:
                return None
            texts.append(sent)
            carried[said] = part
        return Attempt("".join(texts), carried)

    @staticmethod
    def _free(line: ProtectedLine, carriers: Sequence[Carrier], attempt: int) -> list[Carrier]:
        """Carriers that stand neither in the line nor in what will be put into it; each attempt has others first."""
        taken = " ".join([line.text, *(span.target for span in line.spans)]).casefold()
        free = [carrier for carrier in carriers if not any(word.casefold() in taken for word in carrier)]
        needed = sum(not line.stays(span) for span in line.spans)
        first = attempt * min(needed, 2) % len(free) if free else 0
        return free[first:] + free[:first]


def _kinds(span: Span, line: ProtectedLine, before: str, attempt: int) -> Sequence[str]:
    """What may carry a span, the best first, given the text before it."""
    if isinstance(span, Placeholder | Element) and span.is_count and attempt < _BY_NUMBERS:
        return "numbers", "names"
    if not isinstance(span, Number):
        return ("names",)
    if _FOUR_DIGITS.fullmatch(span.text):
        return "years", "numbers"
    is_sentence = len(line.text.split(maxsplit=_FEWEST_WORDS)) >= _FEWEST_WORDS
    if is_sentence and _DATE.fullmatch(span.text) and _DATE_BEHIND.search(before):
        return "dates", "numbers", "years"
    return "numbers", "years"
