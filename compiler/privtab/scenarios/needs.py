"""Generates callers from the complete minimal ways of a request: callers with exactly one way, or with none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.request import Entity, Request
from privtab.scenarios.ways import HeldAtom, HeldSet, Ways, smallest

Denied: TypeAlias = frozenset[HeldAtom]
"""Privileges that are denied on their entities."""
MOST = 2_000
"""The limit on smallest ways to be denied; conditions of tables have a handful."""
MOST_MIXED = 6
"""The limit on atoms, in one way to be denied, for which both kinds of lacking are combined."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One generated caller: what they are given and denied, the expected decision, and a description."""

    given: HeldSet
    denied: Denied
    allowed: bool
    words: str


class Callers:
    """Generates the callers for the ways to one request."""

    def __init__(self, program: Program, request: Request, ways: Ways) -> None:
        self.program = program
        self.ways = ways
        self.keys = vocabulary(program).keys
        self.down = program.semantics.inheritance == "down"
        self.denies = program.semantics.deny == "overrides"
        owner = program.semantics.owner
        self.owned = frozenset(owner.holds) if owner else frozenset()
        self.has_owners = owner is not None
        self.request = request
        self._paths: dict[str, tuple[str, ...]] = {}
        slots = (request.resource, *request.with_.values())
        self.objects = tuple(dict.fromkeys(key for entity in slots for key in self._around(entity)))
        """The keys of the request's objects and of all their ancestors."""

    def all(self) -> Iterator[Caller]:
        """Every caller, each once, in an order that reads naturally."""
        seen: set[tuple[HeldSet, Denied]] = set()
        for caller in self._made_up():
            key = caller.given, caller.denied
            if key not in seen:
                seen.add(key)
                yield caller

    def _made_up(self) -> Iterator[Caller]:
        for one in self.ways:
            yield self._exactly(one)
        for one in self.ways:
            yield from self._denied_below(one)
        if frozenset() in self.ways:
            return
        yield Caller(frozenset(), frozenset(), allowed=False, words="nothing")
        for one in self.ways:
            for atom in sorted(one, key=str):
                yield from self._without(one, atom)
        yield from self._all_but()

    def _exactly(self, one: HeldSet) -> Caller:
        """The caller with exactly one set; if inheritance would complete another set, that one is denied to them."""
        if not self._others(one, one, frozenset()):
            return self._allowed(one, one, frozenset())
        for given in (one, *self._by_ownership(one)):
            denied = self.denials(one, given)
            if not self._others(one, given, denied):
                return self._allowed(one, given, denied)
        return self._allowed(one, one, self.denials(one, one))

    def _others(self, one: HeldSet, given: HeldSet, denied: Denied) -> bool:
        return any(other != one and self.suffices(other, given, denied) for other in self.ways)

    def _by_ownership(self, one: HeldSet) -> Iterator[HeldSet]:
        """The set with one of its privileges held through ownership, which denials do not affect."""
        for atom in sorted(one, key=str):
            if atom.kind == "has" and atom.what in self.owned:
                yield one - {atom} | {HeldAtom("owner", "", atom.on)}

    def denials(self, one: HeldSet, given: HeldSet) -> Denied:
        """The privileges of a set, denied wherever the set still suffices: mostly further down."""
        denied: Denied = frozenset()
        if self.denies and self.down:
            for privilege in sorted({atom.what for atom in one if atom.kind == "has"}):
                for key in self.objects:
                    more = denied | {HeldAtom("has", privilege, key)}
                    binds = key.partition(":")[0] in self.program.privileges[privilege].on
                    if binds and self.suffices(one, given, more):
                        denied = more
        return denied

    def _allowed(self, one: HeldSet, given: HeldSet, denied: Denied) -> Caller:
        by = "" if given == one else f", by {_listed(given - one)}"
        return Caller(given, denied, allowed=True, words=f"{_listed(one) or 'nothing'}{by}{_but(denied)}")

    def _denied_below(self, one: HeldSet) -> Iterator[Caller]:
        """Callers with one set whose privileges are denied wherever the set still suffices."""
        for given in (one, *self._by_ownership(one)):
            denied = self.denials(one, given)
            if denied:
                yield self._allowed(one, given, denied)

    def _without(self, one: HeldSet, atom: HeldAtom) -> Iterator[Caller]:
        """A caller who lacks one atom of a set, unless the rest still implies it or suffices."""
        rest = one - {atom}
        for denied in (frozenset(), self.denials(rest, rest)):
            if not self.holds(atom, rest, denied) and not self.allowed(rest, denied):
                words = f"{_listed(rest) or 'nothing'}{_but(denied)}; without {atom}"
                yield Caller(rest, denied, allowed=False, words=words)
                return

    def _all_but(self) -> Iterator[Caller]:
        """Callers with everything except some atom of every set: as much as can be held without an allow."""
        everything = frozenset(self.everything())
        for lacking in transversals(self.ways):
            for denied in self._denied_choices(lacking):
                gone = {
                    fact
                    for atom in lacking
                    for fact in everything
                    if (atom not in denied or fact.kind != "has") and self._gives(fact, atom)
                }
                less = _listed(lacking - denied)
                words = f"everything{f' but {less}' if less else ''}{_but(denied)}"
                yield Caller(everything - gone, denied, allowed=False, words=words)

    def _denied_choices(self, lacking: HeldSet) -> Iterator[Denied]:
        """The privileges that are lacking because of a denial, rather than for want of a grant.

        Without a grant on an entity or above it, grants below remain; with a denial, grants above remain. So it is a
        denial at the bottom, no grant at the top, and both in between.
        """
        fixed: set[HeldAtom] = set()
        both: list[HeldAtom] = []
        for atom in sorted(lacking, key=str) if self.denies and self.down else ():
            above, below = self._beside(atom) if atom.kind == "has" else (False, False)
            if above and below and len(both) < MOST_MIXED:
                both.append(atom)
            elif above:
                fixed.add(atom)
        for chosen in product((False, True), repeat=len(both)):
            yield frozenset(fixed) | frozenset(atom for atom, denied in zip(both, chosen, strict=True) if denied)

    def _beside(self, atom: HeldAtom) -> tuple[bool, bool]:
        """Whether the privilege can be granted above its object, and on one of the request's objects below it."""
        on = self.program.privileges[atom.what].on
        above = any(key != atom.on and key.partition(":")[0] in on for key in self.looked_at(atom.on))
        below = any(
            key != atom.on and key.partition(":")[0] in on and atom.on in self.looked_at(key) for key in self.objects
        )
        return above, below

    def everything(self) -> Iterator[HeldAtom]:
        """Everything that can be given on the request's objects and their ancestors, and every atom of the ways."""
        for key in self.objects:
            type_ = key.partition(":")[0]
            for privilege in self.program.privileges.values():
                if type_ in privilege.on:
                    yield HeldAtom("has", privilege.name, key)
            if self.has_owners:
                yield HeldAtom("owner", "", key)
            yield HeldAtom("member", "", key)
            if self.program.entities[type_].principal == "role":
                yield HeldAtom("holds", "", key)
        yield HeldAtom("admin")
        if self.program.entities[self.request.resource.type].principal == "user":
            yield HeldAtom("self")
        yield from (atom for one in self.ways for atom in one)

    def _around(self, entity: Entity) -> Iterator[str]:
        """The keys on the path of an entity, and of the `single` entities below it."""
        for key in self.keys(entity):
            yield key
            yield from self._singles(key)

    def _singles(self, key: str) -> Iterator[str]:
        type_, _, path = key.partition(":")
        for other in self.program.entities.values():
            if other.single and other.parent == type_:
                yield f"{other.name}:{path}"
                yield from self._singles(f"{other.name}:{path}")

    def allowed(self, given: HeldSet, denied: Denied) -> bool:
        """Whether some listed set holds."""
        return any(self.suffices(one, given, denied) for one in self.ways)

    def suffices(self, one: HeldSet, given: HeldSet, denied: Denied) -> bool:
        """Whether a set holds, given some facts and some denials."""
        return all(self.holds(atom, given, denied) for atom in one)

    def holds(self, atom: HeldAtom, given: HeldSet, denied: Denied) -> bool:
        """Whether an atom holds, given some facts and some denials."""
        if atom.kind != "has":
            return atom in given
        if any(fact.kind == "owner" and self._gives(fact, atom) for fact in given):
            return True
        looked_at = self.looked_at(atom.on)
        if any(no.what == atom.what and no.on in looked_at for no in denied):
            return False
        return any(fact.kind == "has" and self._gives(fact, atom) for fact in given)

    def _gives(self, fact: HeldAtom, atom: HeldAtom) -> bool:
        """Whether a fact alone, without denials, implies an atom."""
        if fact == atom:
            return True
        if atom.kind != "has" or fact.on not in self.looked_at(atom.on):
            return False
        return fact.what == atom.what if fact.kind == "has" else fact.kind == "owner" and atom.what in self.owned

    def looked_at(self, key: str) -> tuple[str, ...]:
        """The keys on which a grant counts for an entity."""
        if key not in self._paths:
            keys = self.keys(Entity.parse(key))
            self._paths[key] = tuple(keys) if self.down else (keys[-1],)
        return self._paths[key]


def transversals(ways: Ways) -> Ways:
    """The smallest sets with an atom of each listed set: what a denied caller must lack."""
    found: Ways = (frozenset(),)
    for one in ways:
        longer: list[HeldSet] = []
        for known in found:
            longer += [known] if known & one else [known | {atom} for atom in sorted(one, key=str)]
        found = smallest(longer)[:MOST]
    return found


def _listed(atoms: Iterable[HeldAtom]) -> str:
    return ", ".join(sorted(map(str, atoms)))


def _but(denied: Denied) -> str:
    return f"; denied {_listed(denied)}" if denied else ""
