"""Live streams: sentences enter the rows in flight as they arrive, and come out in order, at once, whatever arrives."""

from __future__ import annotations

import io
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import FrameType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import (
    DEFAULTS,
    SENTENCES,
    ScriptedEngine,
    ScriptedRows,
    by_position,
    scripted_translator,
    tiny_vocabulary,
)
from threads import left_running

from specmt.admission import Admission, Gate
from specmt.arrays import IntArray
from specmt.decoding.hypotheses import Request
from specmt.engines.base import Candidates
from specmt.errors import InputError
from specmt.settings import DecodingSettings
from specmt.streams.inputs import InputLine, text_parser
from specmt.streams.line_stream import LineStream
from specmt.text.segmentation import Splitting
from specmt.translation import Translation
from specmt.translator import Translator

SPEC = DecodingSettings.from_defaults(DEFAULTS)
AR = replace(SPEC, strategy="ar")
SETTINGS = {"spec": SPEC, "strict": SPEC.strict(), "ar": AR, "beam": replace(AR, beam=2)}
TIMEOUT = 20


def stream_of(data: bytes) -> LineStream[InputLine]:
    return LineStream(io.BytesIO(data), "input", text_parser("input", replace_errors=True))


def translator(engine: ScriptedEngine, workers: int = 1, max_source_tokens: int = 200) -> Translator:
    return Translator(
        engine,
        tiny_vocabulary(),
        DEFAULTS,
        workers,
        splitting=Splitting("de", max_source_tokens),
        model_digest="scripted",
    )


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("settings", SETTINGS)
@given(
    lines=st.lists(
        st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"\r"))
        | st.sampled_from([*SENTENCES, ""]).map(str.encode),
        max_size=12,
    ),
    batch_size=st.integers(1, 5),
)
def test_any_bytes_give_a_line_each_and_what_chunks_give(
    lines: list[bytes], batch_size: int, settings: str, workers: int
) -> None:
    data = b"".join(line + b"\n" for line in lines)
    engine = ScriptedEngine(by_position([0, 1, 0, -1]))
    found = list(translator(engine, workers).translate_stream(stream_of(data), SETTINGS[settings], batch_size))
    assert [one.index for one in found] == list(range(len(lines)))
    lines_as_text = [text_parser("input", replace_errors=True)(line, 2) for line in lines]
    whole = list(translator(engine).translate(lines_as_text, SETTINGS[settings], batch_size))
    assert found == whole


@dataclass
class Paused(ScriptedEngine):
    """Counts the rows of each pass; its third pass waits until it is told to go on."""

    rows: list[int] = field(default_factory=list)
    third_pass: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
        self.rows.append(len(rows.sources))
        if len(self.rows) == 3:
            self.third_pass.set()
            assert self.go_on.wait(TIMEOUT)
        return super().verify(rows, token_ids, beta)


def test_a_line_that_arrives_enters_the_rows_in_flight_at_the_next_iteration() -> None:
    engine = Paused(length=lambda source: 30)
    reading, writing = os.pipe()
    found: list[Translation] = []
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        lines = LineStream(source, "pipe", text_parser("pipe"))
        thread = threading.Thread(target=lambda: found.extend(translator(engine).translate_stream(lines, AR, 4)))
        thread.start()
        target.write(f"{SENTENCES[0]}\n".encode())
        assert engine.third_pass.wait(TIMEOUT)
        target.write(f"{SENTENCES[1]}\n{SENTENCES[2]}\n".encode())
        with lines.lock:
            assert lines.changed.wait_for(lambda: len(lines._waiting) == 2, TIMEOUT)
        engine.go_on.set()
        target.close()
        thread.join(TIMEOUT)
    assert engine.rows[:4] == [1, 1, 1, 3], "two rows joined the first at the fourth pass"
    assert [one.source for one in found] == list(SENTENCES[:3])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_comes_out_before_the_next_is_written_blank_ones_too(workers: int) -> None:
    reading, writing = os.pipe()
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        lines = LineStream(source, "pipe", text_parser("pipe"))
        translations = translator(ScriptedEngine(), workers).translate_stream(lines, SPEC, batch_size=32)
        for line in (SENTENCES[0], "", "...", SENTENCES[1], "  "):
            target.write(f"{line}\n".encode())
            assert next(translations).source == line
        target.close()
        assert list(translations) == []


def test_lines_before_a_broken_one_are_translated_before_it_is_reported() -> None:
    data = f"{SENTENCES[0]}\n{SENTENCES[1]}\n".encode() + b"M\xfctter\n" + SENTENCES[2].encode()
    lines = LineStream(io.BytesIO(data), "input", text_parser("input"))
    translations = translator(ScriptedEngine()).translate_stream(lines, SPEC, 8)
    assert [next(translations).source for _ in range(2)] == list(SENTENCES[:2])
    with pytest.raises(InputError, match="input: line 3: byte 2 is not UTF-8"):
        next(translations)


@pytest.mark.parametrize("workers", [1, 2])
def test_unsplit_a_line_that_is_too_long_is_named_after_those_before_it(workers: int) -> None:
    data = "\n".join(["Ein Mann", "Zwei", " ".join(SENTENCES), "Drei"]).encode()
    settings = replace(SPEC, split=False, max_source_tokens=30)
    translations = translator(ScriptedEngine(), workers).translate_stream(stream_of(data), settings, 8)
    assert [next(translations).source for _ in range(2)] == ["Ein Mann", "Zwei"]
    with pytest.raises(InputError, match=r"line 3: \d+ tokens, at most 30 fit"):
        list(translations)


@pytest.mark.parametrize("workers", [1, 2])
def test_of_two_bad_lines_the_first_is_named(workers: int) -> None:
    data = "\n".join(["Ein Mann", " ".join(SENTENCES), "Drei", ""]).encode() + b"M\xfctter\n"
    lines = LineStream(io.BytesIO(data), "input", text_parser("input"))
    settings = replace(SPEC, split=False, max_source_tokens=30)
    translations = translator(ScriptedEngine(), workers).translate_stream(lines, settings, 8)
    assert next(translations).source == "Ein Mann"
    with pytest.raises(InputError, match=r"line 2: \d+ tokens, at most 30 fit"):
        list(translations)


def test_workers_that_wait_for_lines_do_not_wake_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    take = LineStream.take

    def counted(stream: LineStream[InputLine], limit: int) -> list[InputLine]:
        nonlocal asked
        asked += 1
        return take(stream, limit)

    monkeypatch.setattr(LineStream, "take", counted)
    reading, writing = os.pipe()
    with io.FileIO(reading, "rb") as source, io.FileIO(writing, "wb") as target:
        lines = LineStream(source, "pipe", text_parser("pipe"))
        translations = translator(ScriptedEngine(), 3).translate_stream(lines, SPEC, batch_size=2)
        target.write(f"{SENTENCES[0]}\n".encode())
        assert next(translations).source == SENTENCES[0]
        threading.Event().wait(0.2)
        before = asked
        threading.Event().wait(0.2)
        assert asked - before <= 3, "each may have been about to ask"
        target.close()
        assert list(translations) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_what_goes_wrong_in_a_worker_is_raised_and_ends_the_others(workers: int) -> None:
    class Broken(ScriptedEngine):
        def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
            raise LookupError("broken")

    before = set(threading.enumerate())
    with pytest.raises(LookupError, match="broken"):
        list(translator(Broken(), workers).translate_stream(stream_of("\n".join(SENTENCES).encode()), SPEC, 2))
    assert not left_running(before)


def test_a_reader_who_stops_ends_the_workers() -> None:
    before = set(threading.enumerate())
    data = "".join(f"{line}\n" for line in SENTENCES * 200).encode()
    translations = translator(ScriptedEngine(), 2).translate_stream(stream_of(data), SPEC, 2)
    assert next(translations).index == 0
    translations.close()  # type: ignore[attr-defined]
    assert not left_running(before)


def test_no_more_than_a_few_windows_are_opened_ahead_of_the_reader() -> None:
    opened: list[int] = []

    def open_line(index: int, line: InputLine) -> list[Request]:
        opened.append(index)
        return [Request(index, [9, 2], 4)]

    lines = stream_of(b"a\n" * 1000)
    with lines.lock:
        assert lines.changed.wait_for(lambda: lines._complete, TIMEOUT)
    admission = Admission(lines, open_line, window=10, workers=1, max_batch_tokens=None)
    gate = Gate(admission)
    while taken := gate.take(7, wait=False):
        for request in taken:
            gate.landed(request)
    assert len(opened) == 40
    admission.finished(10)
    assert gate.take(7, wait=False) and len(opened) == 50


@pytest.mark.timeout(30)
@pytest.mark.parametrize("workers", [1, 2])
def test_lines_that_go_on_from_an_earlier_run_are_numbered_from_there(workers: int) -> None:
    """More lines than may be opened ahead of the reader are done, and as many are to come."""
    first, sources = 10_000, list(SENTENCES) * 50
    lines = stream_of("".join(f"{source}\n" for source in sources).encode())
    found = list(translator(ScriptedEngine(), workers).translate_stream(lines, SPEC, batch_size=1, first=first))
    assert [(one.index, one.source) for one in found] == list(enumerate(sources, start=first))


def test_a_signal_leaves_nothing_locked() -> None:
    """It may come at any step of the main thread, where workers wait for what that holds."""

    class StruckError(Exception):
        pass

    def strike(number: int, frame: FrameType | None) -> None:
        while frame:
            if frame.f_code is Admission.finished.__code__:
                raise StruckError
            frame = frame.f_back

    admission = Admission(stream_of(b""), lambda index, line: [], window=1, workers=1, max_batch_tokens=None)
    before = signal.signal(signal.SIGVTALRM, strike)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.001, 0.001)
    try:
        for _ in range(200):
            with suppress(StruckError):
                while True:
                    admission.finished(0)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(admission.lines.lock.acquire, timeout=1).result()


def requests_of_lengths(lengths: list[int]) -> Iterator[Request]:
    return (Request(index, [9] * length, 4) for index, length in enumerate(lengths))


@example([30, 1, 1], 31, 3)
@settings(max_examples=500)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 60), st.integers(1, 8))
def test_rows_in_flight_never_exceed_the_budget_and_every_request_is_handed_out_once(
    lengths: list[int], budget: int, batch_size: int
) -> None:
    requests = list(requests_of_lengths(lengths))
    lines = LineStream(io.BytesIO(b"x\n" * len(lengths)), "input", lambda line, number: number - 1)
    admission = Admission(lines, lambda index, _: [requests[index]], window=7, workers=1, max_batch_tokens=budget)
    gate: Gate[int] = Gate(admission)
    flying: list[Request] = []
    seen: list[int] = []
    while True:
        taken = gate.take(batch_size - len(flying), wait=not flying)
        seen += [request.index for request in taken]
        flying += taken
        if not flying:
            break
        assert len(flying) == 1 or len(flying) * max(len(request.source_ids) for request in flying) <= budget
        gate.landed(flying.pop(len(flying) // 2))
        admission.finished(len(seen) - len(flying))
    assert sorted(seen) == list(range(len(lengths)))


# -- lines of several segments


def test_a_line_of_several_sentences_is_the_sentences_put_together() -> None:
    line = " ".join(SENTENCES[:3])
    (joined,) = translator(ScriptedEngine()).translate([line], SPEC, 4)
    parts = list(scripted_translator(ScriptedEngine()).translate(SENTENCES[:3], SPEC, 4))
    assert joined.text == " ".join(part.text for part in parts)
    assert joined.ids == tuple(id_ for part in parts for id_ in part.ids)
    assert joined.iterations == tuple(iteration for part in parts for iteration in part.iterations)
    assert joined.segments == 3
    weights = [len(part.source_ids) for part in parts]
    mean = sum(weight * part.score for weight, part in zip(weights, parts, strict=True)) / sum(weights)
    assert joined.score == pytest.approx(mean)


def test_the_n_best_of_a_joined_line_are_the_best_of_all_combinations() -> None:
    settings = replace(AR, beam=3, n_best=3)
    (joined,) = translator(ScriptedEngine()).translate([" ".join(SENTENCES[:2])], settings, 4)
    first, second = scripted_translator(ScriptedEngine()).translate(SENTENCES[:2], settings, 4)
    weights = len(first.source_ids), len(second.source_ids)
    combinations = sorted(
        (
            (weights[0] * a.score + weights[1] * b.score) / sum(weights),
            f"{a.text} {b.text}",
        )
        for a in first.n_best
        for b in second.n_best
    )
    expected = combinations[::-1][:3]
    assert [one.text for one in joined.n_best] == [text for _, text in expected]
    assert [one.score for one in joined.n_best] == pytest.approx([score for score, _ in expected])
    assert joined.n_best[0].text == joined.text


def test_a_segment_that_is_copied_stands_between_those_that_are_translated() -> None:
    (joined,) = translator(ScriptedEngine()).translate([f"{SENTENCES[0]}\n世界\n{SENTENCES[1]}"], SPEC, 4)
    first, last = scripted_translator(ScriptedEngine()).translate(SENTENCES[:2], SPEC, 4)
    assert joined.text == f"{first.text}\n世界\n{last.text}"
    assert joined.warnings == ("copied",)
