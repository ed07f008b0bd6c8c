"""What is found in a line that must not be translated, `patterns` and terms; and lines as they are read best."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter

from specmt.errors import UsageError
from specmt.protection import ordinals
from specmt.protection.markdown import emphases_in, links_in
from specmt.protection.patterns import ENTITY, FORMAT, PATTERNS, TRIGGER
from specmt.protection.spans import Mark, Number, Parts, Placeholder, Span, taken
from specmt.protection.terminology import Terminology

KINDS = ("url", "email", "tag", "placeholder", "file", "code", "number")
_MARKUP = frozenset("<>&")
_UNPRINTED = frozenset("\u00a0\u00ad\u2009\u202f")
"""Characters of texts that are not printed: blanks, and the soft hyphen."""
_COUNT = re.compile(
    rf"%(?:\(\w+\)|\d+\$)?{FORMAT}[diu]|[^\w]*(?i:\w*(?:count|num|anzahl|total|amount|days|tage)\w*|n)\W*"
)
"""Placeholders that stand for numbers."""
_NAMELESS = re.compile(r"%(?:\d+\$)?s|\{\d*\}")
"""Placeholders that do not say what they stand for."""
_UNIT_BEHIND = re.compile(r"\s?[€%$]")
_NOUN_BEHIND = re.compile(r"\s[A-ZÄÖÜ][a-zäöüß]{2}")
"""What stands behind those for numbers, whatever they say, and behind nameless ones."""
_MAY_HAVE_TIMES = re.compile(r"(?i:uhr)\b|\dh|\d h\b|(?i:halb|viertel) ")
"""What stands in German lines with times that are to be written plainly."""
_MAY_HAVE_SHORTHAND = re.compile(
    r"\b(?:Mo|Di|Mi|Do|Fr|Sa|So)\b[.\s:,/+&–-]|\d(?:\s?[x×]|-mal|\s[Mm]al)\s|\d[,.][-–—]|\b[a-zA-Z]\.\s?[a-zA-Z]{1,3}\."
)
"""What stands in German lines with shorthand that is to be spelt out, and in few others."""


class SpanFinder:
    """Finds spans of some kinds, and terms."""

    def __init__(
        self, kinds: Iterable[str] = KINDS, terminology: Terminology | None = None, plain_german: bool = False
    ) -> None:
        """Find spans of `kinds`, of `KINDS`, and terms.

        Args:
            plain_german: whether German times of day and shorthand are written plainly before, if numbers are of the
                kinds.

        Raises:
            UsageError: another kind.
        """
        kinds = list(kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"--protect {kind}: expected none, or some of {','.join(KINDS)}")
        self._kinds = kinds
        self._terminology = terminology
        self._rewrites_german = plain_german and "number" in kinds
        patterns = {kind: pattern for kind, pattern in PATTERNS.items() if kind in kinds and kind != "number"}
        if terminology and terminology.targets:
            patterns["term"] = terminology.pattern
        if "number" in kinds:
            patterns["number"] = PATTERNS["number"]
        alternatives = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items())
        self._pattern = re.compile(alternatives or r"(?!)")

    def readable(self, line: str) -> str:
        """A line as models read it best.

        With characters for their entities (`&uuml;`, `&nbsp;`), which would part it as placeholders; and in plain
        German, if that is asked for.
        """
        if "placeholder" in self._kinds and "&" in line:
            line = re.sub(ENTITY, lambda match: _character(match[0]), line)
        return self._plainly(line) if self._rewrites_german else line

    def any_in(self, line: str) -> bool:
        """Whether a line has any, or is to be written otherwise."""
        worth_a_look = self._terminology is not None or TRIGGER.search(line) is not None
        found = (worth_a_look and self._pattern.search(line) is not None) or any(True for _ in self._marks(line))
        return found or self.readable(line) != line

    def _plainly(self, line: str) -> str:
        """A line with its times and shorthand written plainly, but not within other spans than numbers."""
        if _MAY_HAVE_SHORTHAND.search(line):
            from specmt.protection.german_shorthand import spelt_out

            line = self._rewritten(line, lambda text, _, ends_line: spelt_out(text, ends_line))
        if _MAY_HAVE_TIMES.search(line):
            from specmt.protection.german_times import written_plainly

            line = self._rewritten(line, lambda text, begins_line, _: written_plainly(text, begins_line))
        return line

    def _rewritten(self, line: str, rewrite: Callable[[str, bool, bool], str]) -> str:
        """A line with its text rewritten, given whether it begins and ends the line; spans but numbers stay."""
        others = [match.span() for match in self._pattern.finditer(line) if match.lastgroup != "number"]
        made, end = list[str](), 0
        for begin, behind in sorted([*others, *chain(*links_in(line))]):
            if begin >= end:
                made += [rewrite(line[end:begin], not end, False), line[begin:behind]]
                end = behind
        return "".join([*made, rewrite(line[end:], not end, True)])

    def parts(self, line: str) -> Parts:
        """A line as text and spans in turn."""
        found = list(self._marks(line))
        inside = taken(line, ((begin, end) for begin, end, _ in found))
        found += [
            (*match.span(), self._span(line, match))
            for match in self._pattern.finditer(line)
            if not any(inside[slice(*match.span())])
        ]
        parts: Parts = []
        end = 0
        for begin, behind, span in sorted(found, key=itemgetter(0)):
            parts += [line[end:begin], span]
            end = behind
        return [part for part in [*parts, line[end:]] if part]

    def _marks(self, line: str) -> Iterator[tuple[int, int, Span]]:
        """Markdown's marks, and where they stand: around links, and around emphases where no other span is."""
        if "tag" not in self._kinds:
            return
        links, emphases = list(links_in(line)), list(emphases_in(line))
        if not (links or emphases):
            return
        inside = taken(line, (match.span() for match in self._pattern.finditer(line)))
        pairs = [link for link in links if not inside[link.opening[0]]]
        addresses = taken(line, chain(*pairs))
        pairs += [one for one in emphases if not any(inside[begin] or addresses[begin] for begin, _ in one)]
        for number, pair in enumerate(pairs):
            for (begin, end), opens in ((pair.opening, True), (pair.closing, False)):
                yield begin, end, Mark(line[begin:end], line[begin:end], pair=number, opens=opens)

    def _span(self, line: str, match: re.Match[str]) -> Span:
        """What a match of the pattern has found."""
        from specmt.protection import times  # not before there is a span: its patterns take a while to be made

        kind, text = str(match.lastgroup), match[0]
        behind = line[match.end() : match.end() + times.LONGEST_BEHIND]
        if kind == "number":
            time = times.time_of(text, line[max(match.start() - times.LONGEST_BEFORE, 0) : match.start()], behind)
            return Number(text, text, time=time, is_ordinal=ordinals.is_ordinal(text, behind))
        if kind == "placeholder":
            return Placeholder(text, text, is_count=_is_count(text, behind))
        return Span(text, self._terminology.target(text) if kind == "term" and self._terminology else text, kind)


def _is_count(placeholder: str, behind: str) -> bool:
    """Whether a placeholder seems to stand for a number, given what stands behind it."""
    if placeholder.startswith("&") or "%%" in placeholder:
        return False
    if _COUNT.fullmatch(placeholder) or _UNIT_BEHIND.match(behind):
        return True
    return bool(_NAMELESS.fullmatch(placeholder) and _NOUN_BEHIND.match(behind))


def _character(entity: str) -> str:
    """What an entity stands for, but for what is marked up with or cannot be printed; else the entity."""
    from html import unescape  # which takes as long as a short sentence, and is seldom needed

    character = unescape(entity)
    is_text = character.isprintable() and character not in _MARKUP
    return character if is_text or character in _UNPRINTED else entity
