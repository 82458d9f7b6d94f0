"""The intermediate representation that every back end reads.

A `Program` holds one `Rule` for each (entity type, operation). In formulas, aliases and sets are resolved to privileges, and
targets to types on containment chains. A formula has no negation, so it is monotone in what a caller holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar, Literal, TypeAlias

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, AttributeKind, Attributes, Operator, Scalar
from privtab.base.caching import once
from privtab.base.diagnostics import Span
from privtab.base.effects import BY_ACTIVE_ROLE, EffectKind
from privtab.base.names import LEFT_OUT, NO_OBJECT
from privtab.base.nodes import dataclass
from privtab.base.sql_text import FilterKind, Word, operation_of
from privtab.ir import atoms
from privtab.ir.atoms import AtomKind
from privtab.ir.semantics import Inheritance, OwnerKind, Semantics

RESOURCE = ""
"""The slot of the request's resource; other slots are the names of its `with` objects."""

Origin: TypeAlias = Literal["row", "core", "any"]
Creation: TypeAlias = Literal["surely", "perhaps"]
Target = atoms.Target
Atomic = atoms.Atomic
OnTarget = atoms.OnTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Has(OnTarget):
    """The caller holds `privilege` on the target."""

    kind: ClassVar = AtomKind(words="{privilege} ({place})", rank=3, table="grants", reads="", names=("privilege",))
    privilege: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(OnTarget):
    """The caller owns the target."""

    kind: ClassVar = AtomKind(words="owner ({place})", rank=5, table="owners", reads="", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(OnTarget):
    """The caller belongs to the target."""

    kind: ClassVar = AtomKind(words="member ({place})", rank=0, table="members", reads="members", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Self(OnTarget):
    """The target is the caller."""

    kind: ClassVar = AtomKind(words="self", rank=2, table="", reads="", keyed=False, alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds(OnTarget):
    """The target is a role that the caller holds, directly or through a group."""

    kind: ClassVar = AtomKind(words="holds ({place})", rank=4, table="assignments", reads="holds", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAdmin(Atomic):
    """The caller is a service administrator."""

    kind: ClassVar = AtomKind(words="service admin", rank=1, table="service_admins", reads="service_admins", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HasBelow(OnTarget):
    """The caller holds `privilege` on the target or on an entity below it."""

    kind: ClassVar = AtomKind(words="{privilege} ({place} or below)", rank=3, table="", reads="", names=("privilege",))
    privilege: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnsBelow(OnTarget):
    """The caller owns the target or an entity below it."""

    kind: ClassVar = AtomKind(words="owner ({place} or below)", rank=5, table="", reads="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """An attribute of the caller, of the target, or of the request."""

    kind: AttributeKind
    attribute: str
    target: Target | None = None
    """Of an entity's attribute: the entity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Atomic):
    """Two attributes, or one and constants, stand in a relation. It does not hold if a value is absent."""

    kind: ClassVar = AtomKind(words="", rank=7, table="", reads="")
    left: Term
    operator: Operator
    right: Term | tuple[Scalar, ...]
    """A tuple of constants: the only one, or with `in` any of them."""

    @property
    def terms(self) -> tuple[Term, ...]:
        """The one or two attributes."""
        return (self.left, self.right) if isinstance(self.right, Term) else (self.left,)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The entities whose attributes are compared."""
        return tuple(term.target for term in self.terms if term.target is not None)


Atom: TypeAlias = Has | Owner | Member | Self | Holds | ServiceAdmin | HasBelow | OwnsBelow | Compare


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Every part holds; without parts, always."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one part holds; without parts, never."""

    parts: tuple[Formula, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The body is required if the request's context sets `flag`; otherwise nothing is required."""

    flag: str
    body: Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """The rule for `operation` on the target's type holds for the target: its gate, `requires` and `each`."""

    operation: str
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ByType:
    """The case for the type of the object in `slot`; never for a type without a case."""

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
    renamed_from: str | None = None
    principal: OwnerKind | None = None
    """`user`, `group` or `role` if entities of this type are principals; the last name of the path is the principal's."""
    nested: int = 0
    """The most levels, if entities of this type may contain others of it."""
    flat: bool = False
    """Whether its ids are flat: one name, and the state tells where an entity lies."""
    opaque: bool = False
    """Whether its ids are one name that requests and rows may also write with `/`; nothing contains it, and nothing lies below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Privilege:
    """A privilege and the entity types that it can be granted on."""

    name: str
    on: tuple[str, ...]
    title: str | None = None
    deprecated: str | None = None
    renamed_from: str | None = None
    """Its name in earlier versions, with which a diff compares it; likewise of types and rows."""
    implies: tuple[str, ...] = ()
    """The privileges that a grant of it gives as well; what those imply, it does not give."""
    inheritance: Inheritance | None = None
    """Whether it is held below the object of a grant, or of ownership, where that is not as in the semantics of the file."""
    granted: bool = True
    """Whether rows can name it: all but `any privilege`, which each of the others implies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    """Another name of a privilege."""

    name: str
    of: str
    deprecated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role with default grants, per entity type, within the scope of its assignment."""

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
    """What a successful operation does: `grant`, `become`, `revoke`, `delegate` or `withdraw` something on the target."""

    kind: EffectKind
    what: str
    """The name as written in the file: a privilege, a set, `any privilege`, `owner`, `member`, or one of PRINCIPAL_TABLES."""
    privileges: tuple[str, ...]
    """The members if `what` is a privilege or a set; otherwise empty."""
    target: Target
    of_role: bool = False
    """Whether the first active role of the request becomes the owner, in the place of the caller."""

    @property
    def text(self) -> str:
        """The effect without its target, as decisions have it: `grant ALL`, `become owner`."""
        return f"{self.kind} {self.what}{BY_ACTIVE_ROLE if self.of_role else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithSlot:
    """A second object of a request and the types that it may have, `LEFT_OUT` the last of them if requests may leave it out."""

    name: str
    types: tuple[str, ...]

    @property
    def named(self) -> tuple[str, ...]:
        """The types of the object where a request has it."""
        return tuple(type_ for type_ in self.types if type_ != LEFT_OUT)

    @property
    def words(self) -> tuple[str, ...]:
        """The types as a row lists them."""
        return tuple(type_ or NO_OBJECT for type_ in self.types)

    @property
    def polymorphic(self) -> bool:
        """Whether the type is known only from the request."""
        return len(self.types) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """An ambiguous cell: its text, the other readings by name, and why the reading in use was chosen."""

    cell: str | None
    readings: tuple[tuple[str, str], ...]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One resolved row: the conditions of `operation` on an entity of type `entity`, and its effects."""

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
    """Flags that a request must state, set or not: those of the row and of the rows it reaches through `can`; sorted."""
    report: str | None = None
    effects: tuple[Effect, ...] = ()
    delegations: tuple[Effect, ...] = ()
    """What the request gives to or takes from a principal that it names."""
    creates: Creation | None = None
    """Whether the operation creates its entity, so that a request may omit the last name; `perhaps`: its effects could also be a claim."""
    destructive: bool = False
    """Whether the policy declares that the operation destroys something."""
    sensitive: bool = False
    """Whether the policy declares it, or that it destroys something."""
    requires_text: str | None = None
    each_text: str | None = None
    note: str | None = None
    deprecated: str | None = None
    renamed_from: str | None = None
    source: Source | None = None
    ambiguous: Ambiguous | None = None

    @property
    def needs_active_role(self) -> bool:
        """Whether a request must name an active role, which its effects make an owner."""
        return any(effect.of_role for effect in self.effects)

    @property
    def unnamed(self) -> bool:
        """Whether a request may omit the last name: a listing or bulk call, or a creation."""
        return self.each is not None or self.creates is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Operations of which one role may have at most `at_most`."""

    operations: tuple[tuple[str, str], ...]
    """(entity type, operation)"""
    at_most: int
    span: Span
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFilter:
    """A row filter or a column mask of a type: the rule of its operation says for whom it is."""

    kind: FilterKind
    entity: str
    name: str
    parts: tuple[str | Word | Term, ...]
    """Of its text; attributes are placeholders, too."""

    @property
    def operation(self) -> str:
        """The operation whose rule decides it."""
        return operation_of(self.kind, self.name)


@once
def chains(entities: Mapping[str, EntityType]) -> Mapping[str, tuple[str, ...]]:
    """`Program.chain` of every type; programs that share their types share it."""
    return {name: tuple(reversed(list(_upwards(entities, name)))) for name in entities}


@once
def depths(entities: Mapping[str, EntityType]) -> Mapping[str, int]:
    """`Program.depth` of every type."""
    return {name: sum(not entities[link].single for link in chain) for name, chain in chains(entities).items()}


@once
def nested_on(entities: Mapping[str, EntityType]) -> Mapping[str, str]:
    """For each type on whose path a type nests, that type."""
    return {name: outer for name, chain in chains(entities).items() for outer in chain if entities[outer].nested}


@once
def grantable(privileges: Mapping[str, Privilege]) -> Mapping[str, Privilege]:
    """`Program.grantable`."""
    return {name: privilege for name, privilege in privileges.items() if privilege.granted}


def _upwards(entities: Mapping[str, EntityType], name: str) -> Iterator[str]:
    current: str | None = name
    while current is not None:
        yield current
        current = entities[current].parent


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
    attributes: Attributes = NO_ATTRIBUTES
    filters: tuple[SqlFilter, ...] = ()
    """Row filters and column masks, those of one type and kind in the order in which they are tried."""
    dialect: str = ""
    """The dialect of their texts."""

    def chain(self, type_: str) -> tuple[str, ...]:
        """The types on the path of a `type_` entity, from the root to itself."""
        return self.chains[type_]

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        """`chain` of every type."""
        return chains(self.entities)

    def unnamed(self, rule: Rule) -> bool:
        """Whether requests of a rule may omit the last name, of which a `single` type has none of its own."""
        return rule.unnamed and not self.entities[rule.entity].single

    def depth(self, type_: str) -> int:
        """The number of names in the path of a `type_` entity."""
        return depths(self.entities)[type_]

    def attribute(self, term: Term) -> Attribute | None:
        """The type and the origins of an attribute, whatever else has it; None if the policy does not declare it there."""
        found = self.attributes.of(term.kind).get(term.attribute)
        if found is None or (term.target is not None and term.target.type not in found.on):
            return None
        return replace(found, on=())

    @property
    def sensitive(self) -> frozenset[tuple[str, str]]:
        """The sensitive operations: those that are declared, or every one, for caution, of a policy that declares none."""
        return frozenset(pair for pair, rule in self.rules.items() if rule.sensitive) or frozenset(self.rules)

    def inherits(self, privilege: str) -> bool:
        """Whether what is held of a privilege on an entity, and denials of it, count for everything below."""
        known = self.privileges.get(privilege)
        return self.semantics.inherits(None if known is None else known.inheritance)

    @property
    def grantable(self) -> Mapping[str, Privilege]:
        """The privileges that rows can name."""
        return grantable(self.privileges)

    def grantable_on(self, type_: str) -> tuple[str, ...]:
        """The privileges that rows can name for a `type_` entity."""
        return tuple(name for name, privilege in self.grantable.items() if type_ in privilege.on)

    def granted_as(self, privilege: str) -> tuple[str, ...]:
        """What rows name to give a privilege: itself, or for `any privilege` each that there is."""
        return (privilege,) if privilege in self.grantable else tuple(self.grantable)

    @property
    def inherited(self) -> frozenset[str]:
        """The privileges that are inherited."""
        return frozenset(filter(self.inherits, self.privileges))

    @property
    def owner_privileges(self) -> frozenset[str]:
        """The privileges that owners have."""
        return frozenset(() if self.semantics.owner is None else self.semantics.owner.holds)

    def granting_types(self, privilege: str, type_: str) -> tuple[str, ...]:
        """The types of the entities, from the root on, where what is held of a privilege counts for a `type_` entity."""
        return self.chain(type_) if self.inherits(privilege) else (type_,)

    @property
    def implies(self) -> bool:
        """Whether some privilege implies others."""
        return any(privilege.implies for privilege in self.privileges.values())

    @property
    def nests(self) -> bool:
        """Whether some type nests."""
        return any(type_.nested for type_ in self.entities.values())

    @property
    def flat(self) -> frozenset[str]:
        """The types whose ids are flat."""
        return frozenset(type_.name for type_ in self.entities.values() if type_.flat)

    @property
    def shared(self) -> frozenset[str]:
        """The types of which there is one entity, since no name is on its path: the same for all objects of a request, like what lies below it."""
        return frozenset(type_ for type_, depth in depths(self.entities).items() if depth == 0)
