"""The reader of scenario files, placeholders in their nodes, and parameters: an entry is repeated for each combination that it uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence as Words
from dataclasses import replace
from itertools import product
from typing import ClassVar, TypeAlias

from privtab.language import DocumentProblem, DocumentReader, MappingNode, ScalarNode, SequenceNode, YamlNode
from privtab_testing.scenarios import CODES

PLACEHOLDER = re.compile(r"\{([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?)\}")
PER_CASE = frozenset({"user", "resource"})
"""Placeholders that each case fills in itself."""
Fields = dict[str, YamlNode]
Values: TypeAlias = dict[str, str]
Params: TypeAlias = dict[str, tuple[Values, ...]]
"""The values of each parameter: `{kind: table}`, or `{leaf.kind: table, leaf.read: SELECT_TABLE}`."""


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

    def advice(self, key: ScalarNode, value: YamlNode, known: Words[str]) -> str:
        """Advice for an unknown key; a word without a value is most likely a text that was split at a comma."""
        if value.empty and value.start <= key.end + 1:
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
"""The keys to write instead of keys of other tools: the key, and the advice."""


def fill(node: YamlNode, values: Values) -> YamlNode:
    """The node with its placeholders filled in; positions remain the positions of the text."""
    match node:
        case ScalarNode():
            text = filled(node.text, values)
            if text == node.text:
                return node
            return node.with_text(text)
        case SequenceNode():
            return replace(node, items=tuple(fill(item, values) for item in node.items))
        case MappingNode():
            return replace(
                node,
                entries=tuple(
                    (name, fill(value, values))
                    for key, value in node.entries
                    if isinstance(name := fill(key, values), ScalarNode)
                ),
            )


def filled(text: str, values: Values) -> str:
    """A text with its placeholders filled in, as far as there are values."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text) if "{" in text else text


def scalars(node: YamlNode) -> Iterator[ScalarNode]:
    """Every scalar inside, including keys."""
    match node:
        case ScalarNode():
            yield node
        case SequenceNode():
            for item in node.items:
                yield from scalars(item)
        case MappingNode():
            for key, value in node.entries:
                yield key
                yield from scalars(value)


def read_params(reader: ScenarioReader, node: YamlNode | None) -> Params:
    """Read `params:`, for each name a list of texts, or a list of mappings whose fields are `{name.field}`."""
    params: Params = {}
    for key, value in reader.entries(node, "`params`"):
        choices: list[Values] = []
        for item in reader.items(value, f"parameter `{key.text}`"):
            if isinstance(item, MappingNode):
                pairs = reader.pairs(item, f"a value of `{key.text}`")
                choices.append({f"{key.text}.{field.value}": text.value for field, text in pairs})
            else:
                text = reader.text(item, f"a value of `{key.text}`")
                choices += [{key.text: text.value}] if text else []
        if key.text in PER_CASE:
            reader.report("T106", key, f"`{key.text}` is not a name for a parameter: each case has its own")
        elif choices:
            params[key.text] = tuple(choices)
        else:
            reader.report("T106", value, f"parameter `{key.text}` has no values")
    return params


class Combinations:
    """Fills in the parameters of entries and the named parts of a file."""

    def __init__(self, reader: ScenarioReader, params: Params, lets: MappingOf[str, YamlNode]) -> None:
        self.reader = reader
        self.params = params
        self.lets = lets

    def of(self, node: YamlNode) -> Iterator[tuple[YamlNode, Values]]:
        """The entry for each combination of the parameters that it uses; empty if it uses unknown ones."""
        params = self.params
        if isinstance(node, MappingNode):
            own_params = [value for key, value in node.entries if key.text == "params"]
            other_entries = tuple((key, value) for key, value in node.entries if key.text != "params")
            params = params | (read_params(self.reader, own_params[0]) if own_params else {})
            node = MappingNode(other_entries, node.start, node.end)
        seen: set[tuple[tuple[str, str], ...]] = set()
        for values in self._choices(node, params, {}, set()):
            key = tuple(sorted(values.items()))
            if key not in seen:
                seen.add(key)
                yield (fill(node, values) if values else node), values

    def _choices(
        self, node: YamlNode, params: Params, chosen: dict[str, Values], reported: set[tuple[int, str]]
    ) -> Iterator[Values]:
        """The values of the parameters in an entry. Part names can contain parameters, so a choice may add some."""
        values = {name: text for choice in chosen.values() for name, text in choice.items()}
        mentioned = self._mentioned(node, params, values, reported)
        if mentioned is None:
            return
        unchosen = sorted({name.partition(".")[0] for name in mentioned} - chosen.keys())
        if not unchosen:
            yield {name: text for name, text in values.items() if name in mentioned}
            return
        for choices in product(*(params[name] for name in unchosen)):
            yield from self._choices(node, params, chosen | dict(zip(unchosen, choices, strict=True)), reported)

    def _mentioned(
        self, node: YamlNode, params: Params, values: Values, reported: set[tuple[int, str]]
    ) -> set[str] | None:
        """The placeholders of an entry and of the parts that it names; None if one of them is unknown.

        `reported`: what has been reported for this entry already.
        """
        mentioned: set[str] = set()
        valid = True
        queue, visited = [node], {id(node)}
        while queue:
            for scalar in scalars(queue.pop()):
                for name in PLACEHOLDER.findall(scalar.text) if "{" in scalar.text else ():
                    if name in PER_CASE:
                        continue
                    if not any(name in choice for choice in params.get(name.partition(".")[0], ())):
                        valid = False
                        if (id(scalar), name) not in reported:
                            known = sorted(
                                {parameter for choices in params.values() for choice in choices for parameter in choice}
                            )
                            message = f"unknown parameter `{{{name}}}`"
                            self.reader.report("T106", scalar, message, self.reader.near(name, known, "parameters"))
                        reported.add((id(scalar), name))
                    mentioned.add(name)
                part = self.lets.get(filled(scalar.text, values))
                if part is not None and id(part) not in visited:
                    visited.add(id(part))
                    queue.append(part)
        return mentioned if valid else None
