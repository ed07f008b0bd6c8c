"""What a translation looks like in each form, to the byte; and as many lines for every line of input."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import tiny_vocabulary

from specmt.choices import OutputFormat
from specmt.decoding.hypotheses import Iteration
from specmt.streams.forms import Form
from specmt.text.guards import LineWarning
from specmt.translation import Alternative, Translation

VOCABULARY = tiny_vocabulary()
SOURCE_IDS = tuple(VOCABULARY.encode("Ein Hund"))
IDS = (*VOCABULARY.encode("A man"), 2)
LOG_PROBS = tuple(-math.log(2) * (place + 1) for place in range(len(IDS)))
PLAIN = Translation(
    3,
    "Ein Hund",
    "A man",
    -math.log(2),
    IDS,
    (Iteration(0, 0, IDS),),
    source_ids=SOURCE_IDS,
    token_log_probs=LOG_PROBS,
    alignment=((0, 0), (1, 1)),
)
BLANK = Translation(4, "", "", 0.0)


def pieces(text: str) -> str:
    return " ".join(VOCABULARY.piece(id_) for id_ in VOCABULARY.encode(text))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (Form(OutputFormat.text, VOCABULARY), "A man\n"),
        (Form(OutputFormat.text, VOCABULARY, scores=True), "-0.6931\tA man\n"),
        (Form(OutputFormat.text, VOCABULARY, alignment=True), "A man ||| 0-0 1-1\n"),
        (Form(OutputFormat.text, VOCABULARY, n_best=2), "A man\n\n"),
        (
            Form(OutputFormat.fairseq, VOCABULARY, alignment=True),
            f"S-3\t{pieces('Ein Hund')}\nH-3\t-1.0\t{pieces('A man')}\nD-3\t-1.0\tA man\n"
            f"P-3\t{' '.join(f'{-float(place + 1):.4f}' for place in range(len(IDS)))}\nA-3\t0-0 1-1\n",
        ),
    ],
)
def test_a_translation_is_written_so(form: Form, expected: str) -> None:
    assert form.render(PLAIN) == expected
    assert expected.count("\n") == form.lines_each


def test_json_says_what_there_is_to_say() -> None:
    form = Form(OutputFormat.jsonl, VOCABULARY)
    expected = {
        "source": "Ein Hund",
        "translation": "A man",
        "score": -math.log(2),
        "iterations": 1,
        "emitted_tokens": [len(IDS)],
    }
    assert json.loads(form.render(PLAIN)) == expected
    marked = replace(PLAIN, segments=2, warnings=(LineWarning.REPETITION,), fields={"id": 7, "score": "theirs"})
    assert json.loads(form.render(marked)) == {**expected, "segments": 2, "warnings": ["repetition"], "id": 7}
    assert json.loads(Form(OutputFormat.jsonl, VOCABULARY, alignment=True).render(PLAIN))["alignment"] == [
        [0, 0],
        [1, 1],
    ]


def test_a_list_of_alternatives_has_the_translation_even_where_nothing_was_decoded() -> None:
    record = json.loads(Form(OutputFormat.jsonl, VOCABULARY, n_best=3).render(replace(PLAIN, text="5", score=0.0)))
    assert record["n_best"] == [{"translation": "5", "score": 0.0}]


def test_an_alternative_that_is_missing_is_worse_than_any() -> None:
    form = Form(OutputFormat.text, VOCABULARY, n_best=2, scores=True)
    assert form.render(replace(PLAIN, n_best=(Alternative("A man", -1.0),))) == "-1.0000\tA man\n-inf\t\n"
    assert form.render(replace(PLAIN, text="5", score=0.0)) == "0.0000\t5\n-inf\t\n", "nor better than a copy"
    assert form.render(BLANK) == "0.0000\t\n" * 2


@pytest.mark.parametrize("text", ["3\t5", "3\x005", "3\r\n5", "3\u20285"])
def test_what_is_no_character_of_a_line_is_a_blank_but_in_json_and_tabs_in_text_alone(text: str) -> None:
    one = replace(PLAIN, text=text)
    assert Form(OutputFormat.text, VOCABULARY).render(one) == ("3\t5\n" if text == "3\t5" else "3 5\n")
    assert Form(OutputFormat.text, VOCABULARY, alignment=True).render(one).startswith("3 5 |||")
    assert Form(OutputFormat.text, VOCABULARY, scores=True).render(one) == "-0.6931\t3 5\n"
    assert "D-3\t-1.0\t3 5\n" in Form(OutputFormat.fairseq, VOCABULARY).render(one)
    assert json.loads(Form(OutputFormat.jsonl, VOCABULARY).render(one))["translation"] == text


def test_fields_that_utf8_cannot_hold_pass_through_escaped() -> None:
    line = Form(OutputFormat.jsonl, VOCABULARY).render(replace(PLAIN, fields={"id": "\ud83d"}))
    assert json.loads(line.encode())["id"] == "\ud83d"


@given(
    st.sampled_from(OutputFormat),
    st.integers(1, 3),
    st.booleans(),
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
        max_size=9,
    ),
)
def test_every_line_takes_as_many_lines(output_format: OutputFormat, n_best: int, alignment: bool, text: str) -> None:
    form = Form(output_format, VOCABULARY, n_best, alignment=alignment)
    listed = replace(PLAIN, n_best=(Alternative(text, -1.0),))
    for translation in (PLAIN, BLANK, replace(PLAIN, text=text), listed):
        assert form.render(translation).count("\n") == form.lines_each


def test_what_a_line_of_input_says_of_another_translation_does_not_pass_through() -> None:
    stale = {"warnings": ["copied"], "segments": 2, "unplaced": ["x"], "alignment": [], "n_best": [], "replay": {}}
    form = Form(OutputFormat.jsonl, VOCABULARY)
    record = json.loads(form.render(replace(PLAIN, fields={"id": 1, **stale, "score": 2})))
    assert record == {**json.loads(form.render(PLAIN)), "id": 1}
