"""Parameters and named parts: an entry is repeated for every combination of the parameters that it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import TypeAlias

from privtab.scenarios.tree import PER_CASE, PLACEHOLDER, ScenarioReader, fill, filled, scalars
from privtab.syntax import yaml_tree
from privtab.syntax.node_reader import near
from privtab.syntax.yaml_tree import Node

Values: TypeAlias = dict[str, str]
Params: TypeAlias = dict[str, tuple[Values, ...]]
"""The values of each parameter: `{kind: table}`, or `{leaf.kind: table, leaf.read: SELECT_TABLE}`."""


def read_params(reader: ScenarioReader, node: Node | None) -> Params:
    """Read `params:`, for each name a list of texts, or a list of mappings whose fields are `{name.field}`."""
    params: Params = {}
    for key, value in reader.entries(node, "`params`"):
        choices: list[Values] = []
        for item in reader.items(value, f"parameter `{key.text}`"):
            if isinstance(item, yaml_tree.Mapping):
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

    def __init__(self, reader: ScenarioReader, params: Params, lets: Mapping[str, Node]) -> None:
        self.reader = reader
        self.params = params
        self.lets = lets

    def of(self, node: Node) -> Iterator[tuple[Node, Values]]:
        """The entry for each combination of the parameters that it uses; empty if it uses unknown ones."""
        params = self.params
        if isinstance(node, yaml_tree.Mapping):
            own_params = [value for key, value in node.entries if key.text == "params"]
            other_entries = tuple((key, value) for key, value in node.entries if key.text != "params")
            params = params | (read_params(self.reader, own_params[0]) if own_params else {})
            node = yaml_tree.Mapping(other_entries, node.start, node.end)
        seen: set[tuple[tuple[str, str], ...]] = set()
        for values in self._choices(node, params, {}, set()):
            key = tuple(sorted(values.items()))
            if key not in seen:
                seen.add(key)
                yield (fill(node, values) if values else node), values

    def _choices(
        self, node: Node, params: Params, chosen: dict[str, Values], reported: set[tuple[int, str]]
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

    def _mentioned(self, node: Node, params: Params, values: Values, reported: set[tuple[int, str]]) -> set[str] | None:
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
                            self.reader.report("T106", scalar, message, near(name, known, "parameters"))
                        reported.add((id(scalar), name))
                    mentioned.add(name)
                part = self.lets.get(filled(scalar.text, values))
                if part is not None and id(part) not in visited:
                    visited.add(id(part))
                    queue.append(part)
        return mentioned if valid else None
