"""A policy and a state as arrays from which a matrix is computed; everything in it can be sent to executors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from privtab.arrow import Codes
from privtab.engines.conditions import Atom, ConditionReader
from privtab.engines.index import Index
from privtab.engines.plan import GrantSemantics
from privtab.names import last_name
from privtab.spark.matrix.grants import TypeEntries, way
from privtab.spark.matrix.principals import NONE, Subject, SubjectArrays
from privtab.vocabulary import Vocabulary


class World:
    """The arrays that a matrix is computed from."""

    def __init__(self, program: Mapping[str, Any], index: Index, subjects: Sequence[Subject]) -> None:
        """`program`: the program's JSON, as in the policy bundle."""
        self.program = program
        self.revision = index.revision
        self.reader = ConditionReader(program)
        self.semantics = GrantSemantics.read(program)
        self.vocabulary = Vocabulary.from_program(program)
        self.subjects = SubjectArrays(subjects, index, self.semantics.roles)
        scoped: dict[str, list[tuple[str, int, tuple[str, ...]]]] = {}
        for number, subject in enumerate(subjects):
            for key, roles in subject.scopes.items():
                type_, _, path = key.partition(":")
                scoped.setdefault(type_, []).append((path, number, tuple(roles)))
        self.held = {
            type_: TypeEntries(type_, self.reader.chains, index, self.subjects, scoped.get(type_, ()))
            for type_ in self.reader.chains
        }
        self._everywhere: dict[tuple[str, str], Codes | None] = {}
        self._within: dict[tuple[str, str, str], Codes | None] = {}
        self._named: dict[str, dict[str, list[int]]] = {"role": {}, "group": {}}
        for principal, code in self.subjects.codes.items():
            role_or_principal = index.within[principal][0] if principal in index.within else principal
            kind, _, name = role_or_principal.partition(":")
            if kind in self._named:
                self._named[kind].setdefault(name, []).append(code)

    def chain(self, type_: str) -> list[str]:
        """The types from the root to a type."""
        return [link for link, _ in self.reader.chains[type_]]

    def relevant_types(self, atom: Atom) -> list[str]:
        """The types of entities on which a grant counts for an atom."""
        chain = self.chain(atom.type)
        return chain if self.semantics.inherits(atom.privilege) else chain[-1:]

    def everywhere(self, privilege: str, type_: str) -> Codes | None:
        """By subject, the way to a privilege through a default grant of a role held everywhere; None: no subject has one."""
        key = privilege, type_
        if key not in self._everywhere:
            granting_roles = [
                role for role, grants in self.semantics.roles.items() if privilege in grants.get(type_, ())
            ]
            roles = [role for role in granting_roles if role in self.subjects.codes]
            if not roles:
                self._everywhere[key] = None
            else:
                ways = np.full(self.subjects.count, NONE, np.int64)
                level = len(self.reader.chains[type_]) - 1
                for role in roles:
                    code = np.array([self.subjects.codes[role]])
                    _, positions = self.subjects.holders.spread(code)
                    role_way = way(level, self.subjects.rank_of[role], declared=True)
                    np.minimum.at(ways, self.subjects.holders.values[positions], role_way)
                self._everywhere[key] = ways
        return self._everywhere[key]

    def within(self, scope: str, privilege: str, type_: str) -> Codes | None:
        """The same for roles held within entities of type `scope`, by entry of `scope_keys`."""
        key = scope, privilege, type_
        if key not in self._within:
            granting_roles = {
                role for role, grants in self.semantics.roles.items() if privilege in grants.get(type_, ())
            }
            level = len(self.reader.chains[type_]) - 1
            rank = self.subjects.rank_of
            column = [
                min(
                    (int(way(level, rank[role], declared=True)) for role in roles if role in granting_roles),
                    default=int(NONE),
                )
                for roles in self.held[scope].scope_roles
            ]
            found = np.array(column, np.int64)
            self._within[key] = found if (found != NONE).any() else None
        return self._within[key]

    def named_users(self, paths: Iterable[str | None]) -> Codes:
        """By entity, the number of the subject that it stands for; -1: none."""
        number = self.subjects.number
        return np.array([-1 if path is None else number.get(last_name(path), -1) for path in paths], np.int64)

    def principals_named(self, kind: str, paths: Sequence[str | None]) -> list[Codes]:
        """By entity, the principals that it stands for, in as many columns as an entity has principals at most."""
        named = self._named[kind]
        found = [_named(named, path) for path in paths]
        width = max(map(len, found), default=0)
        return [
            np.array([codes[position] if position < len(codes) else -1 for codes in found], np.int64)
            for position in range(width)
        ]


def _named(named: Mapping[str, list[int]], path: str | None) -> list[int]:
    if path is None:
        return []
    names = {last_name(path), path}
    return [code for name in names for code in named.get(name, ())]
