"""What is found in a line that must not be translated: addresses, tags, placeholders, codes, numbers, and terms."""

from __future__ import annotations

import re
from collections.abc import Iterable

from specmt.errors import UsageError
from specmt.protection import ordinals
from specmt.protection.spans import FRACTION, Number, Parts, Placeholder, Span
from specmt.protection.terminology import Terminology

KINDS = ("url", "email", "tag", "placeholder", "code", "number")

_IN_URL = r"[^\s<>\"'{}|\\^`()]"
_REST_OF_URL = (
    rf"(?:{_IN_URL}|\({_IN_URL}*\)|\((?!{_IN_URL}*\)))*"
    rf"(?:(?![.,;:!?\[\]]){_IN_URL}|\({_IN_URL}*\))"
)
_DOMAIN = r"\.(?:com|de|at|ch|eu|org|net|info|io|gov|edu|uk|fr|nl|pl)(?![\w@-]|\.\w)"
"""The end of a host's name without `www`, in small letters: domains that are no words of German or English."""
_RAISED = r"[\u00b2\u00b3\u00b9\u2070-\u2079]"
_REFERENCE = r"\[\d{1,4}(?:(?:, ?|[-–])\d{1,4}){0,20}\]"
"""Numbers of references."""
_FORMAT = r"[-+#0]{0,5}\d{0,4}(?:\.\d{1,4})?(?:ll?|h)?"
_CONVERSION = "[sdifgGxXeEuco@]"
_MARKUP = frozenset("<>&")
_UNPRINTED = frozenset("\u00a0\u00ad\u2009\u202f")
"""Characters of texts that are not printed: blanks, and the soft hyphen."""
_UNIT = r"x%|(?:(?:[KMGT]i?)?B|px|[kcm]?m|m?s|h)\b"
"""What may stand right behind `%s`, `%d` or `%f`; before another letter, that is no placeholder (`50 %ige`)."""
_ENTITY = r"&(?:[A-Za-z]\w*|#\d+);"
PATTERNS = {
    "tag": (
        r"(?<!\\)(?:(?:\\[nrt]){2,}|\\[nrt](?=[A-ZÄÖÜ\d\s]|$))"  # not in `C:\neu`
        r"|<!--(?:(?!<!--).)*?-->|</?[A-Za-z][\w:-]*(?:\s(?>(?>\"[^\"<]*\"|'[^'<]*'|[^<>])*))?/?>"
    ),
    "url": (
        rf"(?:(?i:https?|ftp|file)://|(?i:www)\.){_REST_OF_URL}"
        rf"|(?<![\w./@+-])\w[\w-]*(?:\.[\w-]+)*?{_DOMAIN}(?:(?::\d+)?/(?:{_REST_OF_URL})?)?"
    ),
    "email": r"(?<![\w.+-])(?:(?i:mailto):)?[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "placeholder": (
        r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|%\{[^{}]*\}|\{%[^{}]*%\}"
        r"|\{\s?[\w.\[\]#-]*(?:![rsa])?(?::[^{}\s]*)?\s?\}"
        rf"|(?<![\d%])%(?:(?:\(\w+\)|\d{{1,3}}\$){_FORMAT}{_CONVERSION}"
        rf"|{_FORMAT}(?:{_CONVERSION}(?!\w)|[sdf](?={_UNIT})))(?:%%)?"
        r"|(?<![\w%])%[A-Z_][A-Z0-9_]*%|(?<![\w%])%\d+(?!\w)|\$[A-Za-z_]\w*"
        rf"|{_ENTITY}"
        r"|(?<![\w.,])\d++(?>(?:[.,]\d++)*)%%|%%"
    ),
    "code": r"(?<![\w#&])(?:#[0-9A-Fa-f]{6}|(?=\d*[A-Z]\d*[A-Z])(?=[A-Z]*\d[A-Z]*\d)[A-Z\d]{4,})(?!\w)",
    "number": (
        rf"{_REFERENCE}"
        r"|(?<![\w.,])(?<!\d[:/])(?:\d++(?>(?:[.,:/]\d++|['’]\d{3}(?!\d))+)[^\W\d_]{0,4}+"
        rf"|\d++(?:{FRACTION}|{_RAISED}++)?(?![.,:/]\d)|{FRACTION})(?!\w)"
        r"(?:[ \u00a0]?[cdkm]?m[\u00b2\u00b3](?!\w))?"
    ),
}
"""What is found takes time in proportion to the line: no pattern begins anew within what another try has read.

Groups are repeated in `(?>…)`, not by `*+` or `++`: those take in a part of one repetition too many in Python 3.11.2,
that of Debian 12 (python/cpython#106052).
"""
_COUNT = re.compile(
    rf"%(?:\(\w+\)|\d+\$)?{_FORMAT}[diu]|[^\w]*(?i:\w*(?:count|num|anzahl|total|amount|days|tage)\w*|n)\W*"
)
"""Placeholders that stand for numbers."""
_NAMELESS = re.compile(r"%(?:\d+\$)?s|\{\d*\}")
"""Placeholders that do not say what they stand for."""
_UNIT_BEHIND = re.compile(r"\s?[€%$]")
_NOUN_BEHIND = re.compile(r"\s[A-ZÄÖÜ][a-zäöüß]{2}")
"""What stands behind those for numbers, whatever they say, and behind nameless ones."""
_MAY_HAVE_TIMES = re.compile(r"(?i:uhr)\b|\dh|\d h\b|(?i:halb|viertel) ")
"""What stands in German lines with times that are to be written plainly."""
_TRIGGER = re.compile(rf"[\d\\<@{{%$&#]|{FRACTION}|://|(?i:www)\.|{_DOMAIN}")
"""What stands in every span but a term; a line without is told from others fast."""


class SpanFinder:
    """Finds spans of some kinds, and terms."""

    def __init__(
        self, kinds: Iterable[str] = KINDS, terminology: Terminology | None = None, plain_times: bool = False
    ) -> None:
        """Find spans of `kinds`, of `KINDS`, and terms.

        Args:
            plain_times: whether German times of day are written plainly before, if numbers are of the kinds.

        Raises:
            UsageError: another kind.
        """
        kinds = list(kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise UsageError(f"--protect {kind}: expected none, or some of {','.join(KINDS)}")
        self._kinds = kinds
        self._terminology = terminology
        self._rewrites_times = plain_times and "number" in kinds
        patterns = {kind: pattern for kind, pattern in PATTERNS.items() if kind in kinds and kind != "number"}
        if terminology and terminology.targets:
            patterns["term"] = terminology.pattern
        if "number" in kinds:
            patterns["number"] = PATTERNS["number"]
        alternatives = "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items())
        self._pattern = re.compile(alternatives or r"(?!)")

    def readable(self, line: str) -> str:
        """A line as models read it best.

        With characters for their entities (`&uuml;`, `&nbsp;`), which would part it as placeholders; and with plain
        times of day, if these are asked for.
        """
        if "placeholder" in self._kinds and "&" in line:
            line = re.sub(_ENTITY, lambda match: _character(match[0]), line)
        return self._with_plain_times(line) if self._rewrites_times and _MAY_HAVE_TIMES.search(line) else line

    def any_in(self, line: str) -> bool:
        """Whether a line has any, or is to be written otherwise."""
        worth_a_look = self._terminology is not None or _TRIGGER.search(line) is not None
        return (worth_a_look and self._pattern.search(line) is not None) or self.readable(line) != line

    def _with_plain_times(self, line: str) -> str:
        """A line with its times written plainly, but not within addresses, tags, placeholders and terms."""
        from specmt.protection import german_times

        made, end = list[str](), 0
        for match in self._pattern.finditer(line):
            if match.lastgroup != "number":
                made += [german_times.written_plainly(line[end : match.start()], begins_line=not end), match[0]]
                end = match.end()
        return "".join([*made, german_times.written_plainly(line[end:], begins_line=not end)])

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
