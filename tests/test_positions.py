"""Learned positions bound source and target: nothing is cut in silence, and no engine reads past them."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from foreign import LEARNED, SHARED, Foreign
from pairs import TINY, write_tiny_bundle
from scripted import SENTENCES

from specmt.arrays import IntArray
from specmt.bundles.bundle import load_bundle
from specmt.bundles.positions import position_table
from specmt.bundles.weights import load_weights
from specmt.conversion.converting import Conversion, convert
from specmt.engines.base import AnyEngine, Candidates, Rows, step
from specmt.engines.calibration import calibrate
from specmt.engines.onnx_engine import OnnxEngine
from specmt.errors import BundleError, InputError, UsageError
from specmt.loading import load_translator
from specmt.settings import DecodingSettings
from specmt.text.guards import LineWarning
from specmt.text.segmentation import Segmenter
from specmt.text.vocabulary import EOS_ID
from specmt.translator import Translator

pytestmark = [
    pytest.mark.skipif(find_spec("fairseq") is None, reason="needs fairseq"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]
SOURCE_LIMIT, TARGET_LIMIT = 8, 7
"""Tokens of a source without end-of-sentence, and of a target with it."""
AR = DecodingSettings("ar", 1, 1, 0.0, 1, 1.0)
LINES = [" ".join(f"w{number}" for number in range(5, 5 + length)) for length in (1, 8, 9, 40)]


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Foreign:
    """A model that has few positions, and has been calibrated on lines that have more tokens."""
    sizes = {"max_source_positions": SOURCE_LIMIT + 1, "max_target_positions": TARGET_LIMIT}
    foreign = Foreign(tmp_path_factory.mktemp("short"), {**SHARED, **LEARNED, **sizes}, seed=3)
    convert(Conversion(foreign.path), foreign.folder / "bundle", LINES * 3)
    return foreign


def translator(foreign: Foreign, engine: str = "torch") -> Translator:
    return load_translator(foreign.folder / "bundle", engine=engine)


def test_long_lines_are_split_and_say_fairseqs_tokens_to_the_end_of_the_table(short: Foreign) -> None:
    loaded, lengths = translator(short), []
    for line, found in zip(LINES, loaded.translate(LINES, AR, 4), strict=True):
        segments = Segmenter("de", loaded.vocabulary.encode, SOURCE_LIMIT).split(line)
        assert found.segments == len(segments)
        assert list(found.source_ids) == loaded.vocabulary.encode(line)
        ours = list(found.ids)
        for ((theirs, _),) in short.generated([[*segment.ids, EOS_ID] for segment in segments], beam=1):
            mine, ours = ours[: len(theirs)], ours[len(theirs) :]
            assert mine[: TARGET_LIMIT - 1] == theirs[: TARGET_LIMIT - 1]  # fairseq forces an end as the last one
            lengths.append(len(mine))
            assert mine[-1] == EOS_ID or LineWarning.LENGTH_LIMIT in found.warnings
        assert ours == []
    assert min(lengths) < max(lengths) == TARGET_LIMIT


@pytest.mark.parametrize("engine", ["native", "onnx", "torch"])
def test_every_strategy_and_engine_stays_within_the_table(engine: str, short: Foreign) -> None:
    loaded = translator(short, engine)
    lines = LINES[:2] + [f"w{number} w{number + 1}" for number in range(5, 60, 5)]
    greedy = [one.ids for one in loaded.translate(lines, AR, 1)]
    assert max(map(len, greedy)) == TARGET_LIMIT
    assert [one.ids for one in loaded.translate(lines, AR, 7)] == greedy
    assert [one.ids for one in loaded.translate(lines, replace(AR, strategy="replay"), 7)] == greedy
    beams = loaded.translate(lines, replace(AR, beam=4, n_best=4), 7)
    assert max(len(one.ids) for found in beams for one in found.n_best) == TARGET_LIMIT


@pytest.mark.parametrize("beta", [1, 3])
def test_drafts_whose_windows_pass_the_table_change_nothing(beta: int, tmp_path: Path) -> None:
    limit = 6
    architecture = replace(TINY, source_positions=9, target_positions=limit)
    write_tiny_bundle(tmp_path / "bundle", architecture=architecture)
    loaded = load_translator(tmp_path / "bundle", engine="torch")
    spec = DecodingSettings("spec", 4, beta, 0.5, 1, 1.0)
    lines = [sentence[:length] for sentence in SENTENCES for length in (3, 8, 12)]
    greedy = loaded.translate(lines, replace(spec, strategy="ar"), 1)
    speculated = list(loaded.translate(lines, spec, 5))
    assert max(len(one.ids) for one in speculated if one.segments == 1) == limit
    assert any(iteration.accepted for one in speculated for iteration in one.iterations)
    if beta == 1:
        assert [one.ids for one in speculated] == [one.ids for one in greedy]


@pytest.mark.parametrize("engine", ["native", "onnx", "torch"])
def test_what_stands_behind_the_table_changes_nothing_before_it(engine: str, short: Foreign) -> None:
    """A window that begins in the table and ends behind it, as drafts and replays do."""
    runs = translator(short, engine).engine
    tokens = np.arange(10, 10 + TARGET_LIMIT + 40)[None]
    rows = runs.encode([[9, 8, EOS_ID]])
    window = runs.verify(rows, tokens, beta=4)
    for place in range(TARGET_LIMIT):
        alone = step(runs, rows, tokens[:, place], beta=4)
        assert alone.ids[0, 0].tolist() == window.ids[0, place].tolist()
        np.testing.assert_allclose(alone.log_probs[0, 0], window.log_probs[0, place], atol=1e-4)


def test_more_tokens_than_positions_are_refused_in_one_line(short: Foreign) -> None:
    loaded = translator(short)
    exact, beyond = (replace(AR, max_source_tokens=SOURCE_LIMIT + more) for more in (0, 1))
    assert [one.segments for one in loaded.translate(LINES[:3], exact, 4)] == [1, 1, 2]
    with pytest.raises(UsageError, match=r"^--max-source-tokens 9: this model has positions for at most 8$"):
        list(loaded.translate(LINES, beyond, 4))
    with pytest.raises(InputError, match=r"^line 3: 9 tokens, at most 8 fit: this model has positions for no more; "):
        list(loaded.translate(LINES, replace(AR, split=False), 4))
    with pytest.raises(InputError, match=r"^line 1: 3 tokens, at most 2 fit: .*raise --max-source-tokens"):
        list(loaded.translate(["w5 w6 w7"], replace(AR, split=False, max_source_tokens=2), 4))


def test_a_bundle_says_its_positions_and_one_of_sinusoids_says_nothing(short: Foreign, plain: Foreign) -> None:
    bundle = load_bundle(short.folder / "bundle")
    assert (bundle.architecture.source_positions, bundle.architecture.target_positions) == (9, 7)
    assert bundle.max_source_tokens == SOURCE_LIMIT
    manifest = json.loads((plain.converted() / "manifest.json").read_text())
    assert not {"source_positions", "target_positions"} & manifest["architecture"].keys()


def test_calibration_reads_as_many_tokens_as_there_are_positions_for(
    short: Foreign, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, read = load_bundle(short.folder / "bundle"), []

    def reading(engine: AnyEngine, rows: Rows, last_ids: IntArray, beta: int) -> Candidates:
        read.append(int(rows.lengths.max()) + 1)
        return step(engine, rows, last_ids, beta)

    monkeypatch.setattr("specmt.engines.calibration.step", reading)
    long = [[*range(start, start + 30), EOS_ID] for start in range(5, 60, 5)]
    cut = [[*source[:SOURCE_LIMIT], EOS_ID] for source in long]
    weights = load_weights(bundle)
    assert calibrate(bundle.architecture, weights, long) == calibrate(bundle.architecture, weights, cut)
    assert max(read) == TARGET_LIMIT


def test_positions_that_do_not_fit_are_refused_by_the_engine_that_reads_them(short: Foreign) -> None:
    bundle = load_bundle(short.folder / "bundle")
    with pytest.raises(BundleError, match=r"source_positions\.weight: found int8 \[9, 16\], expected int8 \[12, 16\]"):
        OnnxEngine(replace(bundle.architecture, source_positions=12), bundle.path)


def test_behind_its_end_a_learned_table_repeats_its_last_row() -> None:
    learned = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert position_table(5, 2, learned)[:, 0].tolist() == [0, 2, 4, 4, 4]
    assert position_table(2, 2, learned)[:, 0].tolist() == [0, 2]
