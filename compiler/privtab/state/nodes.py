"""Who holds what, validated: the value that the reference meaning reads and every index is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from privtab.printable import printable
from privtab.request import Entity

Effect: TypeAlias = Literal["allow", "deny"]
TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins")


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLocation:
    """Where a row stands: the file, its table, its 1-based number in the table, and the line where that is known."""

    path: str
    table: str
    row: int
    line: int | None = None

    def __str__(self) -> str:
        line = "" if self.line is None else f":{self.line}"
        table = f" {self.table}" if self.table else ""
        row = f" row {self.row}" if self.row else ""
        return f"{self.path}{line}" + (f":{table}{row}" if table or row else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """One grant or denial. `grantee` is `user:…`, `group:…` or `role:…`; `privilege` as written: may be an alias or a set."""

    grantee: str
    effect: Effect
    privilege: str
    entity: Entity


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`principal` (`user:…` or `group:…`) holds `role` (a bare name), everywhere or within `scope`."""

    principal: str
    role: str
    scope: Entity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All rows of a state, in the order of the input. User and group names are bare."""

    members: tuple[tuple[str, Entity], ...] = ()
    """(user, entity)"""
    memberships: tuple[tuple[str, str], ...] = ()
    """(user, group)"""
    assignments: tuple[Assignment, ...] = ()
    grants: tuple[Grant, ...] = ()
    owners: tuple[tuple[Entity, str], ...] = ()
    """(entity, principal: `user:…`, `group:…` or `role:…`)"""
    service_admins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFinding:
    """One wrong row: where, why, a hint, and whether it is quarantined (an error) or only reported (a warning, a note).

    A place without a table speaks of the whole file; row 0 speaks of the whole table.
    """

    place: RowLocation
    message: str
    code: str
    severity: Literal["error", "warning", "note"] = "error"
    help: str | None = None
    row: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        """What is wrong and where, and below it the advice."""
        lines = [f"{self.place}: {self.severity}[{self.code}]: {self.message}"]
        if self.help is not None:
            lines.append(f"  help: {self.help}")
        return "\n".join(printable(line, one_line=True) for line in lines)
