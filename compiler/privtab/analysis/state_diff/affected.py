"""Which decisions changed rows can change: for which subjects, and at or below which entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from privtab.analysis.state_diff.addresses import written
from privtab.analysis.state_diff.entities import EntityTree
from privtab.analysis.state_diff.nodes import ChangedRow
from privtab.analysis.state_diff.subjects import PRINCIPAL_COLUMN, Side, Subject
from privtab.ir.formula import compared_terms
from privtab.ir.nodes import Program
from privtab.names import last_name
from privtab.state.chains import GROUP

EVERYWHERE = frozenset({""})
"""The root of all paths: every entity."""


class ChangeImpact:
    """Finds what changed rows affect, by both states. Never too little; what a decision really depends on is decided later.

    An atom of a condition is about the object of a request or about what contains it. So a row with an entity affects the
    objects at its path or below; a row that gives a principal affects those at or below everything that the principal has.
    """

    def __init__(self, program: Program, sides: tuple[Side, Side], tree: EntityTree) -> None:
        self.program = program
        self.sides = sides
        self.uses = sides[0].uses
        self._tree = tree
        self._address = tree.addresses.of
        self._defaults = {role.name for role in program.roles.values() if role.grants}
        self._paths_of_role: dict[tuple[str, str | None], frozenset[str]] = {}

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
            case "attributes" if "user" not in row.cells:
                return self._everyone
            case "entities":
                return self._everyone
            case "memberships" if row.cells["user"].startswith(GROUP):
                return self.sides[0].bearers(row.cells["user"]) | self.sides[1].bearers(row.cells["user"])
            case "members" | "memberships" | "service_admins" | "attributes":
                return {f"user:{row.cells['user']}"}
            case table:
                principal = row.cells[{**PRINCIPAL_COLUMN, "assignments": "principal"}[table]]
                return self.sides[0].bearers(principal) | self.sides[1].bearers(principal)

    def paths(self, row: ChangedRow) -> frozenset[str]:
        """The paths at or below which a row can change decisions."""
        match row.table:
            case "members":
                entity = row.cells["of"]
                is_checked = entity.partition(":")[0] in self.uses.member_types
                return frozenset({self._address(entity)}) if is_checked else frozenset()
            case "memberships":
                counts = self.uses.state_groups or row.cells["user"].startswith(GROUP)
                return self._of_group(row.cells["group"]) if counts else frozenset()
            case "assignments":
                return self._of_role(row.cells["role"], row.cells.get("scope"))
            case "attributes":
                kind = "user" if "user" in row.cells else "entity"
                if (kind, row.cells["attribute"]) not in self._compared:
                    return frozenset()
                return EVERYWHERE if kind == "user" else frozenset({self._address(row.cells["entity"])})
            case "entities":
                if row.cells["entity"] not in self._tree.addresses.moved:
                    return frozenset()
                # Whether a role within a scope holds another one within another scope depends on where the scopes lie.
                is_checked = self.uses.holds and "roles" in self.program.semantics.hierarchy
                return EVERYWHERE if is_checked else frozenset({self._address(row.cells["entity"])})
            case "service_admins":
                return EVERYWHERE if self.uses.service_admins else frozenset()
            case _:
                return frozenset({self._address(row.cells["entity"])})

    def _of_role(self, name: str, scope: str | None) -> frozenset[str]:
        """Where a role counts that is held within a scope, with the roles that it holds."""
        key = name, scope
        found = self._paths_of_role.get(key)
        if found is None:
            sides = [side for side in self.sides if scope is None or side.places(scope)]
            pairs = {pair for side in sides for pair in side.holdings.held_with(name, scope)}
            found = self._paths_of_role[key] = frozenset[str]().union(*(self._of_held(*pair) for pair in pairs))
        return found

    def _of_held(self, name: str, scope: str | None) -> frozenset[str]:
        """Where a role counts, without the roles that it holds."""
        if scope is not None:
            return frozenset({self._address(scope)}) | self._paths_named_after("role", name)
        own = EVERYWHERE if name in self._defaults else self._paths_held({f"role:{name}"})
        return own | self._paths_named_after("role", name)

    def _of_group(self, name: str) -> frozenset[str]:
        """Where membership in a group counts: what it has itself and through the groups that contain it, and their roles."""
        found: set[str] = set()
        for group in {group for side in self.sides for group in side.holdings.above([name])}:
            principal = f"group:{group}"
            found |= self._paths_held({principal}) | self._paths_named_after("group", group)
            for side in self.sides:
                for role, scope in side.holdings.held_by([principal]):
                    found |= self._of_held(role, scope)
        return frozenset(found)

    def _paths_held(self, principals: set[str]) -> frozenset[str]:
        return frozenset(self._address(key) for side in self.sides for key in side.keys(principals))

    def _paths_named_after(self, kind: str, name: str) -> frozenset[str]:
        """The paths of entities that stand for a role or a group, if conditions ask about these."""
        is_checked = self.uses.holds if kind == "role" else self.uses.group_membership
        return frozenset(self._names[kind].get(name, ())) if is_checked else frozenset()

    @cached_property
    def _everyone(self) -> set[Subject]:
        types = [type_.name for type_ in self.program.entities.values() if type_.principal == "user"]
        stand_for_users = {last_name(written(address)) for type_ in types for address in self._tree.paths[type_]}
        return self.sides[0].everyone() | self.sides[1].everyone() | {f"user:{name}" for name in stand_for_users}

    @cached_property
    def _compared(self) -> frozenset[tuple[str, str]]:
        return frozenset((term.kind, term.attribute) for term in compared_terms(self.program))

    @cached_property
    def _names(self) -> Mapping[str, Mapping[str, set[str]]]:
        types = self.program.entities.values()
        return {kind: self._tree.named([t.name for t in types if t.principal == kind]) for kind in ("role", "group")}
