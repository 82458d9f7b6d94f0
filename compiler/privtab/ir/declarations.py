"""What a policy declares besides rules: types, privileges and their other names, roles, objects of requests, effects, and conflicts of duties."""

from __future__ import annotations

from privtab.base.diagnostics import Span
from privtab.base.effects import BY_ACTIVE_ROLE, EffectKind
from privtab.base.names import LEFT_OUT, NO_OBJECT, PrincipalKind
from privtab.base.nodes import dataclass
from privtab.ir.atoms import Target
from privtab.ir.semantics import Inheritance


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityType:
    """A type of entity and its place in the containment forest."""

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
        """Whether the type is known only from the request."""
        return len(self.types) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous:
    """An ambiguous cell: its text, the other readings by name, and why the reading in use was chosen."""

    cell: str | None
    readings: tuple[tuple[str, str], ...]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Operations of which one role may have at most `at_most`."""

    operations: tuple[tuple[str, str], ...]
    """(entity type, operation)"""
    at_most: int
    span: Span
    why: str | None = None


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
