"""Cases for every row of a policy: each minimal set, each minimal set without one of its atoms, and the empty set."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from worlds import stated_flags

from privtab.base.attributes import GivenAttributes, Scalar
from privtab.base.request import Entity, Request
from privtab.ir.canonical import Leaf, canonical_form
from privtab.ir.nodes import (
    RESOURCE,
    Compare,
    Formula,
    Has,
    HasBelow,
    Holds,
    Member,
    Owner,
    OwnsBelow,
    Program,
    Rule,
    Self,
    ServiceAdmin,
    Target,
    Term,
)
from privtab.ir.shapes import rule_flags
from privtab.state.nodes import Assignment, Grant, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request in its own world: a description of what is held, and whether it must be allowed."""

    rule: str
    description: str
    request: Request
    allowed: bool


@dataclass(slots=True)
class Rows:
    """Rows of a state that is being built. Worlds share one state, but each has its own user and root entities."""

    members: list[tuple[str, Entity]] = field(default_factory=list)
    memberships: list[tuple[str, str]] = field(default_factory=list)
    assignments: list[Assignment] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    owners: list[tuple[Entity, str]] = field(default_factory=list)
    service_admins: list[str] = field(default_factory=list)

    def state(self) -> State:
        return State(
            members=tuple(self.members),
            memberships=tuple(self.memberships),
            assignments=tuple(self.assignments),
            grants=tuple(self.grants),
            owners=tuple(self.owners),
            service_admins=tuple(self.service_admins),
        )


def cases(program: Program, rows: Rows) -> Iterator[Case]:
    """All cases of all rows; the state that they need is added to `rows`."""
    numbers = itertools.count()
    for rule in program.rules.values():
        for flags in _subsets(rule_flags(program, rule)):
            for types in itertools.product(*(w.named for w in rule.withs)):
                objects = {w.name: t for w, t in zip(rule.withs, types, strict=True)}
                yield from _of_condition(program, rule, rule.item_condition, flags, objects, numbers, rows, named=True)
                if rule.unnamed and not program.entities[rule.entity].single:
                    yield from _of_condition(
                        program, rule, rule.call_condition, flags, objects, numbers, rows, named=False
                    )


def _of_condition(
    program: Program,
    rule: Rule,
    condition: Formula,
    flags: frozenset[str],
    types: Mapping[str, str],
    numbers: Iterator[int],
    rows: Rows,
    *,
    named: bool,
) -> Iterator[Case]:
    form = canonical_form(program)
    itself = Target(slot=RESOURCE, type=rule.entity)
    sets = [frozenset(s) for s in form.minimal_sets(condition, flags, types)]

    def case(satisfied: frozenset[Leaf], description: str, *, allowed: bool) -> Case:
        world = World(program, f"{next(numbers)}", rule, types)
        for atom in sorted(satisfied, key=form.order):
            world.give(atom, rows)
        request = world.request(flags, named=named, is_self=any(isinstance(a, Self) for a in satisfied))
        shape = f"{'item' if named else 'call'}{' ' + '+'.join(sorted(flags)) if flags else ''}"
        return Case(rule=rule.id, description=f"{shape}: {description}", request=request, allowed=allowed)

    yield case(frozenset(), "nothing held", allowed=frozenset() in sets)
    for sufficient in sets:
        # An atom on an entity that the request does not name never holds.
        possible = named or not any(
            isinstance(a, Has | Owner | Member | Holds) and a.target == itself for a in sufficient
        )
        yield case(sufficient, f"{len(sufficient)} atoms suffice", allowed=possible)
        for atom in sorted(sufficient, key=form.order):
            yield case(sufficient - {atom}, f"without {atom}", allowed=False)


class World:
    """A world, whose user and root entities occur in no other."""

    def __init__(self, program: Program, number: str, rule: Rule, types: Mapping[str, str]) -> None:
        self.program = program
        self.number = number
        self.rule = rule
        self.types = {RESOURCE: rule.entity, **types}
        self.attributes: dict[str, dict[str, Scalar]] = {"user": {}, "request": {}}
        """What the request says of its user and of itself."""

    @property
    def user(self) -> str:
        return f"u{self.number}"

    def entity(self, target: Target) -> Entity:
        """The entity of a target; its names are those of the types, with the number of the world for the root and principals.

        A type that nests has two levels here, so that what contains an entity of the type is of the type too.
        """
        names = []
        for type_ in self.program.chain(target.type):
            kind = self.program.entities[type_]
            if not kind.single:
                is_numbered = kind.parent is None or kind.principal is not None
                names.append(f"{type_}{self.number}{target.slot}" if is_numbered else type_)
            if kind.nested:
                names.append(f"inner_{type_}")
        if target.level in ("first", "parent"):
            names.pop()
        return Entity(target.type, "/".join(names))

    def entity_below(self, target: Target, *, on: Collection[str]) -> Entity:
        """An entity below that of a target, of one of the types."""
        chains = (self.program.chain(type_) for type_ in on)
        chain = next(chain for chain in chains if target.type in chain[:-1])
        below = chain[chain.index(target.type) + 1 :]
        return Entity(chain[-1], "/".join([*self.entity(target).names, *below]))

    def give(self, atom: Leaf, rows: Rows) -> None:
        """Add the rows that make an atom true."""
        principal = f"user:{self.user}"
        match atom:
            case Has():
                entity = self.entity(atom.target)
                rows.grants.append(Grant(grantee=principal, effect="allow", privilege=atom.privilege, entity=entity))
            case HasBelow():
                entity = self.entity_below(atom.target, on=self.program.privileges[atom.privilege].on)
                rows.grants.append(Grant(grantee=principal, effect="allow", privilege=atom.privilege, entity=entity))
            case OwnsBelow():
                rows.owners.append((self.entity_below(atom.target, on=self.program.entities), principal))
            case Owner():
                rows.owners.append((self.entity(atom.target), principal))
            case Member():
                entity = self.entity(atom.target)
                if self.program.entities[atom.target.type].principal == "group":
                    rows.memberships.append((self.user, entity.names[-1]))
                else:
                    rows.members.append((self.user, entity))
            case Holds():
                role = self.entity(atom.target).names[-1]
                rows.assignments.append(Assignment(principal=principal, role=role))
            case ServiceAdmin():
                rows.service_admins.append(self.user)
            case Self():
                pass  # the request names the user
            case Compare(left=Term(kind="user" | "request" as kind, attribute=attribute), operator="=", right=(value,)):
                self.attributes[kind][attribute] = value
            case Compare():
                raise NotImplementedError(f"{atom}: no shipped policy compares so")

    def request(self, flags: frozenset[str], *, named: bool, is_self: bool) -> Request:
        resource = self.entity(Target(slot=RESOURCE, type=self.rule.entity))
        if is_self:
            resource = Entity(resource.type, "/".join([*resource.names[:-1], self.user]))
        if not named:
            nests = any(self.program.entities[t].nested for t in self.program.chain(resource.type))
            resource = Entity(resource.type, "/".join(resource.names[:-1]) + ("/" if nests else ""))
        objects = {s: self.entity(Target(slot=s, type=t)) for s, t in self.types.items() if s != RESOURCE}
        return Request(
            user=self.user,
            action=self.rule.operation,
            resource=resource,
            with_=objects,
            flags=stated_flags(self.rule, flags),
            attributes=GivenAttributes(user=self.attributes["user"], request=self.attributes["request"]),
        )


def _subsets(names: tuple[str, ...]) -> list[frozenset[str]]:
    return [frozenset(c) for n in range(len(names) + 1) for c in itertools.combinations(names, n)]
