"""Write the small German-English corpus on which the whole training pipeline is tested end to end.

A template grammar with a fixed seed: the same bytes on every machine. It holds what makes German to English more than
a word-by-word copy (gender and case agreement, the verb in second or last place, inversion after a time, two-part
perfect and modal forms against English do-support), in so few words that a tiny Transformer learns it within seconds.

    python scripts/generate_smoke_corpus.py --to data/smoke

writes ``{train,valid,test}.{de,en}``; line N of a ``.de`` file and line N of its ``.en`` file are translations. No
German sentence occurs twice, in one split or in two.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from smoke_words import (
    ACCUSATIVE_ADJECTIVE_ENDING,
    ACCUSATIVE_INDEFINITE_ENDING,
    ADJECTIVE_STEMS_OF_PERSONS,
    ADJECTIVE_STEMS_OF_THINGS,
    CONTRACTIONS,
    DEFINITE,
    MODALS,
    NUMBERS,
    PAST_TIMES,
    PERSONS,
    PLACE_VERBS,
    PLACES,
    PRESENT_TIMES,
    PRONOUNS,
    THING_VERBS,
    THINGS,
    Pair,
    Place,
    Subject,
    Verb,
)

Item = TypeVar("Item")

SEED = 20240229
SPLITS = {"train": 4000, "valid": 200, "test": 200}
"""Pairs in each split."""


class Grammar:
    """Draws sentences from the templates with a random generator of its own.

    Only ``Random.random`` is used: the one method whose sequence Python promises to keep between versions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random

    def sentence(self) -> Pair:
        """One sentence from a template that is drawn evenly from all of them."""
        templates: tuple[Callable[[], Pair], ...] = (
            self.statement_about_a_thing,
            self.statement_about_a_place,
            self.inverted_statement,
            self.negation,
            self.yes_no_question,
            self.where_question,
            self.what_question,
            self.modal_statement,
            self.perfect_statement,
            self.subordinate_clause,
        )
        return self._choose(templates)()

    def statement_about_a_thing(self) -> Pair:
        """Verb second: *Die alte Frau kauft heute einen roten Apfel*."""
        subject, verb = self._subject(), self._choose(THING_VERBS)
        time, thing = self._choose(PRESENT_TIMES), self._object()
        return statement(
            f"{subject.words.german} {german_present(verb, subject)} {time.german} {thing.german}",
            f"{subject.words.english} {english_present(verb, subject)} {thing.english} {time.english}",
        )

    def statement_about_a_place(self) -> Pair:
        """Time before place, place before time: *Das Kind spielt heute im Garten*."""
        subject, verb = self._subject(), self._choose(PLACE_VERBS)
        time, place = self._choose(PRESENT_TIMES), self._choose(PLACES)
        return statement(
            f"{subject.words.german} {german_present(verb, subject)} {time.german} {dative_phrase(place)}",
            f"{subject.words.english} {english_present(verb, subject)} {place.english} {time.english}",
        )

    def inverted_statement(self) -> Pair:
        """A time in front sends the subject behind the verb: *Heute kauft die Frau drei rote Äpfel*."""
        subject, verb = self._subject(), self._choose(THING_VERBS)
        time, thing = self._choose(PRESENT_TIMES), self._object()
        return statement(
            f"{time.german} {german_present(verb, subject)} {subject.words.german} {thing.german}",
            f"{time.english} {subject.words.english} {english_present(verb, subject)} {thing.english}",
        )

    def negation(self) -> Pair:
        """*kein* against do-support: *Der Mann kauft keinen roten Apfel*."""
        subject, verb, thing = self._subject(), self._choose(THING_VERBS), self._indefinite_thing("kein")
        return statement(
            f"{subject.words.german} {german_present(verb, subject)} {thing.german}",
            f"{subject.words.english} {do(subject)} not {verb.english} {thing.english}",
        )

    def yes_no_question(self) -> Pair:
        """Verb first, as in *Kauft die Frau heute einen Hut?* against do-support."""
        subject, verb = self._subject(), self._choose(THING_VERBS)
        time, thing = self._choose(PRESENT_TIMES), self._object()
        return question(
            f"{german_present(verb, subject)} {subject.words.german} {time.german} {thing.german}",
            f"{do(subject)} {subject.words.english} {verb.english} {thing.english} {time.english}",
        )

    def where_question(self) -> Pair:
        """Questions such as *Wo schläft das kleine Kind heute?* for the place."""
        subject, verb, time = self._subject(), self._choose(PLACE_VERBS), self._choose(PRESENT_TIMES)
        return question(
            f"wo {german_present(verb, subject)} {subject.words.german} {time.german}",
            f"where {do(subject)} {subject.words.english} {verb.english} {time.english}",
        )

    def what_question(self) -> Pair:
        """Questions such as *Was sucht der Arzt am Abend?* for the thing."""
        subject, verb, time = self._subject(), self._choose(THING_VERBS), self._choose(PRESENT_TIMES)
        return question(
            f"was {german_present(verb, subject)} {subject.words.german} {time.german}",
            f"what {do(subject)} {subject.words.english} {verb.english} {time.english}",
        )

    def modal_statement(self) -> Pair:
        """The infinitive last: *Der Lehrer will heute im Park singen*."""
        subject, modal, verb = self._subject(), self._choose(MODALS), self._choose(PLACE_VERBS)
        time, place = self._choose(PRESENT_TIMES), self._choose(PLACES)
        german_modal = modal.german_plural if subject.person == "plural" else modal.german_singular
        english_modal = modal.english_third if subject.person == "third" else modal.english
        return statement(
            f"{subject.words.german} {german_modal} {time.german} {dative_phrase(place)} {verb.infinitive}",
            f"{subject.words.english} {english_modal} {verb.english} {place.english} {time.english}",
        )

    def perfect_statement(self) -> Pair:
        """The participle last, the simple past in English: *Sie hat gestern ein Buch gefunden*."""
        subject, verb = self._subject(), self._choose(THING_VERBS)
        time, thing = self._choose(PAST_TIMES), self._object()
        have = {"first": "habe", "third": "hat", "plural": "haben"}[subject.person]
        return statement(
            f"{subject.words.german} {have} {time.german} {thing.german} {verb.participle}",
            f"{subject.words.english} {verb.past} {thing.english} {time.english}",
        )

    def subordinate_clause(self) -> Pair:
        """The finite verb last: *Ich glaube, dass der Bauer ein Auto braucht*."""
        subject, verb, thing = self._subject(), self._choose(THING_VERBS), self._object()
        return statement(
            f"ich glaube, dass {subject.words.german} {thing.german} {german_present(verb, subject)}",
            f"I think that {subject.words.english} {english_present(verb, subject)} {thing.english}",
        )

    def _choose(self, items: Sequence[Item]) -> Item:
        return items[int(self._random() * len(items))]

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _subject(self) -> Subject:
        """A pronoun, or a person with the definite article and, half of the time, an adjective."""
        if self._chance(0.3):
            return self._choose(PRONOUNS)
        person = self._choose(PERSONS)
        article = DEFINITE["nominative"][person.gender]
        if self._chance(0.5):
            return Subject(Pair(f"{article} {person.german}", f"the {person.english}"), "third")
        adjective = self._choose(ADJECTIVE_STEMS_OF_PERSONS)
        german = f"{article} {adjective.german}e {person.german}"
        return Subject(Pair(german, f"the {adjective.english} {person.english}"), "third")

    def _object(self) -> Pair:
        """A thing or several things in the accusative: definite, indefinite or counted."""
        kind = self._choose(("definite", "indefinite", "counted"))
        if kind == "indefinite":
            return self._indefinite_thing("ein")
        thing, adjective = self._choose(THINGS), self._choose(ADJECTIVE_STEMS_OF_THINGS)
        if kind == "definite":
            article = DEFINITE["accusative"][thing.gender]
            ending = "en" if thing.gender == "masculine" else "e"
            return Pair(
                f"{article} {adjective.german}{ending} {thing.german}",
                f"the {adjective.english} {thing.english}",
            )
        number = self._choose(NUMBERS)
        return Pair(
            f"{number.german} {adjective.german}e {thing.german_plural}",
            f"{number.english} {adjective.english} {thing.english_plural}",
        )

    def _indefinite_thing(self, article: Literal["ein", "kein"]) -> Pair:
        """A thing with an inflected ``ein`` or ``kein`` and, half of the time, an adjective."""
        thing = self._choose(THINGS)
        inflected = article + ACCUSATIVE_INDEFINITE_ENDING[thing.gender]
        if self._chance(0.5):
            return Pair(f"{inflected} {thing.german}", f"{indefinite_article(thing.english)} {thing.english}")
        adjective = self._choose(ADJECTIVE_STEMS_OF_THINGS)
        german = f"{inflected} {adjective.german}{ACCUSATIVE_ADJECTIVE_ENDING[thing.gender]} {thing.german}"
        english = f"{indefinite_article(adjective.english)} {adjective.english} {thing.english}"
        return Pair(german, english)


def german_present(verb: Verb, subject: Subject) -> str:
    """The present tense that agrees with the subject; the plural looks like the infinitive."""
    forms = {"first": verb.german_first, "third": verb.german_third, "plural": verb.infinitive}
    return forms[subject.person]


def english_present(verb: Verb, subject: Subject) -> str:
    """The present tense that agrees with the subject."""
    return verb.english_third if subject.person == "third" else verb.english


def do(subject: Subject) -> str:
    """The auxiliary of English questions and negations."""
    return "does" if subject.person == "third" else "do"


def indefinite_article(next_word: str) -> str:
    """*a*, or *an* before a vowel."""
    return "an" if next_word[0] in "aeiou" else "a"


def dative_phrase(place: Place) -> str:
    """Preposition, article and noun, with the usual contractions: *im Garten*, *vor der Kirche*."""
    start = f"{place.preposition} {DEFINITE['dative'][place.gender]}"
    return f"{CONTRACTIONS.get(start, start)} {place.noun}"


def statement(german: str, english: str) -> Pair:
    """Both sides as a sentence: first letter upper case, a full stop."""
    return Pair(_capitalised(german) + ".", _capitalised(english) + ".")


def question(german: str, english: str) -> Pair:
    """Both sides as a question: first letter upper case, a question mark."""
    return Pair(_capitalised(german) + "?", _capitalised(english) + "?")


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def generate(seed: int = SEED) -> dict[str, list[Pair]]:
    """The pairs of each split, every German sentence once."""
    grammar = Grammar(seed)
    pairs: dict[str, Pair] = {}
    while len(pairs) < sum(SPLITS.values()):
        pair = grammar.sentence()
        pairs.setdefault(pair.german, pair)
    remaining = iter(pairs.values())
    return {name: [next(remaining) for _ in range(size)] for name, size in SPLITS.items()}


def write(splits: dict[str, list[Pair]], folder: Path) -> None:
    """Write ``{split}.de`` and ``{split}.en`` into `folder`: UTF-8, one sentence per line, LF line ends."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs in splits.items():
        for language, lines in (
            ("de", [pair.german for pair in pairs]),
            ("en", [pair.english for pair in pairs]),
        ):
            (folder / f"{name}.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode())


def main() -> None:
    """Write the corpus into the folder that the command line names."""
    parser = argparse.ArgumentParser(description="Write the generated corpus of the end-to-end test.")
    parser.add_argument("--to", type=Path, default=Path("data/smoke"), help="folder to write (default: data/smoke)")
    write(generate(), parser.parse_args().to)


if __name__ == "__main__":
    main()
