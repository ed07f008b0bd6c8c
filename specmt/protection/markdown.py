"""Markdown's marks around words, which belong together as a tag and its end do: `**so**`, `[so](https://a.de)`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_EMPHASIS = tuple(
    re.compile(rf"(?<![\w{edge}\\])({mark})(?=[^\s{edge}])(?:(?!\1).)+?(?<=[^\s{edge}\\])(\1)(?![\w{edge}])")
    for edge, mark in (("*", r"\*{1,3}"), ("_", "_{1,3}"), ("~", "~~"))
)
_ADDRESS = r"\((?>(?:[^()\s]|\([^()\s]{0,500}\)){1,2000})(?:\s(?:\"[^\"]{0,500}\"|'[^']{0,500}'))?\)"
_LINK = re.compile(rf"(?<!\\)(!?\[)[^\[\]]{{1,1000}}(?<!\\)(\](?:{_ADDRESS}|\[[^\[\]]{{0,200}}\]))")
_MAY_STAND_IN = re.compile(r"[*_~][^\s*_~]")


class Pair(NamedTuple):
    """Where in a line two marks stand: the ends of the one that opens, and of the one that closes."""

    opening: tuple[int, int]
    closing: tuple[int, int]


def links_in(line: str) -> Iterator[Pair]:
    """The marks of a line's links and pictures."""
    if "](" in line or "][" in line:
        yield from map(_pair, _LINK.finditer(line))


def emphases_in(line: str) -> Iterator[Pair]:
    """The marks around what is emphasised in a line; they may lie in one another."""
    if _MAY_STAND_IN.search(line):
        for pattern in _EMPHASIS:
            yield from map(_pair, pattern.finditer(line))


def _pair(match: re.Match[str]) -> Pair:
    return Pair(match.span(1), match.span(2))
