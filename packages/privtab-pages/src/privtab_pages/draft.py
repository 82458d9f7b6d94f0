"""The policy that is made of a page, and the scenarios of its cells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import yaml

from privtab.base import SourceFile, Span
from privtab.ir import Program
from privtab.language import format_source
from privtab_testing.scenarios.suggest import Setting, suggestions

_PRINCIPALS = ("user", "group", "role")
"""The types whose entities are principals, unless a policy says otherwise."""


NOBODY = "nobody"
"""The condition of a row whose own is not read: all are refused, whatever other rows say."""
WRITTEN = "# The cells of a page, as `privtab import` writes them."
"""The first line of scenarios, by which a file is known that may be written again."""
_PLAIN: Setting = (frozenset(), (), "")
"""A request without flags and further objects."""


class Mark(NamedTuple):
    """The answer of a cell for a role and an operation."""

    role: str
    scope: str
    type: str
    operation: str
    allowed: bool
    span: Span


@dataclass(kw_only=True)
class Draft:
    """Collects the types, privileges, roles and rows of a page."""

    system: str
    version: str
    document: str
    inside: dict[str, str]
    """The type that contains each; the others are roots."""
    sets: Mapping[str, str]
    titles: dict[str, str] = field(default_factory=dict)
    """The types, each with its title on the page."""
    privileges: dict[str, str] = field(default_factory=dict)
    """The privileges, each with its title where it is another."""
    roles: dict[str, str] = field(default_factory=dict)
    """The roles, each with its title."""
    scopes: dict[str, list[str]] = field(default_factory=dict)
    """The types on which each role is held."""
    marks: list[Mark] = field(default_factory=list)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    owners: bool = False
    everything: str = ""
    """What the page calls those who may do everything: service administrators."""
    _stated: set[tuple[object, ...]] = field(default_factory=set)

    def allow(self, mark: Mark, *, certain: bool) -> None:
        """Take what a cell says; of a cell that is not read, only that its role is there."""
        scopes = self.scopes.setdefault(mark.role, [])
        if mark.scope not in scopes:
            scopes.append(mark.scope)
        if certain and mark[:5] not in self._stated:
            self._stated.add(mark[:5])
            self.marks.append(mark)

    def deny(self, type_: str, operation: str) -> None:
        """Take back what marks allow and deny on an operation."""
        self.marks = [mark for mark in self.marks if (mark.type, mark.operation) != (type_, operation)]

    def role_name(self, role: str, scope: str) -> str:
        """The name of a role: one of several types is declared once, unless one of these is inside another."""
        scopes = self.scopes[role]
        nested = any(above in scopes for scope in scopes for above in self._above(scope))
        return f"{scope}_{role}" if nested else role

    def _above(self, type_: str) -> Iterator[str]:
        """The types that contain a type."""
        for _ in self.titles:
            if (type_ := self.inside.get(type_, "")) == "":
                return
            yield type_

    def policy(self) -> str:
        """The policy as YAML; rows that are not read refuse those who may do everything, too."""
        written = [row for rows in self.rows.values() for row in rows.values()]
        for row in written if self.everything else ():
            if row["requires"] == NOBODY:
                row["gate"] = "none"
        conditions = " ".join(str(row["requires"]) for row in written)
        asked = re.search(r"\b(?:self|holds|member)\b", conditions)
        types = {
            name: {
                **({"title": title} if title and title != name else {}),
                **({"principal": "none"} if name in _PRINCIPALS and not asked else {}),
            }
            for name, title in self.titles.items()
        }
        titled = {name: {"title": title} if title else None for name, title in self.privileges.items()}
        document = {
            "privtab": 1,
            "system": self.system,
            "version": self.version,
            "sources": {"page": {"document": self.document}},
            "entities": self._tree(None),
            "types": {name: properties for name, properties in types.items() if properties},
            "privileges": titled if any(titled.values()) else list(titled),
            "sets": {name: [part.strip() for part in members.split(",")] for name, members in self.sets.items()},
            # What a page does not say is read as narrowly as can be.
            "semantics": {
                "inheritance": "none",
                "deny": "none",
                **({"owner": {"creator": False}} if self.owners else {}),
                **({"gate": {"or": "service admin"}} if self.everything else {}),
            },
            "roles": dict(self._roles()),
            "tables": self.rows,
        }
        return _formatted("policy.yaml", _dumped({key: value for key, value in document.items() if value}))

    def _roles(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for role, scopes in self.scopes.items():
            held: dict[str, list[str]] = {}
            for scope in scopes:
                held.setdefault(self.role_name(role, scope), []).append(scope)
            for name, on in held.items():
                grants: dict[str, list[str]] = {}
                for mark in self.marks:
                    if mark.role == role and mark.scope in on and mark.allowed:
                        grants.setdefault(mark.type, []).append(mark.operation.upper())
                title = self.roles[role]
                yield (
                    name,
                    {
                        **({"title": title} if title != name else {}),
                        "scope": on if len(on) > 1 else on[0],
                        **({"grants": grants} if grants else {}),
                    },
                )

    def _tree(self, parent: str | None) -> dict[str, Any]:
        return {name: self._tree(name) for name in self.titles if self.inside.get(name) == parent}

    def scenarios(self, program: Program, policy: str) -> str:
        """One case for each mark of the page, and what each row requires that has a condition; for `policy`, a file beside it."""
        users = [
            {"principal": f"user:{name}", "role": name, "scope": self._entity(scope)}
            for role, scopes in self.scopes.items()
            for scope in scopes
            for name in [self.role_name(role, scope)]
        ]
        every = dict[str, set[str]]()
        for mark in self.marks if self.everything else ():
            every.setdefault(mark.type, set()).add(mark.operation)
        admins = [{"user": self.everything}] if every else []
        cases: list[dict[str, Any]] = [
            {"user": self.everything, "action": sorted(of), "resource": self._entity(type_), "decision": "allow"}
            for type_, of in every.items()
        ]
        cases += [
            {
                "user": self.role_name(role, scope),
                "action": [mark.operation for mark in marks],
                "resource": self._entity(type_),
                "decision": "allow" if allowed else "deny",
                "source": [mark.span.line for mark in marks],
            }
            for (role, scope, type_, allowed), marks in (
                (key, list(found)) for key, found in groupby(sorted(self.marks, key=_group), _group)
            )
        ]
        marked = {(mark.type, mark.operation) for mark in self.marks}
        rules = {rule.id: (rule, {_PLAIN}) for key, rule in program.rules.items() if key not in marked}
        needs = suggestions(program, rules) if rules else ""
        state = {"assignments": users, "service_admins": admins}
        parts = {"state": {name: rows for name, rows in state.items() if rows}, "cases": cases}
        written = "".join(_dumped({name: part}) for name, part in parts.items() if part)
        text = f"{WRITTEN}\nscenarios: 1\npolicy: {json.dumps(policy)}\n{written}{needs}"
        return _formatted("page.scenarios.yaml", text)

    def _entity(self, type_: str) -> str:
        """An entity of a type, each of whose names is `x`."""
        return f"{type_}:{self.path(type_, 'x')}"

    def path(self, type_: str, name: str) -> str:
        """The path of an entity of a type, each of whose names is the same."""
        return "/".join([name, *(name for _ in self._above(type_))])


def row_title(operation: str, title: str) -> dict[str, str]:
    """The title of a row as a part of the row; none where the name of the operation says it."""
    return {} if operation.replace("_", " ") == title else {"title": title}


def _group(mark: Mark) -> tuple[str, str, str, bool]:
    return mark.role, mark.scope, mark.type, mark.allowed


def _dumped(document: Mapping[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)


def _formatted(name: str, text: str) -> str:
    return format_source(SourceFile.of(name, text))[0] or text
