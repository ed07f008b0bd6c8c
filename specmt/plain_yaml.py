"""YAML of plain values, in which no key may stand twice."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml


class KeyTwiceError(Exception):
    """A key that stands twice in one section; lines are counted from 1."""

    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(f"line {second}: the key {key} stands in line {first} already")
        self.key = key


class _Loader(yaml.SafeLoader):
    """YAML's plain values; of a key that stands twice, yaml itself would take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """The values of a section, if no key stands there twice."""
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise KeyTwiceError(key.value, lines[key.value], line)
                lines[key.value] = line
        return super().construct_mapping(node, deep)


def parse_yaml(text: str) -> Any:  # noqa: ANN401  (whatever the text says)
    """What the text says.

    Raises:
        KeyTwiceError: a key stands twice in one section.
        ValueError: it is not YAML.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
