"""Sets of rights that callers can hold, and the sets that suffice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, get_args

from privtab import ir
from privtab.base import Entity, encode_name, once
from privtab.ir import Leaf, on_entity, reached_atoms, vocabulary
from privtab_analysis.rights import (
    ONESELF,
    Giving,
    Right,
    Rights,
    about,
    by_ownership,
    key_of,
    privilege_on,
    right_text,
    target_of,
    with_key,
)

HeldSet: TypeAlias = frozenset[Right]
HeldSets: TypeAlias = tuple[HeldSet, ...]
ANYONE: HeldSets = (frozenset(),)
_ON_ENTITIES = [a for a in get_args(ir.Atom) if issubclass(a, ir.OnTarget) and a.kind.table and not a.kind.names]
"""The kinds of atoms that rows give on an entity, but for privileges."""
Denied: TypeAlias = frozenset[ir.Has]
"""Privileges that are denied on their entities."""
AttributeValues: TypeAlias = "Mapping[ir.Term, Any]"
"""The value of each attribute that a request is about; None where it is absent."""


def smallest(sets: Iterable[HeldSet]) -> HeldSets:
    """The sets that contain no other set, in the order given."""
    candidates = list(dict.fromkeys(sets))
    if len({len(rights) for rights in candidates}) < 2:
        return tuple(candidates)
    return tuple(rights for rights in candidates if not any(subset < rights for subset in candidates))


def in_order(rights: Iterable[Right]) -> list[Right]:
    """Rights in the order of their texts."""
    return sorted(rights, key=right_text)


def set_text(rights: HeldSet) -> str:
    """A set as text for messages: `READ (a:x), owner (a:y)`."""
    return ", ".join(map(right_text, in_order(rights)))


def compares(rights: Iterable[Right]) -> Iterator[ir.Compare]:
    """The comparisons among some rights."""
    return (right for right in rights if isinstance(right, ir.Compare))


class CallerSemantics(Rights):
    """The rights that give what a caller can hold, under the semantics of a program; denials take grants away."""

    def __init__(self, program: ir.Program, keys: Callable[[Entity], Iterable[str]]) -> None:
        """`keys`: the keys on the path of an entity."""
        super().__init__(program, keys)
        self.deny_overrides = program.semantics.deny == "overrides"
        self._known_ways: dict[HeldSet, tuple[Giving, ...]] = {}

    def suffices(self, way: HeldSet, rights: HeldSet, denied: Denied) -> bool:
        """Return whether a set holds, given some rights and some denials."""
        if way not in self._known_ways:
            self._known_ways[way] = tuple(map(self.giving, way))
        return all(giving.hold(rights, denied) for giving in self._known_ways[way])

    def holding(self, leaf: Leaf, key: Callable[[ir.Target], str]) -> list[Right]:
        """The rights that fulfil an atom about the entities with these keys, any of them; empty if a caller cannot be given the atom."""
        right = about(leaf, key)
        if isinstance(right, ir.Has | ir.HasBelow):
            names = self.program.granted_as(right.privilege)
            may_all = isinstance(right, ir.HasBelow) or len(names) == 1
            found = (replace(right, privilege=name) for name in names)
            return [one for one in found if may_all or self.is_grantable(one.privilege, one.target.slot)]
        if isinstance(leaf, ir.Self):
            return [ONESELF] if leaf.target.slot == ir.RESOURCE else []
        return [] if right is None else [right]

    def places(self, right: Right, everywhere: Iterable[str], privilege: str = "") -> list[Right]:
        """The rights that give a right that may be held below: the same right on its entity, and on each given entity below.

        `privilege`: the wanted privilege, if a grant of the right's name gives another one.
        """
        on = on_entity(right)
        keys = [key for key in everywhere if key_of(right) in self.keys(Entity.parse(key))]
        if not isinstance(on, ir.Has):
            return [with_key(on, key) for key in keys]
        granted = [key for key in keys if self.is_grantable(on.privilege, key)]
        # Owners have the privilege also where it cannot be granted.
        owned = (
            [key for key in keys if key not in granted] if (privilege or on.privilege) in self.owner_privileges else []
        )
        return [*(with_key(on, key) for key in granted), *(ir.Owner(target=target_of(key)) for key in owned)]

    def by_ownership(self, way: HeldSet) -> Iterator[HeldSet]:
        """The set with one of its privileges held through ownership, which denials do not affect."""
        for right in in_order(way):
            yield from (way - {right} | {owned} for owned in by_ownership(self.program, right))

    def deniable(self, way: HeldSet) -> list[str]:
        """The privileges of a set of which a denial further down may leave the set intact."""
        names = {right.privilege for right in way if isinstance(right, ir.Has)}
        return sorted(filter(self.program.inherits, names))

    def grantable_around(self, right: Right, everywhere: Iterable[str]) -> tuple[bool, bool]:
        """Return whether a privilege can be granted above its object or by another that implies it, and on some of the entities below it."""
        if not isinstance(right, ir.Has):
            return False, False
        own, name = right.target.slot, right.privilege
        others = (grant for grant in self.giving(right).grants if isinstance(grant, ir.Has) and grant != right)
        above = any(grant.privilege in self.program.grantable for grant in others)
        lower = [key for key in everywhere if key != own and self.is_grantable(name, key)]
        return above, any(own in self.grant_keys(name, key) for key in lower)

    def matters(self, asked: Iterable[Leaf]) -> Callable[[Right], bool]:
        """A test of rights that could matter to some rows: nobody need be a member or the owner of an entity without members or owners.

        `asked`: the atoms in the conditions of these rows.
        """
        held = [right for leaf in asked for right in self.holding(leaf, lambda target: target.type)]
        wanted = {(type(on_entity(right)), key_of(right)) for right in held}
        owned_below = {key_of(right) for right in held if isinstance(right, ir.OwnsBelow)}
        types = self.program.entities
        wanted |= {(ir.Owner, type_) for type_ in types if owned_below & set(self.program.chain(type_))}
        always = (ir.Has, ir.Self, ir.Compare, *((ir.Owner,) if self.owner_privileges else ()))
        return lambda right: isinstance(right, always) or (type(right), key_of(right).partition(":")[0]) in wanted

    def everything(self, everywhere: Iterable[str], resource: Entity) -> Iterator[Right]:
        """Everything that can be given on the request's objects and their ancestors."""
        for key in everywhere:
            target = target_of(key)
            for privilege in self.program.grantable_on(target.type):
                yield privilege_on(privilege, key)
            is_role = self.program.entities[target.type].principal == "role"
            possible = {"owners": self.program.semantics.owner is not None, "assignments": is_role}
            yield from (kind(target=target) for kind in _ON_ENTITIES if possible.get(kind.kind.table, True))
        yield from _on_nothing(self.program)
        if self.program.entities[resource.type].principal == "user" and vocabulary(self.program).complete(resource):
            yield ONESELF


@once
def _on_nothing(program: ir.Program) -> frozenset[Right]:
    """The rights that rows give a caller about no entity: service administration, and others that the conditions name."""
    asked = (atom for rule in program.rules.values() for atom in reached_atoms(program, rule.item_condition))
    return frozenset({ir.ServiceAdmin(), *(atom for atom in asked if atom.kind.table and not atom.targets)})


def at_or_below(program: ir.Program, key: str, suffix: str = "") -> Iterator[tuple[str, str]]:
    """An entity and one of each type below it, each with its container; the first has no container here.

    If its type nests, one of the same type is also below it, unless it has the most levels. `suffix` ends the names of entities below.
    """
    yield key, ""
    waiting = [key]
    while waiting:
        container = waiting.pop(0)
        outer, _, path = container.partition(":")
        for type_ in program.entities.values():
            nests = container == key and type_.name == outer and _may_nest(program, type_, path)
            if type_.parent != outer and not nests:
                continue
            name = f"{'inner_' if nests else ''}{type_.name}{suffix}"
            if type_.single:
                below = path
            elif type_.flat:
                below = encode_name(f"{name} in {container}")
            else:
                below = f"{path}/{name}" if path else name
            waiting.append(f"{type_.name}:{below}")
            yield waiting[-1], container


def _may_nest(program: ir.Program, type_: ir.EntityType, path: str) -> bool:
    """Return whether an entity with this path may contain one of its own type; with flat ids, its place does not tell its level here."""
    return type_.nested > 0 and (type_.flat or vocabulary(program).shapes[type_.name].levels(path) < type_.nested)
