"""Generates callers from all minimal ways of a request: callers with exactly one way, or with none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import TypeAlias

from privtab.errors import UsageError
from privtab.ir.formula import asked_condition, leaves
from privtab.ir.levels import types_of
from privtab.ir.names import privilege_names
from privtab.ir.nodes import RESOURCE, Atom, Compare, HasBelow, OwnsBelow, Program, Target
from privtab.ir.serialise import vocabulary
from privtab.locations import GrowingLocations, Locations
from privtab.request import Entity, Request
from privtab.scenarios.compared import ComparedAttributes, Values, about_request
from privtab.scenarios.ways import MAX_WAYS, HeldAtom, HeldSet, Ways, at_or_below, smallest, transversals
from privtab.state.located import locations
from privtab.state.nodes import State

Denied: TypeAlias = frozenset[HeldAtom]
"""Privileges that are denied on their entities."""
MADE_UP = " below"
"""What ends the names of entities that are made up for `or below`."""
MAX_MIXED = 6
"""The limit on atoms, in one way to be denied, for which both kinds of lacking are combined."""


@dataclass(frozen=True, slots=True)
class Caller:
    """One generated caller: what they are given and denied, the expected decision, and a description."""

    held: HeldSet
    denied: Denied
    allowed: bool
    words: str
    values: Values = field(default_factory=dict)
    """Those of the attributes that the request is about."""


class _Facts:
    """What gives one atom: a firm fact, or a grant unless there is one of the denials."""

    def __init__(
        self, *, firm: Iterable[HeldAtom], grants: Iterable[HeldAtom] = (), denials: Iterable[HeldAtom] = ()
    ) -> None:
        self.firm = frozenset(firm)
        self.grants = frozenset(grants)
        self.alone = self.firm | self.grants
        """Each of them, without denials, gives the atom."""
        self._denials = frozenset(denials)

    def hold(self, atoms: HeldSet, denied: Denied) -> bool:
        """Whether some facts and denials give it."""
        if not self.firm.isdisjoint(atoms):
            return True
        return not self.grants.isdisjoint(atoms) and self._denials.isdisjoint(denied)


class Callers:
    """Generates the callers for the ways to one request."""

    def __init__(
        self,
        program: Program,
        request: Request,
        ways: Ways,
        where: Locations | None = None,
        *,
        are_below_listed: bool = False,
        comparisons: Iterable[Compare] = (),
    ) -> None:
        """`where`: where entities with flat ids lie, if there are any.

        `are_below_listed`: for `or below`, the ways list each entity below on which a privilege is held; otherwise entities are made
        up below. `comparisons`: those that callers fulfil or not beside those of the condition and the ways. Raises UsageError if there are too many ways, and Undecided if comparisons of attributes take too many steps.
        """
        rule = program.rules[request.resource.type, request.action]
        condition = asked_condition(program, rule, named=vocabulary(program).complete(request.resource))
        asked = set(leaves(program, condition))
        self.program = program
        growing = GrowingLocations(where or locations(program, State()))
        self.keys = growing.keys
        self.placed: dict[Entity, Entity] = {}
        """Where entities with flat ids lie that are made up, by what contains them."""
        self.names = privilege_names(program)
        self.deny_overrides = program.semantics.deny == "overrides"
        owner = program.semantics.owner
        self.owner_privileges = frozenset(owner.holds) if owner else frozenset()
        self.has_owners = owner is not None
        self.request = request
        self._paths: dict[str, tuple[str, ...]] = {}
        self._known_facts: dict[HeldAtom, _Facts] = {}
        self._known_ways: dict[HeldSet, tuple[_Facts, ...]] = {}
        slots = (request.resource, *request.with_.values())
        self.objects = tuple(dict.fromkeys(key for entity in slots for key in self._path_keys(entity)))
        """The keys of the request's objects and of all their ancestors."""
        below = {
            type_
            for atom in asked
            if isinstance(atom, HasBelow | OwnsBelow)
            for type_ in types_of(program, atom.target)
        }
        roots = {key for key in self.objects if key.partition(":")[0] in below and not are_below_listed}
        roots |= {atom.on for way in ways for atom in way if atom.below}
        made_up: list[str] = []
        for key in sorted(roots):
            for lower, container in at_or_below(program, key, MADE_UP):
                made_up.append(lower)
                entity = Entity.parse(lower)
                if container and entity.type in program.flat:
                    self.placed[entity] = Entity.parse(container)
                    growing.place(entity, self.placed[entity])
        self._everywhere = tuple(dict.fromkeys((*self.objects, *made_up)))
        """The keys of the request's objects, of what contains them, and of what is made up below."""
        known = {*self._compared(asked), *comparisons_of(ways), *comparisons}
        self.compared = ComparedAttributes(program, request, known)
        self.ways = tuple(way for way in self._with_places(ways) if self.compared.fewest(way) is not None)

    def _compared(self, asked: Iterable[Atom]) -> Iterator[Compare]:
        """The comparisons of the condition, about the entities of the request."""
        slots = {RESOURCE: self.request.resource, **self.request.with_}

        def key_of(target: Target) -> str | None:
            keys = [key for key in self._path_keys(slots[target.slot]) if key.partition(":")[0] == target.type]
            return None if not keys else keys[0] if target.level == "first" else keys[-1]

        found = (about_request(atom, key_of) for atom in asked if isinstance(atom, Compare))
        yield from (compare for compare in found if compare is not None)

    def _with_places(self, ways: Ways) -> Ways:
        """The ways, with each entity on which something may be held that is asked for on an entity or below."""
        if not any(atom.below for way in ways for atom in way):
            return ways
        found: list[HeldSet] = []
        for way in ways:
            choices = [self._places(atom) if atom.below else [atom] for atom in sorted(way, key=str)]
            if len(found) + prod(map(len, choices)) > MAX_WAYS:
                raise UsageError(
                    f"`needs` of `{self.request.action} {self.request.resource}` has more than {MAX_WAYS:,} ways"
                )
            found += map(frozenset, product(*choices))
        return smallest(found)

    def _places(self, atom: HeldAtom) -> list[HeldAtom]:
        """An atom on its entity, and on each below of the request or made up."""
        keys = [key for key in self._everywhere if atom.on in self.keys(Entity.parse(key))]
        if atom.kind != "has":
            return [replace(atom, on=key, below=False) for key in keys]
        on = self.program.privileges[atom.what].on
        granted = [replace(atom, on=key, below=False) for key in keys if key.partition(":")[0] in on]
        if atom.what not in self.owner_privileges:
            return granted
        # Owners have the privilege also where it cannot be granted.
        return granted + [HeldAtom("owner", "", key) for key in keys if key.partition(":")[0] not in on]

    def all(self) -> Iterator[Caller]:
        """Every caller, each once, in an order that reads naturally."""
        seen: set[tuple[HeldSet, Denied]] = set()
        for caller in self._generate():
            key = caller.held, caller.denied
            if key not in seen:
                seen.add(key)
                yield caller

    def _generate(self) -> Iterator[Caller]:
        for way in self.ways:
            for single in (frozenset[HeldAtom](), *(frozenset({atom}) for atom in self.compared.single)):
                held = self.compared.fewest(way | single)
                if held is not None:
                    yield self._only_with(way, held)
        for way in self.ways:
            yield from self._denied_below(way)
        if frozenset() in self.ways:
            return
        yield self.caller(frozenset(), frozenset(), allowed=False, words="nothing")
        for way in self.ways:
            for atom in sorted(way, key=str):
                yield from self._without(way, atom)
        yield from self._maximal_denied()

    def caller(self, held: HeldSet, denied: Denied, *, allowed: bool, words: str) -> Caller:
        """A caller who fulfils those comparisons that are among the atoms held, and no others that the request is about."""
        return Caller(held, denied, allowed=allowed, words=words, values=self.compared.values(held))

    def _only_with(self, way: HeldSet, held: HeldSet) -> Caller:
        """The caller with exactly one set; if inheritance would complete another set, that one is denied to them.

        `held`: the set, with the comparisons that hold as well.
        """
        if not self._suffices_otherwise(way, held, frozenset()):
            return self._allowed(way, held, frozenset())
        for atoms in (held, *self._by_ownership(held)):
            denied = self.denials(way, atoms)
            if not self._suffices_otherwise(way, atoms, denied):
                return self._allowed(way, atoms, denied)
        return self._allowed(way, held, self.denials(way, held))

    def _suffices_otherwise(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> bool:
        return any(other != way and self.suffices(other, atoms, denied) for other in self.ways)

    def _by_ownership(self, way: HeldSet) -> Iterator[HeldSet]:
        """The set with one of its privileges held through ownership, which denials do not affect."""
        for atom in sorted(way, key=str):
            if atom.kind == "has" and atom.what in self.owner_privileges:
                yield way - {atom} | {HeldAtom("owner", "", atom.on)}

    def denials(self, way: HeldSet, atoms: HeldSet) -> Denied:
        """The privileges of a set, denied wherever the set still suffices: mostly further down."""
        denied: Denied = frozenset()
        if self.deny_overrides:
            inherited = {atom.what for atom in way if atom.kind == "has" and self.program.inherits(atom.what)}
            for privilege in sorted(inherited):
                for key in self.objects:
                    extended = denied | {HeldAtom("has", privilege, key)}
                    is_grantable = key.partition(":")[0] in self.program.privileges[privilege].on
                    if is_grantable and self.suffices(way, atoms, extended):
                        denied = extended
        return denied

    def _allowed(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> Caller:
        compared = {atom for atom in atoms - way if atom.kind == "compare"}
        addition = f", by {_join(atoms - way - compared)}" if atoms - way - compared else ""
        words = f"{_join(way) or 'nothing'}{addition}{_denied_text(denied)}"
        return self.caller(
            atoms, denied, allowed=True, words=f"{words}; where {_join(compared)}" if compared else words
        )

    def _denied_below(self, way: HeldSet) -> Iterator[Caller]:
        """Callers with one set whose privileges are denied wherever the set still suffices."""
        held = self.compared.fewest(way)
        for atoms in () if held is None else (held, *self._by_ownership(held)):
            denied = self.denials(way, atoms)
            if denied:
                yield self._allowed(way, atoms, denied)

    def _without(self, way: HeldSet, atom: HeldAtom) -> Iterator[Caller]:
        """A caller who lacks one atom of a set, unless the rest still implies it or suffices."""
        rest = way - {atom}
        held = self.compared.fewest(rest, frozenset({atom} if atom.kind == "compare" else ()))
        if held is None:
            return
        for denied in (frozenset(), self.denials(rest, held)):
            if not self.holds(atom, held, denied) and not self.allowed(held, denied):
                words = f"{_join(rest) or 'nothing'}{_denied_text(denied)}; without {atom}"
                yield self.caller(held, denied, allowed=False, words=words)
                return

    def _maximal_denied(self) -> Iterator[Caller]:
        """Callers with everything except some atom of every set: as much as can be held without an allow."""
        everything = frozenset(self.everything())
        for lacking in transversals(self.ways):
            for denied in self._denied_choices(lacking):
                facts = {atom: self._facts(atom) for atom in lacking}
                # A grant may be held above or below what is denied.
                excluded = {f for atom in lacking for f in (facts[atom].firm if atom in denied else facts[atom].alone)}
                for held in self.compared.most(everything - excluded, lacking):
                    unequal = {atom for atom in self.compared.atoms if atom not in held}
                    lacking_text = _join((lacking - denied) | unequal)
                    words = f"everything{f' but {lacking_text}' if lacking_text else ''}{_denied_text(denied)}"
                    yield self.caller(held, denied, allowed=False, words=words)

    def _denied_choices(self, lacking: HeldSet) -> Iterator[Denied]:
        """The privileges that are lacking because of a denial, rather than for want of a grant.

        Without a grant on an entity or above it, grants below remain; with a denial, grants above remain. So it is a
        denial at the bottom, no grant at the top, and both in between.
        """
        always_denied: set[HeldAtom] = set()
        optional: list[HeldAtom] = []
        for atom in sorted(lacking, key=str) if self.deny_overrides else ():
            above, below = self._grantable_around(atom) if atom.kind == "has" else (False, False)
            if above and below and len(optional) < MAX_MIXED:
                optional.append(atom)
            elif above:
                always_denied.add(atom)
        for choice in product((False, True), repeat=len(optional)):
            yield frozenset(always_denied) | frozenset(
                atom for atom, denied in zip(optional, choice, strict=True) if denied
            )

    def _grantable_around(self, atom: HeldAtom) -> tuple[bool, bool]:
        """Whether the privilege can be granted above its object, and on one of the request's objects below it."""
        on = self.program.privileges[atom.what].on
        above = any(key != atom.on and key.partition(":")[0] in on for key in self.grant_keys(atom.what, atom.on))
        below = any(
            key != atom.on and key.partition(":")[0] in on and atom.on in self.grant_keys(atom.what, key)
            for key in self._everywhere
        )
        return above, below

    def everything(self) -> Iterator[HeldAtom]:
        """Everything that can be given on the request's objects and their ancestors, and every atom of the ways."""
        for key in self._everywhere:
            type_ = key.partition(":")[0]
            for privilege in self.program.grantable_on(type_):
                yield HeldAtom("has", privilege, key)
            if self.has_owners:
                yield HeldAtom("owner", "", key)
            yield HeldAtom("member", "", key)
            if self.program.entities[type_].principal == "role":
                yield HeldAtom("holds", "", key)
        yield HeldAtom("admin")
        resource = self.request.resource
        if self.program.entities[resource.type].principal == "user" and vocabulary(self.program).complete(resource):
            yield HeldAtom("self")
        yield from (atom for way in self.ways for atom in way)

    def _path_keys(self, entity: Entity) -> Iterator[str]:
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

    def allowed(self, atoms: HeldSet, denied: Denied) -> bool:
        """Whether some listed set holds."""
        return any(self.suffices(way, atoms, denied) for way in self.ways)

    def suffices(self, way: HeldSet, atoms: HeldSet, denied: Denied) -> bool:
        """Whether a set holds, given some facts and some denials."""
        if way not in self._known_ways:
            self._known_ways[way] = tuple(map(self._facts, way))
        return all(facts.hold(atoms, denied) for facts in self._known_ways[way])

    def holds(self, atom: HeldAtom, atoms: HeldSet, denied: Denied) -> bool:
        """Whether an atom holds, given some facts and some denials."""
        return self._facts(atom).hold(atoms, denied)

    def _facts(self, atom: HeldAtom) -> _Facts:
        if atom not in self._known_facts:
            self._known_facts[atom] = self._facts_of_privilege(atom) if atom.kind == "has" else _Facts(firm={atom})
        return self._known_facts[atom]

    def _facts_of_privilege(self, atom: HeldAtom) -> _Facts:
        keys = self.grant_keys(atom.what, atom.on)
        giving = (
            HeldAtom("has", name, key)
            for key in keys
            for name in self.names.giving(atom.what, key.partition(":")[0], "allow")
        )
        return _Facts(
            firm={HeldAtom("owner", "", key) for key in keys if atom.what in self.owner_privileges},
            grants={atom, *giving},
            denials={HeldAtom("has", atom.what, key) for key in keys},
        )

    def grant_keys(self, privilege: str, key: str) -> tuple[str, ...]:
        """The keys on which a grant of a privilege counts for an entity."""
        if key not in self._paths:
            self._paths[key] = tuple(self.keys(Entity.parse(key)))
        return self._paths[key] if self.program.inherits(privilege) else self._paths[key][-1:]


def comparisons_of(ways: Iterable[HeldSet]) -> Iterator[Compare]:
    """The comparisons in some ways."""
    return (atom.compare for way in ways for atom in way if atom.compare is not None)


def _join(atoms: Iterable[HeldAtom]) -> str:
    return ", ".join(sorted(map(str, atoms)))


def _denied_text(denied: Denied) -> str:
    return f"; denied {_join(denied)}" if denied else ""
