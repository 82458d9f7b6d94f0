"""The reader of scenario files, and placeholders in their nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as Values
from collections.abc import Sequence as Words
from dataclasses import replace
from typing import ClassVar

from privtab.scenarios.nodes import CODES
from privtab.syntax.node_reader import DocumentProblem, DocumentReader, is_empty
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence, plain_value

PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?)\}")
PER_CASE = frozenset({"user", "resource"})
"""Placeholders that each case fills in itself."""
Fields = dict[str, Node]


class ScenarioReader(DocumentReader):
    """The reader of a scenario file."""

    NAMES: ClassVar = CODES
    CODES: ClassVar = {
        DocumentProblem.UNKNOWN_KEY: "T001",
        DocumentProblem.MISSING_KEY: "T002",
        DocumentProblem.WRONG_TYPE: "T003",
        DocumentProblem.WRONG_VALUE: "T004",
        DocumentProblem.DUPLICATE_KEY: "T005",
    }

    def advice(self, key: Scalar, value: Node, known: Words[str]) -> str:
        """Advice for an unknown key; a word without a value is most likely a text that was split at a comma."""
        if is_empty(value) and value.start <= key.end + 1:
            return "a comma between braces ends a text: put the whole text in quotes"
        replacement = _INSTEAD.get(key.text.lower())
        if replacement is not None and replacement[0] in known:
            return replacement[1]
        return super().advice(key, value, known)


_DECISION = ("decision", "write `decision: allow` or `decision: deny`")
_INSTEAD = {
    **dict.fromkeys(
        ("expect", "expected", "expects", "result", "answer", "outcome", "effect", "allow", "allowed"), _DECISION
    ),
    "ask": (
        "decision",
        "write `action`, `resource` and `decision`; `ask` belongs in `needs`, which lists all that suffices",
    ),
    **dict.fromkeys(("operation", "op"), ("action", "write `action`")),
    **dict.fromkeys(("on", "entity", "object", "target"), ("resource", "write `resource: TYPE:PATH`")),
    **dict.fromkeys(("subject", "who", "principal"), ("user", "write `user`")),
    **dict.fromkeys(("context", "objects"), ("with", "write `with: {NAME: TYPE:PATH}`, and `flags: [FLAG]`")),
    **dict.fromkeys(("tests", "scenario", "checks", "examples"), ("cases", "write `cases`")),
}
"""What to write instead of keys of other tools: the key, and the advice."""


def fill(node: Node, values: Values[str, str]) -> Node:
    """The node with its placeholders filled in; positions remain those of the text."""
    match node:
        case Scalar():
            text = filled(node.text, values)
            if text == node.text:
                return node
            return replace(node, text=text, value=text if node.style else plain_value(text))
        case Sequence():
            return replace(node, items=tuple(fill(item, values) for item in node.items))
        case Mapping():
            return replace(
                node,
                entries=tuple(
                    (name, fill(value, values))
                    for key, value in node.entries
                    if isinstance(name := fill(key, values), Scalar)
                ),
            )


def filled(text: str, values: Values[str, str]) -> str:
    """A text with its placeholders filled in, as far as there are values."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text) if "{" in text else text


def scalars(node: Node) -> Iterator[Scalar]:
    """Every scalar inside, including keys."""
    match node:
        case Scalar():
            yield node
        case Sequence():
            for item in node.items:
                yield from scalars(item)
        case Mapping():
            for key, value in node.entries:
                yield key
                yield from scalars(value)
