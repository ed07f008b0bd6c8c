"""Source terms and what they must be in the translation."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path

from specmt.corpus import read_lines
from specmt.errors import InputError


class Terminology:
    """Source terms and their required translations. A term matches whole words, with any case of its first letter."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        self.targets = dict(entries)
        # Text that looks alike may be written in either form; the file's own spelling comes first.
        composed = {unicodedata.normalize("NFC", term): target for term, target in self.targets.items()}
        decomposed = {unicodedata.normalize("NFD", term): target for term, target in self.targets.items()}
        spelt = composed | decomposed | self.targets
        longest_first = sorted(spelt, key=len, reverse=True)
        self.pattern = "|".join(whole_word(term, _either_case(term)) for term in longest_first)
        self._by_form = {form: target for term, target in spelt.items() for form in forms(term)}

    @property
    def digest(self) -> str:
        """SHA-256 of the entries."""
        return hashlib.sha256(json.dumps(sorted(self.targets.items())).encode()).hexdigest()

    def target(self, form: str) -> str:
        """The required translation of a term as it stands in a line."""
        return self.targets.get(form) or self._by_form[form]


def whole_word(word: str, pattern: str) -> str:
    """`pattern`, which matches `word`, where that is no part of a longer word or number."""
    before = r"(?<!\w)(?<!\d[.,:/])" if word[0].isdecimal() else r"(?<!\w)"
    return before + pattern + (r"(?!\w|[.,:/]\d)" if word[-1].isdecimal() else r"(?!\w)")


def forms(term: str) -> tuple[str, str]:
    """A term with its first letter small, and large."""
    return term[0].lower() + term[1:], term[0].upper() + term[1:]


def _either_case(term: str) -> str:
    return f"(?:{'|'.join(map(re.escape, dict.fromkeys(forms(term))))})"


def read_terminology(path: Path) -> Terminology:
    """Read `source term TAB required translation` a line; blank lines count for nothing.

    Raises:
        InputError: the file cannot be read, or a line is none or says something else than one before; it is named.
    """
    entries: dict[str, str] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        columns = [column.strip() for column in line.split("\t")]
        if len(columns) != 2 or not all(columns):
            raise InputError(f"{path}, line {number}: expected a source term, a tab, and its translation")
        if entries.setdefault(columns[0], columns[1]) != columns[1]:
            raise InputError(f"{path}, line {number}: {columns[0]!r} has another translation before")
    return Terminology(entries.items())
