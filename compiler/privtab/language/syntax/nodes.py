"""The content of a file as written: sections, rows and cells, every value with its position. No name is resolved here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Literal

from privtab.base.attributes import Attribute, AttributeKind
from privtab.base.diagnostics import Located, Span
from privtab.base.effects import EffectKind
from privtab.base.names import PRINCIPAL_KINDS, PrincipalKind
from privtab.base.nodes import dataclass
from privtab.base.source import SourceFile
from privtab.language.syntax.expression import Effects, Expression, Name, names_in
from privtab.language.syntax.yaml_tree import ScalarNode

Word = Located[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The scalar of a cell; the positions of its parts are computed on demand."""

    node: ScalarNode
    source: SourceFile

    @property
    def text(self) -> str:
        """The text, unquoted."""
        return self.node.text

    @property
    def line(self) -> str:
        """The text on one line, with single blanks."""
        return " ".join(self.text.split())

    @property
    def span(self) -> Span:
        """The span of the whole cell."""
        return self.source.span(self.node.start, self.node.end)

    def at(self, name: Name) -> Span:
        """The span of a name in the cell."""
        return self.part(name.start, name.end)

    def part(self, start: int, end: int) -> Span:
        """The span of `text[start:end]`."""
        return self.node.part(self.source, start, end)

    def names(self, tree: Expression | Effects | None) -> Iterator[tuple[str, Word, tuple[str, ...]]]:
        """Every name in the cell's tree: its kind, the name, and of an operation the targets."""
        for kind, name, targets in names_in(tree or ()):
            yield kind, Located(name.text, self.at(name)), tuple(target.text for target in targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionCell:
    """A condition and the cell it was read from; no expression if the cell does not parse."""

    cell: Cell
    expression: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectCell:
    """One entry of `grants`, `becomes`, `revokes`, `delegates` or `withdraws`; one that does not parse is left out."""

    kind: EffectKind
    cell: Cell
    terms: Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class WithDecl:
    """A further object of a request and its types; None means `any`."""

    name: Word
    types: tuple[Word, ...] | None
    types_span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRef:
    """`15` or `name:15`."""

    name: str | None
    line: int | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBody:
    """The conditions and effects of a row; None for conditions and effects that it does not have."""

    requires: ConditionCell | None = None
    each: ConditionCell | None = None
    report: Word | None = None
    grants: tuple[EffectCell, ...] | None = None
    becomes: tuple[EffectCell, ...] | None = None
    revokes: tuple[EffectCell, ...] | None = None
    delegates: tuple[EffectCell, ...] | None = None
    withdraws: tuple[EffectCell, ...] | None = None
    plain: bool = False
    """True if the row has the short form, a single condition."""

    @property
    def conditions(self) -> tuple[ConditionCell, ...]:
        """The cells of its conditions."""
        return tuple(cell for cell in (self.requires, self.each) if cell is not None)

    @property
    def effects(self) -> tuple[EffectCell, ...]:
        """All effect cells, in the order grants, becomes, revokes, delegates, withdraws."""
        keys = (self.grants, self.becomes, self.revokes, self.delegates, self.withdraws)
        return tuple(cell for cells in keys for cell in cells or ())

    @property
    def names(self) -> Iterator[tuple[str, Word, tuple[str, ...]]]:
        """Every name in its conditions and effects, as `Cell.names` returns them."""
        for condition in self.conditions:
            yield from condition.cell.names(condition.expression)
        for effect in self.effects:
            yield from effect.cell.names(effect.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Another way to read an ambiguous row."""

    name: Word
    text: str
    body: RowBody


@dataclass(frozen=True, slots=True, kw_only=True)
class AmbiguousDecl:
    """The cell of the document, its readings, and why the row uses the reading that it has."""

    cell: str | None
    readings: tuple[Reading, ...]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagDecl:
    """A flag of the row, and whether every request must state it."""

    name: Word
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDecl:
    """One row for one operation: in `load: READ (table)`, the operation is `load`."""

    operation: Word
    body: RowBody
    span: Span
    title: str | None = None
    withs: tuple[WithDecl, ...] = ()
    flags: tuple[FlagDecl, ...] = ()
    ungated: bool = False
    creates: Located[bool] | None = None
    destructive: bool = False
    sensitive: bool = False
    note: str | None = None
    source: tuple[SourceRef, ...] = ()
    ambiguous: AmbiguousDecl | None = None
    deprecated: str | None = None
    renamed_from: str | None = None
    for_types: tuple[Word, ...] | None = None
    sql: Cell | None = None
    """Of a row filter or a column mask: its text."""
    poisoned: bool = False
    """True if the row already has a finding: later stages know that it exists and do not report it again."""

    @property
    def readings(self) -> tuple[Reading, ...]:
        """The other ways to read it, if it is ambiguous."""
        return () if self.ambiguous is None else self.ambiguous.readings

    @property
    def bodies(self) -> tuple[RowBody, ...]:
        """Its own body, and the bodies of its readings."""
        return (self.body, *(reading.body for reading in self.readings))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDecl:
    """The rows of one entity type."""

    entity: Word
    rows: tuple[RowDecl, ...]
    readable: bool = True
    """False if the rows themselves could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityDecl:
    """An entity type and the one that contains it."""

    name: Word
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDecl:
    """The entry of `types` for an entity type."""

    name: Word
    single: bool = False
    nested: Located[int] | None = None
    """The most levels."""
    flat: Located[bool] | None = None
    title: str | None = None
    principal: Literal["user", "group", "role", "none"] | None = None
    renamed_from: str | None = None
    filters: tuple[RowDecl, ...] = ()
    """Its row filters and column masks, as rows of operations that no file can name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivilegeDecl:
    """A privilege, or with `alias_of` another name of one."""

    name: Word
    on: tuple[Word, ...] | None = None
    alias_of: Word | None = None
    implies: tuple[Word, ...] = ()
    inheritance: Literal["none", "down"] | None = None
    deprecated: str | None = None
    renamed_from: str | None = None
    title: str | None = None
    poisoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDecl:
    """A named set of privileges."""

    name: Word
    members: tuple[Word, ...]
    poisoned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionDecl:
    """A condition with a name."""

    name: Word
    condition: ConditionCell


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerDecl:
    """`semantics.owner`."""

    kinds: tuple[Word, ...] | None = None
    creator: Located[bool | Literal["active_role"]] | None = None
    holds: tuple[Word, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SemanticsDecl:
    """`semantics`."""

    inheritance: Literal["none", "down"] = "none"
    transitive: bool = False
    deny: Literal["none", "overrides"] = "none"
    owner: OwnerDecl | None = None
    subjects: tuple[str, ...] = ("user",)
    grantees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    assignees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    groups: tuple[Literal["state", "request"], ...] = ("state",)
    hierarchy: tuple[Literal["groups", "roles"], ...] = ()
    active_roles: Literal["none", "request", "request_grants"] = "none"
    everyone: Word | None = None
    gate: ConditionCell | None = None
    alternative: ConditionCell | None = None
    """`or` of the gate: whoever meets it needs nothing else."""
    owner_known: bool = True
    """False if `owner` itself has a finding, so that later stages do not report owners again."""

    @property
    def gates(self) -> tuple[ConditionCell, ...]:
        """The cells of the gate: `and`, `or`."""
        return tuple(cell for cell in (self.gate, self.alternative) if cell is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDecl:
    """A role with default grants."""

    name: Word
    scopes: tuple[Word, ...]
    """The types of entities that it is assigned for; empty: it is held everywhere."""
    grants: tuple[tuple[Word, tuple[Word, ...]], ...]
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictDecl:
    """Operations, as `TYPE/OPERATION`, of which one role may have at most `at_most`."""

    operations: tuple[Word, ...]
    at_most: int
    span: Span
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeDecl:
    """An attribute of users, entities or requests, with its type."""

    kind: AttributeKind
    name: Word
    type: Attribute
    on: tuple[Word, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantDecl:
    """Rows and roles below `variants`, such as `strict:`, that replace rows and roles of the same name."""

    name: Word
    title: str | None = None
    tables: tuple[TableDecl, ...] = ()
    core: tuple[RowDecl, ...] = ()
    any: tuple[RowDecl, ...] = ()
    roles: tuple[RoleDecl, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """A whole file: `read_policy(SourceFile.load(path))[0].system.value` is the name of its system."""

    source: SourceFile
    system: Word
    version: Word
    title: str | None
    sources: tuple[tuple[Word, Word], ...]
    entities: tuple[EntityDecl, ...]
    types: tuple[TypeDecl, ...]
    privileges: tuple[PrivilegeDecl, ...]
    sets: tuple[SetDecl, ...]
    conditions: tuple[ConditionDecl, ...]
    semantics: SemanticsDecl
    core: tuple[RowDecl, ...]
    tables: tuple[TableDecl, ...]
    any: tuple[RowDecl, ...]
    roles: tuple[RoleDecl, ...]
    variants: tuple[VariantDecl, ...]
    conflicts: tuple[ConflictDecl, ...] = ()
    attributes: tuple[AttributeDecl, ...] = ()
    dialect: str | None = None
    unreadable: frozenset[str] = frozenset()
    """Top-level sections that could not be read: names that they could declare are not reported as unknown."""
    lost: frozenset[str] = frozenset()
    """Names whose declaration has a finding: their use is not reported again."""
    any_privilege: bool = False
    """True if a condition may ask for `any privilege`."""
    named_privilege: bool = False
    """True if a condition may ask for the privilege that the request names."""
    broken: bool = False
    """True if reading made any finding that prevents a policy."""

    @property
    def all_rows(self) -> Iterator[RowDecl]:
        """Every row, rows of variants last."""
        return chain(rows_of(self), *map(rows_of, self.variants))

    @property
    def rows_with_types(self) -> Iterator[tuple[RowDecl, tuple[Word, ...] | None]]:
        """Every row with the types that it is for; None for all types."""
        yield from ((row, row.for_types) for row in chain(self.core, self.any))
        yield from ((row, row.for_types) for variant in self.variants for row in chain(variant.core, variant.any))
        yield from ((row, (table.entity,)) for table in self.all_tables for row in table.rows)

    @property
    def all_tables(self) -> Iterator[TableDecl]:
        """Every table, tables of variants last."""
        return chain(self.tables, *(variant.tables for variant in self.variants))

    @property
    def all_roles(self) -> Iterator[RoleDecl]:
        """Every role, roles of variants last."""
        return chain(self.roles, *(variant.roles for variant in self.variants))


def rows_of(layer: Tables | VariantDecl) -> Iterator[RowDecl]:
    """The rows of a file without its variants, or of a variant."""
    return chain(layer.core, layer.any, *(table.rows for table in layer.tables))
