"""The facts of a state that affect a decision: rows about one caller and the objects of one request, without names.

A condition depends only on the paths of the request's objects, and rows about other callers do not affect it. So facts
represent every state: two states with the same facts give the same decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import ClassVar, Literal, TypeAlias, assert_never

from privtab.base.names import PrincipalKind
from privtab.base.paths import base_type
from privtab.base.records import dataclass
from privtab.ir import nodes as ir
from privtab.ir.formula import Truth, with_targets
from privtab.ir.names import privilege_names

Carrier: TypeAlias = str
"""How a row applies to the caller: directly (`user`), through a `group` of the state, through one that the request brings (`from_request`), or
through the group of every user, after `EVERYONE`.
"""
EVERYONE = "everyone: "
"""The beginning of a carrier that is the group of every user: `everyone: all users`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A row of `grants`; `name` may be a privilege, an alias or a set."""

    kind: ClassVar[Literal["grant"]] = "grant"
    effect: Literal["allow", "deny"]
    name: str
    target: ir.Target
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A row of `owners`: the caller, or a group or role of theirs, owns the target."""

    kind: ClassVar[Literal["owner"]] = "owner"
    target: ir.Target
    owner: PrincipalKind = "user"
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class BelongsTo:
    """A row of `members`. With a `carrier`: a row of `memberships`, or a group of the request; the target is then a group."""

    kind: ClassVar[Literal["member"]] = "member"
    target: ir.Target
    carrier: Carrier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The caller has a declared role, everywhere or within the scope."""

    kind: ClassVar[Literal["assignment"]] = "assignment"
    role: str
    scope: ir.Target | None = None
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class HasRole:
    """The target is a role that the caller holds."""

    kind: ClassVar[Literal["role"]] = "role"
    target: ir.Target
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsCaller:
    """The target is the caller."""

    kind: ClassVar[Literal["caller"]] = "caller"
    target: ir.Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Administers:
    """The caller is a service administrator."""

    kind: ClassVar[Literal["administrator"]] = "administrator"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedBelow:
    """The caller is granted a privilege on an entity strictly below the target, which is not one of the request's.

    No denial between the target and that entity applies; one on the target or above it may.
    """

    kind: ClassVar[Literal["grant below"]] = "grant below"
    privilege: str
    target: ir.Target


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedBelow:
    """The caller owns an entity strictly below the target, which is not one of the request's."""

    kind: ClassVar[Literal["owner below"]] = "owner below"
    target: ir.Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A comparison of attributes holds. Facts whose comparisons no values make true are none of a state (`comparisons.py`)."""

    kind: ClassVar[Literal["comparison"]] = "comparison"
    compare: ir.Compare


Fact: TypeAlias = (
    Granted | Owned | BelongsTo | Assigned | HasRole | IsCaller | Administers | GrantedBelow | OwnedBelow | Holding
)
"""Any fact; its `kind` says which: `[fact.compare for fact in facts if fact.kind == "comparison"]`."""
Facts: TypeAlias = frozenset[Fact]
FactsByPlace: TypeAlias = tuple[tuple[Fact, ...], ...]
"""The facts of each object on a path, from the root down."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Giving:
    """A way to give an atom: a firm fact, or a grant unless there is one of the denials."""

    firm: FactsByPlace = ()
    grants: FactsByPlace = ()
    denials: FactsByPlace = ()

    @cached_property
    def denying(self) -> Facts:
        """All denials."""
        return frozenset(chain.from_iterable(self.denials))

    @cached_property
    def facts(self) -> tuple[Facts, Facts]:
        """The firm facts, and the grants."""
        return frozenset(chain.from_iterable(self.firm)), frozenset(chain.from_iterable(self.grants))

    def holds(self, facts: Facts) -> bool:
        """Return whether some facts give the atom in this way."""
        firm, grants = self.facts
        return not firm.isdisjoint(facts) or (not grants.isdisjoint(facts) and self.denying.isdisjoint(facts))


class FactSemantics:
    """Evaluates facts under the semantics of one program; a fact that the program does not know has no effect.

    Example:
        holds = FactSemantics(program).holds(rule.condition, facts)

    `unused_names`: names that no fact uses. `slots`: the objects that requests have, if not the slots of the program's rules.
    """

    def __init__(
        self, program: ir.Program, unused_names: frozenset[str] = frozenset(), slots: Iterable[str] | None = None
    ) -> None:
        self.program = program
        self.unused_names = unused_names
        self.slots = tuple(sorted(program.slots if slots is None else slots))
        self.names = privilege_names(program)
        self._inherited = program.inherited
        self._shared = program.shared
        self.denies = program.semantics.deny == "overrides"
        owner = program.semantics.owner
        self.kinds: tuple[PrincipalKind, ...] = owner.kinds if owner else ()
        self.owner_privileges = program.owner_privileges
        self.carriers: frozenset[Carrier] = frozenset(
            {
                "user",
                *(("group",) if "state" in program.semantics.groups else ()),
                *(("from_request",) if "request" in program.semantics.groups else ()),
                *(f"{EVERYONE}{group}" for group in program.semantics.everyones),
            }
        )
        self._given: dict[tuple[str, str, str], frozenset[str]] = {}
        self._gives: dict[tuple[str, str], frozenset[str]] = {}
        self._options: dict[ir.Atom, Mapping[Fact, Facts]] = {}

    def carriers_of(self, kind: PrincipalKind) -> tuple[Carrier, ...]:
        """The carriers through which the caller can be an owner of that kind."""
        if kind == "user":
            return ("user",)
        return tuple(sorted(self.carriers - {"user"} if kind == "group" else self.carriers))

    @cached_property
    def _names_of(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        names: dict[tuple[str, str], dict[str, None]] = {
            (name, effect): {name: None} if privilege.granted else {}
            for name, privilege in self.program.privileges.items()
            for effect in ("allow", "deny")
        }
        for name, allowed in self.names.names().items():
            if name not in self.unused_names:
                for privilege in allowed:
                    names[privilege, "allow"][name] = None
                for privilege in self.names.privileges(name) or ():
                    names[privilege, "deny"][name] = None
        return {key: tuple(given_by) for key, given_by in names.items()}

    def names_of(self, privilege: str, effect: str) -> tuple[str, ...]:
        """The names by which a row may allow or deny the privilege: itself first, then what implies it, aliases and sets."""
        return self._names_of.get((privilege, effect), ())

    def names_on(self, privilege: str, type_: str, effect: str) -> tuple[str, ...]:
        """The names by which a row on a type may allow or deny the privilege."""
        return tuple(n for n in self.names_of(privilege, effect) if privilege in self.privileges_of(n, type_, effect))

    def grantable_names(self, privilege: str) -> object:
        """All that the file says about who has a privilege; if equal in two programs, every state gives it alike in both."""
        known = self.program.privileges.get(privilege)
        roles = {
            (role.name, frozenset(role.scopes), type_)
            for role in self.program.roles.values()
            for type_, privileges in role.grants
            if privilege in privileges
        }
        ways = {
            (name, type_) for type_ in (known.on if known else ()) for name in self.names_on(privilege, type_, "allow")
        }
        inherited = self.program.inherits(privilege)
        return known and frozenset(known.on), frozenset(self.names_of(privilege, "deny")), ways, roles, inherited

    def place(self, type_: str) -> tuple[tuple[str, bool, str | None, int], ...]:
        """The chain of a type and the properties of each of its types; empty if the type is unknown."""
        if type_ not in self.program.entities:
            return ()
        kinds = (self.program.entities[name] for name in self.program.chain(type_))
        return tuple((kind.name, kind.single, kind.principal, kind.nested) for kind in kinds)

    def privileges_of(self, name: str, type_: str, effect: str) -> frozenset[str]:
        """The privileges that a row of the name allows or denies on a type; none if either is unknown."""
        key = name, type_, effect
        if key not in self._given:
            known = type_ in self.program.entities
            self._given[key] = frozenset(self.names.privileges_of(name, type_, effect)) if known else frozenset()
        return self._given[key]

    def path(self, target: ir.Target) -> tuple[ir.Target, ...]:
        """The objects from the root down to the target."""
        return tuple(self.only(ir.Target(slot=target.slot, type=type_)) for type_ in self.program.chain(target.type))

    def only(self, target: ir.Target) -> ir.Target:
        """The target, or the one that stands for an entity which all objects of a request share."""
        return ir.Target(slot=ir.RESOURCE, type=target.type) if target.type in self._shared else target

    def grant_targets(self, privilege: str, target: ir.Target) -> tuple[ir.Target, ...]:
        """The objects whose grants and denials of a privilege count for the target."""
        return self.path(target) if self.program.inherits(privilege) else (self.only(target),)

    def targets_for_below(self, privilege: str, target: ir.Target) -> tuple[ir.Target, ...]:
        """The objects, the target included, whose grants and denials of a privilege count for what lies below the target."""
        return self.path(target) if self.program.inherits(privilege) else ()

    def default_grants(self, role: str, type_: str) -> tuple[str, ...]:
        """The privileges that a declared role gives on a type."""
        declared = self.program.roles.get(role)
        return dict(declared.grants).get(type_, ()) if declared else ()

    def holds(
        self,
        formula: ir.Formula,
        facts: Facts,
        flags: frozenset[str] = frozenset(),
        types: Mapping[str, str] | None = None,
    ) -> bool:
        """Return whether a condition holds under the facts. `types`: the type of the object in each `with` slot that allows several."""
        return Truth(self.program, flags, types or {}, lambda atom: self.atom(atom, facts)).fold(formula)

    def atom(self, atom: ir.Atom, facts: Facts) -> bool:
        """Return whether an atom holds under the facts."""
        return any(given.holds(facts) for given in self.giving(atom))

    def giving(self, atom: ir.Atom) -> tuple[Giving, ...]:
        """Every way to give an atom, each alone."""
        return self.every.of(atom)

    @cached_property
    def every(self) -> GivingFacts:
        """Every fact that gives an atom."""
        return GivingFacts(self)

    @cached_property
    def plainest(self) -> GivingFacts:
        """The plainest facts that give an atom. No other gives less, so they suffice where all are read under this program alone."""
        return GivingFacts(self, plainest=True)

    def options(self, atom: ir.Atom) -> Mapping[Fact, Facts]:
        """The facts that give an atom, the nearest first, each with the denials that take it away.

        Facts about an object below are left out where any entity below can stand for it.
        """
        if atom not in self._options:
            below = [(place, self.elsewhere(target)) for target in atom.targets for place in self.at_or_below(target)]
            apart = {replace(place, type=type_) for place, types in below for type_ in types}
            found: dict[Fact, Facts] = {}
            for given in self.giving(atom):
                for places, denying in ((given.grants, given.denying), (given.firm, frozenset[Fact]())):
                    for fact in chain.from_iterable(reversed(places)):
                        if getattr(fact, "scope" if isinstance(fact, Assigned) else "target", None) not in apart:
                            found.setdefault(fact, denying)
            self._options[atom] = found
        return self._options[atom]

    def at_or_below(self, target: ir.Target) -> tuple[ir.Target, ...]:
        """The target and one object of each type below it, which stands for an entity of that type below.

        Below an entity that all objects of a request share lies what is on the path of any object.
        """
        types = [target.type]
        types += [t for t in self.program.entities if t != target.type and target.type in self.program.chain(t)]
        slots = self.slots if target.type in self._shared else (target.slot,)
        places = (self.only(ir.Target(slot=slot, type=type_)) for slot in slots for type_ in types)
        return tuple(dict.fromkeys(places))

    def elsewhere(self, target: ir.Target, privilege: str | None = None) -> tuple[str, ...]:
        """The types of entities below a target of which there may be several, where a privilege can be granted."""
        entities, depth = self.program.entities, len(self.program.chain(target.type))
        on = self.program.privileges[privilege].on if privilege is not None else tuple(entities)
        below = dict.fromkeys(place.type for place in self.at_or_below(target)[1:] if place.type in on)
        return tuple(t for t in below if not all(entities[link].single for link in self.program.chain(t)[depth:]))

    def gives(self, privilege: str, type_: str) -> frozenset[str]:
        """The privileges that every grant gives on an object of a type if it gives a privilege there."""
        key = privilege, type_
        if key not in self._gives:
            known = self.program.privileges.get(privilege)
            found = frozenset(known.implies if known else ())
            for place in self.grant_targets(privilege, ir.Target(slot=ir.RESOURCE, type=type_)) if found else ():
                granted = [
                    self.privileges_of(name, place.type, "allow")
                    for name in self.names_on(privilege, place.type, "allow")
                ]
                by_default = (frozenset(self.default_grants(role, place.type)) for role in self.program.roles)
                granted += (given for given in by_default if privilege in given)
                # Grants further up give only what is inherited.
                lost = frozenset() if place.type == type_ or not granted else found - self._inherited
                found = found.intersection(*granted) - lost
            self._gives[key] = found
        return self._gives[key]

    def gives_below(self, privilege: str, type_: str) -> frozenset[str]:
        """The privileges that are held below an object of a type wherever a privilege is; with denials, none is certain."""
        known = self.program.privileges.get(privilege)
        if self.denies or known is None or not known.implies:
            return frozenset()
        found = frozenset(known.implies)
        for place in self.at_or_below(ir.Target(slot=ir.RESOURCE, type=type_))[1:]:
            if not {*known.on}.isdisjoint(other.type for other in self.grant_targets(privilege, place)):
                found &= self.gives(privilege, place.type)
        return found


class GivingFacts:
    """The facts that give an atom under the semantics of one program: every one, or the plainest."""

    def __init__(self, semantics: FactSemantics, *, plainest: bool = False) -> None:
        self.semantics = semantics
        self._plainest = plainest
        self._carriers: tuple[Carrier, ...] = ("user",) if plainest else tuple(sorted(semantics.carriers, reverse=True))
        self._known: dict[ir.Atom, tuple[Giving, ...]] = {}
        self._known_rows: dict[tuple[str, str, ir.Target], tuple[Fact, ...]] = {}

    def of(self, atom: ir.Atom) -> tuple[Giving, ...]:
        """Every way to give an atom, each alone."""
        if atom not in self._known:
            # The terms of comparisons are looked up by `Comparisons`.
            shared = atom if isinstance(atom, ir.Compare) else with_targets(atom, self.semantics.only)
            self._known[atom] = tuple(self._of(shared))
        return self._known[atom]

    def about(self, atom: ir.Atom) -> Facts:
        """All facts that give an atom or deny it."""
        return frozenset().union(*(facts for given in self.of(atom) for facts in (*given.facts, given.denying)))

    def _of(self, atom: ir.Atom) -> Iterator[Giving]:
        match atom:
            case ir.Has(privilege=privilege, target=target):
                places = self.semantics.grant_targets(privilege, target)
                yield Giving(
                    firm=self._owned(privilege, places),
                    grants=tuple(self._rows("allow", privilege, place) for place in places),
                    denials=self._denials(privilege, places),
                )
            case ir.Owner(target=target):
                yield Giving(firm=(self._owners(target),))
            case ir.Member(target=target):
                is_group = self.semantics.program.entities[target.type].principal == "group" and not self._plainest
                carriers = sorted(self.semantics.carriers - {"user"}) if is_group else ()
                through = (BelongsTo(target=target, carrier=c) for c in carriers)
                yield Giving(firm=((BelongsTo(target=target), *through),))
            case ir.Holds(target=target):
                yield Giving(firm=(tuple(HasRole(target=target, carrier=c) for c in self._carriers),))
            case ir.Self(target=target):
                yield Giving(firm=((IsCaller(target=target),),))
            case ir.ServiceAdmin():
                yield Giving(firm=((Administers(),),))
            case ir.Compare():
                yield Giving(firm=((Holding(compare=atom),),))
            case ir.HasBelow(privilege=privilege, target=target):
                for place in self.semantics.at_or_below(target):
                    yield from self.of(ir.Has(privilege=privilege, target=place))
                    owned = privilege in self.semantics.owner_privileges and self.semantics.elsewhere(place)
                    above = self.semantics.targets_for_below(privilege, place)
                    yield Giving(
                        firm=((OwnedBelow(target=place),),) if owned else (),
                        grants=(tuple(self._granted_below(privilege, place)),),
                        denials=self._denials(privilege, above),
                    )
            case ir.OwnsBelow(target=target):
                places = self.semantics.at_or_below(target)
                below = tuple(OwnedBelow(target=place) for place in places if self.semantics.elsewhere(place))
                yield Giving(firm=(below, *(self._owners(place) for place in places)))
            case _:
                assert_never(atom)

    def _granted_below(self, privilege: str, place: ir.Target) -> Iterator[Fact]:
        for name in self.semantics.program.grantable:
            gives = name == privilege or privilege in self.semantics.gives_below(name, place.type)
            if gives and self.semantics.elsewhere(place, name):
                yield GrantedBelow(privilege=name, target=place)

    def _rows(self, effect: Literal["allow", "deny"], privilege: str, place: ir.Target) -> tuple[Fact, ...]:
        """The facts that allow or deny a privilege on the object itself: rows by every name, and declared roles."""
        key = effect, privilege, place
        if key not in self._known_rows:
            names = self.semantics.names_on(privilege, place.type, effect)
            if self._plainest:  # aliases and sets give at least as much
                names = tuple(name for name in names if name in self.semantics.program.privileges)
            found: list[Fact] = [
                Granted(effect=effect, name=name, target=place, carrier=carrier)
                for name in names
                for carrier in self._carriers
            ]
            if effect == "allow" and not (self._plainest and found):
                found += self._assigned(privilege, place)
            self._known_rows[key] = tuple(found)
        return self._known_rows[key]

    def _assigned(self, privilege: str, place: ir.Target) -> Iterator[Assigned]:
        """The declared roles whose default grants give a privilege on an object, everywhere or in a scope around it."""
        for role in self.semantics.program.roles.values():
            if privilege in self.semantics.default_grants(role.name, place.type):
                for scope in (None, *self.semantics.path(place)):
                    # A role that declares scopes must be assigned within one of these types.
                    if not role.scopes or (scope is not None and base_type(scope.type) in role.scopes):
                        yield from (Assigned(role=role.name, scope=scope, carrier=c) for c in self._carriers)

    def _denials(self, privilege: str, places: Iterable[ir.Target]) -> FactsByPlace:
        return tuple(self._rows("deny", privilege, place) for place in places) if self.semantics.denies else ()

    def _owned(self, privilege: str, places: Iterable[ir.Target]) -> FactsByPlace:
        owners_have = privilege in self.semantics.owner_privileges
        return tuple(self._owners(place) for place in places) if owners_have else ()

    def _owners(self, target: ir.Target) -> tuple[Fact, ...]:
        """The ways to own an object, the most direct first."""
        key = "own", "", target
        if key not in self._known_rows:
            found = tuple(
                Owned(target=target, owner=kind, carrier=carrier)
                for kind in sorted(self.semantics.kinds, key=("user", "role", "group").index)
                for carrier in sorted(self.semantics.carriers_of(kind), reverse=True)
            )
            self._known_rows[key] = found[:1] if self._plainest else found
        return self._known_rows[key]
