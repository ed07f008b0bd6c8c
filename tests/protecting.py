"""A vocabulary and models by a rule, and lines that go through protection as a stream takes them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from specmt.protection.carriers import NUMBERS
from specmt.protection.protection import Protection
from specmt.streams.inputs import InputLine, LineParser, text_parser
from specmt.streams.line_stream import LineStream
from specmt.text.sentences import CARRIER_NAMES
from specmt.translation import Translation
from specmt.wrapping import Run, Wrapping


class Words:
    """A vocabulary that has every word but those it is told to lack."""

    def __init__(self, lacking: Iterable[str] = ()) -> None:
        self.lacking = set(lacking)

    def encode(self, text: str) -> list[int]:
        return [3 if word in self.lacking else 9 for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(self.piece, ids))

    def piece(self, id_: int) -> str:
        return "word" if id_ == 9 else "<unk>"

    source_piece = piece
    source_size = 10

    def __len__(self) -> int:
        return 10


class Model:
    """Translates lines by a rule, and remembers what it was asked in each call; there is nothing in a blank line."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        self.rule = rule
        self.calls: list[list[str]] = []

    def __call__(self, chunks: Iterable[Sequence[str | InputLine]]) -> Iterator[Translation]:
        index = 0
        for given in chunks:
            chunk = [line if isinstance(line, str) else line.text for line in given]
            if any(map(str.strip, chunk)):
                self.calls.append(list(chunk))
            for line in chunk:
                yield self.translation(index, line) if line.strip() else Translation(index, line, "", 0.0)
                index += 1

    def translation(self, index: int, line: str) -> Translation:
        return Translation(index, line, self.rule(line), -0.5, (7, 2), source_ids=(8,), token_log_probs=(-0.25, -0.75))


def translated(protection: Protection, lines: Sequence[str], run: Run) -> list[Translation]:
    """Lines one after the other, as a stream takes them through."""
    wrapping = Wrapping(protection, lambda line: run)
    done = []
    for index, line in enumerate(lines):
        entered = wrapping.enter(index, InputLine(line))
        (translation,) = run([[entered.text]])
        done.append(wrapping.leave(replace(translation, index=index)))
    return done


def protected(lines: Sequence[str], rule: Callable[[str], str] = str.upper) -> list[str]:
    translations = translated(Protection(Words()), lines, Model(rule))
    assert [one.source for one in translations] == list(lines)
    assert [one.index for one in translations] == list(range(len(lines)))
    return [one.text for one in translations]


def keeps_carriers(text: str) -> str:
    """Everything in capitals but the words that models copy."""
    return " ".join(
        word if word.strip(".,!?:()") in {*CARRIER_NAMES, *NUMBERS} else word.upper() for word in text.split(" ")
    )


def stream_of(*lines: str, parser: Callable[[str], LineParser] = text_parser) -> LineStream[InputLine]:
    return LineStream(io.BytesIO("".join(f"{line}\n" for line in lines).encode()), "input", parser("input"))
