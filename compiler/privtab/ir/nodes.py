"""The intermediate representation that every back end reads.

A `Program` holds one `Rule` for each (entity type, operation). In formulas, aliases and sets are resolved to privileges, and
targets to types on containment chains. A formula has no negation, so it is monotone in what a caller holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import ClassVar, Literal, TypeAlias

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, AttributeKind, Attributes, Operator, Scalar
from privtab.base.caching import once, once_for_each
from privtab.base.diagnostics import Span
from privtab.base.nodes import dataclass
from privtab.base.sql_text import FilterKind, FilterWord, operation_of
from privtab.ir import atoms, declarations
from privtab.ir.atoms import AtomKind
from privtab.ir.semantics import Semantics

RESOURCE = ""
"""The slot of the request's resource; other slots are the names of its `with` objects."""

Origin: TypeAlias = Literal["row", "core", "any"]
Creation: TypeAlias = Literal["surely", "perhaps"]
Target = atoms.Target
Atomic = atoms.Atomic
OnTarget = atoms.OnTarget
Below = atoms.Below
EntityType = declarations.EntityType
Privilege = declarations.Privilege
Alias = declarations.Alias
Role = declarations.Role
Source = declarations.Source
WithSlot = declarations.WithSlot
Ambiguous = declarations.Ambiguous
Conflict = declarations.Conflict
Effect = declarations.Effect


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
class HasBelow(Below):
    """The caller holds `privilege` on the target or on an entity below it."""

    kind: ClassVar = AtomKind(words="{privilege} ({place} or below)", rank=3, table="", reads="", names=("privilege",))
    privilege: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnsBelow(Below):
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

    @staticmethod
    def of(*parts: Formula) -> Formula:
        """The conjunction of the parts, flattened and without duplicates; a single part is returned as it is."""
        flat = _flattened(And, parts)
        return flat[0] if len(flat) == 1 else And(parts=flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one part holds; without parts, never."""

    parts: tuple[Formula, ...] = ()

    @staticmethod
    def of(*parts: Formula) -> Formula:
        """The disjunction of the parts, flattened and without duplicates; a single part is returned as it is."""
        flat = _flattened(Or, parts)
        return ALWAYS if ALWAYS in flat else flat[0] if len(flat) == 1 else Or(parts=flat)


def _flattened(kind: type[And | Or], parts: Iterable[Formula]) -> tuple[Formula, ...]:
    inner = (one for part in parts for one in (part.parts if isinstance(part, kind) else (part,)))
    return tuple(dict.fromkeys(inner))


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

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target, as atoms have theirs."""
        return (self.target,)


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
    def call_condition(self) -> Formula:
        """The condition of the call itself: the gate and `requires`."""
        return call_condition(self)

    @property
    def item_condition(self) -> Formula:
        """The condition of a named item: gate, `requires` and `each`."""
        return item_condition(self)

    @property
    def needs_active_role(self) -> bool:
        """Whether a request must name an active role, which its effects make an owner."""
        return any(effect.of_role for effect in self.effects)

    @property
    def unnamed(self) -> bool:
        """Whether a request may omit the last name: a listing or bulk call, or a creation."""
        return self.each is not None or self.creates is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFilter:
    """A row filter or a column mask of a type: the rule of its operation says for whom it is."""

    kind: FilterKind
    entity: str
    name: str
    parts: tuple[str | FilterWord | Term, ...]
    """Of its text; attributes are placeholders, too."""

    @property
    def operation(self) -> str:
        """The operation whose rule decides it."""
        return operation_of(self.kind, self.name)

    @property
    def sql(self) -> str:
        """The text with its placeholders, as policies have it."""
        braces = str.maketrans({"{": "{{", "}": "}}"})
        return "".join(part.translate(braces) if isinstance(part, str) else _placeholder(part) for part in self.parts)


def _placeholder(part: FilterWord | Term) -> str:
    if isinstance(part, FilterWord):
        return f"{{{part.text}}}"
    target = part.target
    level = "" if target is None or target.level == "nearest" else f"{target.level} "
    return f"{{{level}{part.kind if target is None else target.type}.{part.attribute}}}"


@once
def filter_lists(program: Program) -> Mapping[tuple[str, FilterKind], tuple[SqlFilter, ...]]:
    """`Program.filter_lists`."""
    lists: dict[tuple[str, FilterKind], tuple[SqlFilter, ...]] = {}
    for one in program.filters:
        lists[one.entity, one.kind] = (*lists.get((one.entity, one.kind), ()), one)
    return lists


@once_for_each
def call_condition(rule: Rule) -> Formula:
    """`Rule.call_condition`."""
    return And.of(rule.gate, rule.requires)


@once_for_each
def item_condition(rule: Rule) -> Formula:
    """`Rule.item_condition`."""
    return call_condition(rule) if rule.each is None else And.of(rule.gate, rule.requires, rule.each)


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
    """`Program.nested_on`."""
    return {name: outer for name, chain in chains(entities).items() for outer in chain if entities[outer].nested}


@once
def slots(program: Program) -> frozenset[str]:
    """`Program.slots`."""
    return frozenset({RESOURCE}.union(slot.name for rule in program.rules.values() for slot in rule.withs))


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

    def anchor(self, target: Target) -> tuple[int, str | None]:
        """Locate the key of a target among the keys of its slot's object.

        Returns the index of the key, and the type to give that key if the target is `single`, since a single entity has
        the path of the nearest ancestor with a name of its own.
        """
        chain = self.chain(target.type)
        index = len(chain) - 1
        while self.entities[chain[index]].single and index > 0:
            index -= 1
        return index, None if index == len(chain) - 1 else target.type

    def types_of(self, target: Target) -> tuple[str, ...]:
        """The types that the entity of a target may have: for `parent`, also the type around the one that nests."""
        outer = self.entities[target.type].parent if target.level == "parent" else None
        return (target.type,) if outer is None else (target.type, outer)

    @property
    def slots(self) -> frozenset[str]:
        """The slots of the objects that requests have."""
        return slots(self)

    def recipients(self, rule: Rule) -> tuple[WithSlot, ...]:
        """The objects of a delegating row that are principals: one of them is the principal that the request names."""
        slots = rule.withs if rule.delegations else ()
        return tuple(slot for slot in slots if all(self.entities[type_].principal for type_ in slot.named))

    @property
    def filter_lists(self) -> Mapping[tuple[str, FilterKind], tuple[SqlFilter, ...]]:
        """The filters by entity type and kind, in the order in which they are tried."""
        return filter_lists(self)

    def filter_of(self, entity: str, operation: str) -> SqlFilter | None:
        """The row filter or column mask that an operation decides, if it is one."""
        of_type = (one for one in self.filters if one.entity == entity)
        return next((one for one in of_type if one.operation == operation), None)

    def earlier(self, entity: str, operation: str) -> tuple[Rule, ...]:
        """The rules of the filters that are tried before one: it applies only where none of these holds."""
        own = self.filter_of(entity, operation)
        listed = () if own is None else self.filter_lists[entity, own.kind]
        return tuple(self.rules[entity, one.operation] for one in listed[: listed.index(own) if own else 0])

    @property
    def inheritance(self) -> Literal["none", "down", "mixed"]:
        """The inheritance of the privileges; `mixed`: some have one of their own."""
        apart = any(privilege.inheritance for privilege in self.privileges.values())
        return "mixed" if apart else self.semantics.inheritance

    @property
    def nested_on(self) -> Mapping[str, str]:
        """For each type on whose path a type nests, that type."""
        return nested_on(self.entities)

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
