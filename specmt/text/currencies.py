"""Signs of currencies that a source names: `$` for `Dollar`.

English puts a sign where German has a word. A model whose vocabulary lacks that sign says `<unk>` there, for which the
source has no symbol of its own.
"""

from __future__ import annotations

import re

_NAMED = re.compile(
    r"(?<![\d.,])[\d½¼¾][\d.,½¼¾]*(?:[ \u00a0](?!(?:auf|für|gegen|je|pro|zu[mr]?)\b)\w+){0,2}"
    r"[ \u00a0-](?:US-)?(dollar|pfund|yen)(?![^\W_])",
    re.IGNORECASE,
)
"""A name behind a number, perhaps with other words between."""
_SIGNS = {"dollar": "$", "pfund": "£", "yen": "¥"}
_SAID = {"$": "dollar", "£": "pound", "¥": "yen"}
"""What stands in an English translation that has the word."""
_POUNDS = re.compile(r"£[ \u00a0]?(\d+(?:[.,]\d+)*(?:[ \u00a0](?:thousand|[mb]illion))?)")


def signs_of(source: str, translation: str) -> list[str]:
    """The signs of currencies that a German source names, in order, but for those that an English translation names."""
    said = translation.casefold()
    signs = [_SIGNS[name[1].casefold()] for name in _NAMED.finditer(source)]
    return [sign for sign in signs if _SAID[sign] not in said]


def pounds(source: str, translation: str) -> str:
    """An English translation with `7 pounds` for `£7` where the source has the word, which may be a weight."""
    return translation if "£" in source else _POUNDS.sub(r"\1 pounds", translation)
