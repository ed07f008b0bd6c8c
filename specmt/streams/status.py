"""How far a translation is, for the person at the terminal: on stderr, and only if that is one."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from specmt.errors import SpecmtError
from specmt.streams.outputs import Output
from specmt.translation import Translation

_CHUNK = 1 << 20


Status = Callable[[Translation], None]
"""Told of each translation when it is written."""


class _Counts:
    """Lines, tokens and iterations so far."""

    def __init__(self) -> None:
        self.lines = self.tokens = self.iterations = self.warnings = 0
        self._start = time.perf_counter()

    def add(self, translation: Translation) -> None:
        self.lines += 1
        self.tokens += len(translation.ids)
        self.iterations += len(translation.iterations)
        self.warnings += bool(translation.warnings)

    def summary(self) -> str:
        seconds = time.perf_counter() - self._start
        marked = f", {self.warnings} with warnings (see --format jsonl)" if self.warnings else ""
        speculated = self.tokens > self.iterations > 0
        mean = f", {self.tokens / self.iterations:.2f} tokens per iteration" if speculated else ""
        return f"{self.lines} lines in {seconds:.1f} s{mean}{marked}"

    def report(self, is_watched: bool) -> None:
        """Print the summary, or, where nobody watches, how many lines have warnings, if any."""
        if is_watched:
            print(self.summary(), file=sys.stderr)
        elif self.warnings:
            print(f"specmt: {self.warnings} of {self.lines} lines have warnings (see --format jsonl)", file=sys.stderr)


@contextmanager
def status(source: Path | None, target: Output, quiet: bool) -> Iterator[Status]:
    """A bar while the block runs and a summary at its end; where nobody looks, warnings alone.

    Args:
        source: the input where it is a file: then the end is known.
        target: where translations go; on a terminal, a bar would stand between them.
    """
    if quiet or sys.stderr is None:
        yield lambda translation: None
        return
    counts = _Counts()
    is_watched = sys.stderr.isatty()
    try:
        if not is_watched or target.stream.isatty() or (source is None and sys.stdin.isatty()):
            yield counts.add
        else:
            with _bar(counts, source, target.finished_before) as show:
                yield show
    except SpecmtError:
        counts.report(is_watched)
        raise
    counts.report(is_watched)


@contextmanager
def _bar(counts: _Counts, source: Path | None, done_before: int) -> Iterator[Status]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("lines"), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=_line_count(source), completed=done_before)

        def show(translation: Translation) -> None:
            counts.add(translation)
            progress.advance(task)

        yield show


def _line_count(source: Path | None) -> int | None:
    """Lines of a regular file, the last one counted even without an end; None for what cannot be read twice."""
    if source is None or not source.is_file():
        return None
    lines, last = 0, b"\n"
    with source.open("rb") as stream:
        while data := stream.read(_CHUNK):
            lines += data.count(b"\n")
            last = data[-1:]
    return lines + (last != b"\n")
