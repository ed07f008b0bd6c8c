"""Write pairs whose German is spelt in other ways: training data that makes a model read them.

    python scripts/respell.py data/sentences.de-en.tsv --to data/spellings.de-en.tsv

takes some of the pairs, and changes their German sides: ``ss`` for ``ß``, as the Swiss write; ``ae oe ue ss`` for what
a foreign keyboard lacks; other quotes and apostrophes. The English sides stay as they are.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from specmt.corpus import Pair, read_tsv
from specmt.errors import InputError

_ASCII = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})


def swiss(text: str) -> str:
    """Without ``ß``."""
    return text.replace("ß", "ss")


def ascii_only(text: str) -> str:
    """Without umlauts and ``ß``."""
    return text.translate(_ASCII)


def typographic(text: str) -> str:
    """With German quotes and curved apostrophes."""
    return re.sub(r'["„]([^"“]*)["“]', "„\\1“", text).replace("'", "’")


def english_quotes(text: str) -> str:
    """With the quotes that English has, as German texts often do."""
    return re.sub(r'["„]([^"“]*)["“]', "“\\1”", text)


def ascii_quotes(text: str) -> str:
    """With the quotes and apostrophes of a keyboard."""
    return re.sub("[„“]", '"', text).replace("’", "'")


SPELLINGS: dict[Callable[[str], str], int] = {
    swiss: 3,
    ascii_only: 25,
    typographic: 1,
    english_quotes: 2,
    ascii_quotes: 1,
}
"""How a text is spelt anew, and which of the pairs that this changes are taken: every n-th."""


def respelt(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The changed pairs, spelling after spelling, each once."""
    pairs = list(pairs)
    found: list[Pair] = []
    for spell, every in SPELLINGS.items():
        changed = [Pair(spell(source), target) for source, target in pairs if spell(source) != source]
        found += changed[::every]
    yield from dict.fromkeys(found)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("corpus", type=Path, help="pairs, `source<TAB>target` a line")
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args()
    try:
        lines = [f"{source}\t{target}\n" for source, target in respelt(read_tsv(arguments.corpus))]
    except InputError as error:
        parser.error(str(error))
    arguments.to.write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
