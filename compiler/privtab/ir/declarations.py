"""Declarations of a policy besides rules: the semantics of grants, types, privileges and their other names, roles, objects of requests, effects, and conflicts of duties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from privtab.base.caching import once
from privtab.base.diagnostics import Span
from privtab.base.effects import BY_ACTIVE_ROLE, EffectKind
from privtab.base.names import LEFT_OUT, NO_OBJECT, PRINCIPAL_KINDS, PrincipalKind
from privtab.base.nodes import dataclass
from privtab.base.sql_text import FilterKind, FilterWord, operation_of
from privtab.ir.atoms import Target, Term

Creator: TypeAlias = bool | Literal["active_role"]
Inheritance: TypeAlias = Literal["none", "down"]
DenyMode: TypeAlias = Literal["none", "overrides"]
GroupSource: TypeAlias = Literal["state", "request"]
HierarchyKind: TypeAlias = Literal["groups", "roles"]
RoleNarrowing: TypeAlias = Literal["none", "request"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSemantics:
    """The meaning of ownership: which kinds of principals may own, whether creators do, and the privileges that owners have."""

    kinds: tuple[PrincipalKind, ...] = ("user",)
    creator: Creator = False
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """The file-wide semantics of grants."""

    inheritance: Inheritance = "none"
    deny: DenyMode = "none"
    owner: OwnerSemantics | None = None
    subjects: tuple[str, ...] = ("user",)
    """The types of subjects in requests. All are users, and one name is one user."""
    grantees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    """The kinds of principals that grants may be to."""
    assignees: tuple[PrincipalKind, ...] = PRINCIPAL_KINDS
    """The kinds of principals that roles may be assigned to; to roles only with a hierarchy of them."""
    groups: tuple[GroupSource, ...] = ("state",)
    everyone: str | None = None
    """The name of the group that every user belongs to, whatever rows and requests say."""
    hierarchy: tuple[HierarchyKind, ...] = ()
    """The kinds of principals that contain others of their kind: groups in groups, roles held by roles."""
    active_roles: RoleNarrowing = "none"
    """Whether a request may name the roles of the caller that count."""
    inactive_owners: bool = False
    """Whether ownership through a role that does not count is ownership all the same."""
    gate: str | None = None

    @property
    def everyones(self) -> frozenset[str]:
        """The groups of every user: that of `everyone`, if there is one."""
        return frozenset(() if self.everyone is None else (self.everyone,))

    @property
    def everybody(self) -> str | None:
        """The principal that every user is: `group:…`."""
        return self.everyone and f"group:{self.everyone}"

    def inherits(self, own: Inheritance | None) -> bool:
        """As `Program.inherits`; `own`: what the privilege has of its own."""
        return (own or self.inheritance) == "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityType:
    """A type of entity and its place in the containment forest.

    >>> EntityType(name="table", parent="schema").nested
    0
    """

    name: str
    parent: str | None
    single: bool = False
    title: str | None = None
    renamed_from: str | None = None
    principal: PrincipalKind | None = None
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
    """Another name of a privilege.

    >>> Alias(name="SELECT", of="READ").of
    'READ'
    """

    name: str
    of: str
    deprecated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role with default grants, per entity type, within the scope of its assignment.

    >>> Role(name="reader", scopes=("schema",), grants=(("table", ("READ",)),)).scope
    'schema'
    """

    name: str
    scopes: tuple[str, ...]
    """The types of entities within which it is assigned; empty: it is held everywhere."""
    grants: tuple[tuple[str, tuple[str, ...]], ...]
    """(entity type, privileges), both in the file's order."""
    title: str | None = None

    @property
    def scope(self) -> str | list[str] | None:
        """The scopes as JSON has them: a type, a list of types, or None."""
        return list(self.scopes) if len(self.scopes) > 1 else next(iter(self.scopes), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A place in a source document."""

    document: str
    line: int | None = None

    @property
    def text(self) -> str:
        """`document:line`, or the document alone."""
        return self.document if self.line is None else f"{self.document}:{self.line}"


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
        """True if the type is known only from the request."""
        return len(self.types) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """An ambiguous cell: its text, the other readings by name, and why the reading in use was chosen."""

    cell: str | None
    readings: tuple[tuple[str, str], ...]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Operations of which one role may have at most `at_most`.

    Example:
        pay = Conflict(operations=(("bill", "enter"), ("bill", "pay")), at_most=1, span=span)
    """

    operations: tuple[tuple[str, str], ...]
    """(entity type, operation)"""
    at_most: int
    span: Span
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a successful operation: `grant`, `become`, `revoke`, `delegate` or `withdraw` something on the target.

    >>> Effect(kind="become", what="owner", privileges=(), target=Target(slot="", type="table")).text
    'become owner'
    """

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
class SqlFilter:
    """A row filter or a column mask of a type: the rule of its operation says for whom it is.

    >>> SqlFilter(kind="row_filter", entity="table", name="own", parts=("owner = 1",)).operation
    'row_filter.own'
    """

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
def grantable(privileges: Mapping[str, Privilege]) -> Mapping[str, Privilege]:
    """`Program.grantable`."""
    return {name: privilege for name, privilege in privileges.items() if privilege.granted}


def _upwards(entities: Mapping[str, EntityType], name: str) -> Iterator[str]:
    current: str | None = name
    while current is not None:
        yield current
        current = entities[current].parent
