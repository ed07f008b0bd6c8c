"""The choices that options give, for what knows of no command line."""

from __future__ import annotations

from enum import StrEnum


class StrategyName(StrEnum):
    """How to decode."""

    spec = "spec"
    replay = "replay"
    ar = "ar"


class InputFormat(StrEnum):
    """What `translate` reads."""

    text = "text"
    jsonl = "jsonl"


class OnBadBytes(StrEnum):
    """What to do with bytes that are not UTF-8."""

    STRICT = "strict"
    REPLACE = "replace"


class OutputFormat(StrEnum):
    """What `translate` writes."""

    text = "text"
    jsonl = "jsonl"
    fairseq = "fairseq"


class WeightBits(StrEnum):
    """Of stored weights."""

    eight = "8"
    four = "4"


class ReportFormat(StrEnum):
    """What commands write that tell something: for people, or for programs."""

    text = "text"
    json = "json"
