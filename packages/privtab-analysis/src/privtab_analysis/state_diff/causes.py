"""The decisions that changed rows can change, and for each changed decision a smallest set of rows that make the difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from privtab.base import Entity, GivenAttributes, last_name
from privtab.ir import Feature, Program, compared_terms, privilege_names
from privtab.state import GROUP_PREFIX, State
from privtab_analysis.entitlements.equivalence import prefixes
from privtab_analysis.state_diff.answers import Tally
from privtab_analysis.state_diff.entities import Addresses, EntityTree, written
from privtab_analysis.state_diff.nodes import ChangedRow
from privtab_analysis.state_diff.placed import placed
from privtab_analysis.state_diff.subjects import PRINCIPAL_COLUMN, Holding, Question, Side, Subject, SubjectSets

Rows: TypeAlias = tuple[ChangedRow, ...]
Cause: TypeAlias = tuple[tuple[Subject, ...], Rows]


class _AboutSubject(NamedTuple):
    """The principals of a subject in any of two states, and the changed rows about it that name no entity."""

    principals: frozenset[str]
    assigned: Rows
    others: Rows


class Causes:
    """Finds the rows that make a difference among all changed rows of two states."""

    def __init__(
        self,
        program: Program,
        sides: tuple[Side, Side],
        rows: Sequence[ChangedRow],
        addresses: Addresses,
        tally: Tally,
    ) -> None:
        self.program = program
        self.rows = tuple(rows)
        self.addresses = addresses
        self.sides = sides
        self.uses = sides[0].uses
        self._by_path: dict[str, list[ChangedRow]] = defaultdict(list)
        self._assigned: dict[str, list[ChangedRow]] = defaultdict(list)
        self._of_user: dict[str, list[ChangedRow]] = defaultdict(list)
        self._moves: dict[str, Rows] = {}
        for row in rows:
            match row.table:
                case "entities":
                    key = row.cells["entity"]
                    if key in addresses.moved:  # and not only called something else
                        self._moves[key] = (*self._moves.get(key, ()), row)
                case "assignments":
                    self._assigned[row.cells["principal"]].append(row)
                case table if entity := row.cells.get("of" if table == "members" else "entity"):
                    self._by_path[entity.partition(":")[2]].append(row)
                case _:
                    user = row.cells["user"]
                    self._of_user[user if user.startswith(GROUP_PREFIX) else f"user:{user}"].append(row)
        self._on: dict[str, int] = {}
        self._numbers: dict[object, int] = {}
        self._single: dict[tuple[object, ...], Sequence[Cause] | None] = {}
        self._known: dict[Subject, _AboutSubject] = {}
        self._parts: dict[object, Mapping[Rows, tuple[Subject, ...]]] = {}
        self._containers: dict[str, tuple[str, ...]] = {}
        self._holds_roles = "roles" in program.semantics.hierarchy
        self.asks_below = Feature.BELOW.used_by(program)
        self.tally = tally

    def at(self, objects: Mapping[str, Entity]) -> CauseFinder:
        """The same for requests about some objects."""
        return CauseFinder(self, objects)

    def single(self, subjects: frozenset[Subject], objects: Iterable[str]) -> Sequence[Cause] | None:
        """The causes for objects with paths that tell where these lie; None if several rows may be behind the difference for a subject."""
        key = subjects, *self.on(objects)
        if key not in self._single:
            paths = dict.fromkeys(chain([""], *map(prefixes, objects)))
            parts = {self.rows: tuple(sorted(subjects))} if len(self.rows) == 1 else self.parts(subjects, paths)
            several = any(len(rows) > 1 for rows in parts)
            self._single[key] = None if several else [(members, self.whole(rows)) for rows, members in parts.items()]
        return self._single[key]

    def on(self, paths: Iterable[str]) -> tuple[int, ...]:
        """Equal for objects on whose paths the same changed rows may count."""
        return () if len(self.rows) == 1 else tuple(map(self._changed_on, paths))

    def _changed_on(self, path: str) -> int:
        if path not in self._on:
            around = self._changed_on(path.rpartition("/")[0]) if path else 0
            rows, roles = path in self._by_path, frozenset(self._roles_at.get(path, ()))
            if rows or roles:
                around = self._numbers.setdefault((path if rows else None, roles, around), len(self._numbers) + 1)
            self._on[path] = around
        return self._on[path]

    def parts(self, subjects: frozenset[Subject], paths: Collection[str]) -> Mapping[Rows, tuple[Subject, ...]]:
        """The subjects, divided by the changed rows that may change a decision for them on objects with the paths and on their containers.

        Of the two rows of an entity that has moved, the row that places it now stands for both.
        """
        on_paths = self._by_path if self.asks_below else paths
        here = tuple(row for path in on_paths for row in self._by_path.get(path, ()))
        assigned = self._counting(paths) if self._assigned else frozenset[str]()
        everywhere = self.asks_below or self._holds_roles  # scopes of roles may lie anywhere
        moves = tuple(rows[-1] for key, rows in self._moves.items() if everywhere or key.partition(":")[2] in paths)
        key = subjects, here, assigned, moves
        if key not in self._parts:
            found: dict[Rows, list[Subject]] = defaultdict(list)
            for subject in sorted(subjects):
                about = self._about(subject)
                own = [row for row in here if self._is_about(row, subject, about.principals)]
                given = (row for row in about.assigned if assigned is None or row.cells["role"] in assigned)
                found[(*own, *given, *about.others, *moves)].append(subject)
            self._parts[key] = {rows: tuple(members) for rows, members in found.items()}
        return self._parts[key]

    def _counting(self, paths: Collection[str]) -> frozenset[str] | None:
        """The roles of changed assignments that count on objects with the paths; None: all."""
        if self.uses.holds or self._holds_roles or self.asks_below:
            return None
        roles = {row.cells["role"] for rows in self._assigned.values() for row in rows}
        return frozenset(self.program.roles.keys() & roles).union(*(self._roles_at.get(path, ()) for path in paths))

    @cached_property
    def _roles_at(self) -> Mapping[str, set[str]]:
        """By path, the roles of changed assignments that hold something on the entities at the path, in either state."""
        found: dict[str, set[str]] = defaultdict(set)
        for role in {row.cells["role"] for rows in self._assigned.values() for row in rows}:
            for key in chain.from_iterable(side.keys({f"role:{role}"}) for side in self.sides):
                found[key.partition(":")[2]].add(role)
        return found

    def _about(self, subject: Subject) -> _AboutSubject:
        """What a subject holds, and the changed rows about it that name no entity."""
        found = self._known.get(subject)
        if found is None:
            before, after = (side.holding(subject) for side in self.sides)
            groups = [f"group:{group}" for group in sorted(before.groups | after.groups)]
            holders = dict.fromkeys([subject, *groups, *self.roles_of(before, after)])
            others = dict.fromkeys([subject, *groups])
            found = self._known[subject] = _AboutSubject(
                before.everything | after.everything,
                tuple(row for holder in holders for row in self._assigned.get(holder, ())),
                tuple(row for holder in others for row in self._of_user.get(holder, ())),
            )
        return found

    def whole(self, rows: Rows) -> Rows:
        """The rows, with both rows of entities that have moved."""
        return tuple(
            part for row in rows for part in (self._moves[row.cells["entity"]] if row.table == "entities" else (row,))
        )

    def roles_of(self, *holdings: Holding) -> list[str]:
        """The roles of some subjects that may hold others, as `role:…`."""
        return [f"role:{role}" for role in sorted({r for h in holdings for r in h.roles})] if self._holds_roles else []

    def between(self, subjects: Iterable[Subject]) -> set[str]:
        """The principals of some subjects in every state between the two, so by rows of which only one state may have each."""
        found: set[str] = set()
        # Also who has no name, but a group of the request, is in a group of everyone.
        waiting = [*subjects, *(f"{GROUP_PREFIX}{group}" for group in self.program.semantics.everyones)]
        while waiting:
            principal = waiting.pop()
            if principal in found:
                continue
            found.add(principal)
            if principal not in self._containers:
                rows = chain.from_iterable(side.containers(principal) for side in self.sides)
                self._containers[principal] = tuple(dict.fromkeys(rows))
            waiting += self._containers[principal]
        return found

    def _is_about(self, row: ChangedRow, subject: Subject, principals: Collection[str]) -> bool:
        if row.table == "attributes":
            return True
        return (
            f"user:{row.cells['user']}" == subject
            if row.table == "members"
            else row.cells[PRINCIPAL_COLUMN[row.table]] in principals
        )


class CauseFinder:
    """Finds the rows that make a difference for requests about the same objects."""

    def __init__(self, causes: Causes, objects: Mapping[str, Entity]) -> None:
        self._causes = causes
        self._objects = objects
        entities = [entity for entity in objects.values() if entity.type]
        outer = (key.partition(":")[2] for key in sorted(causes.addresses.containers(map(str, entities))))
        self._paths = list(
            dict.fromkeys(("", *chain.from_iterable(prefixes(entity.id) for entity in entities), *outer))
        )
        self._parts: dict[frozenset[Subject], Mapping[Rows, tuple[Subject, ...]]] = {}
        self._bases: dict[frozenset[Subject], Mapping[str, list[Any]]] = {}
        self._worlds: dict[tuple[frozenset[Subject], Rows], SubjectSets] = {}

    def of(
        self, question: Question, subjects: frozenset[Subject], given: GivenAttributes, *, gained: bool
    ) -> Iterator[Cause]:
        """The subjects divided by their smallest set of rows that makes the difference if a request gives some values."""
        if len(self._causes.rows) == 1:
            yield tuple(sorted(subjects)), self._causes.whole(self._causes.rows)
            return
        request = question.request(self._objects, given)
        if subjects not in self._parts:
            self._parts[subjects] = self._causes.parts(subjects, self._paths)
        for rows, members in self._parts[subjects].items():
            assert rows, f"{question.rule.id}: a decision changed for {members[0]}, and no row that concerns it"
            if len(rows) == 1:
                yield members, self._causes.whole(rows)
            else:
                part = frozenset(members)

                def holds(tried: Rows, part: frozenset[Subject] = part) -> frozenset[Subject]:
                    self._causes.tally.tried += 1
                    allowed = self._world(part, tried).applied(request)
                    return allowed if gained else part - allowed

                for found, smallest in _smallest(holds, part, rows):
                    yield tuple(sorted(found)), self._causes.whole(smallest)

    def _world(self, subjects: frozenset[Subject], rows: Rows) -> SubjectSets:
        """The permissions of the subjects in the first state with only some of the rows changed."""
        key = subjects, rows
        if key not in self._worlds:
            if subjects not in self._bases:
                self._bases[subjects] = self._base(subjects)
            tables: dict[str, Any] = {}
            for table, base in self._bases[subjects].items():
                removed = {row.value for row in rows if row.table == table and not row.added}
                added = [row.value for row in rows if row.table == table and row.added]
                tables[table] = (*(value for value in base if value not in removed), *added)
            first = self._causes.sides[0]
            if first.program.flat:
                tables["entities"] = self._placements(State(**tables), [row for row in rows if row.table == "entities"])
            side = Side(first.program, placed(first.program, State(**tables)), first.uses)
            self._worlds[key] = SubjectSets(side, subjects)
        return self._worlds[key]

    def _base(self, subjects: frozenset[Subject]) -> Mapping[str, list[Any]]:
        """The rows of the first state that decide for the subjects on the objects."""
        state = self._causes.sides[0].state
        principals = self._causes.between(subjects)
        users = [subject[5:] for subject in subjects if subject.startswith("user:")]
        groups = [principal for principal in principals if principal.startswith(GROUP_PREFIX)]
        keys = [f"{type_}:{path}" for path in self._paths for type_ in self._causes.program.entities]
        found = {
            "memberships": state.column("memberships", "user").where([*users, *groups]),
            "assignments": state.column("assignments", "principal").where(principals),
            "members": state.column("members", "user").where(users),
            "service_admins": state.column("service_admins", "user").where(users),
            "attributes": sorted(
                (*state.column("attributes", "user").where(users), *state.column("attributes", "entity").where(keys))
            ),
        }
        for table, principal_column in PRINCIPAL_COLUMN.items():
            if self._causes.asks_below:
                found[table] = state.column(table, principal_column).where(principals)
                continue
            rows = state.column(table, "entity").where(keys)
            named = state.column(table, principal_column).take(rows)
            found[table] = [row for row, name in zip(rows, named, strict=True) if name in principals]
        return {table: [getattr(state, table)[row] for row in found[table]] for table in found}

    def _placements(self, rows: State, moves: Sequence[ChangedRow]) -> list[Any]:
        """The places of the objects and of the entities of some rows in the first state, with some moves."""
        objects = [str(entity) for entity in self._objects.values() if entity.type]
        around = self._causes.addresses.containers([*rows.named_entities(), *objects])
        entities = self._causes.sides[0].state.entities
        numbers = self._causes.sides[0].state.column("entities", "entity").where(around)
        moved = {row.cells["entity"] for row in moves}
        unmoved = [row for row in map(entities.__getitem__, numbers) if str(row.entity) not in moved]
        return [*unmoved, *(row.value for row in moves if row.added)]


def _smallest(
    holds: Callable[[Rows], frozenset[Subject]], remaining: frozenset[Subject], rows: Rows, size: int = 0
) -> Iterator[tuple[frozenset[Subject], Rows]]:
    """Leave out rows as long as the difference remains, separately for subjects for which it does not.

    From each set that remains, no single row can be left out. `size`: how many rows to leave out at once; then half as many.
    """
    size = size or max(1, len(rows) // 2)
    while remaining:
        shorter = False
        end = len(rows)
        while end > 0 and remaining:
            begin = max(0, end - size)
            fewer = rows[:begin] + rows[end:]
            still = holds(fewer) & remaining if fewer else frozenset[Subject]()
            if still == remaining:
                rows, shorter = fewer, True
            elif still:
                yield from _smallest(holds, still, fewer, size)
                remaining -= still
            end = begin
        if size == 1 and not shorter and remaining:
            yield remaining, rows
            return
        size = max(1, size // 2)


EVERYWHERE = frozenset({""})
"""The root of all paths: every entity."""


class ChangeImpact:
    """Finds the decisions that changed rows affect, from both states. Never too few; the rows behind each decision are found later.

    An atom of a condition is about the object of a request or about its containers. So a row with an entity affects the
    objects at its path or below; a row that gives a principal affects the objects at or below everything that the principal has.
    """

    def __init__(self, program: Program, sides: tuple[Side, Side], tree: EntityTree) -> None:
        self.program = program
        self.sides = sides
        self.uses = sides[0].uses
        self._tree = tree
        self._address = tree.addresses.of
        self._defaults = {role.name for role in program.roles.values() if role.grants}
        self._paths_of_role: dict[tuple[str, str | None], frozenset[str]] = {}
        self._privilege_names = privilege_names(program)
        self._privileges: dict[str, set[str]] = defaultdict(set)
        """By path, the privileges of changed grants."""
        self.otherwise: set[Subject] = set()
        """The subjects that other rows than grants affect."""
        self.holding_otherwise: set[Subject] = set()
        """The subjects that may be in other groups, or hold other roles, in the second state."""

    def by_subject(self, rows: Iterable[ChangedRow]) -> dict[Subject, set[str]]:
        """For each affected subject, the paths at or below which its decisions may change."""
        found: dict[Subject, set[str]] = {}
        for row in rows:
            if row.table in ("memberships", "assignments"):
                self.holding_otherwise |= self.subjects(row)
            paths = self.paths(row)
            if not paths:
                continue
            subjects = self.subjects(row)
            for subject in subjects:
                found.setdefault(subject, set()).update(paths)
            if row.table == "grants":
                type_ = row.cells["entity"].partition(":")[0]
                names = row.cells["privilege"], type_, row.cells.get("effect", "allow")
                for path in paths:
                    self._privileges[path].update(self._privilege_names.privileges_of(*names))
            else:
                self.otherwise |= subjects
        return found

    def privileges(self, paths: Iterable[str]) -> set[str]:
        """The privileges of changed grants that count at or below some paths."""
        outer = {outer for path in paths for outer in prefixes(path)}
        return {privilege for path in outer & self._privileges.keys() for privilege in self._privileges[path]}

    def subjects(self, row: ChangedRow) -> set[Subject]:
        """The subjects that a row is about, in either state."""
        match row.table:
            case "attributes" if "user" not in row.cells:
                return self._everyone
            case "entities":
                return self._everyone
            case "memberships" if row.cells["user"].startswith(GROUP_PREFIX):
                return self.sides[0].holders(row.cells["user"]) | self.sides[1].holders(row.cells["user"])
            case "members" | "memberships" | "service_admins" | "attributes":
                return {f"user:{row.cells['user']}"}
            case table:
                principal = row.cells[{**PRINCIPAL_COLUMN, "assignments": "principal"}[table]]
                return self.sides[0].holders(principal) | self.sides[1].holders(principal)

    def paths(self, row: ChangedRow) -> frozenset[str]:
        """The paths at or below which a row can change decisions."""
        match row.table:
            case "members":
                entity = row.cells["of"]
                is_checked = entity.partition(":")[0] in self.uses.member_types
                return frozenset({self._address(entity)}) if is_checked else frozenset()
            case "memberships":
                counts = self.uses.state_groups or row.cells["user"].startswith(GROUP_PREFIX)
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
        """The paths on which a role counts that is held within a scope, with the roles that it holds."""
        key = name, scope
        found = self._paths_of_role.get(key)
        if found is None:
            sides = [side for side in self.sides if scope is None or side.places(scope)]
            pairs = {pair for side in sides for pair in side.holdings.held_with(name, scope)}
            found = self._paths_of_role[key] = frozenset[str]().union(*(self._of_held(*pair) for pair in pairs))
        return found

    def _of_held(self, name: str, scope: str | None) -> frozenset[str]:
        """The paths on which a role counts, without the roles that it holds."""
        if scope is not None:
            return frozenset({self._address(scope)}) | self._paths_named_after("role", name)
        own = EVERYWHERE if name in self._defaults else self._paths_held({f"role:{name}"})
        return own | self._paths_named_after("role", name)

    def _of_group(self, name: str) -> frozenset[str]:
        """The paths on which membership in a group counts: of its own rights, and of the groups that contain it and their roles."""
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
