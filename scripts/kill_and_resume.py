"""Kill a translation with SIGKILL at random moments; what --append-resume then makes of it must be the whole.

Run as `python scripts/kill_and_resume.py`. One undisturbed run gives the text to compare with and the time that a run
takes; then the same command is started and killed until a file has seen `--kills` kills, and let run to its end.
Between kills, now and then, the end of the file is cut at a random byte, as a system that lost power might leave it.
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
        kills = finished = cuts = 0
        while kills < chosen.kills:
            # Most runs get far enough to write something; some are killed while they start.
            delay = rng.uniform(0, 0.15 * seconds)
            if was_killed(command(source, killed, options), delay):
                kills += 1
            else:
                finished += 1
                check(source, whole, killed)
                killed.write_bytes(killed.read_bytes()[: rng.randrange(whole.stat().st_size // 4)])
            if rng.random() < 0.3 and killed.exists() and (size := killed.stat().st_size):
                with killed.open("rb+") as stream:
                    stream.truncate(max(0, size - rng.randrange(200)))
                cuts += 1
        subprocess.run(command(source, killed, options), check=True, cwd=ROOT)
        check(source, whole, killed)
    print(f"{kills} kills, {cuts} files cut, {finished + 1} runs to the end: each file equal to the undisturbed one")


def was_killed(arguments: list[str], delay: float) -> bool:
    """Whether a run was still going on after so many seconds, and was killed."""
    with subprocess.Popen(arguments, cwd=ROOT) as run:
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
