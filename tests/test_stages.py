"""Stages: what runs again and what does not, and what happens to work that no longer fits."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from specmt.errors import SpecmtError, TrainingError
from specmt.files import file_digest
from specmt.training import stages
from specmt.training.stages import Digests, Stage, changed_since, exclusive


@dataclass(frozen=True)
class Setting:
    size: int = 3
    name: str = "ü"


class Bench:
    """Makes stages that note their runs, and keeps what they announce."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[str] = []
        self.said: list[str] = []
        self.corpus = folder / "corpus.txt"
        self.corpus.write_text("one\n")

    def stage(self, name: str, needs: tuple[Stage, ...] = (), **changes: object) -> Stage:
        folder = self.folder / name

        def run() -> None:
            self.runs.append(name)
            (folder / "result.txt").write_text(f"{name} {len(self.runs)}")

        stage = Stage(name, folder, (Setting(), 1), (self.corpus,), needs, ("result.txt",), run)
        return replace(stage, **changes)  # type: ignore[arg-type]

    def complete(self, *chain: Stage, restart: bool = False) -> list[str]:
        """What is announced, without the folder."""
        self.said = []
        for stage in chain:
            stage.complete(lambda line: self.said.append(line.replace(f"{self.folder}/", "")), restart)
        return self.said

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.is_dir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


UP_TO_DATE, BEGUN, RESUMED = ["a: up to date"], ["a: begins", "a: done"], ["a: goes on from what was kept", "a: done"]
MOVED = ["a: inputs have changed; what stood there is now a.old-1", *BEGUN]


def test_a_stage_runs_once(bench: Bench) -> None:
    assert bench.complete(bench.stage("a")) == BEGUN
    assert bench.complete(bench.stage("a")) == UP_TO_DATE
    assert bench.runs == ["a"]
    assert (bench.folder / "a" / "result.txt").read_text() == "a 1"


def test_what_several_stages_read_is_read_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = bench.folder / "corpus"
    corpus.write_text("one")
    first = bench.stage("a", inputs=(corpus,))
    second = bench.stage("b", (first,), inputs=(corpus,))
    read: list[Path] = []
    monkeypatch.setattr(stages, "file_digest", lambda path: read.append(path) or file_digest(path))
    second.fingerprint()
    assert read == [corpus]
    digests = Digests()
    before = first.fingerprint(digests)
    corpus.write_text("two")
    assert first.fingerprint(digests) == before
    assert first.fingerprint() != before


def test_is_done_says_so_only_after_the_end(bench: Bench) -> None:
    stage = bench.stage("a")
    assert not stage.is_done()
    bench.complete(stage)
    assert stage.is_done()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"settings": (Setting(size=4), 1)}, id="a field of a setting"),
        pytest.param({"settings": (Setting(), 2)}, id="a plain setting"),
        pytest.param({"settings": (Setting(),)}, id="a setting less"),
        pytest.param({"inputs": ()}, id="an input less"),
    ],
)
def test_other_settings_move_the_old_work_aside(bench: Bench, changes: dict[str, object]) -> None:
    bench.complete(bench.stage("a"))
    assert bench.complete(bench.stage("a", **changes)) == MOVED
    assert (bench.folder / "a.old-1" / "result.txt").read_text() == "a 1"
    assert (bench.folder / "a" / "result.txt").read_text() == "a 2"


def test_a_changed_input_moves_the_old_work_aside(bench: Bench) -> None:
    bench.complete(bench.stage("a"))
    bench.corpus.write_text("two\n")
    assert bench.complete(bench.stage("a")) == MOVED


def test_an_input_written_anew_with_the_same_bytes_changes_nothing(bench: Bench) -> None:
    bench.complete(bench.stage("a"))
    bench.corpus.unlink()
    bench.corpus.write_text("one\n")
    assert bench.complete(bench.stage("a")) == UP_TO_DATE


def test_an_input_changed_while_the_stage_runs_makes_it_run_again(bench: Bench) -> None:
    stage = bench.stage("a")

    def run() -> None:
        stage.run()
        bench.corpus.write_text("changed meanwhile\n")

    bench.complete(replace(stage, run=run))
    assert bench.complete(stage) == MOVED


def test_two_inputs_of_the_same_name_both_count(bench: Bench) -> None:
    inputs = []
    for folder in ("news", "talks"):
        (bench.folder / folder).mkdir()
        inputs.append(bench.folder / folder / "train.de")
        inputs[-1].write_text(folder)
    bench.complete(bench.stage("a", inputs=tuple(inputs)))
    inputs[0].write_text("changed")
    assert bench.complete(bench.stage("a", inputs=tuple(inputs))) == MOVED


def test_an_input_that_is_not_there_is_the_users_mistake_and_named(bench: Bench) -> None:
    missing = bench.folder / "missing.de"
    with pytest.raises(SpecmtError, match=r"missing\.de") as caught:
        bench.complete(bench.stage("a", inputs=(missing,)))
    assert "\n" not in str(caught.value)


def test_work_is_moved_aside_as_often_as_needed(bench: Bench) -> None:
    for size in range(3):
        bench.complete(bench.stage("a", settings=(size,)))
    assert bench.names() == ["a", "a.old-1", "a.old-2"]
    assert [(bench.folder / name / "result.txt").read_text() for name in bench.names()] == ["a 3", "a 1", "a 2"]


def test_a_changed_stage_makes_the_stages_behind_it_run_again(bench: Bench) -> None:
    def chain(size: int) -> tuple[Stage, Stage, Stage]:
        first = bench.stage("a", settings=(size,), inputs=())
        second = bench.stage("b", (first,), inputs=())
        return first, second, bench.stage("c", (second,), inputs=())

    bench.complete(*chain(1))
    bench.complete(*chain(1))
    assert bench.runs == ["a", "b", "c"]
    bench.complete(*chain(2))
    assert bench.runs == ["a", "b", "c"] * 2


def test_a_changed_setting_reaches_the_stages_behind_even_where_the_output_is_the_same(bench: Bench) -> None:
    """A stage may read settings of the stages before it."""

    def run() -> None:
        (bench.folder / "a" / "result.txt").write_text("always this")

    for size in (1, 2):
        first = bench.stage("a", settings=(size,), run=run)
        bench.complete(first, bench.stage("b", (first,)))
    assert bench.runs == ["b", "b"]


def test_what_has_changed_since_a_stage_was_finished_is_known(bench: Bench) -> None:
    first = bench.stage("first")
    second = bench.stage("second", (first,))
    bench.complete(first, second)
    assert changed_since(second.folder) is None
    bench.complete(first, restart=True)
    assert changed_since(second.folder) == "first"
    bench.complete(second)
    assert changed_since(second.folder) is None
    third = bench.stage("third", (second,))
    bench.complete(third)
    assert changed_since(third.folder) is None
    bench.complete(first, restart=True)
    assert changed_since(third.folder) == "first", "which the second is of"
    (second.folder / "stage.json").write_text('{"fingerprint": "of a run of before"}')
    assert changed_since(second.folder) is None


def test_a_change_in_a_later_stage_leaves_the_earlier_ones(bench: Bench) -> None:
    first = bench.stage("a")
    bench.complete(first, bench.stage("b", (first,)))
    bench.complete(first, bench.stage("b", (first,), settings=()))
    assert bench.runs == ["a", "b", "b"]


def test_a_stage_run_again_with_another_result_makes_the_stages_behind_it_run_again(bench: Bench) -> None:
    """Training is not the same to the bit: what follows must not go on with what is no longer there."""
    first = bench.stage("a")
    second = bench.stage("b", (first,))
    bench.complete(first, second)
    bench.complete(first, restart=True)
    bench.complete(first, second)
    assert bench.runs == ["a", "b", "a", "b"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_a_stage_stopped_half_way_goes_on_in_its_folder(bench: Bench, stop: type[BaseException]) -> None:
    def run_half() -> None:
        (bench.folder / "a" / "checkpoint").write_text("half")
        raise stop

    with pytest.raises(stop):
        bench.complete(bench.stage("a", run=run_half))
    assert bench.said == ["a: begins"]
    assert bench.complete(bench.stage("a")) == RESUMED
    assert (bench.folder / "a" / "checkpoint").read_text() == "half"


def test_half_made_work_of_other_inputs_is_moved_aside_and_not_gone_on_with(bench: Bench) -> None:
    def run_half() -> None:
        (bench.folder / "a" / "checkpoint").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.complete(bench.stage("a", run=run_half))
    bench.corpus.write_text("two\n")
    assert bench.complete(bench.stage("a")) == MOVED
    assert not (bench.folder / "a" / "checkpoint").exists()
    assert (bench.folder / "a.old-1" / "checkpoint").read_text() == "half"


def test_outputs_that_stand_do_not_make_a_stopped_stage_done(bench: Bench) -> None:
    def run() -> None:
        (bench.folder / "a" / "result.txt").write_text("not the last word")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.complete(bench.stage("a", run=run))
    assert bench.complete(bench.stage("a")) == RESUMED
    assert (bench.folder / "a" / "result.txt").read_text() == "a 1"


def _delete(path: Path) -> None:
    path.unlink()


def _alter(path: Path) -> None:
    path.write_text("other")


@pytest.mark.parametrize("spoil", [_delete, _alter])
def test_an_output_deleted_or_altered_is_made_again(bench: Bench, spoil: Callable[[Path], None]) -> None:
    bench.complete(bench.stage("a"))
    spoil(bench.folder / "a" / "result.txt")
    assert bench.complete(bench.stage("a")) == RESUMED
    assert (bench.folder / "a" / "result.txt").read_text() == "a 2"


def test_a_stage_without_its_output_is_an_error_that_names_it(bench: Bench) -> None:
    stage = bench.stage("a", outputs=("result.txt", "model.pt", "log.txt"))
    with pytest.raises(TrainingError, match=r"^stage a did not write model\.pt, log\.txt$"):
        bench.complete(stage)
    assert not stage.is_done()


def test_a_full_disk_is_one_line_that_names_the_folder(bench: Bench) -> None:
    def run() -> None:
        with Path("/dev/full").open("w") as full:
            full.write("a")  # fails when it is closed: what a write says names no file

    with pytest.raises(TrainingError, match="^" + re.escape(f"{bench.folder / 'a'}: cannot be written: no space left")):
        bench.stage("a", run=run).complete(str)


def test_another_failure_of_the_system_is_left_as_it_is(bench: Bench) -> None:
    def run() -> None:
        (bench.folder / "missing").read_text()

    with pytest.raises(FileNotFoundError):
        bench.stage("a", run=run).complete(str)


@pytest.mark.parametrize("seal", ["", "{", "[]", "null", '"x"', "\udc80"])
def test_a_damaged_seal_moves_the_work_aside(bench: Bench, seal: str) -> None:
    bench.complete(bench.stage("a"))
    (seal_path,) = (bench.folder / "a").glob("*.json")
    seal_path.write_bytes(seal.encode(errors="surrogateescape"))
    assert bench.complete(bench.stage("a")) == MOVED


def test_a_folder_that_no_stage_made_is_moved_aside(bench: Bench) -> None:
    (bench.folder / "a").mkdir()
    (bench.folder / "a" / "mine").write_text("keep")
    assert bench.complete(bench.stage("a")) == MOVED
    assert (bench.folder / "a.old-1" / "mine").read_text() == "keep"


def test_a_restart_moves_aside_what_is_done(bench: Bench) -> None:
    bench.complete(bench.stage("a"))
    said = bench.complete(bench.stage("a"), restart=True)
    assert said == ["a: restarted; what stood there is now a.old-1", *BEGUN]
    assert (bench.folder / "a.old-1" / "result.txt").read_text() == "a 1"


def test_a_restart_of_what_was_never_begun_just_begins(bench: Bench) -> None:
    assert bench.complete(bench.stage("a"), restart=True) == BEGUN


# -- one run at a time


def test_a_second_run_is_kept_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages.time, "sleep", lambda seconds: None)
    folder = tmp_path / "run"
    with exclusive(folder):
        with pytest.raises(TrainingError) as caught, exclusive(folder):
            pass
        assert str(caught.value) == f"{folder}: another training run works there"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("afile", "afile: is a file; a training run needs a folder to write into"),
        ("afile/x", "afile/x: this folder cannot be made: not a directory"),
        ("locked", "locked: nothing can be written into this folder: is a directory"),
    ],
)
def test_an_output_that_can_be_no_folder_is_one_line(
    output: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    Path("locked/.lock").mkdir(parents=True)
    with pytest.raises(TrainingError) as caught, exclusive(Path(output)):
        pass
    assert str(caught.value) == message


def test_the_folder_is_free_again_after_a_run_that_failed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), exclusive(tmp_path / "run"):
        raise ValueError("stop")
    with exclusive(tmp_path / "run"):
        pass


def test_a_run_waits_for_the_rest_of_a_killed_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other run lets go while this one sleeps."""
    other = exclusive(tmp_path / "run")
    other.__enter__()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        other.__exit__(None, None, None)

    monkeypatch.setattr(stages.time, "sleep", sleep)
    with exclusive(tmp_path / "run"):
        assert slept == [1]


def test_no_room_for_the_seal_names_the_folder_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(stages, "write_json", full)
    with pytest.raises(TrainingError, match=r"/a: cannot be written: no space left on device$"):
        bench.complete(bench.stage("a"))
