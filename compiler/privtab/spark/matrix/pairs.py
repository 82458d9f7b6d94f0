"""Evaluate atoms and conditions for many (entity, subject) pairs at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from privtab.arrow import Codes, Truth
from privtab.engines.conditions import Atom, Condition, fold
from privtab.engines.lookups import all_true, any_true
from privtab.spark.matrix.grants import TypeEntries, way
from privtab.spark.matrix.principals import NONE, contained, values_of_keys

if TYPE_CHECKING:
    from privtab.spark.matrix.world import World


class EntityBatch:
    """Entities of one type with their ancestors, and the `with` objects of every request."""

    def __init__(self, world: World, paths: Sequence[Sequence[str]], withs: Mapping[str, Sequence[str]]) -> None:
        """`paths`: for each entity, the prefixes of its path; `withs`: by slot, the prefixes of the object's path."""
        self.world = world
        self.paths = paths
        self.withs = withs
        self.count = len(paths)
        self._places: dict[tuple[str, str], Codes] = {}

    def at(self, slot: str, type_: str) -> list[str | None]:
        """The path of the entity of a type in a slot; None if it is not named."""
        depth = self.world.reader.depth(type_)
        if slot:
            prefixes = self.withs[slot]
            return [prefixes[depth] if depth < len(prefixes) else None] * self.count
        return [path[depth] if depth < len(path) else None for path in self.paths]

    def places(self, slot: str, type_: str) -> Codes:
        """The same as numbers of places; -1: no subject holds anything there."""
        found = self._places.get((slot, type_))
        if found is None:
            code = self.world.held[type_].code
            codes = (-1 if path is None else code.get(path, -1) for path in self.at(slot, type_))
            found = self._places[slot, type_] = np.fromiter(codes, np.int64, self.count)
        return found


class EntryMatches:
    """The entries at each pair's place that belong to principals of its subject; computed once for several columns of entries."""

    def __init__(self, world: World, type_entries: TypeEntries, places: Codes, subjects: Codes) -> None:
        """`places` and `subjects` have one element for each pair."""
        occupied = np.flatnonzero((places >= 0) & (type_entries.by_place.counts(places) > 0))
        keys, inverse = np.unique(places[occupied] << 32 | subjects[occupied], return_inverse=True)
        self._inverse = np.full(len(places), -1, np.int64)
        self._inverse[occupied] = inverse
        self._count = len(keys)
        rows, self._entries = _matches(world, type_entries, keys >> 32, keys & 0xFFFFFFFF)
        self._begins = np.flatnonzero(np.diff(rows, prepend=-1))
        self._rows = rows[self._begins]

    def least(self, column: Codes) -> Codes:
        """By pair, the minimum of a column over the matching entries; NONE if there are none."""
        found = np.full(self._count + 1, NONE, np.int64)
        if len(self._entries):
            found[self._rows] = np.minimum.reduceat(column[self._entries], self._begins)
        smallest: Codes = found[self._inverse]
        return smallest


def _matches(world: World, type_entries: TypeEntries, places: Codes, subjects: Codes) -> tuple[Codes, Codes]:
    """All matches (pair, entry), sorted by pair; for each pair, the shorter of the two lists is searched in the other."""
    subject_arrays = world.subjects
    by_person = subject_arrays.principals.counts(subjects) <= type_entries.by_place.counts(places)
    by_principals, by_place_pairs = np.flatnonzero(by_person), np.flatnonzero(~by_person)
    rows, positions = subject_arrays.principals.spread(subjects[by_principals])
    wanted_keys = places[by_principals][rows] << 32 | subject_arrays.principals.values[positions]
    entries = np.minimum(np.searchsorted(type_entries.keys, wanted_keys), len(type_entries.keys) - 1)
    matching = type_entries.keys[entries] == wanted_keys
    first_rows, first = by_principals[rows[matching]], entries[matching]
    rows, positions = type_entries.by_place.spread(places[by_place_pairs])
    entries = type_entries.by_place.values[positions]
    matching = contained(subject_arrays.pairs, subjects[by_place_pairs][rows] << 32 | type_entries.principal[entries])
    all_rows = np.concatenate([first_rows, by_place_pairs[rows[matching]]])
    order = np.argsort(all_rows, kind="stable")
    return all_rows[order], np.concatenate([first, entries[matching]])[order]


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomByPair:
    """An atom by pair: whether it holds, the best way, and whether a privilege is held through ownership."""

    truth: Truth
    ways: Codes
    owned: Truth | None = None


class Pairs:
    """Pairs of entities and subjects."""

    def __init__(self, entities: EntityBatch, entity: Codes, subject: Codes) -> None:
        self.entities = entities
        self.world = entities.world
        self.entity = entity
        self.subject = subject
        self._known: dict[Atom, AtomByPair] = {}
        self._meetings: dict[tuple[str, str], EntryMatches] = {}

    def holds(self, condition: Condition) -> Truth:
        """By pair, whether a condition holds."""
        rows = len(self.entity)
        return fold(
            condition,
            lambda atom: self.known(atom).truth,
            partial(all_true, count=rows),
            partial(any_true, count=rows),
        )

    def known(self, atom: Atom) -> AtomByPair:
        """An atom by pair, computed once."""
        found = self._known.get(atom)
        if found is None:
            found = self._known[atom] = self._find(atom)
        return found

    def _find(self, atom: Atom) -> AtomByPair:
        subjects = self.world.subjects
        match atom.kind:
            case "has":
                return self._has(atom)
            case "owner":
                ways = self._least(atom.slot, atom.type, self.world.held[atom.type].owner())
                return AtomByPair(truth=ways != NONE, ways=ways)
            case "service_admin":
                return self._direct(subjects.admin[self.subject])
            case "self":
                users = self.world.named_users(self.entities.at(atom.slot, atom.type))
                return self._direct(users[self.entity] == self.subject)
            case "member":
                return self._member(atom)
            case "holds":
                ways = self._named("role", atom)
                return AtomByPair(truth=ways != NONE, ways=ways)
            case "has_below" | "owns_below" | "compare":
                raise AssertionError(f"`{atom.kind}` is decided by the index")

    def _direct(self, truth: Truth) -> AtomByPair:
        """An atom that the subject has directly, not through another principal."""
        return AtomByPair(truth=truth, ways=np.where(truth, way(0, self.world.subjects.own_rank[self.subject]), NONE))

    def _least(self, slot: str, type_: str, column: Codes) -> Codes:
        meetings = self._meetings.get((slot, type_))
        if meetings is None:
            places = self.entities.places(slot, type_)[self.entity]
            meetings = self._meetings[slot, type_] = EntryMatches(
                self.world, self.world.held[type_], places, self.subject
            )
        return meetings.least(column)

    def _has(self, atom: Atom) -> AtomByPair:
        semantics, by_type = self.world.semantics, self.world.held
        types = self.world.relevant_types(atom)
        ways = np.full(len(self.entity), NONE, np.int64)
        for type_ in types:
            ways = np.minimum(ways, self._least(atom.slot, type_, by_type[type_].allowed(atom.privilege)))
            for declared in self._declared(atom, type_):
                ways = np.minimum(ways, declared)
        if semantics.denies:
            for type_ in types:
                denied = self._least(atom.slot, type_, by_type[type_].denied(atom.privilege)) != NONE
                ways = np.where(denied, NONE, ways)
        if atom.privilege not in semantics.owner_holds:
            return AtomByPair(truth=ways != NONE, ways=ways)
        owner_ways = np.full(len(self.entity), NONE, np.int64)
        for type_ in types:
            owner_ways = np.minimum(owner_ways, self._least(atom.slot, type_, by_type[type_].owner()))
        owned = owner_ways != NONE
        ways = np.where(owned, owner_ways, ways)
        return AtomByPair(truth=ways != NONE, ways=ways, owned=owned)

    def _declared(self, atom: Atom, type_: str) -> Iterator[Codes]:
        """Ways through the default grants of declared roles on entities of a type on the path."""
        named = np.array([path is not None for path in self.entities.at(atom.slot, type_)], np.bool_)
        everywhere = self.world.everywhere(atom.privilege, type_)
        if everywhere is not None:
            yield np.where(named[self.entity], everywhere[self.subject], NONE)
        for scope in self.world.chain(type_):
            column = self.world.within(scope, atom.privilege, type_)
            if column is not None:
                places = self.entities.places(atom.slot, scope)[self.entity]
                wanted_keys = np.where((places >= 0) & named[self.entity], places << 32 | self.subject, -1)
                positions = values_of_keys(self.world.held[scope].scope_keys, np.arange(len(column)), wanted_keys)
                yield np.where(positions >= 0, column[positions], NONE)

    def _member(self, atom: Atom) -> AtomByPair:
        subjects, type_entries = self.world.subjects, self.world.held[atom.type]
        places = self.entities.places(atom.slot, atom.type)[self.entity]
        is_member = contained(type_entries.member_keys, np.where(places >= 0, places << 32 | self.subject, -1))
        direct_way = way(0, subjects.own_rank[self.subject])
        if self.world.reader.principal[atom.type] == "group":
            group_ways = self._named("group", atom)
            return AtomByPair(truth=is_member | (group_ways != NONE), ways=np.where(is_member, direct_way, group_ways))
        named = np.array([path is not None for path in self.entities.at(atom.slot, atom.type)], np.bool_)
        is_member = is_member | subjects.abstract[self.subject] & named[self.entity]
        return AtomByPair(truth=is_member, ways=np.where(is_member, direct_way, NONE))

    def _named(self, kind: str, atom: Atom) -> Codes:
        """Ways through the principal that the entity stands for, by its last name or by its whole path."""
        subjects = self.world.subjects
        ways = np.full(len(self.entity), NONE, np.int64)
        for codes in self.world.principals_named(kind, self.entities.at(atom.slot, atom.type)):
            principals = codes[self.entity]
            matching = (principals >= 0) & contained(subjects.pairs, self.subject << 32 | principals)
            ways = np.where(
                matching, np.minimum(ways, way(0, subjects.rank[principals] if len(subjects.rank) else 0)), ways
            )
        return ways
