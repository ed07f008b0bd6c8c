"""Kill a translation with SIGKILL at random moments; what --append-resume then makes of it must be the whole.

Run as `python scripts/kill_and_resume.py`. One undisturbed run gives the text to compare with; then the same command is
started and killed until a file has seen `--kills` kills, and let run to its end. Most kills come while lines are
written, some while the program starts. Between kills, now and then, the end of the file is cut at a random byte, as a
system that lost power might leave it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("multi30k.test2016.de", "tatoeba.test.de")


def command(source: Path, target: Path, options: list[str]) -> list[str]:
    """Translate a file into another that can be gone on with."""
    files = ["-i", str(source), "-o", str(target), "--append-resume"]
    return [sys.executable, "-m", "specmt", "translate", "-q", *files, *options]


def main() -> None:
    """Kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--lines", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("options", nargs="*", help="of `specmt translate`, behind --")
    chosen = parser.parse_args()
    options = ["--engine", chosen.engine, *chosen.options]
    rng = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as folder:
        source, whole, killed = (Path(folder) / name for name in ("source.de", "whole.en", "killed.en"))
        lines = [line for name in SOURCES for line in (ROOT / "data/corpora" / name).open("rb")][: chosen.lines]
        source.write_bytes(b"".join(lines))
        start = time.perf_counter()
        subprocess.run(command(source, whole, options), check=True, cwd=ROOT)
        seconds = time.perf_counter() - start
        print(f"{len(lines)} lines undisturbed: {seconds:.1f} s", flush=True)
        kills = writing = finished = cuts = 0
        while kills < chosen.kills:
            before = size_of(killed)
            # A part of the starts is cut short; the others get a share of what is left to do.
            starting = rng.random() < 0.2
            if was_killed(command(source, killed, options), killed, rng.uniform(0, 0.2) * seconds, starting):
                kills += 1
                writing += size_of(killed) > before
            else:
                finished += 1
                check(source, whole, killed)
                killed.write_bytes(killed.read_bytes()[: rng.randrange(whole.stat().st_size // 4)])
            if rng.random() < 0.3 and (size := size_of(killed)):
                with killed.open("rb+") as stream:
                    stream.truncate(max(0, size - rng.randrange(200)))
                cuts += 1
        subprocess.run(command(source, killed, options), check=True, cwd=ROOT)
        check(source, whole, killed)
    print(f"{kills} kills, {writing} of them after new lines, {cuts} files cut, {finished + 1} runs to the end")
    print("each finished file is equal to the undisturbed one")


def size_of(path: Path) -> int:
    """Bytes; 0 where there is no file."""
    return path.stat().st_size if path.exists() else 0


def was_killed(arguments: list[str], target: Path, delay: float, starting: bool) -> bool:
    """Whether a run was killed: `delay` seconds after it began to write, or after it was started.

    False where it ended by itself before.
    """
    before = size_of(target)
    with subprocess.Popen(arguments, cwd=ROOT) as run:
        while not starting and size_of(target) <= before and run.poll() is None:
            time.sleep(0.005)
        try:
            code = run.wait(delay)
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            return True
        if code:
            sys.exit(f"a resumed run ended with exit code {code}")
        return False


def check(source: Path, whole: Path, killed: Path) -> None:
    """Compare bytes."""
    if killed.read_bytes() != whole.read_bytes():
        sys.exit(f"{killed} differs from an undisturbed run over {source}")


if __name__ == "__main__":
    main()
