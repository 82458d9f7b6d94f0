"""One policy as a page: its rows with links between them, roles, entities, sources, readings, coverage and changes.

Everything comes from the description, the exact diff and the coverage that the commands print; a page decides nothing. The same policy
gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

from privtab.backends import described_policy, minimal_set_texts, type_forest
from privtab.base import text_templates
from privtab.ir import Formula, Program, Rule, references
from privtab_analysis.diff.markdown import as_code, as_text, markdown
from privtab_analysis.diff.nodes import Diff
from privtab_analysis.diff.summary import page_values
from privtab_analysis.html import page
from privtab_pages.roles import RoleMatrix, Section

_CAN = re.compile(r"\bcan (\w+) \(([^()]*)\)")
_ATOM = re.compile(r"(self|service admin|[\w.]+(?:(?:/[\w.]+)*|(?: \+ [\w.]+)*) \(([\w, ]+)\))")
UNFOLDED = 40
"""Rows of a policy up to which its page shows the rows of all types at once."""
MOST_SAID = 4
"""Sets up to which somebody reads them from a cell."""
INDENT, LINE, LETTER = 24, 26, 9
"""The sizes of the drawing of entities, in pixels."""


class Piece(NamedTuple):
    """A part of a condition; with a link, one that refers to another row."""

    text: str
    link: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation."""

    anchor: str
    operation: str
    title: str
    requires: Sequence[Piece]
    each: Sequence[Piece]
    sets: Sequence[str]
    """The smallest sets that suffice, unless the condition, with the gate, says the same."""
    effects: Sequence[str]
    source: str
    remarks: Sequence[str]
    coverage: str


class Node(NamedTuple):
    """An entity type in the drawing of the types that contain each other."""

    name: str
    note: str
    depth: int
    line: int
    parent: int
    """The line of the containing type; -1 at the root."""


@dataclass(frozen=True, kw_only=True)
class PolicyPage:
    """A policy and further knowledge about it beside its rows."""

    program: Program
    revision: str
    roles: Sequence[RoleMatrix | None] = ()
    """The matrices of roles; None where there are no roles."""
    coverage: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """For each row that has cells, by the rule's id: the number of cells, and of the cells that scenarios prove."""
    changes: Diff | None = None
    source: str = ""
    """The policy itself, formatted: a page carries it, so that `privtab import` gives it back."""

    def markdown(self) -> str:
        """The page in GitHub's Markdown."""
        templates = text_templates("docs")
        templates.filters |= {"code": as_code, "text": as_text}
        changes = "" if self.changes is None else markdown(self.changes, level=3)
        text = templates.get_template("policy.md.j2").render(**self.view(), changes=changes)
        return re.sub(r"\n{3,}", "\n\n", text).rstrip("\n") + "\n"

    def html(self, template: str = "docs/policy", **more: object) -> str:
        """The page as one HTML file, which loads nothing; `template`: one that extends this one, and `more` its values."""
        folded = len(self.program.rules) > UNFOLDED
        return page(template, **self.view(), **page_values(self.changes), folded=folded, **more)

    def view(self) -> dict[str, Any]:
        """The values for the templates."""
        policy = described_policy(self.program, revision=self.revision)
        nodes = list(_nodes(policy["entities"]))
        sections: dict[str, list[Row]] = {entity: [] for entity in policy["entities"]}
        for described, rule in zip(policy["operations"], self.program.rules.values(), strict=True):
            sections[rule.entity].append(self._row(described, rule))
        readings = [row for row in policy["operations"] if row["ambiguous"]]
        cells, covered = (sum(numbers[at] for numbers in self.coverage.values()) for at in (0, 1))
        return {
            "policy": policy,
            "semantics": {
                key: _value(value) for key, value in policy["semantics"].items() if value not in (None, [], "")
            },
            "privileges": [*_privileges(policy)],
            "sections": {entity: rows for entity, rows in sections.items() if rows},
            "nodes": nodes,
            "width": max(INDENT * node.depth + LETTER * len(node.name + node.note) + 2 * INDENT for node in nodes),
            "indent": INDENT,
            "line": LINE,
            "matrices": [(matrix, _opened([*matrix.sections(self.program)])) for matrix in self.roles if matrix],
            "readings": [(_anchor(row["entity"], row["operation"]), row) for row in readings],
            "anchor": lambda rule: _anchor(rule.entity, rule.operation),
            "cells": cells,
            "source": self.source,
            "fence": "`" * max(3, 1 + max(map(len, re.findall("`+", self.source)), default=0)),
            "covered": covered,
        }

    def _row(self, described: Mapping[str, Any], rule: Rule) -> Row:
        cells = self.coverage.get(rule.id)
        sets, unlisted = minimal_set_texts(described, "has more smallest sets than are listed")
        texts = [f"{title}{text}" for title, found in sets for text in found]
        return Row(
            anchor=_anchor(rule.entity, rule.operation),
            operation=rule.operation,
            title=rule.title if rule.title and rule.title != rule.operation.replace("_", " ") else "",
            requires=self._pieces(described["requires"] or "", rule.requires, rule),
            each=self._pieces(described["each"] or "", rule.each, rule),
            sets=[] if self._says_its_sets(described, rule) else texts,
            effects=described["effects"],
            source=_source(described["source"], self.program.sources),
            remarks=list(_remarks(described, unlisted)),
            coverage="" if cells is None else f"{cells[1]} of {cells[0]}",
        )

    def _says_its_sets(self, described: Mapping[str, Any], rule: Rule) -> bool:
        """Return whether the smallest sets of a row are what its condition spells out, together with the gate of the policy."""
        gate = self._said(self.program.semantics.gate, rule)
        if gate is None or "minimal_sets_complete" in described or "when" in described:
            return False
        call, each = (self._said(described[name], rule) for name in ("requires", "each"))
        if call is None or _both(call, gate) != set(map(frozenset, described["minimal_sets"])):
            return False
        if described["each_minimal_sets"] is None:
            return True
        listed = set(map(frozenset, described["each_minimal_sets"]))
        return each is not None and listed in (each, _both(each, gate))  # the gate is asked of the call anyway

    def _said(self, text: str | None, rule: Rule) -> set[frozenset[str]] | None:
        """The sets of atoms that a condition spells out, such as two of `READ/WRITE (table)`; None if a reader has to work them out."""
        if not text or text in ("anyone", "nobody"):
            return set() if text == "nobody" else {frozenset()}
        names = {"entity": rule.entity, "parent": self.program.entities[rule.entity].parent}
        ways = set[frozenset[str]]()
        for way in text.split(" or "):
            sets = {frozenset[str]()}
            for part in way.split(" and "):
                if (found := _ATOM.fullmatch(part)) is None or (" + " in part and "," in part):
                    return None
                words = found[1].partition(" (")[0]
                targets = [f" ({names.get(target, target)})" for target in found[2].split(", ")] if found[2] else [""]
                if " + " in words:
                    sets = _both(sets, {frozenset(f"{word}{targets[0]}" for word in words.split(" + "))})
                else:
                    sets = _both(sets, {frozenset([f"{word}{at}"]) for word in words.split("/") for at in targets})
            ways |= sets
        return ways if len(ways) <= MOST_SAID else None

    def _pieces(self, text: str, condition: Formula | None, rule: Rule) -> list[Piece]:
        """The text of a condition with links to the rows that it asks about, where it is plain which rows are meant."""
        asked = {} if condition is None else _operations_in(condition)
        found, start = [], 0
        for match in _CAN.finditer(text):
            types = asked.get(match[1], ())
            named = {"entity": rule.entity}.get(match[2], match[2])
            type_ = named if named in types else types[0] if len(types) == 1 else None
            if type_ is not None and (type_, match[1]) in self.program.rules:
                found += [Piece(text[start : match.start()]), Piece(match[0], _anchor(type_, match[1]))]
                start = match.end()
        return [piece for piece in (*found, Piece(text[start:])) if piece.text]


def _opened(sections: Sequence[Section]) -> list[tuple[Section, bool]]:
    """The parts of a matrix, each with whether its rows are shown at once: the first ones, until they have enough rows."""
    before = accumulate((len(section.rows) for section in sections), initial=0)
    return [(section, shown < UNFOLDED) for section, shown in zip(sections, before, strict=False)]


def _both(sets: set[frozenset[str]], others: set[frozenset[str]]) -> set[frozenset[str]]:
    """The sets that have one of each."""
    return {a | b for a in sets for b in others}


def _operations_in(condition: Formula) -> dict[str, tuple[str, ...]]:
    """The operations that a condition asks about, with the types on which it does."""
    found: dict[str, dict[str, None]] = {}
    for can in references(condition):
        found.setdefault(can.operation, {})[can.target.type] = None
    return {operation: tuple(types) for operation, types in found.items()}


def _anchor(entity: str, operation: str) -> str:
    return f"{entity}.{operation}"


def _remarks(described: Mapping[str, Any], unlisted: Sequence[str]) -> Iterator[str]:
    yield from (word for word in ("destructive", "sensitive") if word in described)
    if described["from"] == "core":
        yield "the same for several types"
    if objects := described.get("with"):
        yield "with " + ", ".join(f"{slot}: {' or '.join(types)}" for slot, types in objects.items())
    yield from (f"every request says {flag}: true or false" for flag in described.get("required_flags", ()))
    yield from unlisted
    if described["deprecated"]:
        yield f"deprecated: {described['deprecated']}"
    if described["note"]:
        yield described["note"]


def _privileges(policy: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """The names that grants may use, the types that they can be granted on, and further remarks."""
    for name, privilege in policy["privileges"].items():
        notes = [privilege["title"]] if "title" in privilege else []
        notes += [f"alias of {privilege['alias_of']}"] if "alias_of" in privilege else []
        notes += [f"implies {', '.join(privilege['implies'])}"] if "implies" in privilege else []
        notes += [f"inheritance {privilege['inheritance']}"] if "inheritance" in privilege else []
        notes += [f"deprecated: {privilege['deprecated']}"] if "deprecated" in privilege else []
        every = len(privilege["on"]) == len(policy["entities"])
        yield name, "every type" if every else ", ".join(privilege["on"]), "; ".join(notes)
    yield from ((name, "", f"the set {', '.join(members)}") for name, members in policy["sets"].items())
    yield from ((name, "", f"the condition {text}") for name, text in policy.get("conditions", {}).items())


def _source(source: Mapping[str, Any] | None, sources: Mapping[str, str]) -> str:
    if source is None:
        return ""
    name = next((name for name, document in sources.items() if document == source["document"]), source["document"])
    return f"{name} {source['line']}" if source["line"] else name


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_value(inner)}" for key, inner in value.items() if inner not in (None, [], ""))
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()


def _nodes(entities: Mapping[str, Mapping[str, Any]]) -> Iterator[Node]:
    """The types from the roots down, each after its container."""
    lines: dict[str | None, int] = {None: -1}
    for line, (name, depth) in enumerate(type_forest(entities)):
        entity = entities[name]
        lines[name] = line
        notes = [word for word in ("single", "flat", "opaque") if word in entity]
        notes += [f"{key} {entity[key]}" for key in ("principal", "nested") if key in entity]
        notes += [entity["title"]] if "title" in entity else []
        yield Node(name, ", ".join(notes), depth, line, lines[entity["parent"]])
