"""The intermediate representation that every back end reads.

A `Program` holds one `Rule` for each (entity type, operation). In formulas, aliases and sets are resolved to privileges, and
targets to types on containment chains. A formula has no negation, so it is monotone in what a caller holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import ClassVar, Literal, TypeAlias

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, Attributes, Operator, Scalar
from privtab.base.caching import once, once_for_each
from privtab.base.diagnostics import Span
from privtab.base.nodes import dataclass
from privtab.base.sql_text import FilterKind
from privtab.ir import atoms, declarations
from privtab.ir.atoms import AtomKind
from privtab.ir.declarations import Semantics

RESOURCE = ""
"""The slot of the request's resource: `Target(slot=RESOURCE, type="table")`. Other slots are the names of its `with` objects."""

Origin: TypeAlias = Literal["row", "core", "any"]
Creation: TypeAlias = Literal["surely", "perhaps"]
Target = atoms.Target
Atomic = atoms.Atomic
OnTarget = atoms.OnTarget
Term = atoms.Term
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
SqlFilter = declarations.SqlFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Has(OnTarget):
    """The caller holds `privilege` on the target.

    >>> Has(privilege="READ", target=Target(slot=RESOURCE, type="table")).names
    {'privilege': 'READ'}
    """

    kind: ClassVar = AtomKind(words="{privilege} ({place})", rank=3, table="grants", reads="", names=("privilege",))
    privilege: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(OnTarget):
    """The caller owns the target.

    >>> Owner.kind.table
    'owners'
    """

    kind: ClassVar = AtomKind(words="owner ({place})", rank=5, table="owners", reads="", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(OnTarget):
    """The caller belongs to the target.

    >>> Member.kind.table
    'members'
    """

    kind: ClassVar = AtomKind(words="member ({place})", rank=0, table="members", reads="members", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Self(OnTarget):
    """The target is the caller.

    >>> Self.kind.words
    'self'
    """

    kind: ClassVar = AtomKind(words="self", rank=2, table="", reads="", keyed=False, alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holds(OnTarget):
    """The target is a role that the caller holds, directly or through a group.

    >>> Holds.kind.table
    'assignments'
    """

    kind: ClassVar = AtomKind(words="holds ({place})", rank=4, table="assignments", reads="holds", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAdmin(Atomic):
    """The caller is a service administrator.

    >>> ServiceAdmin().targets
    ()
    """

    kind: ClassVar = AtomKind(words="service admin", rank=1, table="service_admins", reads="service_admins", alone=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class HasBelow(Below):
    """The caller holds `privilege` on the target or on an entity below it.

    >>> HasBelow.kind.words
    '{privilege} ({place} or below)'
    """

    kind: ClassVar = AtomKind(words="{privilege} ({place} or below)", rank=3, table="", reads="", names=("privilege",))
    privilege: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnsBelow(Below):
    """The caller owns the target or an entity below it.

    >>> OwnsBelow.kind.words
    'owner ({place} or below)'
    """

    kind: ClassVar = AtomKind(words="owner ({place} or below)", rank=5, table="", reads="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare(Atomic):
    """Two attributes, or one and constants, stand in a relation. It does not hold if a value is absent.

    >>> cleared = Compare(left=Term(kind="user", attribute="level"), operator=">", right=(2,))
    >>> [term.attribute for term in cleared.terms]
    ['level']
    """

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
"""Any kind of atom: `def holds(atom: Atom) -> bool`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Every part holds; without parts, always.

    >>> And(parts=(ServiceAdmin(), NEVER)).parts
    (ServiceAdmin(), Or(parts=()))
    """

    parts: tuple[Formula, ...] = ()

    @staticmethod
    def of(*parts: Formula) -> Formula:
        """The conjunction of the parts, flattened and without duplicates; a single part is returned as it is."""
        flat = _flattened(And, parts)
        return flat[0] if len(flat) == 1 else And(parts=flat)


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """At least one part holds; without parts, never.

    >>> Or.of(ServiceAdmin(), ALWAYS) == ALWAYS
    True
    """

    parts: tuple[Formula, ...] = ()

    @staticmethod
    def of(*parts: Formula) -> Formula:
        """The disjunction of the parts, flattened and without duplicates; a single part is returned as it is."""
        flat = _flattened(Or, parts)
        return ALWAYS if ALWAYS in flat else flat[0] if len(flat) == 1 else Or(parts=flat)


def _flattened(kind: type[And | Or], parts: Iterable[Formula]) -> tuple[Formula, ...]:
    inner = [one for part in parts for one in (part.parts if isinstance(part, kind) else (part,))]
    few = len(inner) < 5  # few parts are compared sooner than hashed: two conditions mostly differ in their first atoms
    return tuple([one for at, one in enumerate(inner) if one not in inner[:at]] if few else dict.fromkeys(inner))


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """The body is required if the request's context sets `flag`; otherwise nothing is required.

    >>> When(flag="force", body=ServiceAdmin()).flag
    'force'
    """

    flag: str
    body: Formula


@dataclass(frozen=True, slots=True, kw_only=True)
class Can:
    """The rule for `operation` on the target's type holds for the target: its gate, `requires` and `each`.

    >>> Can(operation="load", target=Target(slot=RESOURCE, type="table")).operation
    'load'
    """

    operation: str
    target: Target

    @property
    def targets(self) -> tuple[Target, ...]:
        """The target, as atoms have theirs."""
        return (self.target,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByType:
    """The case for the type of the object in `slot`; never for a type without a case.

    >>> dict(ByType(slot="to", cases=(("table", ALWAYS),), text="any").cases)
    {'table': And(parts=())}
    """

    slot: str
    cases: tuple[tuple[str, Formula], ...]
    text: str


Formula: TypeAlias = Atom | And | Or | When | Can | ByType
"""Any condition or part of one: `match formula: case And(parts=parts): ...`."""

ALWAYS = And()
"""The condition that always holds, as of a row without a gate: `rule.gate == ALWAYS`."""
NEVER = Or()
"""The condition that never holds: `replace(rule, requires=NEVER)` denies every request of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One resolved row: the conditions of `operation` on an entity of type `entity`, and its effects.

    Example:
        rule = program.rules["table", "load"]
    """

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
    @once_for_each
    def call_condition(self) -> Formula:
        """The condition of the call itself: the gate and `requires`."""
        return And.of(self.gate, self.requires)

    @property
    def source_text(self) -> str | None:
        """The place in a source document that the row is from, `document:line`; None without one."""
        return None if self.source is None else self.source.text

    @property
    @once_for_each
    def item_condition(self) -> Formula:
        """The condition of a named item: gate, `requires` and `each`."""
        return self.call_condition if self.each is None else And.of(self.gate, self.requires, self.each)

    @property
    def needs_active_role(self) -> bool:
        """True if a request must name an active role, which its effects make an owner."""
        return any(effect.of_role for effect in self.effects)

    @property
    def unnamed(self) -> bool:
        """True if a request may omit the last name: a listing or bulk call, or a creation."""
        return self.each is not None or self.creates is not None

    def compares_absent(self, program: Program, part: Formula) -> bool:
        """Return whether a condition compares an attribute of an entity around an object of the row, which only requests about that entity give."""
        own = {RESOURCE: (self.entity,), **{slot.name: slot.types for slot in self.withs}}

        def absent(term: Term) -> bool:
            target, declared = term.target, program.attribute(term)
            if target is None or declared is None or "state" in declared.origins:
                return False
            return target.type not in own[target.slot] or target.level != "nearest"

        return isinstance(part, Compare) and any(map(absent, part.terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole policy, ready for any back end. Mappings keep the order of the file.

    Example:
        program.rules["table", "load"].requires, program.chain("table")
    """

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
    conditions: Mapping[str, str] = field(default_factory=dict)
    """The texts of the named conditions, which rules have expanded."""

    def chain(self, type_: str) -> tuple[str, ...]:
        """The types on the path of a `type_` entity, from the root to itself."""
        return self.chains[type_]

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        """`chain` of every type."""
        return declarations.chains(self.entities)

    def unnamed(self, rule: Rule) -> bool:
        """Return whether requests of a rule may omit the last name, of which a `single` type has none of its own."""
        return rule.unnamed and not self.entities[rule.entity].single

    def depth(self, type_: str) -> int:
        """The number of names in the path of a `type_` entity."""
        return declarations.depths(self.entities)[type_]

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
    @once
    def slots(self) -> frozenset[str]:
        """The slots of the objects that requests have."""
        return frozenset({RESOURCE}.union(slot.name for rule in self.rules.values() for slot in rule.withs))

    def recipients(self, rule: Rule) -> tuple[WithSlot, ...]:
        """The objects of a delegating row that are principals: one of them is the principal that the request names."""
        slots = rule.withs if rule.delegations else ()
        return tuple(slot for slot in slots if all(self.entities[type_].principal for type_ in slot.named))

    @property
    @once
    def filter_lists(self) -> Mapping[tuple[str, FilterKind], tuple[SqlFilter, ...]]:
        """The filters by entity type and kind, in the order in which they are tried."""
        lists: dict[tuple[str, FilterKind], tuple[SqlFilter, ...]] = {}
        for one in self.filters:
            lists[one.entity, one.kind] = (*lists.get((one.entity, one.kind), ()), one)
        return lists

    def filter_of(self, entity: str, operation: str) -> SqlFilter | None:
        """The row filter or column mask that an operation decides, if it is one."""
        return next((one for one in self.filters if (one.entity, one.operation) == (entity, operation)), None)

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
        return declarations.nested_on(self.entities)

    @property
    def sensitive(self) -> frozenset[tuple[str, str]]:
        """The sensitive operations: those that are declared, or every one, for caution, of a policy that declares none."""
        return frozenset(pair for pair, rule in self.rules.items() if rule.sensitive) or frozenset(self.rules)

    def inherits(self, privilege: str) -> bool:
        """Return whether what is held of a privilege on an entity, and denials of it, count for everything below."""
        known = self.privileges.get(privilege)
        return self.semantics.inherits(None if known is None else known.inheritance)

    @property
    def grantable(self) -> Mapping[str, Privilege]:
        """The privileges that rows can name."""
        return declarations.grantable(self.privileges)

    def grantable_on(self, type_: str) -> tuple[str, ...]:
        """The privileges that rows can name for a `type_` entity."""
        return tuple(name for name, privilege in self.grantable.items() if type_ in privilege.on)

    def granted_as(self, privilege: str) -> tuple[str, ...]:
        """The names by which rows give a privilege: itself, or for `any privilege` each that there is."""
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
        """True if some privilege implies others."""
        return any(privilege.implies for privilege in self.privileges.values())

    @property
    def nests(self) -> bool:
        """True if some type nests."""
        return any(type_.nested for type_ in self.entities.values())

    @property
    def flat(self) -> frozenset[str]:
        """The types whose ids are flat."""
        return frozenset(type_.name for type_ in self.entities.values() if type_.flat)

    @property
    def shared(self) -> frozenset[str]:
        """The types of which there is one entity, since no name is on its path: the same for all objects of a request, like what lies below it."""
        return frozenset(type_ for type_, depth in declarations.depths(self.entities).items() if depth == 0)
