"""Lines that take long to be opened: meanwhile the rest goes on, and nobody waits for them at the end."""

from __future__ import annotations

import io
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest
from protecting import stream_of
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, ScriptedRows, tiny_vocabulary
from threads import left_running

from specmt.admission import Admission, Gate
from specmt.arrays import IntArray
from specmt.decoding.hypotheses import Request
from specmt.engines.base import Candidates
from specmt.settings import DecodingSettings
from specmt.streams.inputs import InputLine, text_parser
from specmt.streams.line_stream import LineStream
from specmt.translation import Translation
from specmt.translator import Translator
from specmt.wrapping import Run

SETTINGS = replace(DecodingSettings.from_defaults(DEFAULTS), strategy="ar")
TIMEOUT = 20


@dataclass
class Counting(ScriptedEngine):
    """Counts its passes."""

    passes: int = 0

    def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
        self.passes += 1
        return super().verify(rows, token_ids, beta)


@dataclass
class Held:
    """A wrapper in which one line takes as long as it is held."""

    line: str = "Lang"
    entered: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def before(self, line: str) -> tuple[str, None]:
        if line == self.line:
            self.entered.set()
            assert self.go_on.wait(TIMEOUT)
        return line, None

    def after(self, prepared: None, translation: Translation, run: Run) -> Translation:
        raise AssertionError("nothing was prepared")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_that_takes_long_to_open_is_not_waited_for_at_the_end(workers: int) -> None:
    before, held, engine = set(threading.enumerate()), Held(), Counting()
    reading, writing = os.pipe()
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        lines = LineStream(source, "pipe", text_parser("pipe"))
        translator = Translator(engine, tiny_vocabulary(), DEFAULTS, workers)
        translations = translator.translate_stream(lines, SETTINGS, 4, wrapper=held)
        target.write(f"{SENTENCES[0]}\n".encode())
        assert next(translations).source == SENTENCES[0]
        target.write(b"Lang\nKurz\n")
        assert held.entered.wait(TIMEOUT)
        passes = engine.passes
        closing = threading.Thread(target=translations.close)  # type: ignore[attr-defined]
        closing.start()
        closing.join(TIMEOUT / 2)
        assert not closing.is_alive()
        held.go_on.set()
        target.close()
    assert not left_running(before)
    assert engine.passes == passes, "what was opened is not decoded any more"


def test_while_a_line_is_opened_others_neither_wait_nor_end_nor_open_any() -> None:
    entered, go_on = threading.Event(), threading.Event()

    def open_line(index: int, line: InputLine) -> list[Request]:
        entered.set()
        assert go_on.wait(TIMEOUT)
        return [Request(index, [9, 2], 4)]

    admission = Admission(stream_of("a", "b"), open_line, window=1, workers=1, max_batch_tokens=None)
    with ThreadPoolExecutor(3) as pool:
        opener = pool.submit(Gate(admission).take, 1, wait=True)
        assert entered.wait(TIMEOUT)
        pool.submit(admission.finished, 0).result(TIMEOUT / 2)
        assert pool.submit(Gate(admission).take, 1, wait=False).result(TIMEOUT / 2) == []
        waiting = pool.submit(Gate(admission).take, 1, wait=True)
        go_on.set()
        assert [one.result(TIMEOUT)[0].index for one in (opener, waiting)] == [0, 1]
        assert Gate(admission).take(1, wait=True) == []


@pytest.mark.timeout(30)
def test_lines_without_requests_that_are_written_while_others_are_opened_hold_nothing_up() -> None:
    """What is written then wakes nobody: who could wait is opening lines."""
    opened: list[int] = []

    def open_line(index: int, line: InputLine) -> list[Request]:
        opened.append(index)
        with ThreadPoolExecutor(1) as writer:
            writer.submit(admission.finished, index + 1).result(TIMEOUT / 2)
        return []

    admission = Admission(stream_of(*[""] * 50), open_line, window=2, workers=1, max_batch_tokens=None)
    assert Gate(admission).take(1, wait=True) == []
    assert opened == list(range(50))
