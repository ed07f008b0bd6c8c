"""What characters are: letters, and what may stand in a line of output."""

from __future__ import annotations

import unicodedata


def has_letter(text: str) -> bool:
    """Whether there may be something to translate in a text: else it says the same in every language."""
    return any(map(str.isalpha, text))


def printable(text: str) -> str:
    """Text from the source as it may stand in a line of output: what is no character of text is a blank."""
    if text.isprintable():  # the usual case
        return text
    return "".join(
        " " if unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} else character for character in text
    )
