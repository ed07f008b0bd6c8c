"""The corpus of the end-to-end test: the checked-in bytes are the generator's."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import generate_smoke_corpus
import pytest

FOLDER = Path(__file__).parent.parent / "data" / "smoke"


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke")
    generate_smoke_corpus.write(generate_smoke_corpus.generate(), folder)
    return folder


@pytest.mark.parametrize(
    "name", [f"{split}.{language}" for split in ("train", "valid", "test") for language in ("de", "en")]
)
def test_regenerating_gives_the_bytes_that_are_checked_in(regenerated: Path, name: str) -> None:
    assert (regenerated / name).read_bytes() == (FOLDER / name).read_bytes()


def test_no_german_sentence_is_in_two_splits_or_twice_in_one() -> None:
    sources = {
        split: (FOLDER / f"{split}.de").read_text(encoding="utf-8").splitlines() for split in ("train", "valid", "test")
    }
    assert {split: len(set(lines)) for split, lines in sources.items()} == {"train": 4000, "valid": 200, "test": 200}
    for one, other in combinations(sources.values(), 2):
        assert set(one).isdisjoint(other)


def test_both_sides_have_the_same_number_of_lines() -> None:
    for split, size in generate_smoke_corpus.SPLITS.items():
        for language in ("de", "en"):
            assert (FOLDER / f"{split}.{language}").read_bytes().count(b"\n") == size


def test_another_seed_gives_other_sentences() -> None:
    assert generate_smoke_corpus.generate(seed=1)["valid"] != generate_smoke_corpus.generate()["valid"]
