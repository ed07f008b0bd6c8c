"""German without capitals, as it is typed in chats: nouns and the sentence get the capitals that they ordinarily have.

Models know nouns by these: of `mutter`, which they have hardly seen, they make `mud`. Whether a word is a noun, the
vocabulary says by the spelling that is the more common, and what stands around the word and what it ends with help.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise

from specmt.text.vocabulary import Vocabulary

_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
_JOINED = frozenset("#$%&*/:@[\\_{")
"""What stands before a word that is a name in a program or a network, and begins no sentence."""
_HARDLY_NOUNS = (
    "ich du er sie es wir ihr man wer was wen wem wo wie wann warum wieso woher wohin wobei mich dich sich uns euch "
    "mir dir ihm ihn ihnen der die das den dem des ein eine einen einem einer eines kein keine mein meine dein deine "
    "sein seine ihre ihren unser unsere diese dieser dieses diesen jede jeder jedes jemand einige viele alle welche "
    "welcher welches und oder aber denn doch dass wenn weil ob als falls im in an am auf aus bei mit nach seit von "
    "vom vor zu zum zur für bis über unter um durch gegen ohne ist sind war hat haben kann können könnte nehmen so "
    "nur auch sehr neu nicht ja nein bitte danke hier da dort dann jetzt heute morgen gestern eins zwei drei vier "
    "fünf sechs sieben acht neun zehn hab mal paar innerhalb elf zwölf hundert tausend bzgl bzw ca etc evtl ggf inkl "
    "max min sog tel usw vgl"
)
_SMALL = frozenset(_HARDLY_NOUNS.split())
"""Words, and abbreviations, that are hardly ever nouns, but as common with a capital, as sentences begin with them."""
_DETERMINER = re.compile(
    r"d(?:er|ie|as|en|em|es)|(?:[mds]?ein|kein|ihr|unser|eue?r)(?:e[nmrs]?)?|im|am|zum|zur|ins|ans|vom|beim"
)
"""What stands before nouns, mostly."""
_NOUN = re.compile(r"\w{3,}(?:(?:ung|heit|keit|schaft|ität|ion|enz|anz)(?:s|en)?|ismus|nis(?:se)?|tum|ling(?:e|s)?)")
_PARTICIPLE = re.compile(
    r"(?:(?:auf|ein|vor)?ge|ver|er|ent|miss|durch)(?:l|s|r|zw|spr|dr|schl|kl|schw)ungen",
)
"""Of these, `gelungen` and the like are no nouns."""
_ADJECTIVE = re.compile(
    r"\w{2,}(?:(?:ig|lich|isch|los|haft|sam|bar|voll|farben|iv|[aä]l|ell)(?:st)?(?:e[rnms]?)?|end(?:e[rnms]?)?|weise|wärts)"
)
_VERB = re.compile(
    r"\w{2,}(?:ier(?:en?|t(?:e[rnms]?)?)|s?t|te[rnms]?|zu\w+en)"
    r"|(?:ab|an|auf|aus|be|bei|dar?|durch|ein|emp|ent|er|fest|fort|ge|her(?:aus|ein|um|unter|vor)?"
    r"|hin(?:aus|ein|unter|zu)?|los|miss|mit|nach|über|um|un|unter|ver|vor|weg|weiter|wieder|zer|zu|zurück|zusammen)"
    r"\w{3,}(?:en?|em|es|elt?|ern)"
)
"""Verbs and participles, by how they end, or begin and end; a few nouns do as well."""
_MARGIN, _MARGIN_BEFORE_NOUN, _MARGIN_OF_VERB = 0.0, 2.0, 5.0
"""Nats by which a word must be more common with a capital."""
_MARGIN_BEHIND_DETERMINER = -3.0
"""The same where no noun stands behind it."""
_MARGIN_OF_ABBREVIATION = 1.0
"""Nats by which a word must be more common in capitals."""
_COMPOUND = 2
"""Pieces from which on how a word ends says what it is."""
_LONGEST = 60
"""Letters of a word, at most: endings are sought in time that grows with the square."""
_RARE = 3
"""Pieces from which on a word counts as a noun if nothing speaks against it."""


class Nouns:
    """Finds the nouns of German sentences in small letters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._spelling = lru_cache(maxsize=10_000)(self._best)

    def with_capitals(self, text: str) -> str:
        """A sentence, composed (NFC), that begins with a capital, as do its nouns; words with capitals stay."""
        words = list(_WORD.finditer(text))
        parted = [bool(text[one.end() : two.start()].strip()) for one, two in pairwise(words)]
        spelt = [self._spelling(word[0], _MARGIN) for word in words]
        for place, word in enumerate(words):
            before_noun = place < len(parted) and not parted[place] and spelt[place + 1] != words[place + 1][0]
            if before_noun:
                spelt[place] = self._spelling(word[0], _MARGIN_BEFORE_NOUN)
            elif place and not parted[place - 1] and _DETERMINER.fullmatch(words[place - 1][0]):
                spelt[place] = self._spelling(word[0], _MARGIN_BEHIND_DETERMINER)
        made, end = [], 0
        for word, way in zip(words, spelt, strict=True):
            is_name = text[max(word.start() - 1, 0) : word.start()] in _JOINED
            begun = way if end else way[0].upper() + way[1:]
            made += [text[end : word.start()], word[0] if is_name else begun]
            end = word.end()
        return "".join([*made, text[end:]])

    def _best(self, word: str, margin: float) -> str:
        """A word, with a capital if it is a noun; in capitals if it is an abbreviation."""
        if word in _SMALL or not 2 <= len(word) <= _LONGEST or word != word.lower():
            return word
        with_capital = _capitalised(word)
        small, capitalised, capitals = map(self._vocabulary.commonness, (word, with_capital, word.upper()))
        if capitals > max(small, capitalised) + _MARGIN_OF_ABBREVIATION:
            return word.upper()
        pieces = [len(self._vocabulary.encode(way)) for way in (word, with_capital)]
        if min(pieces) >= _COMPOUND and _NOUN.fullmatch(word) and not _PARTICIPLE.fullmatch(word):
            return with_capital
        if pieces[1] > 1 and _ADJECTIVE.fullmatch(word):
            return word
        is_verb = pieces[0] >= _COMPOUND and _VERB.fullmatch(word)
        if min(pieces) >= _RARE and word.isalpha() and not is_verb:
            return with_capital
        return with_capital if capitalised > small + (_MARGIN_OF_VERB if is_verb else margin) else word


def _capitalised(word: str) -> str:
    return "-".join(part.capitalize() for part in word.split("-"))
