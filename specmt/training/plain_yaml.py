"""YAML of plain values, in which no key may stand twice."""

from __future__ import annotations

from typing import Any

import yaml


class KeyTwiceError(Exception):
    """A key that stands twice in one section; lines are counted from 1."""

    def __init__(self, key: str, first: int, second: int) -> None:
        super().__init__(f"line {second}: the key {key} stands in line {first} already")
        self.key = key


class _Loader(yaml.SafeLoader):
    """YAML's plain values; of a key that stands twice, yaml itself would take the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401  (as yaml has it)
        """A section as it is written, before others are merged into it, if no key stands there twice."""
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if key.value in lines:
                    raise KeyTwiceError(key.value, lines[key.value], line)
                lines[key.value] = line
        return node


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
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
