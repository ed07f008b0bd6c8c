"""Pieces and ids: the special ids are fairseq's, and no text reaches them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from scripted import SENTENCES, VOCABULARY_SIZE, tiny_tokenizer, tiny_vocabulary

from specmt import BUNDLED_MODEL
from specmt.bundles.bundle import load_bundle
from specmt.exporting import calibration_sources
from specmt.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    MASK_ID,
    PAD_ID,
    UNK_ID,
    Vocabulary,
    add_characters,
    required_pieces,
    train_vocabulary,
)


def test_the_special_ids_are_fairseqs_and_the_mask_comes_next() -> None:
    assert (BOS_ID, PAD_ID, EOS_ID, UNK_ID, MASK_ID) == (0, 1, 2, 3, 4)
    assert tiny_vocabulary().pieces()[:5] == ["<s>", "<pad>", "</s>", "<unk>", "[MASK]"]


def test_there_are_as_many_pieces_as_asked_for_and_none_twice() -> None:
    assert len(tiny_vocabulary()) == VOCABULARY_SIZE == len(set(tiny_vocabulary().pieces()))


def test_a_piece_is_found_by_its_id() -> None:
    vocabulary = tiny_vocabulary()
    assert [vocabulary.piece(id_) for id_ in range(VOCABULARY_SIZE)] == vocabulary.pieces()


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_sentence_of_known_characters_comes_back_from_its_ids(sentence: str) -> None:
    vocabulary = tiny_vocabulary()
    ids = vocabulary.encode(sentence)
    assert vocabulary.decode(ids) == sentence
    assert "".join(vocabulary.piece(id_) for id_ in ids) == "▁" + sentence.replace(" ", "▁")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_soft_hyphens_are_no_part_of_a_word(sentence: str) -> None:
    vocabulary = tiny_vocabulary()
    hyphenated = "\u00ad".join(sentence)
    assert vocabulary.encode(hyphenated) == vocabulary.encode(sentence)
    assert vocabulary.unknown_symbols(hyphenated + "\u4e00") == vocabulary.unknown_symbols(sentence + "\u4e00")


@pytest.mark.parametrize("control", ["\x00", "\x0b", "\x0c", "\x1c", "\x7f", "\x85"])
def test_control_characters_part_words(control: str) -> None:
    vocabulary = tiny_vocabulary()
    assert vocabulary.encode(f"Ein{control}Hund") == vocabulary.encode("Ein Hund")
    assert vocabulary.encode(control) == []


def test_a_grave_accent_between_letters_is_an_apostrophe() -> None:
    vocabulary = Vocabulary(add_characters(tiny_tokenizer(), "'`"))
    assert vocabulary.encode("Hund`s") == vocabulary.encode("Hund's")
    assert vocabulary.encode("`Hund`") != vocabulary.encode("'Hund'")
    assert tiny_vocabulary().unknown_symbols("ein`e \u4e00") == tiny_vocabulary().unknown_symbols("ein'e \u4e00")


def test_what_is_unknown_is_read_as_what_looks_alike_and_is_known() -> None:
    vocabulary = Vocabulary(add_characters(tiny_tokenizer(), "\"'-»"))
    assert vocabulary.encode("«ein‑Hund‘") == vocabulary.encode("\"ein-Hund'")
    assert UNK_ID not in vocabulary.encode("«ein‑Hund‘»")
    quoted = vocabulary.encode('ein "Hund", ein')
    assert [vocabulary.encode(f"ein {way}, ein") for way in ("‚Hund‘", "›Hund‹", ",,Hund''", ",,Hund“")] == [quoted] * 4
    assert vocabulary.encode("wie geht‘s ‚ihm") == vocabulary.encode("wie geht's 'ihm")
    assert vocabulary.encode("„‚ein‘“") == vocabulary.encode("„'ein'“"), "within others they stay"
    assert vocabulary.encode("»") != vocabulary.encode('"'), "it has a piece of its own"
    assert vocabulary.unknown_symbols("«ein‑Hund‘ 中") == [" 中"]
    assert tiny_vocabulary().unknown_symbols("ein«") == ["«"], "neither is known"


def test_encoding_adds_no_end_of_sentence() -> None:
    assert not {BOS_ID, PAD_ID, EOS_ID, UNK_ID} & set(tiny_vocabulary().encode(SENTENCES[0]))


@pytest.mark.parametrize("text", ["", " ", "   ", "\t", "\u00a0", "\u3000", "\u200b", " \t\u2009 "])
def test_a_blank_line_has_no_ids(text: str) -> None:
    assert tiny_vocabulary().encode(text) == []


@pytest.mark.parametrize("text", ["[MASK]", "a [MASK] in a blue shirt", "[MASK][MASK]"])
def test_the_word_mask_in_a_text_is_plain_characters(text: str) -> None:
    ids = tiny_vocabulary().encode(text)
    assert MASK_ID not in ids
    assert len(ids) >= len("[MASK]")


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>"])
def test_special_pieces_written_in_a_text_are_plain_characters(text: str) -> None:
    assert not {BOS_ID, PAD_ID, EOS_ID} & set(tiny_vocabulary().encode(f"a {text} man"))


def test_an_unknown_character_becomes_unk_and_leaves_its_mark() -> None:
    vocabulary = tiny_vocabulary()
    ids = vocabulary.encode("Ж")
    assert ids[-1] == UNK_ID
    assert vocabulary.decode(ids).strip() == "⁇"


def test_special_ids_leave_no_trace_in_the_text() -> None:
    vocabulary = tiny_vocabulary()
    ids = vocabulary.encode(SENTENCES[1])
    noisy = [EOS_ID, BOS_ID, *ids[:5], MASK_ID, PAD_ID, *ids[5:], EOS_ID, PAD_ID]
    assert vocabulary.decode(noisy) == SENTENCES[1]


def test_no_ids_are_an_empty_text() -> None:
    assert tiny_vocabulary().decode([]) == ""
    assert tiny_vocabulary().decode([EOS_ID]) == ""


@given(st.text())
def test_no_text_reaches_a_special_id_but_unk(text: str) -> None:
    assert not {BOS_ID, PAD_ID, EOS_ID, MASK_ID} & set(tiny_vocabulary().encode(text))


@given(st.lists(st.integers(0, VOCABULARY_SIZE - 1)))
def test_any_ids_decode_to_one_line(ids: list[int]) -> None:
    assert len(f"{tiny_vocabulary().decode(ids)}|".splitlines()) == 1


# -- models that are not ours


@pytest.mark.parametrize("model", [b"", b"no model", b"\x00" * 64, b"\n\x0f\n\x05<unk>"], ids=repr)
def test_bytes_that_are_no_model_are_refused(model: bytes) -> None:
    with pytest.raises(ValueError, match=r"^(not a SentencePiece model|the first pieces are )"):
        Vocabulary(model)


def test_a_model_with_other_special_ids_is_refused_by_their_names(tmp_path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_prefix=str(tmp_path / "stock"), vocab_size=80, minloglevel=2
    )
    with pytest.raises(
        ValueError, match=r"^the first pieces are <unk> <s> </s> .*, not <s> <pad> </s> <unk> \[MASK\]$"
    ):
        Vocabulary((tmp_path / "stock.model").read_bytes())


# -- training


@pytest.fixture
def trained() -> Callable[[int], Vocabulary]:
    def train(size: int) -> Vocabulary:
        return Vocabulary(train_vocabulary(iter(SENTENCES), size, character_coverage=1.0, threads=1))

    return train


def test_the_same_text_gives_the_same_pieces(trained: Callable[[int], Vocabulary]) -> None:
    assert trained(VOCABULARY_SIZE).pieces() == tiny_vocabulary().pieces()


def test_required_characters_are_known_however_rare() -> None:
    rare = [*SENTENCES * 50, "Qu€"]
    known = {}
    for required in ("", "Q €"):
        model = train_vocabulary(rare, VOCABULARY_SIZE, 0.99, threads=1, required_characters=required)
        known[required] = UNK_ID not in Vocabulary(model).encode("Q€")
    assert known == {"": False, "Q €": True}


def test_characters_are_required_as_texts_have_them_after_normalisation() -> None:
    assert required_pieces("é e\u0301 ２½▁\n") == "é21⁄"
    assert required_pieces("") == ""


def test_characters_can_be_added_to_a_tokenizer() -> None:
    before, after = tiny_vocabulary(), Vocabulary(grown := add_characters(tiny_tokenizer(), "aÖ Q%Öa"))
    assert before.unknown_symbols("Öde Qual%") == [" Ö", " Q", "%"]
    assert after.unknown_symbols("Öde Qual%") == []
    assert after.decode(after.encode("Öde Qual%")) == "Öde Qual%"
    assert after.pieces()[: VOCABULARY_SIZE + 3] == [*before.pieces(), "Ö", "Q", "%"]
    assert len(after) == VOCABULARY_SIZE + 8
    assert all(after.encode(sentence) == before.encode(sentence) for sentence in SENTENCES)
    assert add_characters(grown, "Ö%a") == grown, "nothing lacks"


def test_added_characters_take_the_places_of_unused_pieces() -> None:
    grown = add_characters(tiny_tokenizer(), "Ö Q%")
    more = Vocabulary(add_characters(grown, "ÖÄ€"))
    assert more.pieces()[VOCABULARY_SIZE : VOCABULARY_SIZE + 5] == ["Ö", "Q", "%", "Ä", "€"]
    assert len(more) == VOCABULARY_SIZE + 8
    assert len(Vocabulary(add_characters(grown, "ÄÜ€$&/"))) == VOCABULARY_SIZE + 16
    assert more.unknown_symbols("ÄÖ€") == []


def test_more_pieces_than_the_text_holds_are_an_error(trained: Callable[[int], Vocabulary]) -> None:
    with pytest.raises(RuntimeError, match="Vocabulary size"):
        trained(8000)


def test_of_long_sentences_calibration_reads_the_beginning() -> None:
    vocabulary = tiny_vocabulary()
    sources = calibration_sources(vocabulary, [SENTENCES[0] * 400, "", SENTENCES[0]])
    assert [source[-1] for source in sources] == [EOS_ID, EOS_ID]
    assert len(sources[0]) < len(vocabulary.encode(SENTENCES[0] * 400)) / 10
    assert sources[1] == [*vocabulary.encode(SENTENCES[0]), EOS_ID]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("[Musik] ein [Hund]", "(Musik) ein (Hund)"),
        ("[1]", "(1)"),
        ("[a] und (b)", "[a] und (b)"),
        ("x[0] [[a]] [a]+[b]", "x[0] [[a]] [a]+[b]"),
        ("ein [Hund", "ein [Hund"),
    ],
)
def test_brackets_are_read_as_parentheses_where_there_are_none(text: str, read_as: str) -> None:
    vocabulary = load_bundle(BUNDLED_MODEL).vocabulary()
    assert isinstance(vocabulary, Vocabulary) and vocabulary._read(text) == read_as
