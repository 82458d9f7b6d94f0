"""Atoms, apart from the kinds of atoms, which are in `nodes`, each with its data. A list of kinds elsewhere would lack the next one."""

from __future__ import annotations

from typing import ClassVar, Literal

from privtab.base.attributes import AttributeKind
from privtab.base.nodes import dataclass
from privtab.base.paths import SEVERAL, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An entity of a request: the object in `slot`, or the entity of type `type` on its path.

    A `single` type attached to the path counts as lying on it, with the path of its parent.

    >>> Target(slot="", type="table").level
    'nearest'
    """

    slot: str
    type: str
    level: Level = "nearest"
    """Which entity, if the type nests. `parent`: the one around the nearest, or what contains the type if that is the outermost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtomKind:
    """The data of a kind of atom."""

    words: str
    """The text of an atom, with `{place}` for its target and `{NAME}` for its names; empty for a comparison, which `ir.names` words."""
    rank: int
    """Its place in minimal sets, which name memberships first."""
    table: str
    """The table of a state whose rows give the atom; empty if no row alone does."""
    reads: Literal["", "members", "groups", "holds", "service_admins"]
    """The part of a state besides grants and owners that decides it, as `UsedParts` calls it."""
    names: tuple[str, ...] = ()
    """The fields that are names, in the order of the JSON."""
    keyed: bool = True
    """Whether it is given on its target, by the key of the entity."""
    alone: bool = False
    """Whether no other atoms entail it."""


class Atomic:
    """An atom: something that holds for a caller or does not."""

    __slots__ = ()
    kind: ClassVar[AtomKind]

    @property
    def targets(self) -> tuple[Target, ...]:
        """The entities that it is about."""
        return (self.target,) if isinstance(self, OnTarget) else ()

    @property
    def names(self) -> dict[str, str]:
        """Its names, by their fields."""
        return {name: getattr(self, name) for name in self.kind.names}

    @property
    def several(self) -> Target | None:
        """The target that means several levels of a type that nests; None if each means one."""
        return next((target for target in self.targets if target.level in SEVERAL), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTarget(Atomic):
    """An atom about one entity.

    Example:
        held_on = atom.target.type if isinstance(atom, OnTarget) else None
    """

    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Below(OnTarget):
    """An atom about an entity and those below it.

    >>> from privtab.ir import OwnsBelow, Target
    >>> isinstance(OwnsBelow(target=Target(slot="", type="schema")), Below)
    True
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """An attribute of the caller, of the target, or of the request.

    >>> Term(kind="user", attribute="department").target is None
    True
    """

    kind: AttributeKind
    attribute: str
    target: Target | None = None
    """Of an entity's attribute: the entity."""
