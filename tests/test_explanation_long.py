"""Long texts laid open: what an iteration adds does not grow with what came before; narrow terminals; arguments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType
from scripted import DEFAULTS, ScriptedEngine, tiny_vocabulary

from specmt import explanation, replay_explanation
from specmt.commands.explain import MOST_TOKENS, _check_length
from specmt.decoding.hypotheses import ReplayCounts
from specmt.errors import UsageError
from specmt.explanation import Candidate, Emitted, Explanation, Step
from specmt.replay_explanation import Replayed, ReplayExplanation
from specmt.translator import Limits, Translator

ROOT = Path(__file__).parent.parent
C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def specmt_explain(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = ["env", *(f"{key}={value}" for key, value in environment.items())]
    command += [sys.executable, "-m", "specmt", "explain", *arguments]
    return subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=300)


def numbered(count: int) -> tuple[str, ...]:
    """Pieces of five cells each."""
    return tuple(f"▁{number % 10_000:04}" for number in range(count))


def behind(prefix: int) -> Explanation:
    """One iteration behind that many verified tokens."""
    verified, masks = numbered(prefix), ("[MASK]",) * 2
    column = (Candidate("▁a", -0.5),)
    emitted = (Emitted("▁a", "accepted"), Emitted("▁b", "recovered"))
    next_input = (*verified, "▁a", "▁b", *masks)
    step = Step((*verified, *masks), ("▁a", "▁c"), (column,) * 3, ("accepted", "rejected"), emitted, next_input, None)
    return Explanation("Ein Hund", ("▁Ein", "▁Hund", "</s>"), "A dog", 2, 1, 0.0, (step,))


def replayed_behind(prefix: int) -> ReplayExplanation:
    """One replay behind that many verified tokens."""
    replay = Replayed(numbered(prefix), prefix, ("▁a",), ("▁a",), ("accepted",), (*numbered(prefix), "▁a"))
    return ReplayExplanation("Ein Hund", "A dog", 4, 8, ReplayCounts(1), (replay,))


def shown(picture: RenderableType, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(picture)
    return capture.get()


# -- what is shown of a long output


def test_the_picture_of_an_iteration_does_not_grow_with_what_came_before_it() -> None:
    pictures = [shown(explanation.render(behind(prefix))) for prefix in (500, 5000)]
    assert len(pictures[0]) == len(pictures[1]) < 2000
    replays = [shown(replay_explanation.render(replayed_behind(prefix))) for prefix in (5000, 9000)]
    assert len(replays[0]) == len(replays[1]) < 1200


def test_what_is_measured_of_a_prefix_is_what_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measuring(text: str) -> int:
        measured.append(text)
        return cell_len(text)

    monkeypatch.setattr(explanation, "cell_len", measuring)
    sizes = []
    for prefix in (500, 5000):
        measured.clear()
        shown(explanation.render(behind(prefix)))
        sizes.append(sum(map(len, measured)))
    assert sizes[0] == sizes[1] < 1000


def test_a_long_next_input_shows_its_last_pieces_and_the_masks() -> None:
    text = shown(explanation.render(behind(5000)))
    _, _, next_input = text.partition("Next input")
    assert next_input.split() == ["…", *numbered(5000)[-58:], "▁a", "▁b", "[MASK]", "[MASK]"]
    assert shown(replay_explanation.render(replayed_behind(5000))).partition("output  ")[2].split() == [
        "…",
        *numbered(5000)[-59:],
        "▁a",
    ]


def test_an_output_of_usual_length_is_shown_whole() -> None:
    text = shown(explanation.render(behind(58)))
    assert text.partition("Next input")[2].split() == [*numbered(58), "▁a", "▁b", "[MASK]", "[MASK]"]
    text = shown(replay_explanation.render(replayed_behind(59)))
    assert text.partition("output  ")[2].split() == [*numbered(59), "▁a"]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (0, "…"),
        (2, "…"),
        (3, "… c"),
        (4, "… c"),
        (5, "… c"),
        (6, "… 漢 c"),
        (7, "aa 漢 c"),
        (80, "aa 漢 c"),
    ],
)
def test_a_prefix_that_does_not_fit_loses_its_beginning(width: int, expected: str) -> None:
    assert explanation._shortened(("aa", "漢", "c"), width) == expected


# -- titles


@pytest.mark.parametrize(
    ("picture", "title"),
    [
        (explanation.render(behind(1)), "Iteration 1: 1 accepted, 2 emitted"),
        (replay_explanation.render(replayed_behind(3)), "Replay 1: positions 3 to 6, 1 of 1 accepted"),
    ],
)
def test_a_title_that_a_rule_would_cut_is_wrapped(picture: RenderableType, title: str) -> None:
    assert title in " ".join(shown(picture, 31).split())
    edge = len(title) + 2  # cells: the title, a blank, a dash
    assert f"\n{title} ─\n" in shown(picture, edge)
    assert f"\n{title}\n" in shown(picture, edge - 1)


# -- the sentence


def test_a_text_that_would_take_minutes_is_refused_in_one_line() -> None:
    done = specmt_explain("Hund " * (MOST_TOKENS + 1))
    expected = b"specmt: the sentence has 1001 tokens, at most 1000 fit: explain its parts one by one\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", expected)


def test_a_model_with_few_positions_takes_no_more_tokens_than_those() -> None:
    line = "a b c"
    found = len(tiny_vocabulary().encode(line))
    _check_length(line, Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, limits=Limits(source=found)))
    few = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, limits=Limits(source=found - 1))
    with pytest.raises(UsageError, match=f"has {found} tokens, at most {found - 1} fit"):
        _check_length(line, few)


def test_a_sentence_in_utf_8_is_read_in_any_locale() -> None:
    done = specmt_explain("Ein Hund schläft.", **C_LOCALE)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == specmt_explain("Ein Hund schläft.").stdout
    assert "▁schläft" in done.stdout.decode()
