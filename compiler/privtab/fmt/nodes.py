"""A YAML tree with its comments, each of which belongs to an entry or to the end of a collection."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from privtab.syntax.yaml_tree import Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A comment on its own line, and whether a blank line precedes it."""

    text: str
    blank: bool


@dataclass(slots=True, kw_only=True)
class Text:
    """A scalar; `raw` is its source text, for block scalars."""

    scalar: Scalar
    raw: str


@dataclass(slots=True, kw_only=True)
class Item:
    """An entry of a mapping, or an item of a list, whose key is None.

    `lead` are the comments above it, `tail` those beside it, `foot` those below it that are indented further. `blank`:
    a blank line precedes it. `row`: the line of the file on which it begins.
    """

    key: Text | None
    value: Value
    lead: list[Line] = field(default_factory=list)
    tail: list[str] = field(default_factory=list)
    foot: list[Line] = field(default_factory=list)
    blank: bool = False
    row: int = 0


@dataclass(slots=True, kw_only=True)
class Collection:
    """A mapping or a list. `flow`: written in brackets; `open`: contains comments, so it cannot be on one line."""

    mapping: bool
    flow: bool
    open: bool
    items: list[Item]
    foot: list[Line] = field(default_factory=list)


Value: TypeAlias = Text | Collection
