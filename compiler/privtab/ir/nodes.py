"""The intermediate representation: what every back end reads.

A `Program` holds one `Rule` for each (entity type, operation). Aliases are gone, sets are their members, targets are
resolved to chains of containment. A formula has no negation, so it is monotone in what a caller holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from privtab._once import once
from privtab.diagnostics import Span

RESOURCE = ""
"""The slot of the request's resource; other slots are the names of its `with` objects."""

PRINCIPAL_TABLES = ("members", "memberships", "assignments", "grants", "owners")
"""What `revokes` may name beside privileges, on a principal: the state's tables whose rows about that principal go."""

OwnerKind: TypeAlias = Literal["user", "group", "role"]
Inheritance: TypeAlias = Literal["none", "down"]
DenyMode: TypeAlias = Literal["none", "overrides"]
Origin: TypeAlias = Literal["row", "core", "any"]
GroupSource: TypeAlias = Literal["state", "request"]
EffectKind: TypeAlias = Literal["grant", "become", "revoke"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An object of a request: of the object in `slot`, itself or the one on its path that has type `type`.

    A `single` type that hangs off the path counts as lying on it: its path is its parent's.
    """

    slot: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Has:
    """The caller holds `privilege` on the target."""

    privilege: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The caller owns the target."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The caller belongs to the target."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Self:
    """The target is the caller."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds:
    """The target is a role that the caller holds, directly or through a group."""

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAdmin:
    """The caller is a service administrator."""


Atom: TypeAlias = Has | Owner | Member | Self | Holds | ServiceAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Every part holds; no parts: always."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """Some part holds; no parts: never."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The body is required if the request's context sets `flag`; otherwise it asks for nothing."""

    flag: str
    body: Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """The rule for `operation` on the target's type holds for the target: its gate, `requires` and `each`."""

    operation: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ByType:
    """The case for the type that the object in `slot` has; a type without a case: never."""

    slot: str
    cases: tuple[tuple[str, Formula], ...]
    text: str


Formula: TypeAlias = Atom | And | Or | When | Can | ByType

ALWAYS = And()
NEVER = Or()


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityType:
    """A type of entity and its place in the containment forest."""

    name: str
    parent: str | None
    single: bool = False
    title: str | None = None
    principal: OwnerKind | None = None
    """`user`, `group` or `role` where entities of this type are principals; their last name is the principal's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privilege:
    """A privilege and the entity types that it can be granted on."""

    name: str
    on: tuple[str, ...]
    title: str | None = None
    deprecated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another name of a privilege."""

    name: str
    of: str
    deprecated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSemantics:
    """What ownership means: who may own, whether creators do, which privileges an owner has on what they own."""

    kinds: tuple[OwnerKind, ...] = ("user",)
    creator: bool = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """The file-wide meaning of grants."""

    inheritance: Inheritance = "none"
    deny: DenyMode = "none"
    owner: OwnerSemantics | None = None
    groups: tuple[GroupSource, ...] = ("state",)
    gate: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role with default grants, per entity type, inside the scope that it is assigned for."""

    name: str
    scope: str | None
    grants: tuple[tuple[str, tuple[str, ...]], ...]
    """(entity type, privileges), both in the file's order."""
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in a source document."""

    document: str
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What success does: `grant`, `become` or `revoke` something on the target."""

    kind: EffectKind
    what: str
    """The name as the file has it: a privilege, a set, `owner`, `member`, or one of PRINCIPAL_TABLES."""
    privileges: tuple[str, ...]
    """The members where `what` is a privilege or a set; otherwise empty."""
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSlot:
    """A second object of a request and the types that it may have."""

    name: str
    types: tuple[str, ...]

    @property
    def polymorphic(self) -> bool:
        """Whether the type is known only with the request."""
        return len(self.types) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """A cell that can be read in several ways: the cell, the other readings by name, and why this one was chosen."""

    cell: str | None
    readings: tuple[tuple[str, str], ...]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row, resolved: who may do `operation` on an entity of type `entity`, and what that does."""

    id: str
    entity: str
    operation: str
    title: str
    origin: Origin
    gate: Formula
    requires: Formula
    each: Formula | None
    span: Span
    withs: tuple[WithSlot, ...] = ()
    required_flags: tuple[str, ...] = ()
    """Flags that a request must say, set or not: those of the row, and of the rows that it reaches by `can`; sorted."""
    report: str | None = None
    effects: tuple[Effect, ...] = ()
    creates: bool = False
    """Whether a request may leave off the last name, being about an entity that does not exist yet."""
    requires_text: str | None = None
    each_text: str | None = None
    note: str | None = None
    deprecated: str | None = None
    source: Source | None = None
    ambiguous: Ambiguous | None = None

    @property
    def unnamed(self) -> bool:
        """Whether a request may leave off the last name: a listing or bulk call, or a creation."""
        return self.each is not None or self.creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Operations of which one role may hold no more than `at_most`."""

    operations: tuple[tuple[str, str], ...]
    """(entity type, operation)"""
    at_most: int
    span: Span
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole policy, ready for any back end. Mappings keep the order of the file."""

    system: str
    version: str
    title: str | None
    entities: Mapping[str, EntityType]
    privileges: Mapping[str, Privilege]
    aliases: Mapping[str, Alias]
    sets: Mapping[str, tuple[str, ...]]
    roles: Mapping[str, Role]
    semantics: Semantics
    rules: Mapping[tuple[str, str], Rule]
    """By (entity type, operation)."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Document names by their short name in the file."""
    conflicts: tuple[Conflict, ...] = ()

    def chain(self, type_: str) -> tuple[str, ...]:
        """The types on the path of a `type_` entity, from the root to itself."""
        return self.chains[type_]

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        """`chain` of every type."""
        return chains(self.entities)

    def depth(self, type_: str) -> int:
        """How many names the path of a `type_` entity has."""
        return self.depths[type_]

    @property
    def depths(self) -> Mapping[str, int]:
        """`depth` of every type."""
        return depths(self.entities)


@once
def chains(entities: Mapping[str, EntityType]) -> Mapping[str, tuple[str, ...]]:
    """`Program.chain` of every type; programs that share their types share it."""
    return {name: tuple(reversed(list(_upwards(entities, name)))) for name in entities}


@once
def depths(entities: Mapping[str, EntityType]) -> Mapping[str, int]:
    """`Program.depth` of every type."""
    return {name: sum(not entities[link].single for link in chain) for name, chain in chains(entities).items()}


def _upwards(entities: Mapping[str, EntityType], name: str) -> Iterator[str]:
    at: str | None = name
    while at is not None:
        yield at
        at = entities[at].parent
