"""Compile conditions to SQL over the columns of bits that the joins produce: one expression for each case."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

from privtab.engines.conditions import RESOURCE, Atom, fold
from privtab.paths import base_type
from privtab.spark.joins.bits import ADMIN, MEMBER, OWNER, OWNS_BELOW, BitKey
from privtab.spark.joins.callers import PRINCIPALS
from privtab.spark.joins.comparisons import ComparisonWriter
from privtab.spark.joins.keys import path_on, width
from privtab.spark.joins.levels import EACH, level_word
from privtab.spark.joins.places import EVERYWHERE, Case, Layout, PathEntity
from privtab.spark.joins.rows import GROUPS, USER, ColumnNames
from privtab.spark.joins.text import bitwise_or, both, either, literal
from privtab.spark.paths import decoded, last_name

Found: TypeAlias = Callable[[str, str, PathEntity, int | None], str]
"""Returns the column for (part, type of its entity, place, word); without a word, that of `BLOCKED`."""


class ConditionWriter:
    """Writes the conditions of a layout as SQL."""

    def __init__(self, layout: Layout, names: ColumnNames, found: Found) -> None:
        self.layout = layout
        self.names = names
        self.found = found
        self.comparisons = ComparisonWriter(layout, names)
        self.masks: dict[int, int] = {}
        """By word, the bits that conditions read."""
        self.denials: dict[int, int] = {}
        """By word, the bits for denials among them."""
        self.reads_principals = names.has("active_roles")
        """Whether the conditions need all principals of callers."""

    def case(self, case: Case) -> str:
        """SQL expression for whether a case's condition holds; never null."""
        holds = fold(case.condition, lambda atom: self._atom(atom, case), both, either)
        located = [f"{self.names.whole_path_of(slot)} IS NOT NULL" for slot in case.types if slot in self.names.located]
        return both([*located, holds]) if located else holds

    def _atom(self, atom: Atom, case: Case) -> str:
        word = level_word(atom.type)
        if word not in EACH:
            return self._located_atom(atom, case)
        path, levels = self.names.whole_path_of(atom.slot), self.layout.by_level(atom)
        further_names = f"({width(path)} - {self.layout.reader.depth(case.types[atom.slot])})"
        tests = [(number, self._located_atom(level, case)) for number, level in enumerate(levels)]
        if word == "every":
            return both(f"({further_names} < {number} OR {test})" for number, test in tests)
        comparison = ">" if word == "above" else ">="
        return either(f"({further_names} {comparison} {number} AND {test})" for number, test in tests)

    def _located_atom(self, atom: Atom, case: Case) -> str:
        match atom.kind:
            case "has":
                return self._has(atom, case)
            case "owner":
                return self._set(OWNER, atom, case, self.layout.chain(atom.type)[-1:])
            case "service_admin":
                return self._set(ADMIN, atom, case, self.layout.tests(atom))
            case "self":
                return f"coalesce({decoded(last_name(self._path(atom, case)))} = {USER}, false)"
            case "member":
                return self._member(atom, case)
            case "holds":
                return self._set(MEMBER, atom, case, self.layout.tests(atom))
            case "has_below":
                return self._has_below(atom, case)
            case "owns_below":
                return self._set(OWNS_BELOW, atom, case, self.layout.chain(atom.type)[-1:])
            case "compare":
                assert atom.comparison is not None
                return self.comparisons.holds(atom.comparison, case)
            case _:
                assert_never(atom.kind)

    def _member(self, atom: Atom, case: Case) -> str:
        direct = self._set(MEMBER, atom, case, self.layout.tests(atom))
        if self.layout.reader.principal[base_type(atom.type)] != "group" or not self.names.has("groups"):
            return direct
        path = self._path(atom, case)
        in_request_groups = f"exists({GROUPS}, g -> g = {path} OR g = {decoded(last_name(path))})"
        return either([direct, f"coalesce({in_request_groups}, false)"])

    def _path(self, atom: Atom, case: Case) -> str:
        return path_on(atom.slot, atom.type, case, self.layout, self.names)

    def _has(self, atom: Atom, case: Case) -> str:
        layout, semantics = self.layout, self.layout.semantics
        places = layout.relevant_places(atom)
        word, allowed = self._bit(("allow", atom.privilege))
        denied = self._bit(("deny", atom.privilege))[1] if semantics.denies else 0
        if denied:
            self.denials[word] = self.denials.get(word, 0) | denied
        bits = self._words(atom, case, places, word)
        defaults = self._defaults(atom, case, places)
        if not defaults:
            truth = (
                f"({bits} & {allowed | denied}L) = {allowed}L" if semantics.denies else f"({bits} & {allowed}L) <> 0L"
            )
        else:
            truth = either([f"({bits} & {allowed}L) <> 0L", *defaults])
            if semantics.denies:
                truth = both([truth, f"({bits} & {denied}L) = 0L"])
        if atom.privilege in semantics.owner_holds:
            truth = either([truth, self._set(OWNER, atom, case, places)])
        return truth

    def _has_below(self, atom: Atom, case: Case) -> str:
        place = self.layout.chain(atom.type)[-1]
        ways = [self._set(("below", atom.privilege), atom, case, [place])]
        if self.layout.semantics.denies:
            self.reads_principals = True
            self._bit(("blocked", atom.privilege))
            free = f"e.privilege = {literal(atom.privilege)} AND NOT arrays_overlap(e.denied, {PRINCIPALS})"
            entries = self.found(*self._part(atom.slot, case, place), place, None)
            ways.append(f"coalesce(exists({entries}, e -> {free}), false)")
        if atom.privilege in self.layout.semantics.owner_holds:
            ways.append(self._set(OWNS_BELOW, atom, case, [place]))
        return either(ways)

    def _defaults(self, atom: Atom, case: Case, places: list[PathEntity]) -> list[str]:
        """Conditions for the default grants of declared roles, assigned everywhere or within a scope that contains the entity."""
        chain = self.layout.chain(atom.type)
        found = []
        for place in places:
            scopes = [PathEntity(EVERYWHERE, 0), *chain[: chain.index(place) + 1]]
            words: dict[int, int] = {}
            for role in self.layout.defaults(atom.privilege, place):
                word, bit = self._bit(("role", role))
                words[word] = words.get(word, 0) | bit
            found += [f"({self._words(atom, case, scopes, word)} & {bits}L) <> 0L" for word, bits in words.items()]
        return found

    def _set(self, key: BitKey, atom: Atom, case: Case, places: list[PathEntity]) -> str:
        word, bit = self._bit(key)
        return f"({self._words(atom, case, places, word)} & {bit}L) <> 0L"

    def _bit(self, key: BitKey) -> tuple[int, int]:
        word, bit = self.layout.numbers.bit(key)
        self.masks[word] = self.masks.get(word, 0) | bit
        return word, bit

    def _words(self, atom: Atom, case: Case, places: list[PathEntity], word: int) -> str:
        columns = []
        for place in places:
            slot = RESOURCE if place.prefix == EVERYWHERE else atom.slot
            columns.append(f"coalesce({self.found(*self._part(slot, case, place), place, word)}, 0L)")
        return bitwise_or(columns)

    def _part(self, slot: str, case: Case, place: PathEntity) -> tuple[str, str]:
        """The part of a request that a place belongs to, and the type of its entity."""
        type_ = case.types[slot]
        return self.layout.part(slot, type_, place), type_
