"""Amounts of money in an English translation: what the source has as one has its sign, and no other number has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from specmt.protection.spans import Number, Parts, covered, source

_NUMERAL = re.compile(r"(?<![\w.,:/])\d+(?:[.,:/'’]\d+)*")
_BLANK = "[ \u00a0]?"
_SIGNS = {
    **dict.fromkeys(("€", "eur", "euro", "euros"), "€"),
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), "$"),
    **dict.fromkeys(("£", "gbp", "pound", "pounds"), "£"),
}
_NAMES = rf"(?i:{'|'.join(map(re.escape, sorted(_SIGNS, key=len, reverse=True)))})"
_SIGN_BEFORE = re.compile(rf"(?<![^\W_])(?P<sign>[€$£]|EUR|USD|GBP){_BLANK}(?P<minus>[-−–]?)$")
_TIMES = r"(?:[ \u00a0](?:Tsd\.|Mio\.?|Mrd\.?|[Tt]ausend|Million(?:en)?|Milliarden?|thousand|[mb]illions?|trillions?))?"
_SIGN_BEHIND = re.compile(rf"{_TIMES}(?:{_BLANK}|-)(?:US-)?(?P<sign>{_NAMES})(?![^\W_])")
_AT_NUMBERS = frozenset("€$£%")
_UNCLEAR = re.compile(
    r"[ \u00a0]?[kKT](?:€|EUR\b)"
    r"|[ \u00a0-](?:\w+e[rn]?[ \u00a0])?"
    r"(?:Pfund|Dollar|Yen|Franken|CHF|S?Fr\.|Kronen|Rubel|Lira|Yuan|Rupien|Pesos?|Cent)"
)
"""What stands behind an amount that may have its sign elsewhere, or one that is not known; a pound may be a weight."""
_ONE_OF_SEVERAL = re.compile(rf"{_BLANK}(?:[-–+/]|bis|und|oder){_BLANK}(?:[-−–]|EUR|€)?{_BLANK}")
"""What stands between two numbers of which the first may be an amount where the second is one."""
_ONE_OF_MORE = re.compile(rf",{_BLANK}")
"""The same where the second may be one."""


def amounts_in(parts: Parts) -> dict[str, str]:
    """By numeral of a German line, the sign that it must have in English, empty: none; only where that is clear."""
    found: dict[str, set[str | None]] = {}
    texts = ["", *map(source, parts), ""]
    following: str | None = ""
    for place, part in reversed(list(enumerate(parts, 1))):
        if isinstance(part, Number):
            before, behind = texts[place - 1], texts[place + 1]
            if named := _SIGN_BEFORE.search(before) or _SIGN_BEHIND.match(behind):
                following = _SIGNS[named["sign"].lower()]
            else:
                following = None if _may_be_one(behind, following) else ""
            if numeral := _NUMERAL.match(part.target):
                found.setdefault(numeral[0], set()).add(following)
    signs = {number: ways.pop() for number, ways in found.items() if len(ways) == 1}
    return {number: sign for number, sign in signs.items() if sign is not None}


def _may_be_one(behind: str, following: str | None) -> bool:
    """Whether a number without a sign may be an amount, given what is known of the next one."""
    joins = following != "" and _ONE_OF_SEVERAL.fullmatch(behind)
    return bool(_UNCLEAR.match(behind) or joins or (following is None and _ONE_OF_MORE.fullmatch(behind)))


def set_right(amounts: Mapping[str, str], others: Iterable[str], text: str) -> str:
    """An English text in which numbers have the signs of `amounts`, and those that are no amounts have none.

    Args:
        others: spans that are no numbers; those in them stay.
    """
    inside = covered(text, others)
    made, end = list[str](), 0
    for match in _NUMERAL.finditer(text):
        if inside[match.start()]:
            continue
        gap, end = text[end : match.start()], match.end()
        before, behind = _SIGN_BEFORE.search(gap), _SIGN_BEHIND.match(text, end)
        wanted = amounts.get(match[0])
        if wanted is not None and before and _SIGNS[before["sign"].lower()] != wanted:
            gap = gap[: before.start()] + wanted + before["minus"]
        elif wanted and not (before or behind or text[end : end + 1] in _AT_NUMBERS):
            gap += wanted
        made += [gap, match[0]]
    return "".join([*made, text[end:]])
