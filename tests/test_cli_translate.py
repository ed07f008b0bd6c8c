"""`specmt translate` as a process, with the bundled model: streams, signals, files, forms, exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMAND, ROOT, SAMPLE, failed, running, tried, wait_until

from specmt.cli import _one_line

HARD = (
    "\ufeffEin Hund schläft.\r\n\n   \nZwei Katzen spielen\u2028im Garten.\nEin \x00 Mann.\n😀😀\nEine Frau. Ein Mann."
).encode()

SAMPLES = ("--source", ROOT / "data" / "sample.de", "--reference", ROOT / "data" / "sample.de")


def test_standard_output_by_its_path_is_added_to(tmp_path: Path) -> None:
    """What a shell opened with `>>` must not be replaced."""
    log = tmp_path / "log"
    log.write_bytes(b"kept\n")
    with log.open("ab") as stream:
        subprocess.run([*COMMAND, "translate", "-o", "/dev/stdout"], input=SAMPLE, stdout=stream, cwd=ROOT, check=True)
    assert log.read_bytes() == b"kept\n" + tried("translate", stdin=SAMPLE).stdout


@pytest.mark.parametrize("option", ["--input", "--output"])
def test_a_dash_is_no_file(option: str) -> None:
    assert f"{option} -: standard streams" in failed(tried("translate", option, "-"), 2)


@pytest.mark.parametrize(
    ("command", "where"), [("translate", "--input FILE"), ("explain", "in quotes"), ("doctor", "")]
)
def test_text_as_arguments_is_told_where_it_belongs(command: str, where: str) -> None:
    line = failed(tried(command, "Ein", "Hund"), 2)
    assert line.endswith(f"specmt {command} --help)")
    assert [hint for hint in ("--input FILE", "in quotes") if hint in line] == [where] * bool(where)


def test_the_terminology_is_not_written_over(tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("Hund\thound\n")
    assert failed(tried("translate", "--terminology", terms, "-o", terms, stdin=b"\n"), 2).endswith(
        "is the terminology"
    )
    assert terms.read_text() == "Hund\thound\n"


@pytest.mark.parametrize("option", ["--input", "--output", "--protect", "--terminology"])
def test_of_options_that_may_be_meant_together_none_is_dropped(option: str) -> None:
    assert failed(tried("translate", option, "url", f"{option}=email"), 2) == f"specmt: {option}: given twice"
    assert tried("translate", "--threads", 2, "--threads", 1, stdin=b"\n").returncode == 0


def test_a_command_that_a_shell_runs_for_the_output_gets_it(tmp_path: Path) -> None:
    limit = f"exec 7> >(tr a-z A-Z > {tmp_path}/out; touch {tmp_path}/done)"
    assert tried("translate", "-o", "/dev/fd/7", stdin=b"Ein Hund.\n", limit=limit).returncode == 0
    wait_until((tmp_path / "done").exists)
    assert (tmp_path / "out").read_bytes() == b"A DOG.\n"


@pytest.mark.parametrize("output", [[], ["-o", "/dev/stdout"], ["-o", "/proc/self/fd/1"]])
def test_standard_output_cannot_be_gone_on_with(output: list[str]) -> None:
    assert "--append-resume needs --output FILE" in failed(tried("translate", *output, "--append-resume"), 2)


@pytest.mark.parametrize("options", [(), ("--relaxed",), ("--strategy", "ar", "--beam", 2), ("--batch-size", 1)])
def test_lines_of_any_kind_are_a_line_each(options: tuple[object, ...]) -> None:
    done = tried("translate", *options, "--quiet", stdin=HARD)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.decode().split("\n")
    assert len(lines) == 8 and lines[-1] == ""
    assert [lines[1], lines[2], lines[5]] == ["", "", "😀😀"]
    assert all(lines[place] for place in (0, 3, 4, 6))


def test_a_short_translation_does_not_wait_for_packages_that_it_can_do_without() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "specmt", "translate", "--engine", "native"]
    done = subprocess.run(command, input=b"Ein Hund schl\xc3\xa4ft.\n", capture_output=True, cwd=ROOT, check=True)
    imported = {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}
    assert done.stdout.strip()
    assert "specmt.engines.native_engine" in imported
    assert not imported & {"numpy", "safetensors", "onnxruntime", "torch", "fairseq"}


def test_strict_is_ar_for_lines_of_any_kind_and_any_threads() -> None:
    data = HARD + b"\n" + SAMPLE + b"nein " * 100
    greedy = tried("translate", "--strategy", "ar", "--batch-size", 1, "--threads", 1, stdin=data)
    drafting = ("translate", "--strict", "--draft-length", 4, "--threads", 3)
    default, strict = tried("translate", stdin=data), tried(*drafting, stdin=data)
    assert greedy.returncode == strict.returncode == default.returncode == 0
    assert strict.stdout == default.stdout == greedy.stdout
    told = [json.loads(line) for line in tried(*drafting, "--format", "jsonl", stdin=data).stdout.splitlines()]
    assert any(emitted > 1 for line in told for emitted in line["emitted_tokens"]), "nothing was drafted"


def test_a_line_comes_back_before_the_next_is_typed() -> None:
    with running("-q") as run:
        for line, answers in (("Ein Hund schläft.", True), ("", False), ("Eine Katze.", True)):
            run.stdin.write(f"{line}\n".encode())
            assert bool(run.stdout.readline().strip()) is answers
        run.stdin.close()
        assert run.wait(60) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_it_with_what_was_finished_written(number: signal.Signals, code: int, busy: bool) -> None:
    with running("-q") as run:
        run.stdin.write(b"Ein Hund.\n\nEine Katze.\n")
        first = [run.stdout.readline() for _ in range(3)]
        if busy:
            run.stdin.write(b"Ein Mann mit einem Hut steht vor dem Haus.\n" * 1000)
            first.append(run.stdout.readline())
        run.send_signal(number)
        rest = run.stdout.read()
        assert run.wait(60) == code
        assert run.stderr.read() == b""
        assert all(line.endswith(b"\n") for line in first) and (rest == b"" or rest.endswith(b"\n"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_file_that_was_there_as_it_was(tmp_path: Path, number: signal.Signals, code: int) -> None:
    target = tmp_path / "out.en"
    target.write_bytes(b"before\n")
    with running("-q", "-o", target) as run:
        run.stdin.write(b"Ein Hund.\n")
        wait_until(lambda: b"A dog.\n" in [path.read_bytes() for path in tmp_path.glob(".out.en.*/out.en")])
        run.send_signal(number)
        assert run.wait(60) == code
        assert run.stderr.read() == b""
    assert target.read_bytes() == b"before\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.en"]


def test_with_nohup_it_goes_on() -> None:
    with running("-q", limit="trap '' HUP") as run:
        run.stdin.write(b"Ein Hund.\n")
        assert run.stdout.readline() == b"A dog.\n"
        run.send_signal(signal.SIGHUP)
        run.stdin.write(b"Ein Mann.\n")
        assert run.stdout.readline() == b"A man.\n"
        run.stdin.close()
        assert run.wait(60) == 0


def test_a_reader_that_stops_ends_it_without_a_word(tmp_path: Path) -> None:
    source = tmp_path / "in.de"
    source.write_bytes(SAMPLE * 30)
    with running("-i", source) as run:
        assert run.stdout.readline()
        run.stdout.close()
        assert run.wait(60) == 141
        assert run.stderr.read() == b""


def test_a_person_at_a_terminal_sees_a_bar_and_a_summary_and_a_pipe_does_not(tmp_path: Path) -> None:
    reading, writing = pty.openpty()
    command = [*COMMAND, "translate", "-i", "data/sample.de", "-o", str(tmp_path / "out.en")]
    with subprocess.Popen(command, cwd=ROOT, stderr=writing) as run:
        os.close(writing)
        seen = b""
        try:
            while data := os.read(reading, 4096):
                seen += data
        except OSError:  # how Linux says that the other end is closed
            pass
        assert run.wait(60) == 0
    os.close(reading)
    count = SAMPLE.count(b"\n")
    assert f"{count}/{count}".encode() in seen and f"{count} lines in ".encode() in seen


@pytest.mark.parametrize(
    "said", ["CUDA out of memory. Tried to", "can't start new thread", "you tried: can't allocate memory"]
)
def test_memory_that_is_missing_elsewhere_is_the_same_line(said: str) -> None:
    assert _one_line(RuntimeError(said)) == _one_line(MemoryError())
    assert "please report it" in _one_line(RuntimeError("another"))[0]


def test_symbols_that_no_piece_has_are_copied() -> None:
    done = tried("translate", stdin="Das kostet 12,50 £.\n".encode())
    assert re.fullmatch(r"[\w ]+ (£12,50|12,50 £)\.\n", done.stdout.decode())


def test_alignment_takes_no_more_cores_than_it_may(tmp_path: Path) -> None:
    (tmp_path / "in.de").write_text("Ein Hund schläft.\n")
    code = (
        "import os, sys\n"
        "from specmt.cli import app\n"
        "app('translate -q -i in.de -o out.en --alignment --threads 1'.split(), standalone_mode=False)\n"
        "assert 'numpy' in sys.modules\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n", done.stderr


def test_json_in_and_out_keeps_fields_and_says_what_happened() -> None:
    records = [{"id": 1, "source": "Ein Hund schläft. Eine Katze spielt."}, {"source": "你好", "tags": ["x", None]}]
    data = "".join(f"{json.dumps(record)}\n" for record in records).encode()
    done = tried("translate", "--input-format", "jsonl", "--format", "jsonl", "--alignment", stdin=data)
    first, second = map(json.loads, done.stdout.splitlines())
    assert {key: first[key] for key in ("id", "source", "segments")} == {**records[0], "segments": 2}
    assert first["alignment"][0] == [0, 0] and "warnings" not in first
    assert (second["translation"], second["warnings"], second["tags"]) == ("你好", ["copied"], ["x", None])
    wrong = tried("translate", "--input-format", "jsonl", stdin=data + b"Ein Hund\n")
    assert wrong.stdout.count(b"\n") == 2
    before, error = wrong.stderr.decode().splitlines()
    assert (wrong.returncode, before) == (1, "specmt: 1 of 2 lines have warnings (see --format jsonl)")
    assert "standard input: line 3: not JSON" in error


def test_what_was_replaced_and_what_is_blank_is_said_line_by_line() -> None:
    """The second line is taken apart for its address, and is one line of output nevertheless."""
    options = ("translate", "--format", "jsonl", "--errors", "replace")
    done = tried(*options, stdin=b"Ein H\xfcnd.\nMit M\xfche: <b>https://a.example</b>\nEin \xef\xbf\xbd.\n")
    warnings = [json.loads(line).get("warnings", []) for line in done.stdout.splitlines()]
    assert ["replaced" in of_line for of_line in warnings] == [True, True, False]
    blank = tried(*options, "--input-format", "jsonl", stdin=b'{"source": "Ein Hund."}\n\n')
    assert [json.loads(line)["translation"] for line in blank.stdout.splitlines()] == ["A dog.", ""]


def test_fairseqs_lines_number_the_lines_of_input() -> None:
    options = ("--strategy", "ar", "--beam_size", 2, "--nbest", 2, "--format", "fairseq", "--print-alignment")
    done = tried("translate", *options, stdin=b"Ein Hund.\n\n")
    heads = [line.split("\t")[0] for line in done.stdout.decode().splitlines()]
    assert heads == [f"{kind}-{number}" for number in (0, 1) for kind in "SHDPAHDPA"]


def test_a_line_that_is_too_long_is_split_or_named() -> None:
    line = " ".join(["Ein Hund und eine Katze und"] * 60).encode()
    split = tried("translate", "--format", "jsonl", stdin=line)
    assert json.loads(split.stdout)["segments"] > 2
    whole = tried("translate", "--no-split", stdin=b"Ein Hund.\n" + line)
    assert whole.stdout.count(b"\n") == 1
    assert "standard input: line 2: " in failed(whole, 1) and "--no-split" in whole.stderr.decode()
    element = b"Ein Hund.\n<b>" + line + b"</b>"
    assert "standard input: line 2: " in failed(tried("translate", "--no-split", stdin=element), 1)


@pytest.mark.parametrize(
    ("redirection", "expected"),
    [
        (">/dev/full", "standard output: cannot be written: no space left on device"),
        (">&-", "standard output: is closed"),
        ("<&-", "standard input: is closed"),
    ],
)
def test_streams_that_cannot_be_used_are_named(redirection: str, expected: str) -> None:
    assert expected in failed(tried("translate", stdin=SAMPLE, limit=f"exec {redirection}"), 1)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_what_cannot_be_said_on_stderr_stops_nothing(redirection: str) -> None:
    done = tried("translate", stdin="你好\nEin Mann.\n".encode(), limit=f"exec {redirection}")
    assert (done.returncode, done.stdout) == (0, "你好\nA man.\n".encode())
    assert b"1 of 2 lines have warnings" in tried("translate", stdin="你好\nEin Mann.\n".encode()).stderr
    assert tried("translate", "--beam", 0, limit=f"exec {redirection}").returncode == 2


@pytest.mark.parametrize("kilobytes", [700_000, 1_200_000])
@pytest.mark.parametrize("engine", ["native", "onnx"])
def test_too_little_memory_is_one_line_and_what_was_done_is_kept(engine: str, kilobytes: int) -> None:
    """The native engine reaches the limit in its library; the other in ONNX Runtime or numpy, as the lines arrive."""
    options = ("--engine", engine, "--threads", 1, "--batch-size", 100_000)
    with running("-q", *options, limit=f"ulimit -v {kilobytes}") as run:
        run.stdin.write(b"Ein Hund.\n")
        first = run.stdout.readline()
        done = run.communicate(SAMPLE * 400)
        assert (first, run.returncode) == (b"A dog.\n", 1)
        assert done[0] == b"" or done[0].endswith(b"\n")  # what came in before the rest may have gone through
        assert done[1] == b"specmt: not enough memory: lower --batch-size, --max-batch-tokens, --beam or --threads\n"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("nothing",), 2, "nothing"),
        (("translate", "--beam", "many"), 2, "--beam"),
        (("translate", "--append-resume"), 2, "--append-resume needs --output FILE"),
        (
            ("translate", "-i", "README.md", "-o", "specmt/../README.md"),
            2,
            "--output: specmt/../README.md is the input",
        ),
        (("translate", "--max-source-tokens", 0), 2, "--max-source-tokens"),
        (("translate", "--threads", 10**20), 2, "--threads"),
        (("translate", "--strategy", "ar", "--relaxed"), 2, "need --strategy spec"),
        (("explain", "--strategy", "replay", "--draft-length", 2, "Ein Hund"), 2, "need --strategy spec"),
        (("translate", "--replay-window", 8), 2, "need --strategy replay, or translate's --reproducible"),
        (("translate", "--engine", "onnx", "--precision", "bf16"), 2, "--precision bf16: the onnx engine"),
        (("translate", "--model"), 2, "requires an argument. (see specmt translate --help)"),
        (("translate", "--model", "m" * 300), 1, f"specmt: {'m' * 300}: file name too long"),
        (("translate", "--terminology", "/"), 1, "specmt: /: cannot be read: is a directory"),
        (("train", "--config", "/"), 1, "specmt: /: cannot be read: is a directory"),
        (("eval", *SAMPLES, "--strategies", ""), 2, "--strategies: '' is none of ar"),
        (("eval", *SAMPLES, "--beta", 1), 2, "give --beta 2 or more; spec-strict is strict anyway"),
        (("eval", *SAMPLES, "--strategies", "ar", "--draft-length", 3), 2, "--draft-length is for spec, "),
        (("eval", *SAMPLES, "--strategies", "spec-strict", "--tau", 1), 2, "--tau is for spec, spec-reproducible, of"),
        (("translate", "-i", "none\n\x1b[31m"), 1, "specmt: none  [31m: no such file or directory"),
        (("translate", "-o", "/none/out.en"), 1, "/none/out.en: cannot be written: no such file or directory"),
    ],
)
def test_mistakes_are_one_line_without_a_traceback(arguments: tuple[object, ...], code: int, expected: str) -> None:
    assert expected in failed(tried(*arguments), code)


def test_what_is_added_to_its_own_input_is_refused(tmp_path: Path) -> None:
    both = tmp_path / "both"
    both.write_text("Ein Hund.\n", encoding="utf-8")
    expected = "--output: standard output is the input"
    assert expected in failed(tried("translate", limit=f"exec < {both} >> {both}"), 2)
    assert both.read_text(encoding="utf-8") == "Ein Hund.\n"


def test_a_narrow_terminal_wraps_the_picture_and_nothing_is_cut() -> None:
    command = ["env", "COLUMNS=20", *COMMAND, "explain", "Zwei Hunde rennen."]
    picture = subprocess.run(command, capture_output=True, cwd=ROOT, check=True).stdout.decode()
    assert "Zwei Hunde" in picture and "accepted" in picture and "Candidates" in picture


def test_a_narrow_terminal_wraps_the_tables_of_eval_and_no_digit_is_cut(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("Zwei Hunde rennen.\n", encoding="utf-8")
    files = ["--source", str(text), "--reference", str(text)]
    command = ["env", "COLUMNS=30", *COMMAND, "eval", *files, "--strategies", "ar", "--repeats", "1"]
    tables = subprocess.run(command, capture_output=True, cwd=ROOT, check=True).stdout.decode()
    assert "1.00 (1.00–1.00)" in tables and "…" not in tables


def test_a_traceback_is_shown_to_who_asks() -> None:
    done = tried("--debug", "translate", "-i", "/none")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr and done.stderr.splitlines()[-1] == b"specmt: /none: no such file or directory"


def test_shells_can_complete() -> None:
    start = "import sys; sys.argv = ['specmt']; from specmt.cli import main; main()"
    asked = {"_SPECMT_COMPLETE": "complete_bash", "COMP_WORDS": "specmt tra", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", start],
        env={**os.environ, **asked},
        capture_output=True,
        cwd=ROOT,
        check=False,
        timeout=60,
    )
    assert set(done.stdout.split()) >= {b"translate", b"train"}
