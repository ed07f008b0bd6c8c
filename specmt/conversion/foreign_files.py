"""What stands in files of other programs: settings with type and range, tensors with type and shape. Needs torch.

Whatever else is found there is refused in one line, here and nowhere else, and before anything is made of it.
"""

from __future__ import annotations

import pickle
import re
import reprlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specmt.bundles.tensors import LARGEST_WEIGHT
from specmt.errors import InputError, reason

_NAME = re.compile(r"[\w.-]{1,200}")
"""Of a tensor."""
_MOST_CHARACTERS = 100
"""Of a setting that is text."""

_DAMAGED = "not a file that torch wrote, or a damaged one"

_brief = reprlib.Repr()
_brief.maxstring = _brief.maxother = _MOST_CHARACTERS


def shown(value: object) -> str:
    """What was found as a part of a line: short and printable, whatever it is."""
    return " ".join(_brief.repr(value).split())


def read_file(path: Path) -> bytes:
    """Content of a file that must not be empty.

    Raises:
        InputError: unreadable, or empty.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    if not content:
        raise InputError(f"{path}: is empty")
    return content


def read_pickle(path: Path, types: Sequence[Any] = ()) -> object:
    """Content of a file that torch wrote; nothing but tensors, numbers and settings is ever unpickled.

    Args:
        types: what may stand in it beside tensors, as torch's `safe_globals` has it.

    Raises:
        InputError: unreadable, no such file, or one that holds anything else.
    """
    known = torch.serialization.get_safe_globals()
    # What is allowed already must stay so: leaving the context forbids what it allowed.
    allowed = [type_ for type_ in types if type_ not in known]
    try:
        with path.open("rb") as file, torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old ways to pickle: they are read, or refused below
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it holds {found[1]}" if found else "it is damaged, or something else"
        raise InputError(f"{path}: not read: only tensors, numbers and settings are, and {what}") from None
    except OSError as error:
        # One that names no file is torch's: it sought a place behind the end.
        raise InputError(f"{path}: {reason(error) if error.filename else _DAMAGED}") from None
    except Exception:  # of a file that is something else, torch says whatever it stumbles over
        raise InputError(f"{path}: {_DAMAGED}") from None


def tensors_in(path: Path, parts: Mapping[Any, Any]) -> dict[str, Tensor]:
    """The tensors among what a file holds, by their names.

    Raises:
        InputError: a name that no tensor has, or a tensor that is not plain numbers in memory.
    """
    tensors = {}
    for name, part in parts.items():
        if not isinstance(part, Tensor):
            continue
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"{path}: a tensor of the name {shown(name)}: letters, digits and dots are expected")
        if part.layout is not torch.strided or part.is_meta or part.is_quantized:
            raise InputError(f"{path}: {name} is sparse, quantised or without values; expected a plain tensor")
        tensors[name] = part.detach()
    return tensors


@dataclass(frozen=True)
class Settings:
    """Settings by name. Each is asked for with its type and range; null is as good as missing."""

    path: Path
    values: Mapping[str, Any]
    kind: str
    """What the file is not, where a setting is none of such."""

    def word(self, name: str) -> str | None:
        """A text of one line; None where there is none.

        Raises:
            InputError: something else; so in all that follow.
        """
        value = self.values.get(name)
        if value is None or (isinstance(value, str) and value.isprintable() and len(value) <= _MOST_CHARACTERS):
            return value or None
        raise self._unexpected(name, f"text of at most {_MOST_CHARACTERS} printable characters")

    def one_of(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """One of the names that can be converted."""
        word = self.word(name) or default
        if word is None or word not in choices:
            raise InputError(f"{self.path}: {name} {word} cannot be converted; {', '.join(choices)} can")
        return word

    def flag(self, name: str) -> bool:
        """True or false, which it is where it is missing."""
        value = self.values.get(name)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise self._unexpected(name, "true or false")

    def is_off(self, name: str) -> bool:
        """Whether a setting of whatever type says no."""
        value = self.values.get(name)
        return isinstance(value, type(None) | bool | int | float | str | list | tuple | dict) and not value

    def number(self, name: str, least: int, most: int) -> int:
        """A whole number in a range, ends included."""
        value = self.values.get(name)
        if type(value) is int and least <= value <= most:
            return value
        raise self._unexpected(name, f"a whole number from {least} to {most}")

    def heads(self, side: str, width: int) -> int:
        """Attention heads of the encoder or decoder; no tensor tells how many."""
        name = f"{side}_attention_heads"
        heads = self.number(name, 1, width)
        if width % heads:
            raise InputError(f"{self.path}: {name}: {heads}; the width must be a multiple of heads, and is {width}")
        return heads

    def _unexpected(self, name: str, expected: str) -> InputError:
        found = shown(self.values.get(name))
        return InputError(f"{self.path}: {name}: {found}, expected {expected}: not {self.kind}, or a damaged one")


class Tensors:
    """Tensors by name. Each is asked for with its shape, and it is known whether one was not asked for."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor], kind: str) -> None:
        """See `Settings`."""
        self.names = tensors.keys()
        self._path, self._tensors, self._kind = path, tensors, kind
        self._taken: set[str] = set()

    def take(self, name: str, *shape: int | None) -> Tensor:
        """A tensor in float32.

        Args:
            shape: its sizes; None: any of at least 1.

        Raises:
            InputError: missing, of another shape, or what is no weights.
        """
        tensor = self._tensors.get(name)
        if tensor is None:
            raise self._unexpected(f"{name} is missing")
        self._taken.add(name)
        found = list(tensor.shape)
        if len(found) != len(shape) or not all(map(_fits, found, shape)):
            expected = ", ".join("any" if size is None else str(size) for size in shape)
            raise self._unexpected(f"{name} has shape {found}, expected [{expected}]")
        if not tensor.is_floating_point():
            raise self._unexpected(f"{name} is of type {tensor.dtype}, expected floating point")
        tensor = tensor.float()
        if not bool((tensor.abs() <= LARGEST_WEIGHT).all()):
            raise self._unexpected(f"{name} holds what is no finite number, or one beyond {LARGEST_WEIGHT:,.0f}")
        return tensor

    def left(self) -> list[str]:
        """Names of those that were not taken, in order."""
        return sorted(self.names - self._taken)

    def _unexpected(self, what: str) -> InputError:
        return InputError(f"{self._path}: {what}: not {self._kind}, or a damaged one")


def _fits(found: int, size: int | None) -> bool:
    return found >= 1 if size is None else found == size
