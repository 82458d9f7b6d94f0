"""The names in a state: its users, and its entities with their containers. Searches select from these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from privtab.engines.index import Index
from privtab.locations import Locations
from privtab.names import last_name
from privtab.request import Entity
from privtab.vocabulary import Vocabulary


class Directory:
    """The sorted names in one state. Searches cannot find what no row of the state names."""

    def __init__(self, program: Mapping[str, Any], index: Index) -> None:
        """`program`: as in the policy bundle."""
        self._entities: dict[str, set[str]] = {type_: set() for type_ in program["entities"]}
        shapes = Vocabulary.from_program(program).shapes
        locations = Locations(shapes, index.places, index.containers)
        singles: dict[str, list[str]] = {type_: [] for type_ in program["entities"]}
        for type_, entity in program["entities"].items():
            if entity.get("single") and entity["parent"] is not None:
                singles[entity["parent"]].append(type_)
        for type_, path in _paths(index):
            if type_ in shapes:
                for key in locations.find(Entity(type_, path)) or ():
                    link, _, own = key.partition(":")
                    self._add(link, own, singles)
        self.people = frozenset(t for t, entity in program["entities"].items() if entity.get("principal") == "user")
        """The types of entities that represent users."""
        users = _users(index)
        for type_ in self.people:
            users |= {last_name(path) for path in self._entities[type_]}
        self.users: tuple[str, ...] = tuple(sorted(users))
        self._sorted: dict[str, tuple[str, ...]] = {}

    def paths(self, type_: str) -> tuple[str, ...]:
        """The paths of the entities of a type; empty for an unknown type."""
        found = self._sorted.get(type_)
        if found is None:
            found = self._sorted[type_] = tuple(sorted(self._entities.get(type_, ())))
        return found

    def _add(self, type_: str, path: str, singles: Mapping[str, list[str]]) -> None:
        paths = self._entities[type_]
        if path not in paths:
            paths.add(path)
            for single in singles[type_]:
                self._add(single, path, singles)


def _paths(index: Index) -> Iterator[tuple[str, str]]:
    for key in (*index.places, *index.containers, *index.entity_attributes):
        type_, _, path = key.partition(":")
        yield type_, path
    for type_, table in index.tables.items():
        yield from ((type_, path) for path in table)
    for type_, members in index.members.items():
        yield from ((type_, path) for path in members)
    scopes = {scope for _, scope in index.within.values()}
    scopes |= {
        scope
        for assignments in (index.scoped, index.group_scoped)
        for assigned in assignments.values()
        for scope in assigned
    }
    for scope in scopes:
        type_, _, path = scope.partition(":")
        yield type_, path


def _users(index: Index) -> set[str]:
    names = {*index.users, *index.scoped, *index.service_admins, *index.user_attributes}
    for members in index.members.values():
        for users in members.values():
            names |= users
    return names
