"""Alignments are the verifier's cross-attention, as fairseq computes it, over words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from pairs import TINY, fairseq_verifier, random_weights
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, tiny_vocabulary

from specmt.alignment import Aligner, _word_of_each
from specmt.errors import UsageError
from specmt.line_alignment import LineAligner
from specmt.settings import DecodingSettings
from specmt.text.segmentation import Segmenter, Splitting
from specmt.text.vocabulary import EOS_ID
from specmt.translator import Translator

DEEP = replace(TINY, encoder_layers=2, decoder_layers=3)
SETTINGS = replace(DecodingSettings.from_defaults(DEFAULTS), align=True)


def aligner(seed: int = 0) -> Aligner:
    return Aligner(DEEP, lambda: {name: weight.numpy() for name, weight in random_weights(DEEP, seed).items()})


@pytest.mark.parametrize("positions", [{}, {"source_positions": 6}, {"target_positions": 4}], ids=str)
def test_attention_is_that_of_fairseq(positions: dict[str, int]) -> None:
    architecture = replace(DEEP, **positions)
    weights = random_weights(architecture, seed=3)
    model, _ = fairseq_verifier(architecture, weights)
    source, target = [7, 30, 12, 50, EOS_ID], [9, 11, 60, EOS_ID]
    with torch.inference_mode():
        encoded = model.encoder(torch.tensor([source]), torch.tensor([len(source)]))
        previous = torch.tensor([[EOS_ID, *target[:-1]]])
        _, extra = model.decoder(previous, encoder_out=encoded, alignment_layer=1, full_context_alignment=False)
    expected = extra["attn"][0][0].numpy()
    aligner = Aligner(architecture, lambda: {name: weight.numpy() for name, weight in weights.items()})
    found = aligner.attention(source, target)
    assert found.shape == (len(target), len(source))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    longer = aligner.attention(source, [*target, 9])  # a translation that its limit ended has no end-of-sentence
    np.testing.assert_allclose(longer[: len(target)], expected, atol=1e-5)


def test_words_are_those_that_blanks_part() -> None:
    vocabulary = tiny_vocabulary()
    for sentence in SENTENCES:
        words = _word_of_each(vocabulary.encode(sentence), vocabulary)
        assert words[0] == 0 and words == sorted(words)
        assert words[-1] == len(sentence.split()) - 1


def test_a_token_that_looks_at_the_end_of_the_sentence_has_no_word() -> None:
    class Ends(Aligner):
        def attention(self, source_ids: object, target_ids: object) -> np.ndarray:  # type: ignore[type-arg,override]
            weights = np.zeros((len(target_ids), len(source_ids)), dtype=np.float32)  # type: ignore[arg-type]
            weights[:, -1] = 1
            return weights

    vocabulary = tiny_vocabulary()
    ids = vocabulary.encode(SENTENCES[0])
    assert Ends(DEEP, {}).words(ids, ids, vocabulary) == ()


@pytest.mark.parametrize("empty", [([], [9]), ([9], []), ([], [])])
def test_nothing_aligns_with_nothing(empty: tuple[list[int], list[int]]) -> None:
    assert aligner().words(*empty, tiny_vocabulary()) == ()


def test_a_line_of_several_segments_is_aligned_segment_by_segment() -> None:
    translator = Translator(
        ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 200), aligner=aligner
    )
    line = f"{SENTENCES[0]} {SENTENCES[2]}"
    (joined,) = translator.translate([line], SETTINGS, 4)
    first, second = translator.translate([SENTENCES[0], SENTENCES[2]], SETTINGS, 4)
    sources, targets = len(SENTENCES[0].split()), len(first.text.split())
    shifted = {(source + sources, target + targets) for source, target in second.alignment}
    assert joined.segments == 2
    assert set(joined.alignment) == {*first.alignment, *shifted}
    assert first.alignment and all(
        source < len(SENTENCES[0].split()) and target < targets for source, target in first.alignment
    )


def test_what_nothing_parts_in_a_translation_is_one_word_of_it() -> None:
    vocabulary = tiny_vocabulary()
    segmenter = Segmenter("de", vocabulary.encode, 200)
    source, target = f"{SENTENCES[0]} {SENTENCES[2]}", f"{SENTENCES[0]}\u200b{SENTENCES[2]}"
    assert [one.glue for one in segmenter.split(target)] == ["", ""]
    pairs = LineAligner(aligner(), vocabulary, segmenter).texts(source, target)
    assert pairs and all(ours < len(target.split()) for _, ours in pairs)


def test_every_alternative_is_aligned() -> None:
    translator = Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS, aligner=aligner)
    settings = replace(SETTINGS, strategy="ar", beam=3, n_best=3)
    (translation,) = translator.translate([SENTENCES[0]], settings, 1)
    assert all(alternative.alignment for alternative in translation.n_best)
    assert translation.n_best[0].alignment == translation.alignment


def test_who_has_no_aligner_is_told() -> None:
    with pytest.raises(UsageError, match="--alignment"):
        list(Translator(ScriptedEngine(), tiny_vocabulary(), DEFAULTS).translate([SENTENCES[0]], SETTINGS, 1))
