"""The decoding of one sentence laid open: what is told of each iteration, and the picture at any width."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console
from scripted import (
    DEFAULTS,
    SENTENCES,
    ScriptedEngine,
    always_right,
    by_position,
    right_before,
    scripted_translator,
    tiny_vocabulary,
)

from specmt.bundles.bundle import DecodingDefaults
from specmt.explanation import Candidate, Emitted, Explanation, Step, explain, render
from specmt.settings import DecodingSettings
from specmt.text.vocabulary import EOS_ID

STRICT = replace(DecodingSettings.from_defaults(DEFAULTS).strict(), trace=True)
RELAXED = replace(STRICT, beta=3, tau=1.0)
LINE = SENTENCES[0]
SOURCE = (*tiny_vocabulary().encode(LINE), EOS_ID)


def explained(
    engine: ScriptedEngine, settings: DecodingSettings, line: str = LINE, defaults: DecodingDefaults = DEFAULTS
) -> Explanation:
    translator = scripted_translator(engine, defaults)
    (translation,) = translator.translate([line], settings, batch_size=1)
    return explain(translation, settings, translator.vocabulary)


def pieces(ids: list[int]) -> tuple[str, ...]:
    return tuple(tiny_vocabulary().piece(id_) for id_ in ids)


def origins(step: Step) -> list[str]:
    return [token.origin for token in step.emitted]


# -- what is told


def test_a_full_acceptance_ends_with_a_bonus_token() -> None:
    engine = ScriptedEngine(always_right)
    step = explained(engine, STRICT).iterations[0]
    greedy = pieces(engine.greedy(SOURCE, 5))
    assert step.decoder_input == ("[MASK]",) * 4
    assert step.draft == greedy[:4]
    assert step.verdicts == ("accepted",) * 4
    assert tuple(token.piece for token in step.emitted) == greedy
    assert origins(step) == ["accepted"] * 4 + ["bonus"]
    assert step.next_input == greedy + ("[MASK]",) * 4


def test_at_the_first_rejection_the_verifiers_token_is_recovered() -> None:
    engine = ScriptedEngine(right_before(2))
    steps = explained(engine, STRICT).iterations
    greedy = pieces(engine.greedy(SOURCE, 6))
    assert steps[0].draft[:2] == greedy[:2]
    assert steps[0].draft[2] != greedy[2]
    assert steps[0].verdicts == ("accepted", "accepted", "rejected", "unused")
    assert steps[0].emitted == (
        Emitted(greedy[0], "accepted"),
        Emitted(greedy[1], "accepted"),
        Emitted(greedy[2], "recovered"),
    )
    assert steps[1].decoder_input == greedy[:3] + ("[MASK]",) * 4
    assert (steps[1].prefix, steps[1].output) == (greedy[:3], greedy)


def test_a_second_candidate_is_accepted_when_relaxed_and_those_beyond_tau_are_blank() -> None:
    engine = ScriptedEngine(by_position((0, 1)), gaps=(0.6,))
    strict, relaxed = explained(engine, STRICT).iterations[0], explained(engine, RELAXED).iterations[0]
    assert strict.verdicts == ("accepted", "rejected", "unused", "unused")
    assert relaxed.verdicts == ("accepted",) * 4
    first = engine.ranked(SOURCE, [])
    second = engine.ranked(SOURCE, first[:1])
    log_probs = engine.log_probs(SOURCE, first[:1]).tolist()
    assert relaxed.emitted[1] == Emitted(*pieces([second[1]]), "accepted")
    assert relaxed.candidates[1] == (
        Candidate(*pieces([second[0]]), log_probs[0]),
        Candidate(*pieces([second[1]]), log_probs[1]),
        Candidate("[BLANK]", None),
    )
    assert [len(column) for column in relaxed.candidates] == [3] * 5
    assert [len(column) for column in strict.candidates] == [1] * 5


def test_a_drafted_end_of_sentence_leaves_the_slots_behind_it_unused() -> None:
    engine = ScriptedEngine(always_right, length=lambda source: 6)
    last = explained(engine, STRICT).iterations[-1]
    assert last.draft == (*pieces(engine.greedy(SOURCE, 7)[5:]), "</s>", "</s>")
    assert last.verdicts == ("accepted", "accepted", "unused", "unused")
    assert [token.piece for token in last.emitted] == [last.draft[0], "</s>"]
    assert (last.ended_by, last.next_input) == ("end-of-sentence", ())


@pytest.mark.parametrize(("draft_length", "origin"), [(2, "bonus"), (4, "recovered")])
def test_an_end_of_sentence_may_be_a_recovered_or_a_bonus_token(draft_length: int, origin: str) -> None:
    engine = ScriptedEngine(right_before(2), length=lambda source: 2)
    (step,) = explained(engine, replace(STRICT, draft_length=draft_length)).iterations
    assert [token.origin for token in step.emitted] == ["accepted", "accepted", origin]
    assert (step.emitted[-1].piece, step.ended_by) == ("</s>", "end-of-sentence")


def test_the_length_limit_cuts_the_output_and_leaves_the_slots_behind_it_unused() -> None:
    engine = ScriptedEngine(always_right)
    limit = replace(DEFAULTS, max_tokens_factor=0.0, max_tokens_offset=8)
    first, last = explained(engine, STRICT, defaults=limit).iterations
    greedy = pieces(engine.greedy(SOURCE, 9))
    assert first.ended_by is None
    assert last.draft == greedy[5:9]
    assert last.verdicts == ("accepted", "accepted", "accepted", "unused")
    assert last.output == greedy[:8]
    assert (last.ended_by, last.next_input) == ("length-limit", ())


def test_each_iteration_starts_from_the_next_input_of_the_one_before_and_the_last_gives_the_translation() -> None:
    engine = ScriptedEngine(by_position((0, 0, 1, 0, 5)))
    result = explained(engine, RELAXED)
    assert len(result.iterations) > 3
    for step, following in zip(result.iterations, result.iterations[1:], strict=False):
        assert step.next_input == following.decoder_input
        assert step.ended_by is None
    (translation,) = scripted_translator(engine).translate([LINE], RELAXED, 1)
    assert result.iterations[-1].output == pieces(list(translation.ids))
    assert (result.source, result.translation) == (LINE, translation.text)
    assert result.source_pieces == pieces(list(SOURCE))


def test_a_blank_line_has_no_iterations() -> None:
    result = explained(ScriptedEngine(), STRICT, line=" ")
    assert result.to_json() == {
        "source": " ",
        "source_pieces": (),
        "translation": "",
        "draft_length": 4,
        "beta": 1,
        "tau": 1.0,
        "iterations": (),
    }
    assert "A blank line: nothing to decode." in shown(result, 80)


def test_a_mark_is_copied_and_no_blank_line() -> None:
    assert "A mark, which is copied: nothing to decode." in shown(explained(ScriptedEngine(), STRICT, line="a)"), 80)


@pytest.mark.parametrize("settings", [replace(STRICT, strategy="ar"), replace(STRICT, trace=False)])
def test_a_translation_without_a_trace_is_refused(settings: DecodingSettings) -> None:
    with pytest.raises(ValueError, match="spec with its trace"):
        explained(ScriptedEngine(), settings)


# -- the picture


def column(*pieces: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(piece, None if piece == "[BLANK]" else -0.5) for piece in pieces)


MASKS = ("[MASK]",) * 5
PICTURE = Explanation(
    source="Machen sich Millionen von Autofahrern Sorgen?",
    source_pieces=("▁Machen", "▁sich", "▁Millionen", "▁von", "▁Autofahrer", "n", "▁Sorgen", "?", "</s>"),
    translation="Millions of drivers will be concerned about their",
    draft_length=5,
    beta=3,
    tau=1.5,
    iterations=(
        Step(
            decoder_input=("▁Millions", "▁of", *MASKS),
            draft=("▁drivers", "▁will", "▁be", "▁concerned", "▁about"),
            candidates=(
                column("▁drivers", "▁motor", "[BLANK]"),
                column("▁will", "[BLANK]", "[BLANK]"),
                column("▁worry", "▁be", "[BLANK]"),
                column("▁concerned", "[BLANK]", "[BLANK]"),
                column("▁about", "[BLANK]", "[BLANK]"),
                column("▁their", "▁the", "[BLANK]"),
            ),
            verdicts=("accepted",) * 5,
            emitted=(
                Emitted("▁drivers", "accepted"),
                Emitted("▁will", "accepted"),
                Emitted("▁be", "accepted"),
                Emitted("▁concerned", "accepted"),
                Emitted("▁about", "accepted"),
                Emitted("▁their", "bonus"),
            ),
            next_input=("▁Millions", "▁of", "▁drivers", "▁will", "▁be", "▁concerned", "▁about", "▁their", *MASKS),
            ended_by=None,
        ),
        Step(
            decoder_input=("▁Millions", "▁of", "▁drivers", "▁will", "▁be", "▁concerned", "▁about", "▁their", *MASKS),
            draft=("▁cars", ".", "</s>", ".", "</s>"),
            candidates=(
                column("▁cars", "[BLANK]", "[BLANK]"),
                column("?", "[BLANK]", "[BLANK]"),
                column("</s>", "[BLANK]", "[BLANK]"),
                column("</s>", "[BLANK]", "[BLANK]"),
                column("</s>", "[BLANK]", "[BLANK]"),
                column("</s>", "[BLANK]", "[BLANK]"),
            ),
            verdicts=("accepted", "rejected", "unused", "unused", "unused"),
            emitted=(Emitted("▁cars", "accepted"), Emitted("?", "recovered")),
            next_input=(),
            ended_by="length-limit",
        ),
    ),
)

WIDE = """\
Source         Machen sich Millionen von Autofahrern Sorgen?
               ▁Machen ▁sich ▁Millionen ▁von ▁Autofahrer n ▁Sorgen ? </s>
Translation    Millions of drivers will be concerned about their
Settings       k = 5, β = 3, τ = 1.5 nats
Verdicts       ✓ accepted, ✗ rejected, · unused: behind a rejection or the end

Iteration 1: 5 accepted, 6 emitted ─────────────────────────────────────────────────────────────────────────────────
Decoder input  ▁Millions ▁of  [MASK]    [MASK]    [MASK]    [MASK]      [MASK]
Draft          ▁Millions ▁of  ▁drivers  ▁will     ▁be       ▁concerned  ▁about
Verdicts                      ✓         ✓         ✓         ✓           ✓
Candidates                    ▁drivers  ▁will     ▁worry    ▁concerned  ▁about    ▁their
                              ▁motor    [BLANK]   ▁be       [BLANK]     [BLANK]   ▁the
                              [BLANK]   [BLANK]   [BLANK]   [BLANK]     [BLANK]   [BLANK]
Output         ▁Millions ▁of  ▁drivers  ▁will     ▁be       ▁concerned  ▁about    ▁their
                              accepted  accepted  accepted  accepted    accepted  bonus
Next input     ▁Millions ▁of ▁drivers ▁will ▁be ▁concerned ▁about ▁their [MASK] [MASK] [MASK] [MASK] [MASK]

Iteration 2: 1 accepted, 2 emitted ─────────────────────────────────────────────────────────────────────────────────
Decoder input  … ▁will ▁be ▁concerned ▁about ▁their  [MASK]    [MASK]     [MASK]   [MASK]   [MASK]
Draft          … ▁will ▁be ▁concerned ▁about ▁their  ▁cars     .          </s>     .        </s>
Verdicts                                             ✓         ✗          ·        ·        ·
Candidates                                           ▁cars     ?          </s>     </s>     </s>     </s>
                                                     [BLANK]   [BLANK]    [BLANK]  [BLANK]  [BLANK]  [BLANK]
                                                     [BLANK]   [BLANK]    [BLANK]  [BLANK]  [BLANK]  [BLANK]
Output         … ▁will ▁be ▁concerned ▁about ▁their  ▁cars     ?
                                                     accepted  recovered
Next input     none: the output has reached the limit of 10 tokens
"""

NARROW = """\
Iteration 1: 5 accepted, 6 emitted ─────────────────────────
Decoder input  ▁Millions ▁of  [MASK]    [MASK]    [MASK]
Draft          ▁Millions ▁of  ▁drivers  ▁will     ▁be
Verdicts                      ✓         ✓         ✓
Candidates                    ▁drivers  ▁will     ▁worry
                              ▁motor    [BLANK]   ▁be
                              [BLANK]   [BLANK]   [BLANK]
Output         ▁Millions ▁of  ▁drivers  ▁will     ▁be
                              accepted  accepted  accepted

Decoder input  [MASK]      [MASK]
Draft          ▁concerned  ▁about
Verdicts       ✓           ✓
Candidates     ▁concerned  ▁about    ▁their
               [BLANK]     [BLANK]   ▁the
               [BLANK]     [BLANK]   [BLANK]
Output         ▁concerned  ▁about    ▁their
               accepted    accepted  bonus
Next input     ▁Millions ▁of ▁drivers ▁will ▁be ▁concerned
               ▁about ▁their [MASK] [MASK] [MASK] [MASK]
               [MASK]
"""


def shown(explanation: Explanation, width: int, terminal: bool = False) -> str:
    console = Console(width=width, force_terminal=terminal, color_system="standard" if terminal else None)
    with console.capture() as capture:
        console.print(render(explanation))
    return capture.get()


def test_the_sentence_does_nothing_to_the_terminal() -> None:
    assert "\x1b" not in shown(replace(PICTURE, source="Ein \x1b[31mHund"), 80)


def test_the_picture_is_that_of_the_design() -> None:
    assert shown(PICTURE, 116) == WIDE


def test_where_the_width_does_not_suffice_the_slots_go_into_blocks() -> None:
    assert NARROW in shown(PICTURE, 60)


def test_only_the_first_block_gives_room_to_the_prefix() -> None:
    lines = shown(replace(PICTURE, iterations=PICTURE.iterations[:1]), 47).splitlines()
    drafts = [line.split()[1:] for line in lines if line.startswith("Draft")]
    assert drafts == [["…", "▁of", "▁drivers", "▁will"], ["▁be", "▁concerned", "▁about"]]


@pytest.mark.parametrize("width", [32, 40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_every_piece_is_shown_whole(width: int) -> None:
    result = explained(ScriptedEngine(by_position((0, 0, 1, 0, 5))), replace(RELAXED, draft_length=8), SENTENCES[4])
    text = shown(result, width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for step in result.iterations:
        assert set(step.draft) <= set(text.split())
    assert text.count("Next input") == len(result.iterations)


def test_a_piece_wider_than_the_terminal_is_cut() -> None:
    step = replace(PICTURE.iterations[0], draft=("▁" + "x" * 60, *PICTURE.iterations[0].draft[1:]))
    lines = shown(replace(PICTURE, iterations=(step,)), 40).splitlines()
    assert max(cell_len(line) for line in lines) <= 40
    assert "Draft          ▁" + "x" * 23 + "…" in lines
    assert "Draft          … ▁of" in lines, "the prefix stands alone where no slot fits beside it"


def test_colours_are_for_terminals_only() -> None:
    assert "\x1b[" not in shown(PICTURE, 80)
    assert "\x1b[32m✓" in shown(PICTURE, 80, terminal=True)
    assert "\x1b[1;31m✗" in shown(PICTURE, 80, terminal=True)


def test_on_a_terminal_the_candidate_that_matches_is_green_and_what_was_not_looked_at_dim() -> None:
    text = shown(PICTURE, 200, terminal=True)
    assert text.count("\x1b[32m▁be") == 2, "as a candidate and in the output"
    assert "\x1b[32m▁worry" not in text
    assert text.count("\x1b[2m</s>") == 4
    rejected_last = replace(PICTURE.iterations[0], verdicts=("accepted",) * 4 + ("rejected",))
    rejected_last = replace(rejected_last, emitted=(*rejected_last.emitted[:4], Emitted("▁of", "recovered")))
    assert "\x1b[2m▁the" in shown(replace(PICTURE, iterations=(rejected_last,)), 200, terminal=True)


def test_brackets_in_a_sentence_are_no_markup() -> None:
    assert "[bold]a[/bold] [MASK]" in shown(replace(PICTURE, source="[bold]a[/bold] [MASK]"), 80)


def test_strict_says_so() -> None:
    assert "Settings       k = 5, β = 1 (strict)\n" in shown(replace(PICTURE, beta=1), 80)


def test_an_output_that_ends_says_why_there_is_no_next_input() -> None:
    last = replace(PICTURE.iterations[1], ended_by="end-of-sentence")
    text = shown(replace(PICTURE, iterations=(last,)), 80)
    assert text.endswith("Next input     none: the output ends with end-of-sentence\n")


# -- for programs


def test_json_holds_the_whole_picture() -> None:
    value = json.loads(json.dumps(PICTURE.to_json(), allow_nan=False))
    assert {key: value[key] for key in ("draft_length", "beta", "tau")} == {"draft_length": 5, "beta": 3, "tau": 1.5}
    first, second = value["iterations"]
    assert first["decoder_input"] == ["▁Millions", "▁of", *MASKS]
    assert first["draft"] == ["▁drivers", "▁will", "▁be", "▁concerned", "▁about"]
    assert first["candidates"][2] == [
        {"piece": "▁worry", "log_prob": -0.5},
        {"piece": "▁be", "log_prob": -0.5},
        {"piece": "[BLANK]", "log_prob": None},
    ]
    assert first["verdicts"] == ["accepted"] * 5
    assert first["emitted"][4:] == [{"piece": "▁about", "origin": "accepted"}, {"piece": "▁their", "origin": "bonus"}]
    assert first["output"] == ["▁Millions", "▁of", "▁drivers", "▁will", "▁be", "▁concerned", "▁about", "▁their"]
    assert first["next_input"] == first["output"] + list(MASKS) == second["decoder_input"]
    assert (first["ended_by"], second["ended_by"], second["next_input"]) == (None, "length-limit", [])


def test_json_of_a_decoded_sentence_has_no_number_that_json_lacks() -> None:
    result = explained(ScriptedEngine(by_position((0, 1, 2)), gaps=(0.6,)), RELAXED)
    text = json.dumps(result.to_json(), allow_nan=False)
    assert '{"piece": "[BLANK]", "log_prob": null}' in text
