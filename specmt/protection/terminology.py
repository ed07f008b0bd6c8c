"""Source terms and what they must be in the translation."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from specmt.errors import InputError
from specmt.text_files import read_lines

_LETTERS = 4
"""First letters by which terms are told apart one at a time; more were no faster for 5,000 of them."""


class Terminology:
    """Source terms and their required translations. A term matches whole words, with any case of its first letter."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        """Of pairs of a term and its translation.

        Raises:
            InputError: one of a pair is empty.
        """
        self.targets = dict(entries)
        if not all(map(all, self.targets.items())):
            raise InputError("terminology: a term or a translation is empty")
        # Text that looks alike may be written in either form; the file's own spelling comes first.
        composed = {unicodedata.normalize("NFC", term): target for term, target in self.targets.items()}
        decomposed = {unicodedata.normalize("NFD", term): target for term, target in self.targets.items()}
        spelt = composed | decomposed | self.targets
        self._by_form = {form: target for term, target in spelt.items() for form in forms(term)}
        self.pattern = _any_word(self._by_form)

    @property
    def digest(self) -> str:
        """SHA-256 of the entries."""
        return hashlib.sha256(json.dumps(sorted(self.targets.items())).encode()).hexdigest()

    def target(self, form: str) -> str:
        """The required translation of a term as it stands in a line."""
        return self.targets.get(form) or self._by_form[form]


def _before(word: str) -> str:
    return r"(?<!\d[.,:/])" if word[0].isdecimal() else ""


def _behind(word: str) -> str:
    return r"(?!\w|[.,:/]\d)" if word[-1].isdecimal() else r"(?!\w)"


def forms(term: str) -> tuple[str, str]:
    """A term with its first letter small, and large."""
    return term[0].lower() + term[1:], term[0].upper() + term[1:]


def _any_word(words: Iterable[str]) -> str:
    """A pattern that finds any of the words where it is no part of a longer word or number; the longest of several.

    Where a word of the text begins, what `|` parts is tried one after the other. So that this is no work for thousands
    of words, they are told apart by their first letters, one at a time.
    """
    return rf"(?<!\w)(?:{_branches(sorted(words, key=len, reverse=True), 0)})"


def _branches(words: Sequence[str], letters: int) -> str:
    """What may follow so many letters that the words, the longest first, share."""
    if letters == _LETTERS:
        return "|".join(re.escape(word[letters:]) + _behind(word) for word in words)
    by_letter: dict[str, list[str]] = {}
    for word in words:
        by_letter.setdefault(word[letters : letters + 1], []).append(word)
    # A word that ends here is the shortest of them, so it comes last.
    return "|".join(
        f"{'' if letters else _before(letter)}{re.escape(letter)}(?:{_branches(same, letters + 1)})"
        if letter
        else _behind(same[0])
        for letter, same in by_letter.items()
    )


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
