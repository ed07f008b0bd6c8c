"""Settings of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from foreign import Foreign

# Machines that test are often busy: no deadline. The same examples in every run, so that a failure is one's own.
settings.register_profile("specmt", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("specmt")


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of the tests' own, their subprocesses included: what `specmt tune` found for this user does not count."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A post-norm model with one embedding matrix, for tests that need fairseq anyway."""
    from foreign import SHARED, Foreign

    return Foreign(tmp_path_factory.mktemp("plain"), SHARED)
