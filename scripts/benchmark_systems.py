"""The translation programs that are compared, each in a process of its own, text in and text out.

A `Worker` is this file run as a program: it loads one tool, then answers a JSON line (lines, batch size) with another
(texts and times). The clock runs inside it, from text to text. fairseq-interactive is its own program; its clock runs
around the pipe, which costs some tens of microseconds of its tens of milliseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

SCRIPTS = Path(__file__).parent
FAIRSEQ_PROGRAM = """
import logging
from specmt.fairseq_backend import compat
from fairseq_cli.interactive import cli_main
logging.disable(logging.INFO)
cli_main()
"""


@dataclass(frozen=True)
class Run:
    """Translations, and how long they took. `marks`: milliseconds of each line, at batch size 1 only."""

    texts: list[str]
    seconds: float
    marks: list[float]


@dataclass(frozen=True)
class Setup:
    """How a process is started: what it runs, on which cores, with which environment on top."""

    kind: str
    settings: Mapping[str, Any]
    cores: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class System(Protocol):
    """A program that translates."""

    def run(self, lines: Sequence[str], batch_size: int) -> Run:
        """Translate; with batch size 1 one line at a time, each timed."""

    def close(self) -> None:
        """End the process."""


def start(setup: Setup) -> System:
    """Start a process (it loads when it is first used)."""
    return FairseqInteractive(setup) if setup.kind == "fairseq" else Worker(setup)


def _process(setup: Setup, command: Sequence[str]) -> subprocess.Popen[str]:
    threads = str(len(setup.cores))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "PYTHONPATH": os.pathsep.join([str(SCRIPTS.parent), str(SCRIPTS)]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",
        **setup.environment,
    }
    pinned = ["taskset", "--cpu-list", ",".join(map(str, setup.cores)), sys.executable, *command]
    return subprocess.Popen(
        pinned, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
    )


class Worker:
    """A tool behind its Python interface."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._process: subprocess.Popen[str] | None = None

    def run(self, lines: Sequence[str], batch_size: int) -> Run:
        """See `System.run`."""
        answer = self.ask({"lines": list(lines), "batch_size": batch_size})
        return Run(answer["texts"], answer["seconds"], answer["marks"])

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a question, wait for the answer."""
        if self._process is None:
            arguments = json.dumps({"kind": self._setup.kind, **self._setup.settings})
            self._process = _process(self._setup, [__file__, arguments])
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._setup}: the process ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """See `System.close`."""
        if self._process is not None:
            self._process.communicate()


class FairseqInteractive:
    """`fairseq-interactive` on a pipe: one process for each buffer and batch size."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._processes: dict[tuple[int, int], subprocess.Popen[str]] = {}

    def run(self, lines: Sequence[str], batch_size: int) -> Run:
        """See `System.run`. With larger batches, all lines are in fairseq's buffer before it begins."""
        key = (1 if batch_size == 1 else len(lines), batch_size)
        if key not in self._processes:
            self._processes[key] = self._started(*key)
            if batch_size == 1:
                _exchange(self._processes[key], lines[:1])  # loads the model
            else:
                _exchange(self._processes[key], lines)
        process, texts, marks = self._processes[key], [], []
        begun = time.perf_counter()
        for first in range(0, len(lines), key[0]):
            asked = time.perf_counter()
            texts += _exchange(process, lines[first : first + key[0]])
            marks.append((time.perf_counter() - asked) * 1e3)
        return Run(texts, time.perf_counter() - begun, marks if batch_size == 1 else [])

    def _started(self, buffer: int, batch_size: int) -> subprocess.Popen[str]:
        settings = self._setup.settings
        arguments = (
            *(settings["data"], "--path", settings["checkpoint"], "--cpu", "--task", "translation"),
            *("--source-lang", "de", "--target-lang", "en", "--beam", str(settings["beam"])),
            *("--bpe", "sentencepiece", "--sentencepiece-model", settings["tokenizer"]),
            *("--max-len-a", "2", "--max-len-b", "10"),
            *("--buffer-size", str(buffer), "--batch-size", str(batch_size)),
        )
        return _process(self._setup, ["-c", FAIRSEQ_PROGRAM, *arguments])

    def close(self) -> None:
        """See `System.close`."""
        for process in self._processes.values():
            process.communicate()


def _exchange(process: subprocess.Popen[str], lines: Sequence[str]) -> list[str]:
    """Give fairseq lines; the texts that it answers, each of which ends with a line of token scores."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.writelines(f"{line}\n" for line in lines)
    process.stdin.flush()
    texts: list[str] = []
    ended = 0
    while ended < len(lines):
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError("fairseq-interactive ended")
        if answer.startswith("D-"):
            texts.append(answer.rstrip("\n").split("\t", 2)[2])
        ended += answer.startswith("P-")
    return texts


# -- inside a worker


class _Tool(Protocol):
    def translate(self, lines: Sequence[str], batch_size: int) -> Iterator[str]:
        """Texts in order, each as soon as it is there."""


class _Specmt:
    def __init__(
        self,
        bundle: str,
        strategy: str,
        tuned: Mapping[str, int] | None,
        engine: str,
        precision: str,
        threads: int,
        device: str,
    ) -> None:
        from specmt.evaluation.measuring import strategy_settings
        from specmt.loading import load_translator

        self._translator = load_translator(Path(bundle), device, precision, threads, engine)
        settings = strategy_settings(strategy, self._translator.defaults)
        if tuned:
            settings = replace(settings, draft_length=tuned["draft_length"], speculated_rows=tuned["rows"])
        self._settings = settings

    def translate(self, lines: Sequence[str], batch_size: int) -> Iterator[str]:
        for translation in self._translator.translate(lines, self._settings, batch_size):
            yield translation.text


class _CTranslate2:
    def __init__(
        self, model: str, tokenizer: str, beam: int, inter: int, intra: int, device: str, vocabulary_map: bool
    ) -> None:
        import ctranslate2
        from sentencepiece import SentencePieceProcessor

        self._translator = ctranslate2.Translator(
            model, device, compute_type="int8", inter_threads=inter, intra_threads=intra
        )
        self._tokenizer = SentencePieceProcessor(tokenizer)
        self._beam = beam
        self._vocabulary_map = vocabulary_map

    def translate(self, lines: Sequence[str], batch_size: int) -> Iterator[str]:
        step = 1 if batch_size == 1 else len(lines)
        for first in range(0, len(lines), step):
            pieces = self._tokenizer.encode(list(lines[first : first + step]), out_type=str)
            results = self._translator.translate_batch(
                pieces,
                beam_size=self._beam,
                max_batch_size=batch_size,  # sorted by length inside
                max_decoding_length=2 * max(map(len, pieces)) + 10,
                use_vmap=self._vocabulary_map,
            )
            yield from (self._tokenizer.decode(result.hypotheses[0]) for result in results)


class _CTranslate2Pieces:
    """CTranslate2 on lines of pieces with spaces between them, greedily, to so many pieces."""

    def __init__(self, model: str, tokens: int) -> None:
        import ctranslate2

        self._translator = ctranslate2.Translator(model, compute_type="int8", inter_threads=1, intra_threads=1)
        self._tokens = tokens

    def translate(self, lines: Sequence[str], batch_size: int) -> Iterator[str]:
        step = 1 if batch_size == 1 else len(lines)
        for first in range(0, len(lines), step):
            results = self._translator.translate_batch(
                [line.split(" ") for line in lines[first : first + step]],
                beam_size=1,
                max_decoding_length=self._tokens,
                max_batch_size=batch_size,
            )
            yield from (" ".join(result.hypotheses[0]) for result in results)


class _Steps:
    """CTranslate2 on a made-up source for a fixed number of steps: what encoding and a step cost."""

    def __init__(self, model: str, beam: int, source_tokens: int, vocabulary_map: bool) -> None:
        import ctranslate2

        self._translator = ctranslate2.Translator(model, compute_type="int8", inter_threads=1, intra_threads=1)
        self._sources = [[f"t{5 + place}" for place in range(source_tokens - 1)]]
        self._beam = beam
        self._vocabulary_map = vocabulary_map

    def seconds(self, steps: int) -> float:
        begun = time.perf_counter()
        self._translator.translate_batch(
            self._sources,
            beam_size=self._beam,
            min_decoding_length=steps,
            max_decoding_length=steps,
            use_vmap=self._vocabulary_map,
        )
        return time.perf_counter() - begun


def _answer(tool: _Tool, lines: Sequence[str], batch_size: int) -> dict[str, Any]:
    texts, times = [], []
    begun = time.perf_counter()
    for text in tool.translate(lines, batch_size):
        texts.append(text)
        times.append(time.perf_counter())
    seconds = time.perf_counter() - begun
    marks = [(after - before) * 1e3 for before, after in zip([begun, *times], times, strict=False)]
    return {"texts": texts, "seconds": seconds, "marks": marks if batch_size == 1 else []}


def main() -> None:
    """Load the tool that the first argument names, and answer until there are no more questions."""
    settings = json.loads(sys.argv[1])
    kind = settings.pop("kind")
    # Tools may print; answers go where nothing else does.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    tools = {"specmt": _Specmt, "ctranslate2": _CTranslate2, "pieces": _CTranslate2Pieces, "steps": _Steps}
    tool = tools[kind](**settings)
    for line in sys.stdin:
        question = json.loads(line)
        if isinstance(tool, _Steps):
            answer: dict[str, Any] = {"seconds": tool.seconds(question["steps"])}
        else:
            answer = _answer(tool, question["lines"], question["batch_size"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
