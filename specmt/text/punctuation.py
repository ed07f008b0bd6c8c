"""What translations begin and end with: models have read sentences, and make one of everything."""

from __future__ import annotations

import re

_CLAUSE_ENDS = frozenset(",;:")
_ABBREVIATED = re.compile(r"\.\w\.$")
_TWO_DOTS = re.compile(r"(?<!\.)\.\.(?!\.)")
_DOTS_AT_END = re.compile(r"(?<!\.)\.{2,}(?=[\"'”’)]?$)")
_MARK_BEHIND_DOTS = re.compile(r"(?:\.{3}|…)([?!]+)$")
_SENTENCE_ENDS = frozenset(".!?:")
_BEGUN = re.compile(r"[A-ZÄÖÜ][a-zäöüß]")
_LABELLED = re.compile(r"[^\W\d_][^:.!?]{0,40}:\s")
_SECTION = re.compile(r"§ ?\d{1,4}[a-z]?\s+(?!Abs|Buchst|Nr|Nummer|Satz|Ziff)[A-ZÄÖÜ][a-zäöüß]{2,}(?: [^.!?]{0,60})?$")
_SECTION_SMALL = re.compile(r"(§ ?\d{1,4}[a-z]?\s+)[a-z]")
"""The number and heading of a section."""
_NAME = re.compile(r"[a-z]+[A-Z\d]")
"""What begins with a small letter anywhere: `iPhone`."""
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


def begun(text: str, source: str) -> str:
    """A translation with a capital where its source, a sentence or a label such as `Name: Anna`, begins with one."""
    if _SECTION.match(source) and (heading := _SECTION_SMALL.match(text)):
        return heading[1] + text[heading.end(1)].upper() + text[heading.end(1) + 1 :]
    if not text[:1].islower() or not _BEGUN.match(source):
        return text
    is_whole = source.rstrip()[-1] in _SENTENCE_ENDS or _LABELLED.match(source)
    return text[0].upper() + text[1:] if is_whole and not _NAME.match(text) else text


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
    """Whether what a part of a paragraph ends with ends no sentence: it was cut, being too long, or opens one."""
    return part[-1:].isalnum() or part[-1:] in _CLAUSE_ENDS or part == "("
