"""What is done to a line before and after its translation, by what knows nothing of how it is translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

from specmt.streams.inputs import InputLine
from specmt.translation import Translation

Run = Callable[[Iterable[Sequence["str | InputLine"]]], Iterator[Translation]]
"""Translates chunks of lines, one translation a line, in order."""


class Wrapper(Protocol):
    """What is done to a line around its translation; see `protection`."""

    def before(self, line: str) -> tuple[str, Any]:
        """What to translate for a line, perhaps nothing, and what `after` needs to know; None: nothing to do then."""

    def after(self, prepared: Any, translation: Translation, run: Run) -> Translation:  # noqa: ANN401
        """The line's translation; `run` translates more where that is needed."""


class Wrapping:
    """Takes the lines of a stream through a wrapper, if there is one.

    One thread enters lines, another may let them leave.
    """

    def __init__(self, wrapper: Wrapper | None, again: Callable[[int], Run]) -> None:
        """`again`: what translates more of the line with an index."""
        self._wrapper, self._again = wrapper, again
        self._entered: dict[int, tuple[InputLine, Any]] = {}

    def enter(self, index: int, line: InputLine) -> InputLine:
        """What is to be translated for a line."""
        if self._wrapper is None:
            return line
        text, prepared = self._wrapper.before(line.text)
        if prepared is None:
            return line
        self._entered[index] = line, prepared
        return replace(line, text=text, line=line.text)

    def leave(self, translation: Translation) -> Translation:
        """The line's translation, made of that of what entered."""
        if self._wrapper is None or translation.index not in self._entered:
            return translation
        line, prepared = self._entered.pop(translation.index)
        run = _as_parts(self._again(translation.index), line)
        made = self._wrapper.after(prepared, translation, run)
        warnings = tuple(dict.fromkeys((*line.warnings, *made.warnings)))
        return replace(made, index=translation.index, source=line.text, fields=line.fields, warnings=warnings)


def _as_parts(run: Run, line: InputLine) -> Run:
    """What translates texts as parts of a line, so reproducibly if that is."""
    options = {key: value for key, value in line.options.items() if key == "reproducible"}

    def parts(chunk: Sequence[str | InputLine]) -> list[InputLine]:
        given = (part if isinstance(part, InputLine) else InputLine(part) for part in chunk)
        return [replace(part, options={**part.options, **options}, line=line.text) for part in given]

    return lambda chunks: run(map(parts, chunks))
