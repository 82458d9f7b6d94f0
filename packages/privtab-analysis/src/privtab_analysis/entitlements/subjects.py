"""The subjects of a question about entitlements: users, or groups and roles considered alone; and the index of the rows that concern it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple, TypeAlias

from privtab.base import Entity, Locations, dataclass, last_name, once
from privtab.engines import Index, RowEngine
from privtab.ir import Program, program_json
from privtab.state import Assignment, State, index_document, lying_in, scoped_principal
from privtab_analysis.entitlements.request_forms import ALWAYS, RequestForms

Holding: TypeAlias = tuple[str, str]
"""A holding of a role: the group through which a subject holds it (empty: directly), and the key of the scope (empty: everywhere)."""
Numbers: TypeAlias = frozenset[int]
"""Subjects by their position among all."""
NOBODY: Numbers = frozenset()


def shown(index: Index, principal: str) -> str:
    """The name of a principal: a role within a scope, which is a principal of its own in the index, has the role's."""
    return index.within[principal][0] if principal in index.within else principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject. `user`: its user name; None for a group or a role."""

    principal: str
    user: str | None
    principals: tuple[str, ...]
    scopes: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """The declared roles held within each scope, by the key of the scope."""
    through: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    """Role → its holdings, in the order of preference for reports; roles that are not held through a group may be missing."""

    @classmethod
    def holding(
        cls,
        principal: str,
        user: str | None,
        everywhere: Iterable[str],
        scoped: Iterable[tuple[str, str]],
        declared: Container[str],
    ) -> Subject:
        """A subject with some principals everywhere, and roles (`role:…`) within scopes. `declared`: the names of roles with grants of their own."""
        scopes: dict[str, list[str]] = {}
        within: list[str] = []
        for role, scope in scoped:
            within.append(scoped_principal(role, scope))
            if role.removeprefix("role:") in declared:
                scopes.setdefault(scope, []).append(role)
        return cls(principal=principal, user=user, principals=(*sorted(everywhere), *within), scopes=scopes)


def united(sets: Sequence[Numbers]) -> Numbers:
    """All subjects of some sets; of one set, that itself."""
    found = [numbers for numbers in sets if numbers]
    return found[0] if len(found) == 1 else NOBODY.union(*found)


class Reach(NamedTuple):
    """The subjects to whom a privilege is granted and denied, and the owners, on an entity and on its containers."""

    granted: tuple[Numbers, ...]
    denied: tuple[Numbers, ...]
    owners: tuple[Numbers, ...]

    def holders(self, among: Numbers | None) -> Numbers:
        """The subjects to whom a privilege is granted, and not denied, or who own; only subjects in `among`, if it is given."""
        if among is None:
            among = united(self.granted + self.owners)
        else:
            among = united([among & numbers for numbers in self.granted + self.owners])
        if among and self.denied:
            denied = among & united(self.denied)
            return among - denied | (denied & united(self.owners) if denied else NOBODY)
        return among


class Subjects:
    """Subjects with look-ups from their principals and attributes: sets of their numbers."""

    def __init__(self, subjects: Sequence[Subject], index: Index) -> None:
        self._number(
            subjects, {subject.user: n for n, subject in enumerate(subjects) if subject.user is not None}, index
        )
        self.through: dict[str, dict[int, tuple[Holding, ...]]] = defaultdict(dict)
        """Role → the subjects that hold it through groups, and how."""
        for n, subject in enumerate(subjects):
            for role, holdings in subject.through.items():
                self.through[role][n] = holdings
        holders: dict[str, list[int]] = defaultdict(list)
        within: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for number, subject in enumerate(subjects):
            for principal in subject.principals:
                holders[principal].append(number)
            for scope, roles in subject.scopes.items():
                for role in roles:
                    within[scope][role].append(number)
        self.holders: Mapping[str, Numbers] = {principal: frozenset(numbers) for principal, numbers in holders.items()}
        self.within: dict[str, dict[str, Numbers]] = {
            scope: {role: frozenset(numbers) for role, numbers in roles.items()} for scope, roles in within.items()
        }
        """The holders of each declared role, by the key of the scope."""
        self._named: dict[str, dict[str, list[str]]] = {"role": defaultdict(list), "group": defaultdict(list)}
        """The principals that an entity may stand for, by kind and name; those of other subjects, too."""
        self._name_of: dict[str, str] = {}
        """The name of each of these: a role has one principal for each scope."""
        for principal in holders:
            kind, _, name = shown(index, principal).partition(":")
            if kind in self._named:
                self._named[kind][name].append(principal)
                self._name_of[principal] = name

    def _number(self, subjects: Sequence[Subject], users: Mapping[str, int], index: Index) -> None:
        """`users`: by name, the numbers of the subjects that are users."""
        self.all = subjects
        self.everyone: Numbers = frozenset(range(len(subjects)))
        self.number = users
        self.alone: Numbers = self.everyone.difference(users.values())
        """The groups and roles: memberships that only users can have may be assumed for them."""
        self.admins: Numbers = frozenset(users[user] for user in users.keys() & index.service_admins)
        self.with_attributes: Numbers = frozenset(users[user] for user in users.keys() & index.user_attributes.keys())

    def of(self, principals: Iterable[str]) -> Numbers:
        """The subjects with any of some principals."""
        return united([found for principal in principals if (found := self.holders.get(principal))])

    def standing(self, kind: str, path: str) -> list[str]:
        """The groups or roles that the entity with a path stands for, by its last name or its whole path."""
        names = self._named[kind]
        found = (principal for name in {last_name(path), path} if name in names for principal in names[name])
        return [principal for principal in found if principal in self.holders]

    def names(self) -> set[str]:
        """Every name by which an entity may stand for a subject or for a principal of one."""
        return {*self.number, *map(self._name_of.__getitem__, self.holders.keys() & self._name_of.keys())}


class SomeSubjects(Subjects):
    """Some of other subjects, with the same numbers."""

    def __init__(self, subjects: Subjects, among: Numbers) -> None:
        self.all = subjects.all
        self.everyone = among
        chosen = {number: subjects.all[number] for number in among}
        self.number = {subject.user: number for number, subject in chosen.items() if subject.user is not None}
        self.alone = subjects.alone & among
        self.admins = subjects.admins & among
        self.with_attributes = subjects.with_attributes & among
        self.through = subjects.through
        principals = {principal for subject in chosen.values() for principal in subject.principals}
        self.holders = {principal: subjects.holders[principal] & among for principal in principals}
        scopes = {scope for subject in chosen.values() for scope in subject.scopes}
        self.within = {
            scope: {role: held for role, numbers in subjects.within[scope].items() if (held := numbers & among)}
            for scope in scopes
        }
        self._named, self._name_of = subjects._named, subjects._name_of  # noqa: SLF001  (its own)


class Concerns:
    """The entities of a state that concern some subjects, so that entities with equal answers are answered once."""

    def __init__(self, subjects: Subjects, index: Index) -> None:
        holders = subjects.holders
        found: dict[str, int] = defaultdict(int)
        for table in index.tables.values():
            for path, rights in table.items():
                bits = reduce(or_, {held for principal, held in rights.items() if principal in holders}, 0)
                if bits:
                    found[path] |= bits << 1
        for members in index.members.values():
            for path in members:
                found[path] |= ALWAYS
        keys = [*subjects.within, *index.owned_below, *index.entity_attributes]
        keys += [key for entries in index.below.values() for key in entries]
        keys += [scope for subject in subjects.all for held in subject.through.values() for _, scope in held]
        for key in keys:
            found[key.partition(":")[2]] |= ALWAYS
        self._bits = dict(found)
        self._names = subjects.names()

    def on(self, path: Sequence[str], given: Mapping[tuple[str, str], object]) -> list[int]:
        """The bits that concern the subjects on a path, by number of names, as in `RequestForm.bits`. `given`: attributes of entities in requests.

        Entities of a type have the same rights, but for their names, if they have the same nearest entity with a bit of the form.
        """
        found = [self._bits.get(at, 0) for at in path]
        by_request = {key.partition(":")[2] for key, _ in given} if given else ()
        for depth, at in enumerate(path):
            if at in self._names or (at and last_name(at) in self._names) or at in by_request:
                found[depth] |= ALWAYS
        return found


_HOLDER = "user:"
"""Whoever holds roles within scopes in an index without users."""


def program_forms(program: Program, where: Locations) -> RequestForms:
    """The conditions of a program, without minimal sets, for entities that lie somewhere."""
    if not program.flat:
        return _forms(program)
    engine = RowEngine(program_json(program, explained=False), _index(program, State()))
    engine.locations = where
    return RequestForms(engine)


@once
def _forms(program: Program) -> RequestForms:
    return RequestForms(RowEngine(program_json(program, explained=False), _index(program, State())))


def held(
    program: Program,
    state: State,
    rows: Mapping[str, list[int]],
    scoped: Iterable[tuple[str, str]],
    attributes: Mapping[str, Any],
) -> Index:
    """The index of some rows of a state, without its users and groups: who has a principal, subjects tell.

    `scoped`: the roles (`role:…`) that are held within scopes, each with the key of one. `attributes`: as in an index.
    """
    excerpt = state.some(rows)
    assigned = tuple(
        Assignment(principal=_HOLDER, role=role.removeprefix("role:"), scope=Entity.parse(scope))
        for role, scope in sorted(scoped)
    )
    found = _index(program, lying_in(program, replace(excerpt, assignments=assigned), state))
    found.user_attributes = attributes.get("user_attributes", {})
    found.entity_attributes = attributes.get("entity_attributes", {})
    return found


def _index(program: Program, state: State) -> Index:
    return Index(index_document(program, state, excerpt=True))
