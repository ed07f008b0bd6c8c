"""Random input and damaged models through the translator: a line out for each line in, never a traceback or a hang.

Run as `python scripts/fuzz.py`; `--scripted`, `--real`, `--bundles` and `--resigned` say how much of each, `--seed`
which, `--engine` what runs the model (by default what `specmt translate` takes by itself).

scripted  lines through the whole path from bytes to bytes, over an engine that follows a script (tests/scripted.py), in
          every strategy and form; strict must equal ar
real      lines through `specmt translate` and the model
bundles   copies of the model with one file cut or some of its bytes flipped: each must be one line on stderr and exit
          code 1
resigned  the same, with the manifest's digests made to fit, as no accident does: what then loads may translate as it
          likes, but must neither crash nor show a traceback
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from scripted import DEFAULTS, SENTENCES, ScriptedEngine, by_position, tiny_vocabulary  # noqa: E402

from specmt.bundles.bundle import MANIFEST, _manifest_digest  # noqa: E402
from specmt.choices import OutputFormat  # noqa: E402
from specmt.files import file_digest  # noqa: E402
from specmt.settings import DecodingSettings  # noqa: E402
from specmt.streams.forms import Form  # noqa: E402
from specmt.streams.inputs import text_parser  # noqa: E402
from specmt.streams.line_stream import LineStream  # noqa: E402
from specmt.text.segmentation import Splitting  # noqa: E402
from specmt.translation import Translation  # noqa: E402
from specmt.translator import Translator  # noqa: E402

MODEL = ROOT / "specmt/models/de-en"
SEPARATORS = "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\x00\ufeff\u200b\u00ad\u202e\t\r\u00a0\u3000"
EMOJI = "😀👩‍👩‍👧🇩🇪☃️🏳️‍🌈"
TIMEOUT = 300
"""Seconds after which a run counts as hung."""
_UNPLACED = ": not in the translation: "
"""What random characters beside a number may do to it: it is told, and no error."""


def random_line(rng: random.Random) -> bytes:
    """A line of any bytes but LF."""
    size = rng.choice((1, 3, 10, 30, 100)) if rng.random() < 0.995 else rng.choice((1000, 5000))
    kinds = (random_bytes, random_characters, repetition, blank, json_like, *[sentences] * 5)
    return rng.choice(kinds)(rng, size).replace(b"\n", b"\r") + rng.choice((b"", b"", b"", b"\r"))


def random_bytes(rng: random.Random, size: int) -> bytes:
    """All bytes, or control characters alone."""
    return rng.randbytes(size) if rng.random() < 0.5 else bytes(rng.randrange(32) for _ in range(size))


def random_characters(rng: random.Random, size: int) -> bytes:
    """All of Unicode, or what separates lines and words, and emoji."""
    if rng.random() < 0.5:
        return "".join(chr(_any_character(rng)) for _ in range(size)).encode()
    return "".join(rng.choice(SEPARATORS + EMOJI + " a.") for _ in range(size)).encode()


def repetition(rng: random.Random, size: int) -> bytes:
    """The same again and again."""
    return (rng.choice(("a", ".", "😀", "ha ", "1", "ß", "ﷺ", "½ ", "nicht ", '"', "(")) * size).encode()


def blank(rng: random.Random, size: int) -> bytes:
    """What is, or looks, empty."""
    return rng.choice((b"", b" " * size, b"\t", b"\r", b"\xef\xbb\xbf", b"\xff\xfe", "\u3000".encode()))


def json_like(rng: random.Random, size: int) -> bytes:
    """An object that may be none."""
    return b'{"source": "' + rng.randbytes(min(size, 20)) + b'"}'


def sentences(rng: random.Random, size: int) -> bytes:
    """Words of sentences: as they are, shuffled, with characters between them or with wrong bytes."""
    words = " ".join(rng.choices(SENTENCES, k=rng.randrange(1, 5))).split()
    change = rng.randrange(4)
    if change == 1:
        rng.shuffle(words)
    if change == 2:
        words.insert(rng.randrange(len(words)), "".join(chr(_any_character(rng)) for _ in range(3)))
    data = " ".join(words[: rng.randrange(1, 40)]).encode()
    return bytes(byte if rng.random() > 0.02 else rng.randrange(256) for byte in data) if change == 3 else data


def _any_character(rng: random.Random) -> int:
    while True:
        code = rng.choice((rng.randrange(0x80), rng.randrange(0x3000), rng.randrange(0x110000)))
        if not 0xD800 <= code < 0xE000:
            return code


def random_text(rng: random.Random, lines: int) -> bytes:
    """So many lines; the last may have no end, unless it would then be none."""
    parts = [random_line(rng) for _ in range(lines)]
    ended = rng.random() < 0.5 or not parts[-1]
    return b"\n".join(parts) + (b"\n" if ended else b"")


def settings_of_all_kinds() -> Iterator[DecodingSettings]:
    """Every strategy, again and again."""
    relaxed = DecodingSettings.relaxed(DEFAULTS)
    ar = replace(relaxed, strategy="ar")
    while True:
        yield from (relaxed, relaxed.strict(), ar, replace(ar, beam=3, n_best=2))
        yield replace(relaxed, split=False, max_source_tokens=100_000)
        yield replace(relaxed, max_source_tokens=1)


def fuzz_scripted(rng: random.Random, count: int) -> None:
    """Lines through the translator in memory, some hundred at a time."""
    done = 0
    engine = ScriptedEngine(by_position([0, 1, 0, 0, -1]))
    for settings in settings_of_all_kinds():
        if done >= count:
            break
        lines = min(rng.randrange(1, 400), count - done)
        data = random_text(rng, lines)
        translator = Translator(
            engine, tiny_vocabulary(), DEFAULTS, rng.choice((1, 1, 3)), splitting=Splitting("de", rng.choice((5, 40)))
        )
        batch_size = rng.choice((1, 3, 32))
        found = translated(translator, data, settings, batch_size)
        for output_format in OutputFormat:
            form = Form(output_format, tiny_vocabulary(), settings.n_best, scores=rng.random() < 0.5)
            written = "".join(form.render(translation) for translation in found).encode()
            check(written.count(b"\n") == lines * form.lines_each, f"{output_format}: lines were lost or made", data)
        if settings.strategy == "spec" and settings.beta == 1:
            greedy = translated(translator, data, replace(settings, strategy="ar"), 1)
            check([one.text for one in greedy] == [one.text for one in found], "strict is not ar", data)
        done += lines
        engine.calls.clear()
    print(f"scripted: {done} lines in, {done} records out, no error", flush=True)


def translated(translator: Translator, data: bytes, settings: DecodingSettings, batch_size: int) -> list[Translation]:
    """All translations of a text, read as a stream."""
    lines = LineStream(BytesIO(data), "fuzz", text_parser("fuzz", replace_errors=True))
    return list(translator.translate_stream(lines, settings, batch_size))


def fuzz_real(rng: random.Random, count: int, engine: str) -> None:
    """Lines through the command line and the model."""
    command = ("translate", "-q", "--engine", engine, "--errors", "replace")
    options: tuple[list[str], ...] = (
        ["--relaxed"],
        [],
        ["--strategy", "ar"],
        ["--format", "jsonl"],
        ["--strategy", "ar", "--beam", "3"],
    )
    done, turn, unplaced = 0, 0, 0
    while done < count:
        lines = min(rng.randrange(50, 200), count - done)
        data = random_text(rng, lines)
        run = specmt(*command, *options[turn % len(options)], stdin=data)
        told = run.stderr.decode().splitlines()
        fine = run.returncode == 0 and all(_UNPLACED in line for line in told)
        check(fine, f"exit code {run.returncode}: {told}", data)
        check(run.stdout.count(b"\n") == lines, "lines were lost or made", data)
        done, turn, unplaced = done + lines, turn + 1, unplaced + len(told)
    print(
        f"real: {done} lines in, {done} lines out in {turn} runs, {unplaced} reported to lack a number or the like",
        flush=True,
    )


def fuzz_bundles(rng: random.Random, count: int, model: Path, engine: str, resigned: bool) -> None:
    """Damaged copies of a model; what they give in JSON must be JSON."""
    ways = ((), ("--format", "jsonl"), ("--format", "jsonl", "--strategy", "ar", "--beam", "3", "--n-best", "2"))
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(count):
            copy = Path(folder) / str(number)
            shutil.copytree(model, copy)
            names = sorted(path.name for path in copy.iterdir() if path.suffix != ".md")
            name = rng.choice([name for name in names if not (resigned and name == MANIFEST)])
            damage(rng, copy / name)
            if resigned:
                resign(copy, name)
            way = rng.choice(ways)
            line = "Ein Hund schläft.\n".encode()
            run = specmt("translate", "-q", "--engine", engine, *way, "-m", str(copy), stdin=line)
            lines = run.stderr.decode(errors="replace").splitlines()
            if lines and lines[0].endswith(": decoding with --strategy ar"):
                lines = lines[1:]  # a converted model has no drafter
            if way and run.returncode == 0:
                json.loads(run.stdout, parse_constant=_no_constant)
            tidy = run.returncode == 0 or (run.returncode == 1 and len(lines) == 1 and "unexpected" not in lines[0])
            allowed = tidy if resigned else tidy and run.returncode == 1
            if not allowed:
                kept = Path(tempfile.mkdtemp()) / "bundle"
                shutil.copytree(copy, kept)
                print(f"{name}: exit code {run.returncode}, {lines[-3:]}: kept in {kept}", flush=True)
            outcomes[f"exit code {run.returncode}" if allowed else "NOT TIDY"] += 1
            shutil.rmtree(copy)
    label = "resigned" if resigned else "bundles"
    print(f"{label}: {count} damaged copies: {dict(outcomes)}", flush=True)
    if outcomes["NOT TIDY"]:
        sys.exit(1)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def damage(rng: random.Random, path: Path) -> None:
    """Cut a file, or flip bits of one to sixteen of its bytes."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    else:
        for _ in range(rng.choice((1, 1, 4, 16))):
            data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
    path.write_bytes(data)


def resign(bundle: Path, name: str) -> None:
    """Make the manifest's digests fit."""
    manifest = json.loads((bundle / MANIFEST).read_text())
    manifest["files"][name] = file_digest(bundle / name)
    manifest["manifest_sha256"] = _manifest_digest(manifest)
    (bundle / MANIFEST).write_text(json.dumps(manifest))


def specmt(*arguments: str, stdin: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run the command line; a run that does not end raises."""
    command = [sys.executable, "-m", "specmt", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, timeout=TIMEOUT, check=False)


def check(holds: bool, what: str, data: bytes) -> None:
    """Stop with the input that broke it."""
    if not holds:
        with tempfile.NamedTemporaryFile(delete=False, suffix=".txt") as kept:
            kept.write(data)
        sys.exit(f"{what}; the input is in {kept.name}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("scripted", 100_000), ("real", 2000), ("bundles", 300), ("resigned", 100)):
        parser.add_argument(f"--{name}", type=int, default=count)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--model", type=Path, default=MODEL, help="that is damaged")
    options = parser.parse_args(arguments)
    start = time.perf_counter()
    fuzz_scripted(random.Random(options.seed), options.scripted)
    fuzz_real(random.Random(options.seed + 1), options.real, options.engine)
    fuzz_bundles(random.Random(options.seed + 2), options.bundles, options.model, options.engine, resigned=False)
    fuzz_bundles(random.Random(options.seed + 3), options.resigned, options.model, options.engine, resigned=True)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
