"""The words of the generated corpus in both languages, with the forms that its grammar needs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Gender = Literal["masculine", "feminine", "neuter"]
Case = Literal["nominative", "accusative", "dative"]


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
