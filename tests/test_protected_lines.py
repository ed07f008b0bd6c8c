"""What is said of a protected line beside its text: tokens, warnings, alternatives, alignment."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from protecting import Model, Words, keeps_carriers, stream_of, translated
from scripted import DEFAULTS, SENTENCES, ScriptedEngine, scripted_translator, tiny_vocabulary

from specmt.alignment import Aligner, Pairs, _word_of_each
from specmt.assembly import Part, Rendered
from specmt.decoding.hypotheses import Iteration, ReplayCounts
from specmt.errors import UsageError
from specmt.line_alignment import LineAligner
from specmt.protection.finding import KINDS
from specmt.protection.protection import Protection
from specmt.settings import DecodingSettings
from specmt.streams.inputs import jsonl_parser
from specmt.text.guards import LineWarning
from specmt.text.segmentation import Segment, Splitting
from specmt.text.vocabulary import Vocabulary
from specmt.translation import Alternative, Translation
from specmt.translator import Translator
from specmt.wrapping import Run, Wrapper

STRICT = DecodingSettings.from_defaults(DEFAULTS).strict()
AR = replace(STRICT, strategy="ar")


class Telling(Model):
    """Says of each text what no other has: its length, in characters."""

    def translation(self, index: int, line: str) -> Translation:
        size = len(line)
        return Translation(
            index,
            line,
            self.rule(line),
            -float(size),
            (size, 2),
            (Iteration(0, 0, (size,)), Iteration(0, 0, (2,))),
            source_ids=(size,) * size,
            token_log_probs=(-0.5, -size),
            segments=2,
            decoded=1,
            warnings=(LineWarning.UNKNOWN_COPIED, [LineWarning.REPETITION, LineWarning.LENGTH_LIMIT][size % 2]),
            replay=ReplayCounts(1, size),
        )


def test_a_line_in_pieces_has_all_that_they_have() -> None:
    (one,) = translated(Protection(Words()), ["ein <br> hund <hr> {x}"], Telling(str.upper))
    assert one == Translation(
        0,
        "ein <br> hund <hr> {x}",
        "EIN <br> HUND <hr> {x}",
        -25 / 7,
        (3, 2, 4, 2),
        tuple(Iteration(0, 0, (id_,)) for id_ in (3, 2, 4, 2)),
        source_ids=(3, 3, 3, 4, 4, 4, 4),
        token_log_probs=(-0.5, -3, -0.5, -4),
        segments=4,
        decoded=2,
        warnings=(LineWarning.UNKNOWN_COPIED, LineWarning.LENGTH_LIMIT, LineWarning.REPETITION),
        replay=ReplayCounts(2, 7),
    )


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("<p>ein satz</p>", (8, 2)),
        ("<p>ein</p> {x} ist", (3, 2, 7, 2)),
        ("<b>ein</b> {x} ist", (11, 2)),
        ("<b>eine</b> <br> an <i>das</i>", (4, 2, 6, 2)),
        ("{x} an <p> {y} </p>", (6, 2)),
        ("{x}", ()),
    ],
)
def test_elements_that_the_line_is_translated_without_count_in_it(line: str, ids: tuple[int, ...]) -> None:
    (one,) = translated(Protection(Words()), [line], Telling(keeps_carriers))
    assert one.ids == ids
    assert one.segments == max(len(ids), 1)


def test_a_number_that_is_lost_costs_no_other_sentence_anything() -> None:
    model = Model(lambda text: text.upper().replace("31.", "THAT") if "31." in text else text.upper())
    line = "Zum 31. Mai ist <b>es</b> fertig. Er hat 20 Euro. Sie  auch."
    (one,) = translated(Protection(Words(), language="de"), [line], model)
    assert one.text == "ZUM 31. MAI IST <b>ES</b> FERTIG. ER HAT 20 EURO. SIE  AUCH."
    assert any("Er hat 20 Euro." in call for call in model.calls)


def test_numbers_that_come_out_by_themselves_do_not_part_a_line() -> None:
    model = Model(lambda text: re.sub(r"\b(31|12|47|17|50|100|1995|2013|1990|23|7)\b", "many", text.upper()))
    (one,) = translated(Protection(Words()), ["er hat 31 hunde und 3 katzen"], model)
    assert one.text == "ER HAT 31 HUNDE UND 3 KATZEN"
    assert model.calls[-1] == ["er hat", "hunde und 3 katzen"]


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("<b>nicht</b> alle", "nicht alle"),
        ("er hat <b>nichts.</b>", "er hat nichts."),
        ("<b>halt!</b> er kommt", "er kommt"),
        ("er kommt. <i>mehr</i>", "er kommt."),
        ("<p>er</p> sie", "sie"),
    ],
)
def test_an_element_is_translated_with_the_sentence_that_it_is_in(line: str, sent: str) -> None:
    model = Model(keeps_carriers)
    translated(Protection(Words()), [line], model)
    assert sent in [text for call in model.calls for text in call]


@pytest.mark.parametrize(
    "tag",
    [
        *("address", "blockquote", "caption", "dd", "dt", "div", "h1", "h2", "h3", "h4", "h5", "h6"),
        *("label", "li", "LI", "option", "p", "P", "td", "th", "title"),
    ],
)
def test_a_block_is_a_text_of_its_own(tag: str) -> None:
    model = Model(keeps_carriers)
    (one,) = translated(Protection(Words()), [f"<{tag}>er</{tag}> geht"], model)
    assert one.text == f"<{tag}>ER</{tag}> GEHT"
    assert model.calls == [["er"], ["geht"]]


def test_alternatives_have_what_stands_at_the_ends_of_the_line() -> None:
    class Listing(Telling):
        def translation(self, index: int, line: str) -> Translation:
            one = super().translation(index, line)
            other = Alternative(f"{one.text}!", -9.0, (5, 2), (-4.0, -5.0))
            best = Alternative(one.text, one.score, one.ids, one.token_log_probs)
            return replace(one, n_best=(best, other))

    (one,) = translated(Protection(Words()), ["<p>ein</p> {x} ist"], Listing(keeps_carriers))
    assert one.n_best == (
        Alternative("<p>EIN</p> {x} IST", -5.8, (3, 2, 7, 2), (-0.5, -3, -0.5, -7)),
        Alternative("<p>EIN</p> {x} IST!", -7.2, (3, 2, 5, 2), (-0.5, -3, -4.0, -5.0)),
    )
    assert (one.text, one.score, one.ids) == (one.n_best[0].text, one.n_best[0].score, one.n_best[0].ids)


def test_what_happened_to_an_element_by_itself_is_told_where_its_text_is_taken() -> None:
    class Warned(Model):
        def translation(self, index: int, line: str) -> Translation:
            one = super().translation(index, line)
            return replace(one, warnings=(LineWarning.COPIED,)) if line == "das" else one

    # By itself the content has another translation than in the line, so a carrier takes the element's place.
    model = Warned(lambda text: "IT" if text == "das" else keeps_carriers(text))
    (one,) = translated(Protection(Words()), ["klick <b>das</b> an"], model)
    assert (one.text, one.warnings) == ("KLICK <b>IT</b> AN", (LineWarning.COPIED,))


@pytest.mark.parametrize("line", ["x", "<b>x</b>", "x <br> x"])
def test_a_reproducible_line_is_so_whenever_its_text_is_translated_again(line: str) -> None:
    translator = scripted_translator(ScriptedEngine())
    records = [{"source": line.replace("x", SENTENCES[0]) + " {y}", "reproducible": asked} for asked in (True, False)]
    stream, protection = stream_of(*map(json.dumps, records), parser=jsonl_parser), Protection(translator.vocabulary)
    translations = list(
        translator.translate_stream(stream, AR, batch_size=2, wrapper=protection, lines_have_options=True)
    )
    assert [one.replay is not None for one in translations] == [True, False]
    assert translations[0].text == translations[1].text


class Diagonal(Aligner):
    """Pairs words in their order, as far as both sides have some; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def words(self, source_ids: Sequence[int], target_ids: Sequence[int], vocabulary: Vocabulary) -> Pairs:
        self.asked.append((vocabulary.decode(source_ids), vocabulary.decode(target_ids)))
        counted = min(_word_of_each(ids, vocabulary)[-1] for ids in (source_ids, target_ids))
        return tuple((word, word) for word in range(counted + 1))


def diagonal(source: str, text: str) -> Pairs:
    return tuple((word, word) for word in range(min(len(source.split()), len(text.split()))))


class Saying:
    """A wrapper that has one thing translated and says another, whatever the line."""

    def __init__(self, asked: str, said: str) -> None:
        self.asked, self.said = asked, said

    def before(self, line: str) -> tuple[str, bool]:
        return self.asked, True

    def after(self, prepared: bool, translation: Translation, run: Run) -> Translation:
        n_best = tuple(replace(one, text=f"{self.said} {one.text}") for one in translation.n_best)
        return replace(translation, text=n_best[0].text if n_best else self.said, n_best=n_best)


def aligned(line: str, wrapper: Wrapper | None, aligner: Aligner, **settings: object) -> Translation:
    translator = Translator(
        ScriptedEngine(), tiny_vocabulary(), DEFAULTS, splitting=Splitting("de", 200), aligner=lambda: aligner
    )
    chosen = replace(AR, align=True, **settings)  # type: ignore[arg-type]
    (translation,) = translator.translate_stream(stream_of(line), chosen, batch_size=1, wrapper=wrapper)
    return translation


@pytest.mark.parametrize("line", [f"{SENTENCES[0]} {{x}} im Schnee {{y}}", f"<b>{SENTENCES[2]}</b> <br> Haus"])
def test_the_finished_texts_are_aligned(line: str) -> None:
    one = aligned(line, Protection(tiny_vocabulary()), Diagonal(), split=False)
    assert one.alignment == diagonal(line, one.text) and len(one.alignment) > 5


def test_every_finished_alternative_is_aligned() -> None:
    one = aligned("zwei Hunde " * 9, Saying(SENTENCES[2], "so, so"), Diagonal(), beam=3, n_best=3)
    assert [each.alignment for each in one.n_best] == [diagonal("zwei Hunde " * 9, each.text) for each in one.n_best]
    assert len({each.text for each in one.n_best}) == 3
    assert one.alignment == one.n_best[0].alignment


@pytest.mark.parametrize("said", ["", " ", "\u200b"])
def test_nothing_aligns_with_a_blank_text(said: str) -> None:
    assert aligned("Ein Mann", Saying(SENTENCES[0], said), Diagonal()).alignment == ()


def test_alignment_with_another_vocabulary_is_one_line() -> None:
    class Foreign:
        """As that of a converted model, which no aligner reads."""

        def __getattr__(self, name: str) -> object:
            return getattr(tiny_vocabulary(), name)

    with pytest.raises(UsageError, match="--alignment"):
        list(Translator(ScriptedEngine(), Foreign(), DEFAULTS).translate([SENTENCES[0]], replace(AR, align=True), 1))


def test_a_line_that_comes_out_as_it_was_translated_keeps_its_alignment() -> None:
    line = f"{SENTENCES[0]} {SENTENCES[2]}"
    plain, asked, again = aligned(line, None, first := Diagonal()), first.asked, Diagonal()
    assert aligned(line, Saying(line, plain.text), again) == plain
    assert again.asked == asked and len(asked) == 2


@pytest.mark.parametrize(
    ("said", "asked", "pairs"),
    [
        (
            "A dog. A man is old.",
            [("Ein Hund steht.", "A dog."), ("Ein Mann.", "A man is old.")],
            ((0, 0), (1, 1), (3, 2), (4, 3)),
        ),
        ("A dog and", [("Ein Hund steht. Ein Mann.", "A dog and")], ((0, 0), (1, 1), (2, 2))),
        ("dog " * 1025, [], ()),
    ],
)
def test_finished_texts_are_aligned_by_sentences_where_both_have_as_many(
    said: str, asked: list[tuple[str, str]], pairs: Pairs
) -> None:
    aligner = Diagonal()
    assert aligned("Ein Hund steht. Ein Mann.", Saying("Mann", said), aligner).alignment == pairs
    assert aligner.asked[1:] == asked  # the first is what the model was given


@pytest.mark.parametrize(
    ("line", "pairs"),
    [
        ("steht´s hinter", ((0, 0), (0, 1), (1, 2))),
        ("das \u200b Haus", ((0, 0), (2, 1))),
        ("das Haus", ((0, 0), (1, 1))),
    ],
)
def test_pairs_count_the_words_between_white_space_whatever_normalising_makes_of_them(line: str, pairs: Pairs) -> None:
    assert aligned(line, Saying("Mann", "a b c d"), Diagonal()).alignment == pairs


def test_pairs_name_no_word_that_the_translation_has_not() -> None:
    """An id may begin a word of which the text has nothing."""
    ids = tuple(tiny_vocabulary().encode("ein mann"))
    rendered = Rendered("ein", 0.0, kept_ids=ids)
    part = Part(Segment("ein mann", ids), (rendered,))
    assert LineAligner(Diagonal(), tiny_vocabulary(), None).parts([part], rendered) == ((0, 0), (1, 0))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (KINDS, ["Müller's Grüße für &lt;b&gt; 5\u00a0€ &quux; &#10;"]),
        (["number"], ["M&uuml;ller&#39;s Gr&uuml;&szlig;e f&uuml;r &lt;b&gt; 5&nbsp;&euro; &quux; &#10;"]),
    ],
)
def test_entities_of_characters_are_these_but_for_markup(kinds: Sequence[str], expected: list[str]) -> None:
    line = "M&uuml;ller&#39;s Gr&uuml;&szlig;e f&uuml;r &lt;b&gt; 5&nbsp;&euro; &quux; &#10;"
    (one,) = translated(Protection(Words(), kinds), [line], Model(lambda text: text))
    assert ([one.text], one.source, one.unplaced) == (expected, line, ())
