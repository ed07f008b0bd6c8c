"""What the scripts that compare drafters work out by themselves: trees, masks, batches, schedules, tables."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
from measure_tree import (
    Choice,
    Counts,
    accepted_by_nodes,
    accepted_of_chain,
    choices,
    emission_table,
    emissions,
    fastest,
    log_probabilities,
    time_table,
)

from specmt.bundles.architecture import Architecture
from specmt.engines.base import Lattice
from specmt.engines.drafting import walk
from specmt.engines.torch_engine import TorchEngine
from specmt.errors import ConfigError
from specmt.text.vocabulary import EOS_ID, MASK_ID, PAD_ID

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

IDS = np.array([[10, 11], [20, 21]])
SCORES = np.log([[0.6, 0.4], [0.7, 0.3]])


def lattice(transitions: float = 0.0) -> Lattice:
    """Two slots of two candidates; with `transitions` the second candidate of slot 1 follows the first of slot 0."""
    terms = np.zeros((1, 2, 2, 2), dtype=np.float32)
    terms[0, 1, 0, 1] = transitions
    return Lattice(IDS[None], SCORES[None].astype(np.float32), terms)


# -- trees


def test_log_probabilities_sum_to_one_and_hear_the_neighbour() -> None:
    plain, moved = log_probabilities(lattice(), 0), log_probabilities(lattice(5.0), 0)
    np.testing.assert_allclose(np.exp(moved).sum(axis=2), 1, rtol=1e-6)
    np.testing.assert_allclose(plain[1], [SCORES[1], SCORES[1]], rtol=1e-6)
    assert moved[1, 0, 1] > plain[1, 0, 1]
    np.testing.assert_allclose(moved[1, 1], plain[1, 1])


@pytest.mark.parametrize(
    ("greedy", "accepted"),
    [
        # Paths: 10 (.60), 10 20 (.42), 11 (.40), 11 20 (.28), 10 21 (.18), 11 21 (.12)
        ([10, 20, 5], [1, 2, 2, 2, 2, 2]),
        ([10, 21, 5], [1, 1, 1, 1, 2, 2]),
        ([11, 21, 5], [0, 0, 1, 1, 1, 2]),
        ([11], [0, 0, 1, 1, 1, 1]),
        ([30, 20], [0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_tree_accepts_the_longest_of_its_paths(greedy: list[int], accepted: list[int]) -> None:
    assert accepted_by_nodes(IDS, log_probabilities(lattice(), 0), greedy, most=9) == accepted


def test_the_first_path_of_a_tree_is_the_chain_where_neighbours_decide() -> None:
    moved = lattice(5.0)
    greedy = walk(moved)[0].tolist()
    assert greedy == [10, 21]
    assert accepted_by_nodes(IDS, log_probabilities(moved, 0), greedy, most=2) == [1, 2]


@pytest.mark.parametrize(
    ("draft", "greedy", "accepted"),
    [([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1], 1), ([1], [2], 0)],
)
def test_a_chain_is_accepted_up_to_the_first_other_token(draft: list[int], greedy: list[int], accepted: int) -> None:
    assert accepted_of_chain(draft, greedy) == accepted


def test_iterations_emit_what_was_accepted_one_more_and_no_more_than_is_left() -> None:
    assert emissions([2, 9, 9, 0, 1]) == [3, 1, 1]
    assert emissions([0, 0]) == [1, 1]
    assert emissions([5, 0]) == [2]


COUNTS = Counts(trees={1: {1: 1.5, 2: 1.6}, 2: {1: 1.5, 2: 2.0}}, chains={1: 1.5, 2: 2.5}, tokens=10)
COSTS = {"encode": 1.0, "draft 1": 0.1, "draft 2": 0.2, "verify 1": 0.5, "verify 2": 0.6, "verify 3": 0.8}


def test_a_sentence_is_an_encoder_pass_and_its_iterations() -> None:
    chains, trees = choices(COUNTS, COSTS)
    assert fastest(chains) == Choice(2, 2, 2.5, pytest.approx(1 + 4 * (0.2 + 0.8)))
    assert fastest(trees) == Choice(2, 2, 2.0, pytest.approx(1 + 5 * (0.2 + 0.8)))
    assert [tree.nodes for tree in trees] == [2, 2]
    assert time_table(COUNTS, {"one": COSTS})[-1] == "| one | 6.00 | 2 | 2.50 | 5.00 | 2, 2 | 2.00 | 6.00 | 1.20 |"


def test_a_chain_need_not_use_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure_tree.NODES", (1, 2))
    assert emission_table(COUNTS)[2:] == ["| 2 | 1 | 1.50 | 1 | 1.50 | +0.00 |", "| 3 | 2 | 2.50 | 2 | 2.00 | -0.50 |"]


# -- variants


def test_the_time_of_a_process_is_read_past_its_name() -> None:
    from benchmarking import stat_seconds

    assert stat_seconds("12 (a ) b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20") == pytest.approx(2.0)


def test_a_result_is_known_again_by_its_seconds_lines_and_run(tmp_path: Path) -> None:
    from drafter_study import VARIANTS, Study, seconds_an_update

    for run in ("first", "second"):
        (tmp_path / run / "bundle").mkdir(parents=True)
        (tmp_path / run / "bundle" / "manifest.json").write_text(run)
    first, second = (Study(tmp_path, tmp_path / run, tmp_path, lines=5) for run in ("first", "second"))
    assert first.about(60) == first.about(60.0)
    abouts = [first.about(60), first.about(47.3), second.about(60), replace(first, lines=6).about(60)]
    assert len({json.dumps(about) for about in abouts}) == 4
    (tmp_path / "seconds.json").write_text(json.dumps({"run": first.run_digest(), "seconds": 0.25}))
    assert seconds_an_update(first, VARIANTS[0], tmp_path) == 0.25
    with pytest.raises(ConfigError):  # it begins to time, and finds no configuration
        seconds_an_update(second, VARIANTS[0], tmp_path)


def test_the_line_through_emitted_tokens_gains_the_same_with_every_doubling() -> None:
    from ablate_drafter import log_fit

    intercept, slope = log_fit([100, 200, 400], [2.0, 2.5, 3.0])
    assert slope == pytest.approx(0.5)
    assert intercept + slope * np.log2(800) == pytest.approx(3.5)


def test_the_curve_is_of_drafters_that_differ_in_their_budget_alone() -> None:
    from ablate_drafter import FINISHED, curve

    def row(updates: int, mean: float) -> dict[str, object]:
        return {"updates": updates, "emitted": {"4": {"all": mean}, "8": {"all": mean + 1}}}

    rows = {"base": row(200, 2.0), "layers-2": row(100, 9.0), "base-half": row(100, 1.5), FINISHED: row(400, 2.5)}
    assert curve(rows)[0].startswith("k = 4: 100: 1.50, 200: 2.00, 400: 2.50; ")
    assert curve(rows)[0].endswith(" + 0.500 · log2(updates)")


def test_the_table_leaves_out_losses_over_other_slots_and_lengths_that_are_not_drafted() -> None:
    from ablate_drafter import table

    plain = {"variant": {"same_slots": True}, "updates": 5, "seconds_an_update": 0.5, "valid_loss": 2.0}
    rows = {
        "base": {**plain, "emitted": {"4": {"all": 2.5}, "8": {"all": 3.0}}},
        "short": {**plain, "variant": {"same_slots": False}, "emitted": {"4": {"all": 2.25}}},
    }
    first, second = table(rows, {"base/4": [1.0, 3.0, 2.0]})[2:]
    assert first == "| base | 5 | 0.500 | 2.000 | 2.50 | 3.00 | 2.00 | – |"
    assert second == "| short | 5 | 0.500 | – | 2.25 | – | – | – |"


def test_a_drafter_over_tokens_is_trained_as_the_engine_runs_it() -> None:
    import drafter_variants
    import torch
    from ablate_drafter import OverTokensEngine
    from drafter_study import OVER_TOKENS, WITHOUT_BIGRAM
    from pairs import fairseq_verifier, random_weights

    from specmt.fairseq_backend.drafter import DrafterModelConfig
    from specmt.fairseq_backend.frozen import FrozenTransformer

    assert (drafter_variants.OVER_TOKENS, drafter_variants.WITHOUT_BIGRAM) == (OVER_TOKENS, WITHOUT_BIGRAM)
    pair = Architecture(48, 16, 2, 24, 1, 2, 1, draft_length=3, bigram_rank=6)
    weights = random_weights(pair, seed=3, projections=0.3)
    verifier, _ = fairseq_verifier(pair, weights)
    settings = DrafterModelConfig(layers=1, draft_length=3, bigram_rank=6)
    model = drafter_variants.DrafterOverTokens(settings, FrozenTransformer(verifier)).eval()
    model.load_state_dict({name[8:]: weight for name, weight in weights.items() if name.startswith("drafter.")})
    source, target = [7, 9, 11, EOS_ID], [12, 13, 14, EOS_ID]
    read = torch.tensor([[EOS_ID, *target[:-1]]])
    inputs = {"src_tokens": torch.tensor([source]), "src_lengths": torch.tensor([4]), "prev_output_tokens": read}
    windows = model.windows({"net_input": inputs, "target": torch.tensor([target])}, torch.tensor([[2]]), PAD_ID)
    engine = OverTokensEngine(pair, weights)
    rows = engine.encode([source])
    rows.drafts = True
    engine.verify(rows, read[:, :2].numpy(), beta=1)
    engine.commit(rows, np.array([2]))
    found = engine.draft(rows, read[:, 2].numpy(), 3)
    with torch.inference_mode():
        expected = (model(windows)[0, 0] @ model.verifier.output.T).gather(1, torch.from_numpy(found.ids[0]))
    np.testing.assert_allclose(found.scores[0], expected, atol=1e-4)


# -- the other design


def test_masks_follow_the_prefix_and_nothing_is_due_behind_the_end() -> None:
    from reference_drafter import BLOCK, masked

    inputs, gold = masked([[7, 8, EOS_ID], [9, EOS_ID]], [1, 0])
    assert inputs.shape == gold.shape == (2, 2 + BLOCK)
    assert inputs[0].tolist() == [EOS_ID, 7, *[MASK_ID] * BLOCK]
    assert inputs[1].tolist() == [EOS_ID, *[MASK_ID] * BLOCK, PAD_ID]
    assert gold[0, :5].tolist() == [PAD_ID, PAD_ID, 8, EOS_ID, PAD_ID]
    assert gold[1, :4].tolist() == [PAD_ID, 9, EOS_ID, PAD_ID]
    assert (gold[:, 5:] == PAD_ID).all()


def test_batches_hold_every_sentence_once_an_epoch_and_no_more_tokens_than_asked() -> None:
    from reference_drafter import batches

    lengths = np.array([3, 9, 4, 4, 8, 5, 30])
    made = batches(lengths, 12, np.random.default_rng(0))
    seen: list[int] = []
    while len(seen) < len(lengths):
        members = next(made)
        assert len(members) == 1 or len(members) * lengths[members].max() <= 12
        seen += members.tolist()
    assert sorted(seen) == list(range(len(lengths)))
    assert sum(len(members) for members in islice(made, 50)) > 0


def test_the_learning_rate_rises_then_falls_to_nothing() -> None:
    from reference_drafter import LEARNING_RATE, WARMUP, learning_rate

    rates = [learning_rate(progress) for progress in np.linspace(WARMUP, 1, 5)]
    assert learning_rate(0) == 0
    assert rates[0] == pytest.approx(LEARNING_RATE)
    assert all(earlier > later for earlier, later in pairwise(rates))
    assert rates[-1] == pytest.approx(0)


def test_a_drafter_whose_encoder_alone_takes_too_long_can_never_pay() -> None:
    from compare_reference_design import needed

    costs = {"encode": 1.0, "their encode": 0.5, "their draft 4": 0.3, "verify 4": 0.2}
    assert needed(costs, tokens=10, milliseconds=4.0, k=4) == pytest.approx(10 * 0.5 / 2.5)
    assert needed(costs, tokens=10, milliseconds=1.5, k=4) == float("inf")


# -- a finished drafter, without one of its parts


def test_fewer_candidates_are_the_best_ones_and_no_bigram_term_says_nothing() -> None:
    from ablate_finished_drafter import narrowed, without_bigram

    whole = lattice(5.0)
    assert narrowed(1, whole).ids.tolist() == [[[10], [20]]]
    assert narrowed(1, whole).transitions.shape == (1, 2, 1, 1)
    assert walk(whole).tolist() == [[10, 21]]
    assert walk(without_bigram(whole)).tolist() == [[10, 20]]


def test_the_most_frequent_tokens_are_counted_among_those_that_are_drafted() -> None:
    from ablate_finished_drafter import most_frequent

    sentences = [[5, 7, 2], [7, 9, 2], [7, 4, 4, 4, 4]]
    assert most_frequent(np.array([2, 5, 7, 9, 11]), sentences, 2).tolist() == [2, 7]


def test_a_drafter_with_fewer_tokens_says_only_those_and_one_with_all_its_ranks_says_the_same() -> None:
    from ablate_finished_drafter import with_rank, with_tokens
    from pairs import random_weights

    pair = Architecture(48, 16, 2, 24, 1, 1, 1, draft_length=3, bigram_rank=6, draft_vocabulary_size=32)
    weights = random_weights(pair, seed=3, projections=0.3)
    kept = weights["drafter.output.ids"].numpy()[::2]

    def drafted(engine: TorchEngine) -> Lattice:
        return engine.draft(engine.encode([[7, 9, EOS_ID]]), np.array([5]), 3)

    assert sorted({*drafted(with_tokens(pair, weights, kept)).ids.ravel().tolist()} - {*kept.tolist()}) == []
    same, own = drafted(with_rank(pair, weights, 6)), drafted(TorchEngine(pair, weights))
    assert same.ids.tolist() == own.ids.tolist()
    np.testing.assert_allclose(same.transitions, own.transitions, atol=1e-5)
