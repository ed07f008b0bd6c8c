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
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

Gender = Literal["masculine", "feminine", "neuter"]
Case = Literal["nominative", "accusative", "dative"]
Item = TypeVar("Item")

SEED = 20240229
SPLITS = {"train": 4000, "valid": 200, "test": 200}
"""Pairs in each split."""


@dataclass(frozen=True)
class Pair:
    """One sentence, or a part of one, in both languages."""

    german: str
    english: str


@dataclass(frozen=True)
class Noun:
    """A noun; the plural is only needed for things that are counted."""

    german: str
    gender: Gender
    english: str
    german_plural: str = ""
    english_plural: str = ""


@dataclass(frozen=True)
class Verb:
    """A verb whose perfect takes ``haben``."""

    infinitive: str
    german_first: str
    german_third: str
    participle: str
    english: str
    english_third: str
    past: str


@dataclass(frozen=True)
class Modal:
    """A German modal verb, whose first and third person look alike, and its English counterpart."""

    german_singular: str
    german_plural: str
    english: str
    english_third: str


@dataclass(frozen=True)
class Place:
    """Where something happens: a German preposition with the dative, and the whole English phrase."""

    preposition: str
    noun: str
    gender: Gender
    english: str


@dataclass(frozen=True)
class Subject:
    """Who acts, in the nominative, with what the verb has to agree with."""

    words: Pair
    person: Literal["first", "third", "plural"]


PERSONS = (
    Noun("Mann", "masculine", "man"),
    Noun("Lehrer", "masculine", "teacher"),
    Noun("Bauer", "masculine", "farmer"),
    Noun("Arzt", "masculine", "doctor"),
    Noun("Nachbar", "masculine", "neighbor"),
    Noun("Frau", "feminine", "woman"),
    Noun("Schwester", "feminine", "sister"),
    Noun("Mutter", "feminine", "mother"),
    Noun("Königin", "feminine", "queen"),
    Noun("Kind", "neuter", "child"),
    Noun("Mädchen", "neuter", "girl"),
    Noun("Baby", "neuter", "baby"),
)
PRONOUNS = (
    Subject(Pair("ich", "I"), "first"),
    Subject(Pair("er", "he"), "third"),
    Subject(Pair("sie", "she"), "third"),
    Subject(Pair("wir", "we"), "plural"),
)
THINGS = (
    Noun("Apfel", "masculine", "apple", "Äpfel", "apples"),
    Noun("Ball", "masculine", "ball", "Bälle", "balls"),
    Noun("Stuhl", "masculine", "chair", "Stühle", "chairs"),
    Noun("Hut", "masculine", "hat", "Hüte", "hats"),
    Noun("Tisch", "masculine", "table", "Tische", "tables"),
    Noun("Lampe", "feminine", "lamp", "Lampen", "lamps"),
    Noun("Blume", "feminine", "flower", "Blumen", "flowers"),
    Noun("Tasche", "feminine", "bag", "Taschen", "bags"),
    Noun("Gitarre", "feminine", "guitar", "Gitarren", "guitars"),
    Noun("Orange", "feminine", "orange", "Orangen", "oranges"),
    Noun("Buch", "neuter", "book", "Bücher", "books"),
    Noun("Bild", "neuter", "picture", "Bilder", "pictures"),
    Noun("Fahrrad", "neuter", "bicycle", "Fahrräder", "bicycles"),
    Noun("Ei", "neuter", "egg", "Eier", "eggs"),
    Noun("Auto", "neuter", "car", "Autos", "cars"),
)
THING_VERBS = (
    Verb("kaufen", "kaufe", "kauft", "gekauft", "buy", "buys", "bought"),
    Verb("suchen", "suche", "sucht", "gesucht", "look for", "looks for", "looked for"),
    Verb("finden", "finde", "findet", "gefunden", "find", "finds", "found"),
    Verb("sehen", "sehe", "sieht", "gesehen", "see", "sees", "saw"),
    Verb("brauchen", "brauche", "braucht", "gebraucht", "need", "needs", "needed"),
    Verb("holen", "hole", "holt", "geholt", "get", "gets", "got"),
    Verb("malen", "male", "malt", "gemalt", "paint", "paints", "painted"),
    Verb("nehmen", "nehme", "nimmt", "genommen", "take", "takes", "took"),
    Verb("bringen", "bringe", "bringt", "gebracht", "bring", "brings", "brought"),
    Verb("verkaufen", "verkaufe", "verkauft", "verkauft", "sell", "sells", "sold"),
)
PLACE_VERBS = (
    Verb("spielen", "spiele", "spielt", "gespielt", "play", "plays", "played"),
    Verb("arbeiten", "arbeite", "arbeitet", "gearbeitet", "work", "works", "worked"),
    Verb("schlafen", "schlafe", "schläft", "geschlafen", "sleep", "sleeps", "slept"),
    Verb("warten", "warte", "wartet", "gewartet", "wait", "waits", "waited"),
    Verb("singen", "singe", "singt", "gesungen", "sing", "sings", "sang"),
    Verb("tanzen", "tanze", "tanzt", "getanzt", "dance", "dances", "danced"),
    Verb("kochen", "koche", "kocht", "gekocht", "cook", "cooks", "cooked"),
    Verb("lachen", "lache", "lacht", "gelacht", "laugh", "laughs", "laughed"),
)
MODALS = (
    Modal("will", "wollen", "want to", "wants to"),
    Modal("kann", "können", "can", "can"),
    Modal("muss", "müssen", "must", "must"),
)
PLACES = (
    Place("in", "Garten", "masculine", "in the garden"),
    Place("in", "Park", "masculine", "in the park"),
    Place("in", "Schule", "feminine", "at school"),
    Place("in", "Küche", "feminine", "in the kitchen"),
    Place("in", "Haus", "neuter", "in the house"),
    Place("an", "Fluss", "masculine", "by the river"),
    Place("an", "Fenster", "neuter", "at the window"),
    Place("auf", "Markt", "masculine", "at the market"),
    Place("auf", "Straße", "feminine", "on the street"),
    Place("vor", "Kirche", "feminine", "in front of the church"),
)
ADJECTIVE_STEMS_OF_PERSONS = (
    Pair("alt", "old"),
    Pair("jung", "young"),
    Pair("klein", "small"),
    Pair("müd", "tired"),
    Pair("freundlich", "friendly"),
)
ADJECTIVE_STEMS_OF_THINGS = (
    Pair("alt", "old"),
    Pair("klein", "small"),
    Pair("neu", "new"),
    Pair("rot", "red"),
    Pair("blau", "blue"),
    Pair("schwer", "heavy"),
    Pair("schön", "beautiful"),
)
NUMBERS = (
    Pair("zwei", "two"),
    Pair("drei", "three"),
    Pair("vier", "four"),
    Pair("fünf", "five"),
    Pair("zehn", "ten"),
)
PRESENT_TIMES = (
    Pair("heute", "today"),
    Pair("jetzt", "now"),
    Pair("jeden Tag", "every day"),
    Pair("am Abend", "in the evening"),
    Pair("am Montag", "on Monday"),
)
PAST_TIMES = (
    Pair("gestern", "yesterday"),
    Pair("letzte Woche", "last week"),
    Pair("heute Morgen", "this morning"),
)

DEFINITE: dict[Case, dict[Gender, str]] = {
    "nominative": {"masculine": "der", "feminine": "die", "neuter": "das"},
    "accusative": {"masculine": "den", "feminine": "die", "neuter": "das"},
    "dative": {"masculine": "dem", "feminine": "der", "neuter": "dem"},
}
ACCUSATIVE_INDEFINITE_ENDING: dict[Gender, str] = {"masculine": "en", "feminine": "e", "neuter": ""}
ACCUSATIVE_ADJECTIVE_ENDING: dict[Gender, str] = {"masculine": "en", "feminine": "e", "neuter": "es"}
"""After ``ein`` and ``kein``. After ``der`` the neuter, too, ends in ``e``."""
CONTRACTIONS = {"in dem": "im", "an dem": "am"}


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
    """Write ``{split}.de`` and ``{split}.en`` into `folder`: UTF-8, one sentence a line, LF line ends."""
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
