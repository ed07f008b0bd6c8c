"""Settings of all tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from check_readme import README, blocks, cloned, environment, run
from hypothesis import settings

from specmt.engines.native_library import BUILD_VARIABLE

if TYPE_CHECKING:
    from foreign import Foreign

# Before torch is loaded: two processes test at a time, and threads that spin while they wait take the cores from both.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Machines that test are often busy: no deadline. The same examples in every run, so that a failure is one's own.
settings.register_profile("specmt", deadline=None, max_examples=60, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=2000)  # others in every run: --hypothesis-profile
settings.load_profile("specmt")
# Shells have commands in the background ignore Ctrl-C, which some tests send themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for a pair to be trained is slow, and files with slow tests come first, so that none is waited for.

    One file has the pair trained, and others that need it come after those that do not.
    """
    need_pair = []
    for item in items:
        if isinstance(item, pytest.Function) and {"trained_clone", "run_folder"} & set(item.fixturenames):
            item.add_marker("slow")
            need_pair.append(item.path)
    first = max(need_pair, key=need_pair.count, default=None)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: (item.path != first, item.path not in slow, item.path in need_pair))


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own, their subprocesses included: what this user tuned or asked for does not count."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv(BUILD_VARIABLE, raising=False)
        yield folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A post-norm model with one embedding matrix, for tests that need fairseq anyway."""
    from foreign import SHARED, Foreign

    return Foreign(tmp_path_factory.mktemp("plain"), SHARED)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the user's in which nothing is kept yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny bundle, to look at."""
    from pairs import write_tiny_bundle

    path = tmp_path_factory.mktemp("bundle") / "model"
    write_tiny_bundle(path)
    return path


@pytest.fixture
def bundle(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    return Path(shutil.copytree(pristine, tmp_path / "model"))


@pytest.fixture(scope="session")
def trained_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like the clone, in which the README's command has trained the small pair into `runs/tiny-smoke`.

    Trained once for all processes that test; to look at.
    """
    of_all = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    folder = of_all / "trained" if of_all else tmp_path_factory.mktemp("trained")
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "clone").exists():
            _train(tmp_path_factory.mktemp("training")).rename(folder / "clone")
    return folder / "clone"


def _train(folder: Path) -> Path:
    trains = "specmt train --config configs/tiny-smoke.yaml"
    (block,) = (block for block in blocks(README.read_text(encoding="utf-8")) if trains in block.commands)
    (command,) = (line for line in block.commands.splitlines() if line.startswith(trains))
    clone = cloned(folder / "clone")
    run(replace(block, commands=f"{command}\n"), clone, environment(folder / "bin"))
    return clone


@pytest.fixture(scope="session")
def run_folder(trained_clone: Path) -> Path:
    """A finished training run of `configs/tiny-smoke.yaml`."""
    return trained_clone / "runs" / "tiny-smoke"
