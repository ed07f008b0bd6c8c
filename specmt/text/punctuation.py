"""What translations end with: models have read sentences, and make one of everything."""

from __future__ import annotations

import re

_CLAUSE_ENDS = frozenset(",;:")
_ABBREVIATED = re.compile(r"\.\w\.$")
_TWO_DOTS = re.compile(r"(?<!\.)\.\.(?!\.)")
_DOTS_AT_END = re.compile(r"(?<!\.)\.{2,}(?=[\"'”’)]?$)")
_MARK_BEHIND_DOTS = re.compile(r"(?:\.{3}|…)([?!]+)$")
_LONGEST_END = 10
"""Characters of dots and marks at a source's end."""


def punctuated(text: str, source: str) -> str:
    """A translation that ends as its source does where that ends no sentence, and has three dots where that has.

    An exclamation mark may become a full stop, as it mostly does in English; `...?` stays.
    """
    if "..." in source or "…" in source:
        text = _TWO_DOTS.sub("...", text)
    elif ".." not in source:
        text = _DOTS_AT_END.sub(".", text)
    if text.endswith("...") and (mark := _MARK_BEHIND_DOTS.search(source.rstrip()[-_LONGEST_END:])):
        return text + mark[1]
    last = source.rstrip()[-1:]
    if ends_abbreviated(text) or not (last.isalnum() or last in _CLAUSE_ENDS):
        return text
    bare = text.rstrip(".,;:")
    return bare + last * (last in _CLAUSE_ENDS) if bare else text


def bracketed(text: str, source: str) -> str:
    """A translation with brackets for the parentheses that its source was read with (see `Vocabulary.encode`)."""
    if "[" not in source or "(" in source:
        return text
    if (text.count("("), text.count(")")) != (source.count("["), source.count("]")):
        return text
    return text.replace("(", "[").replace(")", "]")


def ends_abbreviated(text: str) -> bool:
    """Whether a text's full stop is that of an abbreviation, such as `p.m.`."""
    return _ABBREVIATED.search(text) is not None


def goes_on_behind(part: str) -> bool:
    """Whether what a part of a paragraph ends with ends no sentence: it was cut, as it was too long for the model."""
    return part[-1:].isalnum() or part[-1:] in _CLAUSE_ENDS
