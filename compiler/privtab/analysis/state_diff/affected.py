"""Which decisions changed rows can change: for which subjects, and at or below which entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from privtab.analysis.state_diff.entities import EntityTree
from privtab.analysis.state_diff.nodes import ChangedRow
from privtab.analysis.state_diff.subjects import PRINCIPAL_COLUMN, Side, Subject
from privtab.ir.nodes import Program
from privtab.names import path_of

EVERYWHERE = frozenset({""})
"""The root of all paths: every entity."""


class Affected:
    """Finds what changed rows affect, by both states. Never too little; what a decision really depends on is decided later.

    An atom of a condition is about the object of a request or about what contains it. So a row with an entity affects the
    objects at its path or below; a row that gives a principal affects those at or below everything that the principal has.
    """

    def __init__(self, program: Program, sides: tuple[Side, Side], tree: EntityTree) -> None:
        self.program = program
        self.sides = sides
        self.uses = sides[0].uses
        self._tree = tree
        self._defaults = {role.name for role in program.roles.values() if role.grants}
        self._paths_of_role: dict[str, frozenset[str]] = {}

    def by_subject(self, rows: Iterable[ChangedRow]) -> dict[Subject, set[str]]:
        """For each affected subject, the paths at or below which its decisions may change."""
        found: dict[Subject, set[str]] = {}
        for row in rows:
            paths = self.paths(row)
            if paths:
                for subject in self.subjects(row):
                    found.setdefault(subject, set()).update(paths)
        return found

    def subjects(self, row: ChangedRow) -> set[Subject]:
        """The subjects that a row is about, in either state."""
        match row.table:
            case "members" | "memberships" | "service_admins":
                return {f"user:{row.cells['user']}"}
            case table:
                principal = row.cells[{**PRINCIPAL_COLUMN, "assignments": "principal"}[table]]
                return self.sides[0].bearers(principal) | self.sides[1].bearers(principal)

    def paths(self, row: ChangedRow) -> frozenset[str]:
        """The paths at or below which a row can change decisions."""
        match row.table:
            case "members":
                entity = row.cells["of"]
                return (
                    frozenset({path_of(entity)}) if entity.partition(":")[0] in self.uses.member_types else frozenset()
                )
            case "memberships":
                return self._of_group(row.cells["group"]) if self.uses.state_groups else frozenset()
            case "assignments":
                scope = row.cells.get("scope")
                return (
                    self._of_role(row.cells["role"])
                    if scope is None
                    else frozenset({path_of(scope)}) | self._paths_named_after("role", row.cells["role"])
                )
            case "service_admins":
                return EVERYWHERE if self.uses.service_admins else frozenset()
            case _:
                return frozenset({path_of(row.cells["entity"])})

    def _of_role(self, name: str) -> frozenset[str]:
        """Where a role counts that is held everywhere."""
        found = self._paths_of_role.get(name)
        if found is None:
            held_paths = EVERYWHERE if name in self._defaults else self._paths_held({f"role:{name}"})
            found = self._paths_of_role[name] = held_paths | self._paths_named_after("role", name)
        return found

    def _of_group(self, name: str) -> frozenset[str]:
        """Where membership in a group counts: what it has itself, and its roles."""
        principal = f"group:{name}"
        found = set(self._paths_held({principal})) | self._paths_named_after("group", name)
        for side in self.sides:
            state = side.state
            rows = state.column("assignments", "principal").where([principal])
            columns = (state.column("assignments", column).take(rows) for column in ("role", "scope"))
            for role, scope in zip(*columns, strict=True):
                found |= (
                    self._of_role(str(role))
                    if scope is None
                    else {path_of(scope), *self._paths_named_after("role", str(role))}
                )
        return frozenset(found)

    def _paths_held(self, principals: set[str]) -> frozenset[str]:
        return frozenset(path_of(key) for side in self.sides for key in side.keys(principals))

    def _paths_named_after(self, kind: str, name: str) -> frozenset[str]:
        """The paths of entities that stand for a role or a group, if conditions ask about these."""
        is_checked = self.uses.holds if kind == "role" else self.uses.group_membership
        return frozenset(self._names[kind].get(name, ())) if is_checked else frozenset()

    @cached_property
    def _names(self) -> Mapping[str, Mapping[str, set[str]]]:
        types = self.program.entities.values()
        return {kind: self._tree.named([t.name for t in types if t.principal == kind]) for kind in ("role", "group")}
