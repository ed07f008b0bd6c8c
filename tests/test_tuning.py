"""The draft length of a machine: chosen by a scripted clock over scripted engines, and used under strict only."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pairs import write_tiny_bundle
from scripted import (
    DEFAULTS,
    SENTENCES,
    ScriptedEngine,
    ScriptedRows,
    always_right,
    never_right,
    right_before,
    scripted_translator,
    tiny_vocabulary,
)
from typer.testing import CliRunner

from specmt import tuned, tuning
from specmt.arrays import IntArray
from specmt.cli import app
from specmt.engines.base import AnyEngine, Candidates, Lattice, Speculation
from specmt.errors import InputError
from specmt.settings import DecodingSettings
from specmt.text.dictionaries import Dictionary, FairseqVocabulary, Segmentation
from specmt.text.segmentation import Splitting
from specmt.text.vocabulary import MASK_ID
from specmt.translator import Limits, Translator
from specmt.tuned import Tuned
from specmt.tuning import (
    Emission,
    Timing,
    Tuning,
    counted_emission,
    made_up_requests,
    recorded_emission,
    requests_of,
    tune,
)

pytestmark = pytest.mark.usefixtures("own_cache")


@dataclass
class TimedEngine(ScriptedEngine):
    """A draft takes so much a slot, and a slot of each row; a verification takes a second."""

    slot_seconds: float = 0.0
    row_slot_seconds: float = 0.0
    now: float = 0.0

    def encode(self, sources: Sequence[Sequence[int]]) -> ScriptedRows:
        self.now += 1000
        return super().encode(sources)

    def draft(self, rows: ScriptedRows, last_ids: IntArray, draft_length: int) -> Lattice:
        self.now += (self.slot_seconds + self.row_slot_seconds * len(last_ids)) * draft_length
        return super().draft(rows, last_ids, draft_length)

    def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
        self.now += 1
        return super().verify(rows, token_ids, beta)


def tuned_for(engine: TimedEngine, emission: Emission) -> Tuning:
    requests = requests_of(scripted_translator(engine), SENTENCES)
    return tune(engine, requests, emission, rounds=2, clock=lambda: engine.now)


def emission_of(*means: float) -> Emission:
    return Emission(means, 8, "the test")


def test_the_time_of_a_token_is_that_of_an_iteration_over_the_tokens_that_it_emits() -> None:
    found = tuned_for(TimedEngine(always_right, slot_seconds=0.5), emission_of(1.5, 2.0, 2.5))
    assert [timing.iteration_seconds for timing in found.timings] == pytest.approx([1.5, 2.0, 2.5])
    assert [timing.token_seconds for timing in found.timings] == pytest.approx([1.0, 1.0, 1.0])
    assert found.ar_token_seconds == pytest.approx(1.0), "encoding, 1000 seconds, is in no iteration"


@pytest.mark.parametrize(
    ("slot_seconds", "means", "best"),
    [
        (0.0, (1.5, 2.0, 2.5), 3),  # slots that cost nothing: as many as there are
        (10.0, (1.9, 2.2, 2.3), 1),  # slots that cost much
        (0.2, (1.8, 2.5, 2.6), 2),  # 1.2 / 1.8, 1.4 / 2.5, 1.6 / 2.6
        (0.5, (1.5, 2.0, 2.5), 1),  # all the same: the shortest
    ],
)
def test_the_draft_length_with_the_least_time_a_token_is_chosen(
    slot_seconds: float, means: tuple[float, ...], best: int
) -> None:
    found = tuned_for(TimedEngine(always_right, slot_seconds=slot_seconds), emission_of(*means))
    assert found.best.draft_length == best


@pytest.mark.parametrize(
    ("row_slot_seconds", "rows"),
    [
        (0.0, 64),  # more rows cost nothing: always
        (0.2, 4),  # half a second a token, and as much more for each five rows
        (0.9, 1),
        (1.1, 0),
    ],
)
def test_speculation_is_used_up_to_as_many_rows_as_it_is_faster_with(row_slot_seconds: float, rows: int) -> None:
    found = tuned_for(TimedEngine(always_right, row_slot_seconds=row_slot_seconds), emission_of(2.0))
    assert found.rows == rows


def test_rows_are_counted_while_all_workers_decode_as_in_a_stream() -> None:
    @dataclass
    class Meeting(TimedEngine):
        """A pass over several rows waits for another worker's."""

        barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2, timeout=20))

        def verify(self, rows: ScriptedRows, token_ids: IntArray, beta: int) -> Candidates:
            if len(token_ids) > 1:
                self.barrier.wait()
            return super().verify(rows, token_ids, beta)

    engine = Meeting(always_right)
    requests = requests_of(scripted_translator(engine), SENTENCES)
    found = tune(engine, requests, emission_of(2.0), rounds=1, clock=lambda: engine.now, workers=2)
    assert found.rows == 64


def test_draft_lengths_whose_emission_is_unknown_are_not_timed() -> None:
    found = tuned_for(TimedEngine(always_right), emission_of(1.5, 2.0))
    assert [timing.draft_length for timing in found.timings] == [1, 2]


def test_other_work_on_the_machine_does_not_change_the_choice() -> None:
    @dataclass
    class Disturbed(TimedEngine):
        """Two of three sentences are decoded beside something else: a slot takes ten times as long."""

        encoded: int = 0

        def encode(self, sources: Sequence[Sequence[int]]) -> ScriptedRows:
            self.encoded += 1
            self.slot_seconds = 0.2 if self.encoded % 3 == 0 else 2.0
            return super().encode(sources)

    engine = Disturbed(always_right)
    requests = requests_of(scripted_translator(engine), SENTENCES)
    assert len(requests) * 4 % 3, "each sentence is undisturbed in some round, at each length"
    found = tune(engine, requests, emission_of(1.8, 2.5, 2.6), rounds=5, clock=lambda: engine.now)
    assert found.best.draft_length == 2
    assert [timing.iteration_seconds for timing in found.timings] == pytest.approx([1.2, 1.4, 1.6])


def test_emission_is_counted_by_decoding_at_every_draft_length() -> None:
    engine = ScriptedEngine(never_right, max_draft_length=3)
    assert counted_emission(scripted_translator(engine), SENTENCES, "x").by_draft_length == (1.0, 1.0, 1.0)
    engine = ScriptedEngine(right_before(1), length=lambda source: 11, max_draft_length=3)
    counted = counted_emission(scripted_translator(engine), ["", *SENTENCES], "x")
    # Twelve tokens, end-of-sentence included. One slot: two an iteration. More slots: the second is always wrong.
    assert counted == Emission((2.0, 2.0, 2.0), len(SENTENCES), "x")
    engine = ScriptedEngine(always_right, length=lambda source: 11, max_draft_length=3)
    assert counted_emission(scripted_translator(engine), SENTENCES, "x").by_draft_length == (2.0, 3.0, 4.0)


def test_sources_that_are_made_up_are_of_the_sources_pieces_and_fit_the_positions() -> None:
    source, target = (Dictionary("".join(f"s{id_} 1\n" for id_ in range(count)), "") for count in (5, 90))
    vocabulary = FairseqVocabulary(Segmentation("none", "none", "de", "en"), source, target, None)
    translator = Translator(ScriptedEngine(always_right), vocabulary, DEFAULTS, limits=Limits(source=20, target=18))
    requests = made_up_requests(translator)
    assert {id_ for request in requests for id_ in request.source_ids[:-1]} <= set(range(MASK_ID + 1, len(source)))
    assert [len(request.source_ids) - 1 for request in requests] == [*range(8, 18), *[18] * (len(requests) - 10)]
    assert all(request.max_tokens <= 18 for request in requests)


def test_lines_are_decoded_in_the_segments_in_which_they_are_translated() -> None:
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 200))
    sentences = ["Ein Mann schläft.", "Zwei Hunde spielen.", "Wo ist der Bahnhof?"]
    joined = requests_of(translator, [" ".join(sentences), "", "?!"])
    assert [list(request.source_ids) for request in joined] == [
        list(request.source_ids) for request in requests_of(translator, sentences)
    ]


def test_tuning_on_blank_lines_is_an_error() -> None:
    with pytest.raises(InputError, match="tuning needs text"):
        counted_emission(scripted_translator(ScriptedEngine()), ["", " "], "x")


@pytest.mark.parametrize(
    "recorded",
    [
        {},
        {"validation": {}},
        {"validation": {"emission": {"by_draft_length": [], "sentences": 4}}},
        {"validation": {"emission": {"by_draft_length": [1.5, 3.5], "sentences": 4}}},  # more than length + 1
        {"validation": {"emission": {"by_draft_length": "much", "sentences": 4}}},
        {"validation": None},
    ],
)
def test_a_manifest_without_a_sensible_record_has_no_emission(recorded: dict[str, object]) -> None:
    assert recorded_emission(recorded) is None


def test_what_training_records_is_read_back() -> None:
    emission = emission_of(1.5, 2.25)
    read = recorded_emission({"validation": {"emission": emission.to_json()}})
    assert read is not None
    assert read.by_draft_length == (1.5, 2.25)
    assert read.sentences == 8


def test_json_carries_the_choice_and_all_that_it_rests_on() -> None:
    tuning_ = Tuning((Timing(1, 0.003, 1.5), Timing(2, 0.004, 2.5)), 0.0025, emission_of(1.5, 2.5), rows=4)
    assert tuning_.to_json() == {
        "draft_length": 2,
        "rows": 4,
        "ar_token_seconds": 0.0025,
        "emission": {"by_draft_length": [1.5, 2.5], "sentences": 8, "source": "the test"},
        "timings": [
            {"draft_length": 1, "iteration_seconds": 0.003, "emitted_tokens": 1.5, "token_seconds": 0.002},
            {"draft_length": 2, "iteration_seconds": 0.004, "emitted_tokens": 2.5, "token_seconds": 0.0016},
        ],
    }


# -- the command line, on a tiny pair with random weights


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    write_tiny_bundle(path)
    return path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done.stdout


def drafted(bundle: Path, *options: str) -> list[int]:
    """The draft lengths that `translate` asks the engine for."""
    from specmt.engines import drafting

    text = bundle.parent / "sentence"
    text.write_text(f"{SENTENCES[0]}\n")
    asked: list[int] = []
    original = drafting.draft_and_verify
    with pytest.MonkeyPatch.context() as patch:

        def seen(engine: AnyEngine, rows: object, last_ids: IntArray, draft_length: int, beta: int) -> Speculation:
            asked.append(draft_length)
            return original(engine, rows, last_ids, draft_length, beta)

        patch.setattr(drafting, "draft_and_verify", seen)
        run("translate", "-i", text, "-o", bundle.parent / "out", "-m", bundle, "--engine", "torch", *options)
    return sorted(set(asked))


def test_tune_prints_json_and_strict_translation_uses_the_length_unless_one_is_given(
    bundle: Path, tmp_path: Path, own_cache: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(SENTENCES))
    assert drafted(bundle, "--strict") == [3], "the model's own"
    before = {file.name: file.read_bytes() for file in bundle.iterdir()}
    result = json.loads(run("tune", bundle, "--engine", "torch", "--source", text, "--rounds", 1, "--format", "json"))
    assert result["emission"]["source"] == str(text)
    assert result["draft_length"] in range(1, 5)
    assert [timing["draft_length"] for timing in result["timings"]] == [1, 2, 3, 4]
    assert Path(result["kept_in"]).is_relative_to(own_cache)
    assert {file.name: file.read_bytes() for file in bundle.iterdir()} == before

    # Whatever was the fastest here: another one than the model's own.
    key = tuned.Key(*(result[name] for name in ("model", "engine", "cpu", "cores")))
    tuned.store(key, Tuned(draft_length=2, rows=1))
    assert drafted(bundle, "--strict") == [2]
    assert drafted(bundle, "--beta", "1") == [2]
    assert drafted(bundle, "--strict", "--draft-length", "4") == [4]
    assert drafted(bundle) == [2], "strict, as the model has it"
    assert drafted(bundle, "--relaxed") == [3], "the model's own"
    tuned.store(key, Tuned(draft_length=2, rows=0))
    assert drafted(bundle, "--strict") == [], "plain steps are faster here"


def test_what_was_measured_is_printed_where_it_cannot_be_kept(bundle: Path, own_cache: Path) -> None:
    own_cache.mkdir(exist_ok=True)
    (own_cache / "specmt").write_text("a file where a folder should be")
    text = own_cache / "text"
    text.write_text("\n".join(SENTENCES))
    options = ("--engine", "torch", "--source", str(text), "--rounds", "1", "--format", "json")
    done = CliRunner().invoke(app, ["tune", str(bundle), *options])
    assert (done.exit_code, json.loads(done.stdout)["kept_in"]) == (1, None)


@pytest.mark.parametrize("options", [(), ("--reproducible",), ("--input-format", "jsonl")])
def test_translate_says_whether_any_line_may_ask_to_be_reproducible(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    asked: list[bool] = []

    def fastest(settings: DecodingSettings, translator: Translator, reproducible: bool) -> DecodingSettings:
        asked.append(reproducible)
        return settings

    monkeypatch.setattr(tuned, "fastest", fastest)
    (bundle.parent / "empty").touch()
    run("translate", "-i", bundle.parent / "empty", "-m", bundle, "--engine", "torch", *options)
    assert asked == [bool(options)]


def test_what_was_measured_is_shown_though_it_cannot_be_kept(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "specmt").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = tmp_path / "text"
    text.write_text("\n".join(SENTENCES))
    done = CliRunner().invoke(app, ["tune", str(bundle), "--engine", "torch", "--source", str(text), "--rounds", "1"])
    assert isinstance(done.exception, InputError)
    assert "<- fastest" in done.stdout


def test_without_text_the_sample_is_used_and_named(bundle: Path) -> None:
    assert "Emitted tokens: the bundled sample, 26 sentences, strict." in run(
        "tune", bundle, "--engine", "torch", "--rounds", 1
    )


def test_the_packaged_sample_is_the_one_in_data() -> None:
    lines = (Path(__file__).parent.parent / "data" / "sample.de").read_text().splitlines()
    assert tuning.sample_lines("de") == lines
    assert tuning.sample_lines("xx") is None
