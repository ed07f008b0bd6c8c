"""What is found in a line that must not be translated, `patterns` and terms; and lines as they are read best."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from specmt.errors import UsageError
from specmt.protection import ordinals
from specmt.protection.patterns import ENTITY, FORMAT, PATTERNS, TRIGGER
from specmt.protection.spans import Number, Parts, Placeholder, Span
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
        return (worth_a_look and self._pattern.search(line) is not None) or self.readable(line) != line

    def _plainly(self, line: str) -> str:
        """A line with its times and shorthand written plainly, but not within other spans than numbers."""
        rewritings: list[Callable[[str, bool], str]] = []
        if _MAY_HAVE_SHORTHAND.search(line):
            from specmt.protection.german_shorthand import spelt_out

            rewritings.append(lambda text, _: spelt_out(text))
        if _MAY_HAVE_TIMES.search(line):
            from specmt.protection.german_times import written_plainly

            rewritings.append(written_plainly)
        for rewrite in rewritings:
            made, end = list[str](), 0
            for match in self._pattern.finditer(line):
                if match.lastgroup != "number":
                    made += [rewrite(line[end : match.start()], not end), match[0]]
                    end = match.end()
            line = "".join([*made, rewrite(line[end:], not end)])
        return line

    def parts(self, line: str) -> Parts:
        """A line as text and spans in turn."""
        from specmt.protection import times  # not before there is a span: its patterns take a while to be made

        parts: Parts = []
        end = 0
        for match in self._pattern.finditer(line):
            kind, text = str(match.lastgroup), match[0]
            target = self._terminology.target(text) if kind == "term" and self._terminology else text
            before, end = line[end : match.start()], match.end()
            behind = line[end : end + times.LONGEST_BEHIND]
            span = Span(text, target, kind)
            if kind == "number":
                time = times.time_of(text, line[max(match.start() - times.LONGEST_BEFORE, 0) : match.start()], behind)
                span = Number(text, target, time=time, is_ordinal=ordinals.is_ordinal(text, behind))
            elif kind == "placeholder":
                span = Placeholder(text, target, is_count=_is_count(text, behind))
            parts += [before, span]
        return [part for part in [*parts, line[end:]] if part]


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
