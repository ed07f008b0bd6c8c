"""BLEU counts words where a language has blanks between them, else what sacrebleu takes for words, or characters."""

from __future__ import annotations

import pytest
from scripted import SENTENCES, ScriptedEngine, always_right, scripted_translator

from specmt.evaluation.measuring import evaluate
from specmt.evaluation.scoring import scores


@pytest.mark.parametrize(
    ("language", "text", "reference", "tokenizer"),
    [
        ("en", "A man is sleeping on the sofa.", "A dog is sleeping on the sofa.", "13a"),
        ("", "A man is sleeping on the sofa.", "A dog is sleeping on the sofa.", "13a"),
        ("zh", "一个男人正在沙发上睡觉。", "一只男人正在沙发上睡觉。", "zh"),
        ("ja", "男の人がソファで寝ている。", "女の人がソファで寝ている。", "char"),
    ],
)
def test_a_text_with_one_wrong_word_is_near(language: str, text: str, reference: str, tokenizer: str) -> None:
    found = scores([text], [reference], language)
    assert 50 < found.bleu < 95
    assert f"|tok:{tokenizer}|" in found.bleu_signature


def test_translations_are_scored_in_their_language() -> None:
    translator = scripted_translator(ScriptedEngine(always_right))
    translator.target_language = "zh"
    (result,) = evaluate(translator, SENTENCES, SENTENCES, ["ar"], batch_size=1, repeats=1).results
    assert "|tok:zh|" in result.bleu_signature
