"""Compile conditions to SQL over the columns of bits that the joins produce: one expression for each case."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

from privtab.engines.conditions import RESOURCE, Atom, fold
from privtab.spark.joins.places import ADMIN, EVERYWHERE, MEMBER, OWNER, Case, Held, Layout, PathEntity
from privtab.spark.joins.rows import GROUPS, USER, ColumnNames
from privtab.spark.joins.text import beginning, both, either, united
from privtab.spark.paths import decoded, last_name

Found: TypeAlias = Callable[[str, str, PathEntity, int], str]
"""Returns the column for (part, type of its entity, place, word)."""


class Texts:
    """Writes the conditions of a layout as SQL."""

    def __init__(self, layout: Layout, names: ColumnNames, found: Found) -> None:
        self.layout = layout
        self.names = names
        self.found = found
        self.masks: dict[int, int] = {}
        """By word, the bits that conditions read."""
        self.denials: dict[int, int] = {}
        """By word, the bits for denials among them."""

    def case(self, case: Case) -> str:
        """SQL expression for whether a case's condition holds; never null."""
        return fold(case.condition, lambda fact: self._fact(fact, case), both, either)

    def _fact(self, fact: Atom, case: Case) -> str:
        match fact.kind:
            case "has":
                return self._has(fact, case)
            case "owner":
                return self._set(OWNER, fact, case, self.layout.chain(fact.type)[-1:])
            case "service_admin":
                return self._set(ADMIN, fact, case, self.layout.tests(fact))
            case "self":
                return f"coalesce({decoded(last_name(self._path(fact)))} = {USER}, false)"
            case "member":
                return self._member(fact, case)
            case "holds":
                return self._set(MEMBER, fact, case, self.layout.tests(fact))
            case "has_below" | "owns_below":
                raise AssertionError("Spark refuses policies with `or below`")
            case "compare":
                raise AssertionError("Spark refuses policies with attributes")
            case _:
                assert_never(fact.kind)

    def _member(self, fact: Atom, case: Case) -> str:
        direct = self._set(MEMBER, fact, case, self.layout.tests(fact))
        if self.layout.reader.principal[fact.type] != "group" or not self.names.has("groups"):
            return direct
        path = self._path(fact)
        in_request_groups = f"exists({GROUPS}, g -> g = {path} OR g = {decoded(last_name(path))})"
        return either([direct, f"coalesce({in_request_groups}, false)"])

    def _path(self, fact: Atom) -> str:
        name = "path" if fact.slot == RESOURCE else f"with_{fact.slot}_path"
        return beginning(self.names.text(name), self.layout.reader.depth(fact.type))

    def _has(self, fact: Atom, case: Case) -> str:
        layout, meaning = self.layout, self.layout.meaning
        places = layout.relevant_places(fact)
        word, allowed = self._bit(("allow", fact.privilege))
        denied = self._bit(("deny", fact.privilege))[1] if meaning.denies else 0
        if denied:
            self.denials[word] = self.denials.get(word, 0) | denied
        bits = self._words(fact, case, places, word)
        defaults = self._defaults(fact, case, places)
        if not defaults:
            truth = f"({bits} & {allowed | denied}L) = {allowed}L" if meaning.denies else f"({bits} & {allowed}L) <> 0L"
        else:
            truth = either([f"({bits} & {allowed}L) <> 0L", *defaults])
            if meaning.denies:
                truth = both([truth, f"({bits} & {denied}L) = 0L"])
        if fact.privilege in meaning.owner_holds:
            truth = either([truth, self._set(OWNER, fact, case, places)])
        return truth

    def _defaults(self, fact: Atom, case: Case, places: list[PathEntity]) -> list[str]:
        """Conditions for the default grants of declared roles, assigned everywhere or within a scope that contains the entity."""
        chain = self.layout.chain(fact.type)
        found = []
        for place in places:
            scopes = [PathEntity(EVERYWHERE, 0), *chain[: chain.index(place) + 1]]
            words: dict[int, int] = {}
            for role in self.layout.defaults(fact.privilege, place):
                word, bit = self._bit(("role", role))
                words[word] = words.get(word, 0) | bit
            found += [f"({self._words(fact, case, scopes, word)} & {bits}L) <> 0L" for word, bits in words.items()]
        return found

    def _set(self, held: Held, fact: Atom, case: Case, places: list[PathEntity]) -> str:
        word, bit = self._bit(held)
        return f"({self._words(fact, case, places, word)} & {bit}L) <> 0L"

    def _bit(self, held: Held) -> tuple[int, int]:
        word, bit = self.layout.numbers.bit(held)
        self.masks[word] = self.masks.get(word, 0) | bit
        return word, bit

    def _words(self, fact: Atom, case: Case, places: list[PathEntity], word: int) -> str:
        types = {RESOURCE: case.type, **dict(case.withs)}
        columns = []
        for place in places:
            slot = RESOURCE if place.prefix == EVERYWHERE else fact.slot
            part = self.layout.part(slot, types[slot], place)
            columns.append(self.found(part, types[slot], place, word))
        return united(columns)
