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
            own = [value for key, value in node.entries if key.text == "params"]
            rest = tuple((key, value) for key, value in node.entries if key.text != "params")
            params = params | (read_params(self.reader, own[0]) if own else {})
            node = yaml_tree.Mapping(rest, node.start, node.end)
        seen: set[tuple[tuple[str, str], ...]] = set()
        for together in self._together(node, params, {}, set()):
            key = tuple(sorted(together.items()))
            if key not in seen:
                seen.add(key)
                yield (fill(node, together) if together else node), together

    def _together(
        self, node: Node, params: Params, chosen: dict[str, Values], told: set[tuple[int, str]]
    ) -> Iterator[Values]:
        """The values of the parameters in an entry. Part names can contain parameters, so a choice may add some."""
        values = {name: text for choice in chosen.values() for name, text in choice.items()}
        mentioned = self._mentioned(node, params, values, told)
        if mentioned is None:
            return
        more = sorted({name.partition(".")[0] for name in mentioned} - chosen.keys())
        if not more:
            yield {name: text for name, text in values.items() if name in mentioned}
            return
        for choices in product(*(params[name] for name in more)):
            yield from self._together(node, params, chosen | dict(zip(more, choices, strict=True)), told)

    def _mentioned(self, node: Node, params: Params, values: Values, told: set[tuple[int, str]]) -> set[str] | None:
        """The placeholders of an entry and of the parts that it names; None if one of them is unknown.

        `told`: what has been reported for this entry already.
        """
        mentioned: set[str] = set()
        good = True
        waiting, reached = [node], {id(node)}
        while waiting:
            for scalar in scalars(waiting.pop()):
                for name in PLACEHOLDER.findall(scalar.text) if "{" in scalar.text else ():
                    if name in PER_CASE:
                        continue
                    if not any(name in choice for choice in params.get(name.partition(".")[0], ())):
                        good = False
                        if (id(scalar), name) not in told:
                            known = sorted({n for choices in params.values() for choice in choices for n in choice})
                            message = f"unknown parameter `{{{name}}}`"
                            self.reader.report("T106", scalar, message, near(name, known, "parameters"))
                        told.add((id(scalar), name))
                    mentioned.add(name)
                part = self.lets.get(filled(scalar.text, values))
                if part is not None and id(part) not in reached:
                    reached.add(id(part))
                    waiting.append(part)
        return mentioned if good else None
