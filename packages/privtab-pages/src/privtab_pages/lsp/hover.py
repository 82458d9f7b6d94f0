"""Hovers over names: where a privilege can be granted, what a set contains, what an operation needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.backends import described_policy, minimal_set_texts
from privtab.base import listed_names
from privtab.ir import Program, Rule
from privtab.model import DeclaredNames
from privtab_pages.lsp.occurrences import Occurrence, meet

MOST_ROWS = 5
"""Limit on the rows that are shown for one operation."""


def hover(name: Occurrence, names: DeclaredNames, program: Program | None) -> str | None:
    """The description of a name in Markdown; None if the policy says nothing about it. `program`: the last valid one."""
    match name.kind:
        case "type":
            return _type(name.name, names)
        case "privilege" | "set":
            return _privilege(name.name, names)
        case "operation":
            if program is None:
                return None
            rows = described_policy(program, revision="", rules=rules_of(name, program)[:MOST_ROWS])["operations"]
            return "\n\n---\n\n".join(map(_row, rows)) or None


def rules_of(name: Occurrence, program: Program) -> list[Rule]:
    """The rows that an operation's name may mean; where the name stands at a row, the rows at that place."""
    named = [rule for (type_, operation), rule in program.rules.items() if operation == name.name]
    own = [rule for rule in named if rule.span.line == name.span.line] if name.declares else []
    return own or [rule for rule in named if meet(name.types, frozenset({rule.entity}))]


def _type(name: str, names: DeclaredNames) -> str | None:
    entity = names.entities.get(name)
    if entity is None:
        return None
    notes = [f"one for each `{entity.parent}`"] if entity.single else []
    notes += [f"nests, at most {entity.nested} levels"] if entity.nested else []
    notes += ["its ids are flat"] * entity.flat + ([f"a {entity.principal}"] if entity.principal else [])
    granted = [privilege for privilege, types in names.binds.items() if name in types]
    return _lines(
        f"**{name}**{f': {entity.title}' if entity.title else ''}",
        f"path: `{'/'.join(names.hierarchy.chain(name))}`" + "".join(f", {note}" for note in notes),
        f"privileges: {listed_names(granted)}" if granted else "no privilege can be granted on it",
    )


def _privilege(name: str, names: DeclaredNames) -> str | None:
    if name in names.conditions:
        return _lines(f"**{name}**", f"the condition `{names.conditions[name].cell.line}`")
    members = names.members(name)
    if members is None:
        return None
    if name in names.sets:
        return _lines(f"**{name}**", f"any of {listed_names(members)}")
    privilege = names.privileges[members[0]]
    alias = names.aliases.get(name)
    deprecated = privilege.deprecated if alias is None else alias.deprecated
    return _lines(
        f"**{name}**{f': {privilege.title}' if privilege.title else ''}",
        f"another name of `{privilege.name}`" if alias else "",
        f"can be granted on {listed_names(privilege.on)}"
        if len(privilege.on) < len(names.entities)
        else "can be granted on every type",
        f"implies {listed_names(privilege.implies)}" if privilege.implies else "",
        f"deprecated: {deprecated}" if deprecated else "",
    )


def _row(row: Mapping[str, Any]) -> str:
    sets, unlisted = minimal_set_texts(row, "there are more of them than can be listed")
    source = row["source"]
    line = "" if source is None or source["line"] is None else f", line {source['line']}"
    return _lines(
        f"**{row['entity']}/{row['operation']}**" + (" (core)" if row["from"] == "core" else ""),
        *("\n".join([title or "needs one of these:", *(f"- `{text}`" for text in found)]) for title, found in sets),
        *unlisted,
        f"on success: {listed_names(row['effects'])}" if row["effects"] else "",
        f"deprecated: {row['deprecated']}" if row["deprecated"] else "",
        row["note"] or "",
        "" if source is None else f"source: {source['document']}{line}",
    )


def _lines(*lines: str) -> str:
    return "\n\n".join(filter(None, lines))
