"""Rights: atoms about entities, which rows give a caller. By which rights one holds, and the row that gives one.

Generated callers and the changes that turn a denial follow from it: nothing else says which rows to make so that an atom holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Literal, TypeAlias, assert_never

from privtab import ir
from privtab.base import Entity
from privtab.ir import Leaf, atom_words, privilege_names, with_targets
from privtab.state import Assignment, Grant

Right: TypeAlias = ir.Atom
"""An atom about entities: the slot of each target is the key of an entity, `type:path`."""
ONESELF = ir.Self(target=ir.Target(slot="", type=""))
"""To be the resource, whatever its name is."""


def target_of(key: str) -> ir.Target:
    """The target that stands for an entity, by its key."""
    return ir.Target(slot=key, type=key.partition(":")[0])


def about(leaf: Leaf, key: Callable[[ir.Target], str | None]) -> Right | None:
    """An atom about the entities with these keys; None if one of them has none."""
    assert not isinstance(leaf, ir.ByType), "the types of all objects are given"
    keys = {target: key(target) for target in leaf.targets}
    known = {target: target_of(found) for target, found in keys.items() if found is not None}
    return with_targets(leaf, known.__getitem__) if len(known) == len(keys) else None


def key_of(right: Right) -> str:
    """The key of the entity on which a right is held; empty if it is held on none."""
    return right.target.slot if isinstance(right, ir.OnTarget) and right.kind.keyed else ""


def with_key(right: Right, key: str) -> Right:
    """A right on another entity."""
    return with_targets(right, lambda _: target_of(key))


def right_text(right: Right) -> str:
    """A right in words: `READ (a:x)`."""
    if type(right) is ir.Has:
        return _privilege_text(right.privilege, right.target.slot)
    return atom_words(right, lambda target: target.slot)


@lru_cache(maxsize=100_000)
def _privilege_text(privilege: str, key: str) -> str:
    """The text of a privilege on an entity: callers of thousands of cases have the same."""
    return atom_words(privilege_on(privilege, key), lambda target: target.slot)


@lru_cache(maxsize=100_000)
def privilege_on(privilege: str, key: str) -> ir.Has:
    """A privilege on an entity: one object, since comparing sets of the same objects is quick."""
    return ir.Has(privilege=privilege, target=target_of(key))


def row_giving(
    right: Right, entity: Entity | None, *, user: str, to: Mapping[str, str], effect: Literal["allow", "deny"] = "allow"
) -> tuple[str, object] | None:
    """The table and the row that give a user a right; None if no row does.

    `entity`: that of the right. `to`: by table, the principal to which privileges, entities and roles of the user belong. `effect`: that of
    the grants, which deny the right instead.
    """
    table = right.kind.table
    match right:
        case ir.Has(privilege=privilege):
            assert entity is not None
            return table, Grant(grantee=to[table], effect=effect, privilege=privilege, entity=entity)
        case ir.Owner():
            return table, (entity, to[table])
        case ir.Member():
            return table, (user, entity)
        case ir.Holds():
            assert entity is not None
            return table, Assignment(principal=to[table], role=entity.names[-1])
        case ir.ServiceAdmin():
            return table, user
        case ir.Self() | ir.HasBelow() | ir.OwnsBelow() | ir.Compare():
            return None
        case _:
            assert_never(right)


def by_ownership(program: ir.Program, right: Right) -> tuple[ir.Owner, ...]:
    """The ownership of its entity, if that gives a right."""
    if not isinstance(right, ir.Has) or right.privilege not in program.owner_privileges:
        return ()
    return (ir.Owner(target=right.target),)


class Giving:
    """The rights that give one right: a firm right, or a grant unless there is one of the denials."""

    def __init__(self, *, firm: Iterable[Right], grants: Iterable[Right] = (), denials: Iterable[Right] = ()) -> None:
        self.firm = frozenset(firm)
        self.grants = frozenset(grants)
        self.alone = self.firm | self.grants
        """Each of them, without denials, gives the right."""
        self._denials = frozenset(denials)

    def hold(self, rights: frozenset[Right], denied: frozenset[ir.Has]) -> bool:
        """Return whether some rights and denials give the right."""
        if not self.firm.isdisjoint(rights):
            return True
        return not self.grants.isdisjoint(rights) and self._denials.isdisjoint(denied)


class Rights:
    """The relation of rights that give others, under the semantics of a program; denials take grants away."""

    def __init__(self, program: ir.Program, keys: Callable[[Entity], Iterable[str]]) -> None:
        """`keys`: the keys on the path of an entity."""
        self.program = program
        self.keys = keys
        self.names = privilege_names(program)
        self.owner_privileges = program.owner_privileges
        self._paths: dict[str, tuple[str, ...]] = {}
        self._known: dict[Right, Giving] = {}

    def giving(self, right: Right) -> Giving:
        """The rights that give a right."""
        if right not in self._known:
            self._known[right] = self._giving(right) if isinstance(right, ir.Has) else Giving(firm={right})
        return self._known[right]

    def _giving(self, right: ir.Has) -> Giving:
        places = [(key, target_of(key)) for key in self.grant_keys(right.privilege, right.target.slot)]
        return Giving(
            firm={ir.Owner(target=target) for _, target in places if right.privilege in self.owner_privileges},
            grants={
                right,
                *(
                    privilege_on(name, key)
                    for key, target in places
                    for name in self.names.giving(right.privilege, target.type, "allow")
                ),
            },
            denials={privilege_on(right.privilege, key) for key, _ in places},
        )

    def grant_keys(self, privilege: str, key: str) -> tuple[str, ...]:
        """The keys on which a grant of a privilege counts for an entity."""
        if key not in self._paths:
            self._paths[key] = tuple(self.keys(Entity.parse(key)))
        return self._paths[key] if self.program.inherits(privilege) else self._paths[key][-1:]

    def granting(self, right: Right) -> list[ir.Has]:
        """The grants, or denials, that count for a privilege on an entity: on it, and on each from which it is inherited."""
        if not isinstance(right, ir.Has):
            return []
        keys = self.grant_keys(right.privilege, right.target.slot)
        return [replace(right, target=target_of(key)) for key in keys if self.is_grantable(right.privilege, key)]

    def is_grantable(self, privilege: str, key: str) -> bool:
        """Return whether rows can grant or deny a privilege on an entity."""
        return key.partition(":")[0] in self.program.privileges[privilege].on

    def on_itself(self, right: Right) -> list[Right]:
        """The rights that give a right on its own entity: itself, by each privilege that grants can name for it, or ownership."""
        if not isinstance(right, ir.Has):
            return [right]
        granted = (replace(right, privilege=name) for name in self.program.granted_as(right.privilege))
        return [*granted, *by_ownership(self.program, right)]
