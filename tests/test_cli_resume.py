"""`specmt translate --append-resume` as a process, with the bundled model: killed, cut, asked for something else."""

from __future__ import annotations

import signal
from pathlib import Path

from commands import SAMPLE, failed, running, tried, wait_until


def test_a_killed_run_is_gone_on_with(tmp_path: Path) -> None:
    """Its input stays open, so it cannot have ended by itself; what is done is put into capitals, and stays so."""
    target, data = tmp_path / "out.en", SAMPLE * 8
    resume = ("-q", "-o", target, "--append-resume")
    whole = tried("translate", "-q", stdin=data).stdout
    with running(*resume) as run:
        run.stdin.write(data[: len(data) // 2])
        wait_until(lambda: target.exists() and target.read_bytes().count(b"\n") > 3)
        run.kill()
        assert run.wait(60) == -signal.SIGKILL
    killed = target.read_bytes()
    assert whole.startswith(killed) and killed != whole
    target.write_bytes(killed.upper()[:-5])
    assert "was begun with" in failed(tried("translate", *resume, "--relaxed", stdin=data), 1)
    again = tried("translate", *resume, "--draft-length", 3, stdin=data)
    assert again.returncode == 0, "the same text, as after tuning"
    done = killed[:-5].rpartition(b"\n")[0] + b"\n"
    assert target.read_bytes() == done.upper() + whole.removeprefix(done)


def test_a_run_cut_in_half_goes_on_with_the_numbers_of_its_lines(tmp_path: Path) -> None:
    target = tmp_path / "out.en"
    resume = ("translate", "-q", "-o", target, "--format", "fairseq", "--append-resume")
    assert tried(*resume, stdin=SAMPLE).returncode == 0
    whole = target.read_bytes()
    target.write_bytes(whole[: len(whole) // 2])
    assert tried(*resume, stdin=SAMPLE).returncode == 0
    assert target.read_bytes() == whole
    numbers = [line.split("\t")[0] for line in whole.decode().splitlines() if line.startswith("S-")]
    assert numbers == [f"S-{number}" for number in range(SAMPLE.count(b"\n"))]


def test_a_run_from_a_redirected_file_is_not_gone_on_with_from_another(tmp_path: Path) -> None:
    first, other = tmp_path / "first.de", tmp_path / "other.de"
    first.write_text("Ein Hund.\nEin Mann.\n")
    other.write_text("Eine Frau.\nEine Katze.\nEin Kind.\n")
    resume = ("translate", "-q", "-o", tmp_path / "out.en", "--append-resume")
    assert tried(*resume, limit=f"exec < {first}").returncode == 0
    assert "not what out.en was begun from" in failed(tried(*resume, limit=f"exec < {other}"), 1)
    first.write_text("Ein Hund.\nEin Mann.\nEin Kind.\n")
    assert tried(*resume, "-i", first).returncode == 0
    assert (tmp_path / "out.en").read_text() == "A dog.\nA man.\nA child.\n"


def test_a_run_from_a_pipe_is_not_gone_on_with_from_another(tmp_path: Path) -> None:
    """Both begin alike, as letters do; what is finished is compared, what follows it may be mended or longer."""
    resume = ("translate", "-q", "-o", tmp_path / "out.en", "--append-resume")
    assert tried(*resume, stdin=b"Guten Tag!\nEin Hund.").returncode == 0
    whole = (tmp_path / "out.en").read_bytes()
    for other in (b"Guten Tag!\nEin Mann.\nEin Kind.\n", b"Ein Hund.\nGuten Tag!\n"):
        assert "standard input: not what out.en was begun from" in failed(tried(*resume, stdin=other), 1)
        assert (tmp_path / "out.en").read_bytes() == whole
    bad = b"Guten Tag!\nEin Hund.\nEin Kind.\n\xff\n"
    assert "line 4: byte 1 is not UTF-8" in failed(tried(*resume, stdin=bad), 1)
    mended = tried(*resume, stdin=b"Guten Tag!\nEin Hund.\nEin Kind.\nEin Mann.\n")
    assert (mended.returncode, mended.stderr) == (0, b"")
    assert (tmp_path / "out.en").read_bytes() == whole + b"A child.\nA man.\n"
    (tmp_path / ".out.en.lines").unlink()
    assert "not what out.en was begun from" in failed(tried(*resume, stdin=b"Guten Tag!\n" * 9), 1)


def test_a_run_with_other_terms_is_not_gone_on_with(tmp_path: Path) -> None:
    """The terms are compared, not the file, which may be a pipe that is read once."""
    source = tmp_path / "in.de"
    source.write_text("Ein Hund.\n")
    resume = f"translate -q -i {source} -o {tmp_path / 'out.en'} --append-resume --terminology /dev/stdin"
    assert tried(*resume.split(), stdin=b"Hund\thound\n").returncode == 0
    with source.open("a") as stream:
        stream.write("Der Hund.\n")
    assert "was begun with" in failed(tried(*resume.split(), stdin=b"Hund\tmutt\n"), 1)
    assert tried(*resume.split(), stdin=b"Hund\thound\n\n").returncode == 0
    assert (tmp_path / "out.en").read_text().count("hound") == 2
