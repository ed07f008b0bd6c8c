"""The parts of a line that are protected: how they are found in it, and looked for in a translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from specmt.errors import UsageError
from specmt.protection import ordinals
from specmt.protection.terminology import Terminology, whole_word
from specmt.translation import Translation

if TYPE_CHECKING:
    from specmt.protection.times import Time

KINDS = ("url", "email", "tag", "placeholder", "code", "number")

_IN_URL = r"[^\s<>\"'{}|\\^`()]"
_REST_OF_URL = (
    rf"(?:{_IN_URL}|\({_IN_URL}*\)|\((?!{_IN_URL}*\)))*"
    rf"(?:(?![.,;:!?\[\]]){_IN_URL}|\({_IN_URL}*\))"
)
_DOMAIN = r"\.(?:com|de|at|ch|eu|org|net|info|io|gov|edu|uk|fr|nl|pl)(?![\w@-]|\.\w)"
"""The end of a host's name without `www`, in small letters: domains that are no words of German or English."""
_RAISED = r"[\u00b2\u00b3\u00b9\u2070-\u2079]"
_FRACTION = r"[\u00bc-\u00be\u2150-\u215e]"
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
_PATTERNS = {
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
        rf"|\d++(?:{_FRACTION}|{_RAISED}++)?(?![.,:/]\d)|{_FRACTION})(?!\w)"
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
_UNIT_BEHIND = re.compile(r"\s?[€%$]")
_NAMELESS = re.compile(r"%(?:\d+\$)?s|\{\d*\}")
_NOUN_BEHIND = re.compile(r"\s[A-ZÄÖÜ][a-zäöüß]{2}")
"""What stands behind others that do: a unit, or a noun where they do not say what they are."""
_MAY_HAVE_TIMES = re.compile(r"(?i:uhr)\b|\dh|\d h\b|(?i:halb|viertel) ")
"""What stands in German lines with times that are to be written plainly."""
_POSITIONAL = re.compile(r"%[-+#0]*\d*(?:\.\d+)?[a-zA-Z@]+(?:%%)?|\{\s?(?:[!:][^{}]*)?\}")
"""Placeholders that are told from others by their order alone."""
_TRIGGER = re.compile(rf"[\d\\<@{{%$&]|{_FRACTION}|://|(?i:www)\.|{_DOMAIN}")
"""What stands in every span but a term; a line without is told from others fast."""
_NUMBER_BEGINS = re.compile(rf"(?<!\d)(?<!\d[.,:/])(?=\[?\d|{_FRACTION})")
_NUMBER_GOES_ON = re.compile(r"\d|[.,:/]\d")
_WORD_GOES_ON = re.compile(r"\w")
"""Behind a number that ends in another character than a digit."""


@dataclass(frozen=True)
class Span:
    """A part of a line: what it is, how it stands there, and how it must stand in the translation."""

    kind: str
    """One of `KINDS`, `term`, or `element`: an opening tag, its content and the closing tag."""
    text: str
    target: str
    content: str = ""
    """Of an element: what is between the tags, if it is text alone or one span."""
    translated: str = ""
    """Its translation by itself."""
    around: tuple[str, str] | None = None
    """Of an element with text alone: what stands before and behind it, tags and blanks."""
    holds_positional: bool = False
    """Of an element: whether something positional stands in it."""
    is_count: bool = False
    """Of a placeholder: whether it seems to stand for a number."""
    time: Time | None = None
    """Of a number: the time of day that it is, which may stand by the twelve-hour clock."""
    is_ordinal: bool = False
    """Of a number: whether it is an ordinal, which may be spelt out."""
    made: Translation | None = field(default=None, compare=False)
    """Of an element: the translation that is the target, with its alternatives."""

    @property
    def is_soft(self) -> bool:
        """Whether it may stay in the text: it comes out right more often than not."""
        return self.kind in {"code", "number", "term"}

    @property
    def is_positional(self) -> bool:
        """Whether it must keep its place among others such as `%s` and `{}`."""
        is_itself = self.kind == "placeholder" and _POSITIONAL.fullmatch(self.text) is not None
        return is_itself or self.holds_positional

    def is_said(self, text: str) -> bool:
        """Whether a time or an ordinal stands in a text in another way than in the source."""
        if self.time:
            return self.time.is_said(text)
        return self.is_ordinal and ordinals.is_said(self.text, text)

    def taken_from(self, text: str, count: int) -> tuple[str, int]:
        """`text` with blanks for it, the first `count` times that it stands there, and how often that was."""
        if self.kind == "number":
            text, taken = _numbers_taken_from(text, {self.target: count})
            return text, taken[self.target]
        return re.subn(self._pattern, " ", text, count=count)

    @property
    def _pattern(self) -> str:
        if self.kind == "term":
            first = self.target[0]
            either = f"[{re.escape(first)}{re.escape(first.upper())}]" if first.islower() else re.escape(first)
            return whole_word(self.target, either + re.escape(self.target[1:]))
        whole = re.escape(self.target)
        return rf"(?<!\w){whole}(?!\w)" if self.kind == "code" else whole


Parts = list["str | Span"]
"""A line as text and spans in turn."""


def source(part: str | Span) -> str:
    """A part as it stands in its line."""
    return part.text if isinstance(part, Span) else part


def target(part: str | Span) -> str:
    """A part as it must stand in the translation, where it is a span."""
    return part.target if isinstance(part, Span) else part


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
        patterns = {kind: pattern for kind, pattern in _PATTERNS.items() if kind in kinds and kind != "number"}
        if terminology and terminology.targets:
            patterns["term"] = terminology.pattern
        if "number" in kinds:
            patterns["number"] = _PATTERNS["number"]
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

        kept = [match.span() for match in self._pattern.finditer(line) if match.lastgroup != "number"]
        starts, ends = [0, *(end for _, end in kept)], [*(start for start, _ in kept), len(line)]
        between = [german_times.written_plainly(line[start:end]) for start, end in zip(starts, ends, strict=True)]
        spans = [*(line[start:end] for start, end in kept), ""]
        return "".join(text + span for text, span in zip(between, spans, strict=True))

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
            time, ordinal = None, False
            if kind == "number":
                time = times.time_of(text, line[max(match.start() - times.LONGEST_BEFORE, 0) : match.start()], behind)
                ordinal = ordinals.is_ordinal(text, behind)
            is_count = kind == "placeholder" and _is_count(text, behind)
            parts += [before, Span(kind, text, target, is_count=is_count, time=time, is_ordinal=ordinal)]
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


def lacking(text: str, wanted: Sequence[Span], spans: Sequence[Span]) -> list[Span]:
    """The spans of `wanted`, which are of `spans`, that stand in `text` less often than among `spans`.

    A time of day may stand by the twelve-hour clock, an ordinal be spelt out. What is part of an address, a tag or a
    placeholder, of a longer number or a longer term, does not count. Of spans with the same target, such as two words
    that one term translates, all are lacking if one is.
    """
    # What is found is taken out of the text, so the whole is looked for before its parts: addresses, tags and
    # placeholders before numbers and terms, but for those that a term holds; then the longest.
    held = "\n".join({span.target for span in spans if span.kind == "term"})
    by_target: dict[tuple[bool, int, bool, str], list[Span]] = {}
    for span in spans:
        may_be_part = span.is_soft or span.target in held
        by_target.setdefault((may_be_part, -len(span.target), span.is_soft, span.target), []).append(span)
    lost: set[Span] = set()
    whole = text
    for _, alike in groupby(sorted(by_target.items()), key=lambda item: item[0][:3]):
        groups = [same for _, same in alike]
        counts = {same[0].target: len(same) for same in groups if same[0].kind == "number"}
        text, numbers = _numbers_taken_from(text, counts)
        for same in groups:
            found = numbers[same[0].target]
            if same[0].kind != "number":
                text, found = same[0].taken_from(text, len(same))
            if found < len(same):
                unsaid = [span for span in same if not span.is_said(whole)]
                lost.update(unsaid if found < len(unsaid) else ())
    return [span for span in dict.fromkeys(wanted) if span in lost]


def _numbers_taken_from(text: str, counts: Mapping[str, int]) -> tuple[str, Counter[str]]:
    """`Span.taken_from` of numbers, all as long as one another, in one pass: a line may have thousands of them.

    A part of a longer number is none.

    Args:
        counts: by number, how often it is taken at most.
    """
    taken = Counter[str]()
    if not counts:
        return text, taken
    length, end = len(next(iter(counts))), 0
    left: list[str] = []
    for match in _NUMBER_BEGINS.finditer(text):
        begin = match.start()
        number = text[begin : begin + length]
        goes_on = _NUMBER_GOES_ON if number[-1].isdecimal() else _WORD_GOES_ON
        if begin < end or taken[number] >= counts.get(number, 0) or goes_on.match(text, begin + length):
            continue
        taken[number] += 1
        left += [text[end:begin], " "]
        end = begin + length
    return "".join([*left, text[end:]]), taken
