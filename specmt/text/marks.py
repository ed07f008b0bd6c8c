"""What stands before and between the sentences of a text, and is no part of them: bullets, enumerators, separators.

Models lose it, change it or move it, so it stands alone, and is copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator


def _before_words(sign: str) -> re.Pattern[str]:
    """Signs, with the blanks behind each, that something else follows."""
    return re.compile(rf"\s*(?>(?:{sign}\s+)+)(?=\S)(?!{sign}(?:\s|$))")


_DASHES = "-–—•·→●▪■◦○‣►➤✓✔"
_BULLETS = _before_words(rf"(?:[{_DASHES}*>+#|]+|(?:^|(?<=[-*+]\s))\[[ xX]?\])")
"""What a line begins with that is no word."""
_BETWEEN = re.compile(rf"{_before_words(rf'[{_DASHES}]+').pattern}(?![„“\"»«‚'])")
"""What a sentence within a line begins with; between what is quoted, models put dashes where English has them."""
_IN_PARENTHESES = r"(?:\d{1,3}[.)]\s+)?\(?(?:[A-Za-z]|([a-z])\1|[ivx]{1,5}|[IVX]{1,5})\)"
_ENUMERATOR = re.compile(rf"{_IN_PARENTHESES}|(?:[IVX]{{1,5}}|[a-h])\.")
_PARENTHESISED = re.compile(rf"\s*{_IN_PARENTHESES}\s+(?=\S)")
"""The letter or Roman number of an item, perhaps behind another number, where it may stand before any sentence."""
_NUMBERED = re.compile(r"\s*\(?\d{1,3}\)\s+(?=[A-ZÄÖÜ„“\"])")
"""The number of an item, behind the end of a sentence."""
_POINTED = re.compile(r"\s*(?:[IVX]{1,5}\.\s+(?![a-zäöü])|[a-h]\.\s+)(?=\S)(?![^\W\d_]\.)")
"""The same where a line begins: elsewhere it is an abbreviation, as `d. h.` and `I. V.` are anywhere, or an ordinal."""
_FACE = r"[:;]['´]?-?[)(DPpO|*]"
_EMOTICON = re.compile(rf"{_FACE}|xD|XD|\^\^|<3")
_EMOTICONS = re.compile(rf"(?:(?<=\s)(?:{_FACE}(?:\s+|$)|(?:xD|XD|\^\^|<3)\s*$))+")
"""Those behind words, with the blanks behind each; at a text's end also such as may be something else."""
_CELL_END = r"\t+|(?<=\s)\|+(?:\s+|$)"
_SEPARATOR = re.compile(rf"{_CELL_END}|(?<=[^\W\d_][^\W\d_]\s)[>→·]\s+(?=[^\W\d_]{{2}})")
"""What parts the cells of a table, or the items of a menu; between numbers and single letters it is a sign."""
_HELD_SEPARATOR = re.compile(_CELL_END)
"""The same where something is quoted: a menu in quotation marks would lose one."""
_TABS = re.compile(r"\t+")
"""The same in a sentence."""
_SENTENCE_ENDS = frozenset(".!?")
_ITEM_ENDS = frozenset(".!?:;")
_QUOTATION_MARKS = frozenset('„“”»«"')
_COVERS = {"„": '“”"', "»": "«", "“": "”", '"': '"”', "(": ")"}
"""What covers a German sentence: a mark, and those that may close it."""
_QUOTING = re.compile(r"[„“”»«()\"]")


def cells(text: str) -> Iterator[str]:
    """What separators and emoticons part in a text, and these, with the blanks behind; together they are the text."""
    begin = 0
    for emoticons in _EMOTICONS.finditer(text):
        yield from _cells(text[begin : emoticons.start()])
        yield emoticons[0]
        begin = emoticons.end()
    if begin < len(text) or not begin:
        yield from _cells(text[begin:])


def _cells(text: str) -> Iterator[str]:
    begin = 0
    stripped = text.strip()
    if stripped[-1:] in _SENTENCE_ENDS and not stripped.startswith("|"):
        pattern = _TABS
    else:
        pattern = _HELD_SEPARATOR if _QUOTING.search(text) else _SEPARATOR
    for separator in pattern.finditer(text):
        if separator[0].isspace():
            yield text[begin : separator.end()]
        else:
            yield from (text[begin : separator.start()], separator[0])
        begin = separator.end()
    yield text[begin:]


def is_mark(text: str) -> bool:
    """Whether a text is the `a)`, `(ii)` or `I.` of an item, or emoticons: copied, although it has a letter."""
    return _ENUMERATOR.fullmatch(text) is not None or all(map(_EMOTICON.fullmatch, text.split() or " "))


def is_single_letter(text: str) -> bool:
    """Whether a text is one letter, as cells of tables are: models make words of it."""
    return len(text) == 1 and text.isascii() and text.isalpha()


def unmarked(sentence: str, before: str, not_before: str) -> Iterator[str]:
    """What a sentence begins with that is no part of it, each by itself, and the sentence.

    Args:
        before: the sentence before it in its line; empty: it is the first.
        not_before: what an item with a number such as `I.` does not begin with.
    """
    place = 0
    if bullets := (_BETWEEN if before else _BULLETS).match(sentence):
        place = bullets.end()
        yield sentence[:place]
    patterns = [_PARENTHESISED]
    if not before or before.rstrip()[-1:] in _ITEM_ENDS:
        patterns.append(_NUMBERED)
    if not before:
        patterns.append(_POINTED)
    while enumerator := next(filter(None, (pattern.match(sentence, place) for pattern in patterns)), None):
        if re.match(not_before, sentence[enumerator.end() :]):
            break
        yield sentence[place : enumerator.end()]
        place = enumerator.end()
    yield sentence[place:]


def uncovered(sentence: str) -> Iterator[str]:
    """What covers a German sentence as a whole, quotation marks or parentheses, and what is within; else the sentence.

    Behind such a mark a word has other pieces than behind a blank, and few that models know.
    """
    stripped = sentence.strip()
    inner = stripped[1:-1]
    if stripped[-1:] in _COVERS.get(stripped[:1], "") and _stands_alone(inner, stripped):
        begin = sentence.index(stripped) + 1
        yield from (sentence[:begin], inner, sentence[begin + len(inner) :])
    else:
        yield sentence


def _stands_alone(inner: str, covered: str) -> bool:
    """Whether a text is translated better without what covers it; notes in parentheses often are shorthand."""
    if not any(map(str.isalpha, inner)) or _QUOTING.search(inner) or is_mark(covered):
        return False
    return covered[0] != "(" or not re.search(r"\d|^\w+\.", inner)


def plain(mark: str) -> str:
    """A mark that stands alone, as English has it: German quotation marks are the plain double ones."""
    return '"' if mark in _QUOTATION_MARKS else mark
