"""Reading single values out of the YAML tree of a scenario file: each either comes back or leaves one finding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Values
from dataclasses import replace

from privtab.diagnostics import Diagnostic, Located, Span
from privtab.scenarios.findings import finding, near
from privtab.scenarios.nodes import Text
from privtab.source import SourceFile
from privtab.syntax.yaml_tree import Mapping, Node, Scalar, Sequence, plain_value

PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?)\}")
LATE = frozenset({"user", "resource"})
"""Placeholders that a case fills in by itself, at last."""
Fields = dict[str, Node]


class Reader:
    """The findings of one file, and readers of its values."""

    def __init__(self, source: SourceFile, found: list[Diagnostic]) -> None:
        self.source = source
        self.found = found

    def span(self, node: Node) -> Span:
        """The place of a node; of a mapping or list that spans lines, its first line."""
        if isinstance(node, Scalar):
            return self.source.span(node.start, node.end)
        end = self.source.text.find("\n", node.start, node.end)
        return self.source.span(node.start, node.end if end < 0 else end)

    def report(self, code: str, at: Node | Span, message: str, help_: str | None = None) -> None:
        """Take a finding."""
        span = at if isinstance(at, Span) else self.span(at)
        self.found.append(finding(code, span, message, help_))

    def fields(self, node: Node, what: str, keys: Iterable[str], required: Iterable[str] = ()) -> Fields | None:
        """The entries of a mapping by key; a key whose value is empty counts as absent."""
        known = tuple(keys)
        entries = self.entries(node, what)
        if entries is None:
            return None
        fields: Fields = {}
        strange = False
        for key, value in entries:
            if key.text not in known:
                self.report("T001", key, f"unknown key `{key.text}` in {what}", _advice(key, value, known))
                strange = True
            elif not _empty(value):
                fields[key.text] = value
        missing = [name for name in required if name not in fields]
        for name in missing if not strange else ():
            self.report("T002", node, f"`{name}` is missing in {what}")
        return None if missing else fields

    def entries(self, node: Node, what: str) -> tuple[tuple[Scalar, Node], ...] | None:
        """The entries of a mapping, each key once."""
        if not isinstance(node, Mapping):
            self.wrong(node, what, "a mapping")
            return None
        seen: dict[str, Scalar] = {}
        entries: list[tuple[Scalar, Node]] = []
        for key, value in node.entries:
            if key.text in seen:
                line = self.span(seen[key.text]).line
                self.report("T005", key, f"`{key.text}` stands twice in {what}, first on line {line}")
            else:
                entries.append((key, value))
            seen.setdefault(key.text, key)
        return tuple(entries)

    def items(self, node: Node, what: str) -> tuple[Node, ...]:
        """The items of a list."""
        if not isinstance(node, Sequence):
            self.wrong(node, what, "a list")
            return ()
        return node.items

    def text(self, node: Node | None, what: str) -> Text | None:
        """A scalar as text; numbers and the like are taken as they are written."""
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.value is None:
            self.wrong(node, what, "text")
            return None
        return Located(node.text, self.span(node))

    def texts(self, node: Node | None, what: str) -> tuple[Text, ...]:
        """A text, or a list of texts."""
        nodes = () if node is None else node.items if isinstance(node, Sequence) else (node,)
        found = (self.text(item, what) for item in nodes)
        return tuple(text for text in found if text is not None)

    def pairs(self, node: Node | None, what: str) -> tuple[tuple[Text, Text], ...]:
        """A mapping from text to text."""
        entries = () if node is None else self.entries(node, what) or ()
        read = ((Located(key.text, self.span(key)), self.text(value, f"`{key.text}`")) for key, value in entries)
        return tuple((key, value) for key, value in read if value is not None)

    def word(self, node: Node | None, what: str, words: tuple[str, ...]) -> str | None:
        """One of a few words."""
        text = self.text(node, what)
        if text is None:
            return None
        if text.value in words:
            return text.value
        self.report("T004", text.span, f"{what} is `{text.value}`", near(text.value, words, "write one of"))
        return None

    def wrong(self, node: Node, what: str, expected: str) -> None:
        """A value of the wrong YAML type."""
        self.report("T003", node, f"{what} is {_kind(node)}, not {expected}")


_DECISION = ("decision", "write `decision: allow` or `decision: deny`")
_INSTEAD = {
    **dict.fromkeys(
        ("expect", "expected", "expects", "result", "answer", "outcome", "effect", "allow", "allowed"), _DECISION
    ),
    "ask": (
        "decision",
        "write `action`, `resource` and `decision`; `ask` stands in `needs`, which says all that suffices",
    ),
    **dict.fromkeys(("operation", "op"), ("action", "write `action`")),
    **dict.fromkeys(("on", "entity", "object", "target"), ("resource", "write `resource: TYPE:PATH`")),
    **dict.fromkeys(("subject", "who", "principal"), ("user", "write `user`")),
    **dict.fromkeys(("context", "objects"), ("with", "write `with: {NAME: TYPE:PATH}`, and `flags: [FLAG]`")),
    **dict.fromkeys(("tests", "scenario", "checks", "examples"), ("cases", "write `cases`")),
}
"""What is meant by words of other tools, where a key of ours is known: the key, and the advice."""


def fill(node: Node, values: Values[str, str]) -> Node:
    """The node with its placeholders filled in; places stay those of the text."""
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
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text) if "{" in text else text


def scalars(node: Node) -> Iterator[Scalar]:
    """Every scalar inside, keys too."""
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


def _advice(key: Scalar, value: Node, known: tuple[str, ...]) -> str:
    """What was meant by an unknown key; a word without a value was most likely cut off a text by its comma."""
    if _empty(value) and value.start <= key.end + 1:
        return "a comma between braces ends a text: put the whole text in quotes"
    instead = _INSTEAD.get(key.text.lower())
    if instead is not None and instead[0] in known:
        return instead[1]
    return near(key.text, known, "its keys are")


def _empty(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None and not node.style


def _kind(node: Node) -> str:
    match node:
        case Mapping():
            return "a mapping"
        case Sequence():
            return "a list"
        case Scalar():
            return "empty" if node.value is None else f"`{node.text}`"
