"""Parses a TOML file into the same tree of nodes as YAML files, so that one reader reads both."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping as Values
from typing import Any

from privtab.lint.toml_places import KeyOffsets, places
from privtab.lint.toml_places import Path as KeyPath
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence


def toml_tree(text: str) -> Mapping:
    """The tree of a text with offsets. Raises tomllib.TOMLDecodeError.

    A table without a line of its own has the position of its parent.
    """
    document = tomllib.loads(text)
    spots = places(text)
    return Mapping(_entries(document, (), spots, (0, 0)), 0, 0)


def _node(value: Any, path: KeyPath, spots: Values[KeyPath, KeyOffsets], parent_span: tuple[int, int]) -> Node:
    start, end = spots[path].value if path in spots else parent_span
    if isinstance(value, dict):
        return Mapping(_entries(value, path, spots, (start, end)), start, end)
    if isinstance(value, list):
        items = (_node(item, (*path, number), spots, (start, end)) for number, item in enumerate(value))
        return Sequence(tuple(items), start, end)
    if isinstance(value, str):
        return Scalar(value, value, '"', start, end)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(value if isinstance(value, bool | int | float) else text, text, "", start, end)


def _entries(
    table: dict[str, Any], path: KeyPath, spots: Values[KeyPath, KeyOffsets], parent_span: tuple[int, int]
) -> tuple[tuple[Scalar, Node], ...]:
    entries = []
    for name, value in table.items():
        entry_path = (*path, name)
        start, end = spots[entry_path].key if entry_path in spots else parent_span
        entries.append((Scalar(name, name, '"', start, end), _node(value, entry_path, spots, parent_span)))
    return tuple(entries)
