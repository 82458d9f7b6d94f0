"""A policy whose names are resolved; conditions keep their structure and positions in the source. And walks through rows and conditions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from typing import ClassVar, Literal, TypeAlias

from privtab.base.attributes import NO_ATTRIBUTES, Attribute, AttributeKind, Attributes, Operator, Scalar
from privtab.base.diagnostics import Located, Span
from privtab.base.effects import EffectKind
from privtab.base.nodes import dataclass
from privtab.base.paths import Level
from privtab.base.sql_text import FilterKind, Placeholder
from privtab.ir.declarations import Semantics, chains
from privtab.ir.nodes import Alias, Ambiguous, Conflict, Creation, EntityType, Origin, Privilege, Role, Source, WithSlot
from privtab.language.syntax.nodes import Cell, RowDecl, Tables


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The containment of entity types."""

    entities: Mapping[str, EntityType]
    singles: dict[str, list[str]] = field(default_factory=dict, repr=False)
    types_below: dict[str, set[str]] = field(default_factory=dict, repr=False)

    def chain(self, type_: str) -> tuple[str, ...]:
        """The types on the path of a `type_` entity, from the root to itself."""
        return chains(self.entities)[type_]

    def within(self, type_: str, outer: str) -> bool:
        """Return whether `type_` is `outer` or lies below it."""
        return outer in self.chain(type_)

    def reaches(self, type_: str, target: str) -> bool:
        """Return whether the path of a `type_` entity leads to one `target`: an ancestor, itself, or a `single` type attached to one of these."""
        current: str | None = target
        chain = self.chain(type_)
        while current is not None and current not in chain:
            entity = self.entities[current]
            current = entity.parent if entity.single else None
        return current is not None

    def targets(self, type_: str) -> tuple[str, ...]:
        """Every type that a condition about a `type_` entity can name: its path from the root down, then `single` types attached to it."""
        if not self.singles:
            for entity in self.entities.values():
                if entity.single and entity.parent is not None:
                    self.singles.setdefault(entity.parent, []).append(entity.name)
        named = list(self.chain(type_))
        for name in named:
            named.extend(single for single in self.singles.get(name, ()) if single not in named)
        return tuple(named)

    def below(self, type_: str) -> AbstractSet[str]:
        """The types of entities strictly below one of a type; also the type itself, if it nests."""
        if not self.types_below:
            for name, entity in self.entities.items():
                self.types_below.setdefault(name, set()).update([name] if entity.nested else [])
                for outer in self.chain(name)[:-1]:
                    self.types_below.setdefault(outer, set()).add(name)
        return self.types_below[type_]

    def inside(self, type_: str) -> tuple[str, ...]:
        """`type_` and everything below it, in the order of the file."""
        return tuple(name for name in self.entities if self.within(name, type_))


PairKey: TypeAlias = tuple[str, str]
"""(entity type, operation)"""


@dataclass(frozen=True, slots=True)
class CellPart:
    """A part of a cell; its span is computed on demand."""

    cell: Cell
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The position of the part in the file."""
        return self.cell.part(self.start, self.end)


@dataclass(frozen=True, slots=True)
class TargetSlot:
    """A target: the slot of the request's object and the types that it may have; one, except for `with` objects."""

    slot: str
    types: tuple[str, ...]
    written: str
    spot: CellPart
    below: bool = False
    """True if it is enough to hold something on an entity below."""
    level: Level = "nearest"
    optional: bool = False
    """True if requests may leave the object out; then nothing holds there."""

    @property
    def polymorphic(self) -> bool:
        """True if the request alone says the type, or that there is no object."""
        return len(self.types) > 1 or self.optional


@dataclass(frozen=True, slots=True)
class PrivilegeUse:
    """A privilege, alias or set as written, and the privileges that it stands for."""

    written: str
    members: tuple[str, ...]
    is_set: bool
    spot: CellPart


class Simple:
    """A condition that has no conditions inside, and is about the caller."""

    __slots__ = ()


class OnCaller(Simple):
    """A condition about the caller alone; conditions of one class with equal fields, but for their spot, are the same."""

    __slots__ = ()


class OnPlaces(Simple):
    """A condition that holds on any of its places."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HoldsPrivilege(OnPlaces):
    """Any of the privileges, or with `every` each of them, on any of the places."""

    uses: tuple[PrivilegeUse, ...]
    every: bool
    places: tuple[TargetSlot, ...]


@dataclass(frozen=True, slots=True)
class Related(OnPlaces):
    """The caller owns, belongs to or holds any of the places."""

    kind: Literal["owner", "member", "holds"]
    places: tuple[TargetSlot, ...]


@dataclass(frozen=True, slots=True)
class IsSelf(Simple):
    """The caller is the object of the request."""

    type: str
    spot: CellPart


@dataclass(frozen=True, slots=True)
class IsServiceAdmin(OnCaller):
    """The caller is a service administrator."""

    places: ClassVar[tuple[TargetSlot, ...]] = ()
    spot: CellPart


@dataclass(frozen=True, slots=True)
class CanDo(OnPlaces):
    """The row of the operation holds for any of the places."""

    operation: str
    places: tuple[TargetSlot, ...]
    spot: CellPart


@dataclass(frozen=True, slots=True)
class Named(OnPlaces):
    """The named condition holds for any of the places; `bodies`: what it is for an entity of each of their types."""

    name: str
    places: tuple[TargetSlot, ...]
    bodies: tuple[tuple[str, Condition], ...]
    spot: CellPart


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; without parts, always."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; without parts, never."""

    parts: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class Required:
    """The body is required if the request sets the flag."""

    body: Condition
    flag: str
    spot: CellPart
    """`when FLAG`."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The request has no object in an optional slot, whose types these are."""

    slot: str
    types: tuple[str, ...]
    spot: CellPart


@dataclass(frozen=True, slots=True)
class TermUse:
    """An attribute of the caller, of a place, or of the request, and its type."""

    kind: AttributeKind
    name: str
    place: TargetSlot | None
    type: Attribute


@dataclass(frozen=True, slots=True)
class Compared(Simple):
    """An attribute stands in a relation to another one, or to constants."""

    left: TermUse
    operator: Operator
    right: TermUse | tuple[Scalar, ...]
    spot: CellPart

    @property
    def places(self) -> tuple[TargetSlot, ...]:
        """The places whose attributes are compared."""
        uses = (self.left, self.right) if isinstance(self.right, TermUse) else (self.left,)
        return tuple(use.place for use in uses if use.place is not None)


Condition: TypeAlias = (
    HoldsPrivilege | Related | IsSelf | IsServiceAdmin | CanDo | Named | AllOf | AnyOf | Required | LeftOut | Compared
)


@dataclass(frozen=True, slots=True)
class ResolvedEffect:
    """The effect of a successful operation with `what` on the place."""

    kind: EffectKind
    what: str
    use: PrivilegeUse | None
    """None for all but privileges and sets."""
    slot: str
    type: str
    of_role: bool = False
    """True if the first active role of the request becomes the owner, in the place of the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The row for one (entity type, operation), whatever its origin."""

    entity: str
    operation: str
    origin: Origin
    decl: RowDecl
    gate: Condition | None
    alternative: Condition | None
    """`or` of the gate, which suffices whatever the row requires."""
    requires: Condition | None
    each: Condition | None
    withs: tuple[WithSlot, ...]
    outcomes: tuple[ResolvedEffect, ...]
    delegations: tuple[ResolvedEffect, ...]
    creates: Creation | None
    requires_text: str | None
    each_text: str | None
    report: str | None
    source: Source | None
    ambiguous: Ambiguous | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A row filter or a column mask; its row says for whom it is."""

    kind: FilterKind
    entity: str
    name: str
    parts: tuple[str | Placeholder | TermUse, ...]
    """Of its text; placeholders that are attributes are resolved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A whole resolved file; mappings keep its order."""

    tables: Tables
    system: str
    version: str
    title: str | None
    sources: Mapping[str, str]
    entities: Mapping[str, EntityType]
    hierarchy: Hierarchy
    privileges: Mapping[str, Privilege]
    aliases: Mapping[str, Alias]
    sets: Mapping[str, tuple[str, ...]]
    roles: Mapping[str, Role]
    semantics: Semantics
    rows: Mapping[PairKey, Row]
    variant: str | None = None
    """The variant that was applied."""
    variants: tuple[str, ...] = ()
    """Names of all variants of the file."""
    readings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names of the other readings of each ambiguous row, by `entity/operation`."""
    chosen: Mapping[str, str] = field(default_factory=dict)
    """The readings that were applied."""
    declared: Mapping[str, Located[str]] = field(default_factory=dict)
    """The declaration of each privilege, alias and set."""
    conflicts: tuple[Conflict, ...] = ()
    attributes: Attributes = NO_ATTRIBUTES
    filters: tuple[Filter, ...] = ()


Term: TypeAlias = HoldsPrivilege | Related | IsSelf | IsServiceAdmin | CanDo | Named | Compared


def walk(condition: Condition, *, named: bool = False) -> Sequence[Condition]:
    """The condition and every condition inside it, outer before inner, from left to right.

    `named`: also inside named conditions, where the places are those of the entity that the name is about.
    """
    found = [condition]
    parts: Sequence[Condition] = ()
    if isinstance(condition, AllOf | AnyOf):
        parts = condition.parts
    elif isinstance(condition, Required):
        parts = (condition.body,)
    elif named and isinstance(condition, Named):
        parts = [body for _, body in condition.bodies]
    for part in parts:
        found += walk(part, named=named)
    return found


def terms(condition: Condition | None) -> Sequence[Term]:
    """Every term of a condition and of the named conditions in it, from left to right."""
    nodes = () if condition is None else walk(condition, named=True)
    return [node for node in nodes if isinstance(node, Simple)]


def alternatives(condition: Condition | None) -> Iterator[AnyOf]:
    """Every `or` of a condition, outer before inner; an `or` directly inside another is merged with it."""
    match condition:
        case AnyOf():
            parts = tuple(flat(condition, AnyOf))
            yield AnyOf(parts=parts)
            for part in parts:
                yield from alternatives(part)
        case AllOf(parts=parts):
            for part in parts:
                yield from alternatives(part)
        case Required(body=body):
            yield from alternatives(body)
        case _:
            return


def flat(condition: Condition, kind: type[AnyOf | AllOf]) -> Iterator[Condition]:
    """The parts of an `or` or of an `and`, with parts of the same kind directly inside it flattened."""
    if isinstance(condition, kind):
        for part in condition.parts:
            yield from flat(part, kind)
    else:
        yield condition


def flags(condition: Condition) -> Iterator[Required]:
    """Every `when` of a condition and of the named conditions in it."""
    return (node for node in walk(condition, named=True) if isinstance(node, Required))


def flags_read(rows: Mapping[PairKey, Row], pair: PairKey) -> frozenset[str] | None:
    """The flags that a row reads: in its gate, its own conditions, and the rows that it reaches through `can`.

    None if one of these rows is invalid.
    """
    found: set[str] = set()
    visited, waiting = {pair}, [pair]
    while waiting:
        row = rows.get(waiting.pop())
        if row is None:
            return None
        for condition in all_conditions(row):
            found |= {when.flag for when in flags(condition)}
            for term in terms(condition):
                if isinstance(term, CanDo):
                    reached = {(type_, term.operation) for place in term.places for type_ in place.types}
                    waiting += sorted(reached - visited)
                    visited |= reached
    return frozenset(found)


def conditions(row: Row) -> Iterator[Condition]:
    """The row's own conditions: `requires` and `each`."""
    return (condition for condition in (row.requires, row.each) if condition is not None)


def all_conditions(row: Row) -> Iterator[Condition]:
    """The conditions of a row, with the gate first."""
    return (part for part in (row.gate, row.alternative, row.requires, row.each) if part is not None)


def row_terms(row: Row) -> Iterator[Term]:
    """Every term of `requires` and `each`."""
    return (term for condition in conditions(row) for term in terms(condition))


def first_spot(condition: Condition) -> CellPart | None:
    """The position of a condition's first term, or None."""
    for term in terms(condition):
        match term:
            case HoldsPrivilege(uses=uses):
                return uses[0].spot
            case Related(places=places):
                return places[0].spot
            case _:
                return term.spot
    return next((flag.spot for flag in flags(condition)), None)
