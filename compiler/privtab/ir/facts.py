"""The facts of a state that affect a decision: rows about one caller and the objects of one request, without names.

A condition depends only on the paths of the request's objects, and rows about other callers do not affect it. So facts
represent every state: two states with the same facts give the same decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, assert_never

from privtab.ir.formula import Truth
from privtab.ir.names import privilege_names
from privtab.ir.nodes import (
    RESOURCE,
    Atom,
    Compare,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnerKind,
    OwnsBelow,
    Program,
    Self,
    ServiceAdmin,
    Target,
)
from privtab.paths import base_type

Carrier: TypeAlias = Literal["user", "group", "from_request"]
"""How a row applies to the caller: directly, through a group of the state, or through a group that the request brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A row of `grants`; `name` may be a privilege, an alias or a set."""

    effect: Literal["allow", "deny"]
    name: str
    target: Target
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A row of `owners`: the caller, or a group or role of theirs, owns the target."""

    target: Target
    kind: OwnerKind = "user"
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class BelongsTo:
    """A row of `members`. With a `carrier`: a row of `memberships`, or a group of the request; the target is then a group."""

    target: Target
    carrier: Literal["group", "from_request"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The caller has a declared role, everywhere or within the scope."""

    role: str
    scope: Target | None = None
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class HasRole:
    """The target is a role that the caller holds."""

    target: Target
    carrier: Carrier = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class IsCaller:
    """The target is the caller."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Administers:
    """The caller is a service administrator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedBelow:
    """The caller is granted a privilege on an entity strictly below the target, which is not one of the request's.

    No denial between the target and that entity applies; one on the target or above it may.
    """

    privilege: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedBelow:
    """The caller owns an entity strictly below the target, which is not one of the request's."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A comparison of attributes holds. Facts whose comparisons no values make true are none of a state (`comparisons.py`)."""

    compare: Compare


Fact: TypeAlias = (
    Granted | Owned | BelongsTo | Assigned | HasRole | IsCaller | Administers | GrantedBelow | OwnedBelow | Holding
)
Facts: TypeAlias = frozenset[Fact]


class FactSemantics:
    """Evaluates facts under the semantics of one program; a fact that the program does not know has no effect.

    `unused_names`: names that no fact uses.
    """

    def __init__(self, program: Program, unused_names: frozenset[str] = frozenset()) -> None:
        self.program = program
        self.unused_names = unused_names
        self.names = privilege_names(program)
        self._inherited = program.inherited
        self._shared_root = program.shared_root
        self.denies = program.semantics.deny == "overrides"
        owner = program.semantics.owner
        self.kinds: tuple[OwnerKind, ...] = owner.kinds if owner else ()
        self.owner_privileges = frozenset(owner.holds) if owner else frozenset()
        self.carriers: frozenset[Carrier] = frozenset(
            {
                "user",
                *(("group",) if "state" in program.semantics.groups else ()),
                *(("from_request",) if "request" in program.semantics.groups else ()),
            }
        )
        self._given: dict[tuple[str, str, str], frozenset[str]] = {}
        self._gives: dict[tuple[str, str], frozenset[str]] = {}

    def carriers_of(self, kind: OwnerKind) -> tuple[Carrier, ...]:
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
            (role.name, role.scope, type_)
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

    def path(self, target: Target) -> tuple[Target, ...]:
        """The objects from the root down to the target; a root without a name is the same one for every object of a request."""
        return tuple(
            Target(slot=RESOURCE if type_ == self._shared_root else target.slot, type=type_)
            for type_ in self.program.chain(target.type)
        )

    def grant_targets(self, privilege: str, target: Target) -> tuple[Target, ...]:
        """The objects whose grants and denials of a privilege count for the target."""
        return self.path(target) if self.program.inherits(privilege) else (target,)

    def targets_for_below(self, privilege: str, target: Target) -> tuple[Target, ...]:
        """The objects, the target included, whose grants and denials of a privilege count for what lies below the target."""
        return self.path(target) if self.program.inherits(privilege) else ()

    def default_grants(self, role: str, type_: str) -> tuple[str, ...]:
        """The privileges that a declared role gives on a type."""
        declared = self.program.roles.get(role)
        return dict(declared.grants).get(type_, ()) if declared else ()

    def accepts(self, assigned: Assigned) -> bool:
        """Whether the policy accepts an assignment: if the role declares a scope, the assignment must have one of that type."""
        declared = self.program.roles.get(assigned.role)
        if declared is None or assigned.carrier not in self.carriers:
            return False
        return declared.scope is None or (
            assigned.scope is not None and base_type(assigned.scope.type) == declared.scope
        )

    def owns(self, fact: Fact) -> bool:
        """Whether a fact is an ownership that counts."""
        return isinstance(fact, Owned) and fact.kind in self.kinds and fact.carrier in self.carriers

    def holds(
        self,
        formula: Formula,
        facts: Facts,
        flags: frozenset[str] = frozenset(),
        types: Mapping[str, str] | None = None,
    ) -> bool:
        """Whether a condition holds under the facts. `types`: the type of the object in each `with` slot that allows several."""
        return Truth(self.program, flags, types or {}, lambda atom: self.atom(atom, facts)).fold(formula)

    def atom(self, atom: Atom, facts: Facts) -> bool:
        """Whether an atom holds under the facts."""
        match atom:
            case Has():
                return self.has(atom.privilege, atom.target, facts)
            case Owner(target=target):
                return any(self.owns(fact) and fact.target == target for fact in facts if isinstance(fact, Owned))
            case Member(target=target):
                is_group = self.program.entities[target.type].principal == "group"
                return any(
                    fact.target == target and (fact.carrier is None or (is_group and fact.carrier in self.carriers))
                    for fact in facts
                    if isinstance(fact, BelongsTo)
                )
            case Holds(target=target):
                return any(
                    fact.target == target and fact.carrier in self.carriers
                    for fact in facts
                    if isinstance(fact, HasRole)
                )
            case Self(target=target):
                return IsCaller(target=target) in facts
            case ServiceAdmin():
                return Administers() in facts
            case Compare():
                return Holding(compare=atom) in facts
            case HasBelow(privilege=privilege, target=target):
                return self.has_below(privilege, target, facts)
            case OwnsBelow(target=target):
                places = self.at_or_below(target)
                owned = (fact for fact in facts if self.owns(fact) or isinstance(fact, OwnedBelow))
                return any(fact.target in places for fact in owned if isinstance(fact, Owned | OwnedBelow))
            case _:
                assert_never(atom)

    def has_below(self, privilege: str, target: Target, facts: Facts) -> bool:
        """Whether the caller has a privilege on the target or on an entity below it."""
        places = self.at_or_below(target)
        if any(self.has(privilege, place, facts) for place in places):
            return True
        for fact in facts:
            match fact:
                case OwnedBelow() if privilege in self.owner_privileges and fact.target in places:
                    return True
                case GrantedBelow() if fact.target in places and (
                    fact.privilege == privilege or privilege in self.gives_below(fact.privilege, fact.target.type)
                ):
                    denying = self.targets_for_below(privilege, fact.target)
                    if not any(self._denied(privilege, place, facts) for place in denying):
                        return True
                case _:
                    pass
        return False

    def _denied(self, privilege: str, place: Target, facts: Facts) -> bool:
        """Whether a row on the place denies a privilege."""
        return self.denies and any(
            fact.effect == "deny" and fact.target == place and fact.carrier in self.carriers
            and privilege in self.privileges_of(fact.name, place.type, "deny")
            for fact in facts if isinstance(fact, Granted)
        )  # fmt: skip

    def at_or_below(self, target: Target) -> tuple[Target, ...]:
        """The target and one object of each type below it, which stands for an entity of that type below."""
        types = [target.type]
        types += [t for t in self.program.entities if t != target.type and target.type in self.program.chain(t)]
        return tuple(Target(slot=target.slot, type=type_) for type_ in types)

    def elsewhere(self, target: Target, privilege: str | None = None) -> tuple[str, ...]:
        """The types of entities below a target of which there may be several, where a privilege can be granted."""
        entities, depth = self.program.entities, len(self.program.chain(target.type))
        on = self.program.privileges[privilege].on if privilege is not None else tuple(entities)
        return tuple(
            place.type
            for place in self.at_or_below(target)[1:]
            if place.type in on and not all(entities[t].single for t in self.program.chain(place.type)[depth:])
        )

    def gives(self, privilege: str, type_: str) -> frozenset[str]:
        """The privileges that every grant gives on an object of a type if it gives a privilege there."""
        key = privilege, type_
        if key not in self._gives:
            known = self.program.privileges.get(privilege)
            found = frozenset(known.implies if known else ())
            for place in self.grant_targets(privilege, Target(slot=RESOURCE, type=type_)) if found else ():
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
        for place in self.at_or_below(Target(slot=RESOURCE, type=type_))[1:]:
            if not {*known.on}.isdisjoint(other.type for other in self.grant_targets(privilege, place)):
                found &= self.gives(privilege, place.type)
        return found

    def has(self, privilege: str, target: Target, facts: Facts) -> bool:
        """Whether the caller has a privilege on the target: by ownership, or by a grant without a denial."""
        granting = frozenset(self.grant_targets(privilege, target))
        if privilege in self.owner_privileges and any(
            self.owns(fact) and fact.target in granting for fact in facts if isinstance(fact, Owned)
        ):
            return True
        allowed = False
        for fact in facts:
            match fact:
                case Granted():
                    applies = fact.target in granting and fact.carrier in self.carriers
                    if applies and privilege in self.privileges_of(fact.name, fact.target.type, fact.effect):
                        if fact.effect == "allow":
                            allowed = True
                        elif self.denies:
                            return False
                case Assigned() if not allowed and self.accepts(fact):
                    allowed = any(self.by_default(privilege, place, fact) for place in granting)
                case _:
                    pass
        return allowed

    def by_default(self, privilege: str, place: Target, assigned: Assigned) -> bool:
        """Whether a role's default grants give the privilege on an object that lies in the role's scope."""
        within = assigned.scope is None or assigned.scope in self.path(place)
        return within and privilege in self.default_grants(assigned.role, place.type)
