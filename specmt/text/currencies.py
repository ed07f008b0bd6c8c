"""Signs of currencies that a source names: `$` for `Dollar`.

English puts a sign where German has a word. A model whose vocabulary lacks that sign says `<unk>` there, for which the
source has no symbol of its own.
"""

from __future__ import annotations

import re

_NAMED = re.compile(r"(?<![^\W_])(?:dollar|pfund|yen)(?![^\W_])", re.IGNORECASE)
_SIGNS = {"dollar": "$", "pfund": "£", "yen": "¥"}
_SAID = {"$": "dollar", "£": "pound", "¥": "yen"}
"""What stands in an English translation that has the word."""


def signs_of(source: str, translation: str) -> list[str]:
    """The signs of currencies that a German source names, in order, but for those that an English translation names."""
    said = translation.casefold()
    signs = [_SIGNS[name[0].casefold()] for name in _NAMED.finditer(source)]
    return [sign for sign in signs if _SAID[sign] not in said]
