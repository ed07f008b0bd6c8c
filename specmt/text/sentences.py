"""Where the sentences of a text end: what `sentencex` finds, mended where German says otherwise.

In German a number with a full stop is an ordinal, and the noun behind it has a capital: "im 20. Jahrhundert".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import sentencex

from specmt.text.marks import uncovered, unmarked

CARRIER_NAMES = ("Tom", "Mary", "John", "Berlin", "Boston", "Paris", "Obama", "Peter", "Japan", "London")
"""Carriers of spans and terms (see `protection`), the best first; docs/protection.md says how they were found."""

# Patterns that a single sentence does not need are strings: `re` makes them when they are first used, and keeps them.
_TAIL = 60
"""Characters at a sentence's end that say whether it goes on."""
_NEXT_NUMBER = re.compile(r"(?<=[.!?])[\"'“”»«)]*\s+(\d{1,3}\.\s*)$")
"""The number of what follows, behind the end of a sentence."""
_CLOSING = re.compile(r"[’‘‹›»«“”\"']+(?:\s+|$)")
"""Quotation marks that close what stands before them."""
_MARK = re.compile(r"(?<=[.!?])(?:[*†‡]{1,3}|[¹²³⁰⁴-⁹]{1,3})(?=\s|$)")
"""What points to a footnote, behind the end of a sentence."""
_HOLDING = re.compile(r"[„“”»«()\"]")
"""Marks between which `sentencex` ends no sentence."""
_INNER_END = re.compile(r"[.!?]\s+[A-ZÄÖÜ]")
_LETTERS_APART = re.compile(r"(?:^|[\s(.])[^\W\d_]\.\s*$")
"""A letter with a full stop, as in `z. b.`"""
_CARRIERS = re.compile(rf"\b(?:{'|'.join(CARRIER_NAMES)})\b")
"""Names that stand in place of what is protected, and say nothing of how a text is written."""
_CAPITAL = re.compile(r"[„»(\"]*[A-ZÄÖÜ]")
_ENDED = re.compile(r"\w[.!?]+\s*$")
_NUMBERED = re.compile(r"\b\d{1,3}\.\s*$")
_FEWEST_WORDS = 3
"""Of a sentence within another."""
_SMALL_END = re.compile(r"(?:(?<!\.)\.|(?<![!?])[!?]+)\s+(?=[a-zäöü])")
"""The end of a sentence in a text without capitals."""
_ORDINAL = re.compile(r"(?:^|(?P<before>\b[^\W\d_]+)\s+|[^\d.,:\s]\s*|[,:]\s+)\d{1,3}\.\s*$")
_BEFORE_ORDINALS = (
    r"(?i:d(?:er|ie|as|en|em|es)|im|ins|am|ans|vom|zum|zur|beim|ab|bis|seit|vor|nach|und|oder|jede[rnms]?|diese[rnms]?"
    r"|(?:mein|dein|sein|ihr|unser|euer|ein|kein)(?:e[rnms]?)?)"
)
"""Words before an ordinal and its noun."""
_GREAT_ORDINAL = re.compile(
    r"\b(?:d(?:er|ie|as|en|em)|zum|zur|beim|jede[rnms]?|diese[rnms]?|(?:mein|dein|sein|ihr|unser|euer|ein)(?:e[rnms]?)?)"
    r"\s+(?:\d{4}|\d{1,3}\.\d{3})\.\s*$",
    re.IGNORECASE,
)
"""An ordinal that is no year, which stands behind `im`, `seit` or `bis`."""
_COUNTED = (
    r"(?:Jan(?:uar)?|Feb(?:ruar)?|Mrz|März|Apr(?:il)?|Mai|Juni?|Juli?|Aug(?:ust)?|Sept?(?:ember)?|Okt(?:ober)?"
    r"|Nov(?:ember)?|Dez(?:ember)?|Jhd?|Jahrhundert|Jahrtausend|Lebensjahr|Geburtstag|Tag|Woche|Semester|Quartal|Halbjahr"
    r"|Advent|Weltkrieg|Aufl|Auflage|Kapitel|Teil|FC|Bundesliga|Liga|Runde|Minute|Hälfte|Spieltag|Mannschaft|Tor|Titel"
    r"|Sieg|Klasse|Etage|Stock|OG|UG|Obergeschoss|Untergeschoss|Platz|Mal|Bezirk|Generation|Sohn|Sinfonie|Symphonie|Staffel"
    r"|Konzert|Lesung|Kabinett|Wahl|Präsident|Vorsitzende[rn]?|Mahnung)(?:e?s|n)?\b"
)
"""What stands behind ordinals, whatever stands before them."""
BEGINNINGS = (
    r"(?:Ich|Du|Er|Sie|Es|Wir|Ihr|Man|Der|Die|Das|Dies(?:e[rnms]?)?|Ein(?:e[rnms]?)?|Mein(?:e[rnms]?)?|Sein(?:e[rnms]?)?"
    r"|Unser(?:e[rnms]?)?|Kein(?:e[rnms]?)?|Und|Aber|Oder|Doch|Denn|Dann|Danach|Da|Dort|Hier|Jetzt|Heute|Morgen|Gestern"
    r"|So|Wer|Was|Wie|Wo|Wann|Warum|Wenn|Weil|Als|Ob|Obwohl|In|Im|Am|An|Auf|Aus|Bei|Mit|Nach|Seit|Von|Vor|Zu|Für|Bis"
    r"|Nur|Auch|Ja|Nein|Nicht|Leider|Bitte|Danke|Vielen?|Mehr|(?:Liebe|Schöne|Beste|Herzliche) Grüße"
    r"|Alle[ns]?|Allerdings|Anschließend|Außerdem|Bald|Bereits|Bisher|Dabei|Dadurch|Dafür|Daher|Damals|Damit|Daraufhin"
    r"|Darum|Davor|Dazu|Dennoch|Derzeit|Deshalb|Deswegen|Endlich|Inzwischen|Jedoch|Manche|Meist(?:ens)?|Niemand|Noch|Oft"
    r"|Schließlich|Schon|Seitdem|Sobald|Solange|Somit|Sonst|Später|Stattdessen|Trotz|Trotzdem|Viele|Vorher|Während|Weder"
    r"|Weitere|Wenig|Wobei|Zudem|Zuerst|Zuletzt|Zunächst"
    r"|Bin|Bist|Darf|Dürfen|Geht|Gibt|Hab(?:en|t)?|Hast|Hat|Hatten?|Ist|Kann(?:st)?|Könn(?:en|te[nt]?)|Kommst|Kommt|Lasst?"
    r"|Mag|Möchten?|Muss|Müssen|Seid|Sind|Soll(?:en|te[nt]?)?|War(?:en)?|Werden|Wird|Will|Wollen|Würden?)\b"
)
"""Words that begin a sentence, and follow no ordinal."""
_DATE_BEFORE = r"\S\s+(?:(?i:bis )?(?:am|zum|vom)|ab|bis|seit)\s+(?:[1-9]|[12]\d|3[01])\.\s*$"
"""A day of the month, or an ordinal, within a sentence that has begun."""
_SECOND_WORD = (
    r"(?:Herr|Frau|Dr\.|Prof\.) [A-ZÄÖÜ]"
    r"|\w+\s(?!be|er|ge|ver|zer|(?:bereit|dort|erst|fast|fort|gut|jetzt|laut|meist|mit|nicht|oft|seit|selbst|sofort|sonst"
    r"|statt|überhaupt|weit|zuletzt)\b)[a-zäöüß]{3,}t\b"
    r"|\w+\s(?:Sie|du|ihr|wir|ich|er|es|man|sie|bin|bist|ist|sind|seid|war|waren|wird|werden|wurden?|hat|haben|hatten?|kann"
    r"|können|könnten?|muss|müssen|mussten?|darf|dürfen|soll|sollen|sollten?|will|wollen|wollten?|möchten?|gibt|gab|geht"
    r"|gehen|ging|gingen|kommt|kommen|kam|kamen|liegt|liegen|steht|stehen|findet|finden|bleibt|bleiben|beginnt|beginnen"
    r"|endet|enden|gilt|gelten|bringt|bringen|macht|machen|lässt|lassen|fährt|fahren|hält|halten|braucht|brauchen|folgt"
    r"|folgen|kostet|kosten|zahlt|zahlen|spielt|spielen|trifft|treffen|feiert|feiern|öffnet|schließt)\b"
)
"""A finite verb, or who is spoken of, behind a first word: a sentence, and no noun with an ordinal."""
_ABBREVIATION = (
    r"(?:^|[\s(„\"-])(?:Hrn|Frl|Fr|Fa|Fam|Gebr|Tel|[Ii]nkl|incl|exkl|[Ee]inschl|ausschl|max|min|Anm|Abb|Kap|Dipl|Ing"
    r"|Mag|Univ|Abt|Vors|Bhf|Bsp|Bez|Lkr|Pck|Stk|Hrsg|Hg|Verf|geb|gest|gegr|gez|gepr|verh|[Zz]zgl|abzgl|[Gg]gfs?|ggü"
    r"|[Ee]vtl|[Gg]em|[Ww]g|[Vv]gl|[Bb]spw|bzw|ca|div|sog|[Ee]hem|urspr|[Ss]tellv|stv|allg|entspr|[Vv]ersch|freundl"
    r"|herzl|wiss|techn|kaufm|phil|jur|habil|dt|franz|ital|amerik|engl|griech|lat|russ|span|chin|türk|österr|schweiz"
    r"|kath|ev|z\. ?Hd|lt|[Oo]d|[Bb]zgl|[Ii]nsb|[Ii]nsbes|[Ii]nsg|zw|[Mm]ind|[Ss]tädt|Gesetzl|Jährl|Tägl|Tsd)\.\s*$"
)
"""What ends no sentence."""
_ADVERB = r"(?:^|[\s(„\"-])(?!html|xml|yaml)(?:[a-zäöü][a-zäöüß]+(?:[bcdfgkmnprtz]l|schl)|mtl|jew|Hbf)\.\s*$"
"""What ends a sentence only before a word that begins one: what is shortened before -lich, for one."""
_SHORTENED = r"\b(?:Jan|Feb|Mrz|Apr|Aug|Sept?|Okt|Nov|Dez|Jhd?|Aufl|Std|Min|Sek|Mio|Mrd|Nr|Str)\.\s*$"
"""What ends one at times."""
_BEFORE_NUMBERS = r"(?:[a-zß]str|\b(?:Abs|Anl|Bde?|Bl|Hebr|Hs|insg|Joh|Kor|Lk|mind|Mk|Pos|Röm|Tab|Ziff))\.\s*$"
"""What stands before numbers, and ends no sentence there."""


def sentences_of(language: str, text: str) -> list[str]:
    """The sentences of a text, which together are the text.

    Args:
        language: ISO 639-1.
    """
    masked = _MARK.sub(lambda mark: " " * len(mark[0]), text)
    lengths = [len(sentence) for sentence in sentencex.segment(language, masked)]
    if sum(lengths) != len(text):
        return [text]
    ends = [0, *accumulate(lengths)]
    found = [part for begin, end in pairwise(ends) for part in _without_notes(text[begin:end])]
    found = _closed(found)
    if language == "de":
        opened = [part for sentence in _uncapitalised(text, found) for part in _opened(sentence)]
        found = list(_joined(_numbered(opened)))
    parts = [part for before, sentence in pairwise(["", *found]) for part in unmarked(sentence, before, _COUNTED)]
    return [within for part in parts for within in uncovered(part)] if language == "de" else parts


def _without_notes(sentence: str) -> Iterator[str]:
    """A sentence without the marks behind its end, and these: models have seen few of such."""
    begin = 0
    for mark in _MARK.finditer(sentence):
        yield sentence[begin : mark.start()]
        begin = mark.start()
    yield sentence[begin:]


def _closed(sentences: Sequence[str]) -> list[str]:
    """Sentences, each with the quotation marks that close it."""
    closed: list[str] = []
    for sentence in sentences:
        end = 0
        if closed and not closed[-1][-1:].isspace() and (closing := _CLOSING.match(sentence)):
            end = closing.end()
            closed[-1] += sentence[:end]
        if end < len(sentence):
            closed.append(sentence[end:])
    return closed


def _uncapitalised(text: str, sentences: Sequence[str]) -> Iterator[str]:
    """The sentences of a text, which may be in small letters throughout: then `sentencex` sees too few of them."""
    if any(map(str.isupper, _CARRIERS.sub("", text))):
        yield from sentences
        return
    for sentence in sentences:
        begin = 0
        for end in _SMALL_END.finditer(sentence):
            before = sentence[max(begin, end.end() - _TAIL) : end.end()]
            if sentence[end.start()] != "." or not (_NUMBERED.search(before) or _is_shortened(before)):
                yield sentence[begin : end.end()]
                begin = end.end()
        yield sentence[begin:]


def _is_shortened(text: str) -> bool:
    """Whether what a text in small letters ends with is an abbreviation, which may be one of a noun."""
    *_, last = text.split()
    return _LETTERS_APART.search(text) is not None or any(
        _is_abbreviated(way) for way in (text, text.rstrip()[: -len(last)] + last.capitalize())
    )


def _opened(sentence: str) -> Iterator[str]:
    """The sentences of one that quotation marks or parentheses hold together: models have seen few of such."""
    begin = place = 0
    if _INNER_END.search(sentence) and _HOLDING.search(sentence):
        for masked in sentencex.segment("de", _HOLDING.sub("\u200b", sentence)):
            part = sentence[place : place + len(masked)]
            if _CAPITAL.match(part) and _are_sentences(sentence[begin:place], part):
                yield sentence[begin:place]
                begin = place
            place += len(masked)
    yield sentence[begin:]


def _are_sentences(text: str, following: str) -> bool:
    """Whether two texts are long enough for sentences of their own, and the first ends like one."""
    if any(len(part.split(maxsplit=_FEWEST_WORDS)) < _FEWEST_WORDS for part in (text, following)):
        return False
    tail = _HOLDING.sub("", text[-_TAIL:])
    if not _ENDED.search(tail) or _is_abbreviated(tail):
        return False
    return not _NUMBERED.search(tail) or re.match(BEGINNINGS, following) is not None


def _numbered(sentences: Sequence[str]) -> Iterator[str]:
    """Sentences, without the numbers of those that follow them: they stand alone, and are copied so."""
    for sentence in sentences:
        number = _NEXT_NUMBER.search(sentence, max(0, len(sentence) - _TAIL))
        if number and not _is_abbreviated(sentence[: number.start(1)]):
            yield sentence[: number.start(1)]
            yield number.group(1)
        else:
            yield sentence


def _is_abbreviated(text: str) -> bool:
    """Whether the full stop that a text ends with is an abbreviation's, and so the number behind it no list's."""
    tail = text[-_TAIL:]
    if any(re.search(known, tail) for known in (_ABBREVIATION, _ADVERB, _SHORTENED, _BEFORE_NUMBERS)):
        return True
    return not sentencex.segment("de", f"{tail.rstrip()} Er")[-1].startswith("Er")


def _joined(sentences: Iterable[str]) -> Iterator[str]:
    """Sentences, those together that were cut at an ordinal or an abbreviation."""
    parts: list[str] = []
    tail = ""
    for sentence in sentences:
        if parts and not _goes_on(tail, sentence):
            yield "".join(parts)
            parts.clear()
            tail = ""
        parts.append(sentence)
        tail = (tail + sentence)[-_TAIL:]
    if parts:
        yield "".join(parts)


def _goes_on(tail: str, following: str) -> bool:
    """Whether what ends in `tail` goes on with what follows."""
    front = following.lstrip()
    first = front[:1]
    if first and first in "-,;:" and len(front) == len(following) and not tail[-1:].isspace():
        return True
    if re.search(_ABBREVIATION, tail) or (first.islower() and re.search(_SHORTENED, tail)):
        return True
    if not first.isalpha() or re.match(BEGINNINGS, front):
        return False
    if re.search(_ADVERB, tail) or _GREAT_ORDINAL.search(tail):
        return True
    ordinal = _ORDINAL.search(tail)
    return ordinal is not None and (
        re.match(_COUNTED, front) is not None or _is_counted(tail, ordinal["before"], front)
    )


def _is_counted(tail: str, before: str | None, front: str) -> bool:
    """Whether a number, which ends `tail` behind a word, counts what follows; else it is the day of a month."""
    if re.search(_DATE_BEFORE, tail) and re.match(_SECOND_WORD, front):
        return False
    return before is not None and re.fullmatch(_BEFORE_ORDINALS, before) is not None
