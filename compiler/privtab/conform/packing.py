"""Packs callers into one world: callers who hold the same share one user; owned entities are not shared."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from privtab.conform.nodes import World
from privtab.ir.formula import item_condition, leaves
from privtab.ir.nodes import Holds, Member, Owner, OwnsBelow, Program, Rule, ServiceAdmin, Term
from privtab.ir.serialise import vocabulary
from privtab.paths import base_type, level_of
from privtab.request import Entity, Request
from privtab.scenarios.compared import Values
from privtab.scenarios.expand import GeneratedCallers, entity_values, given_values
from privtab.scenarios.needs import Caller
from privtab.scenarios.ways import HeldAtom, HeldSet

_SLOT = re.compile(r"\d*$")
"""What ends the names of an object in `with`, as RequestNames writes them."""


_ASKED_OF_TYPES: Mapping[str, type[Member | Holds | Owner]] = {"member": Member, "holds": Holds, "owner": Owner}
"""What a caller is to entities of some types, by the kind of atom."""


@dataclass(frozen=True, slots=True)
class _ExistingCaller:
    """A caller who is there already."""

    number: int
    user: str
    groups: tuple[str, ...]


class Packing:
    """The names and the rows of a world, as callers are added."""

    def __init__(self, program: Program, rules: Iterable[Rule], prefix: str, mark: str = "") -> None:
        """`rules`: the rows that are asked about. `mark`: follows the prefix in the names of principals."""
        self.program = program
        self.prefix = prefix
        self._vocabulary = vocabulary(program)
        self._generated = GeneratedCallers(program, prefix + mark)
        self._known: dict[Hashable, _ExistingCaller] = {}
        self._entities: dict[str, Entity] = {}
        self._principals: dict[str, None] = {}
        """The entities that are principals themselves, as in `role:reader`."""
        owner = program.semantics.owner
        self._owners_hold = owner is not None and bool(owner.holds)
        required = {leaf for rule in rules for leaf in leaves(program, item_condition(rule))}
        self._has_admins = any(isinstance(leaf, ServiceAdmin) for leaf in required)
        self._asked = {
            (kind, leaf.target.type)
            for leaf in required
            for kind, atom in _ASKED_OF_TYPES.items()
            if isinstance(leaf, atom)
        }
        owned_below = {leaf.target.type for leaf in required if isinstance(leaf, OwnsBelow)}
        self._asked |= {("owner", type_) for type_ in program.entities if owned_below & set(program.chain(type_))}

    def request(self, caller: Caller, request: Request, rule: Rule, *, own: bool, through_roles: int) -> Request:
        """The request of a caller with its final names.

        `own`: no other request is about its resource. `through_roles`: as for GeneratedCallers.add_caller.
        """
        caller = replace(caller, held=frozenset(filter(self._matters, caller.held)))
        if rule.creates:
            caller = self._without_created(caller, request.resource)
        shared = not own and HeldAtom("self") not in caller.held
        # No other caller shares an entity of which the state has values.
        in_state = {t for t, v in entity_values(self.program, caller.values, request).items() if v is not None}
        key = caller.held, caller.denied, through_roles, _frozen(caller.values), frozenset(in_state)
        known = self._known.get(key) if shared else None
        number = self._generated.number + 1 if known is None else known.number
        numbered = {_path(atom.on) for atom in caller.held if atom.kind == "owner"}
        numbered |= {_path(term.target.slot) for term in in_state if term.target is not None}
        if own:
            numbered.add(request.resource.id)
        names = _FinalNames(self.program, self.prefix, number, numbered)
        renamed = replace(
            request,
            resource=names.entity(request.resource),
            with_={slot: names.entity(entity) for slot, entity in request.with_.items()},
        )
        named = names.caller(caller)
        if known is None:
            packed = self._generated.add_caller(named, renamed, through_roles=through_roles)
            self._must_exist_beside(named, renamed)
            if shared:
                self._known[key] = _ExistingCaller(number, packed.user, packed.groups)
        else:
            attributes = given_values(self.program, named.values, renamed)
            packed = replace(renamed, user=known.user, groups=known.groups, attributes=attributes)
        self._must_exist(packed, rule)
        return packed

    def _matters(self, atom: HeldAtom) -> bool:
        """Whether some row requires it: no caller becomes a member or the owner of an entity without members or owners."""
        if atom.kind == "admin":
            return self._has_admins
        if atom.kind not in _ASKED_OF_TYPES or (atom.kind == "owner" and self._owners_hold):
            return True
        return (atom.kind, atom.on.partition(":")[0]) in self._asked

    def _without_created(self, caller: Caller, resource: Entity) -> Caller:
        """The caller without what they hold on an entity that does not exist yet."""
        if not self._vocabulary.complete(resource):
            return caller

        def existing(atoms: HeldSet) -> HeldSet:
            return frozenset(atom for atom in atoms if not f"{_path(atom.on)}/".startswith(f"{resource.id}/"))

        return replace(caller, held=existing(caller.held), denied=existing(caller.denied))

    def _must_exist(self, request: Request, rule: Rule) -> None:
        """The entities of a request, and those above; what is created does not exist yet."""
        for entity in (*request.with_.values(), request.resource):
            created = str(entity) if rule.creates and entity is request.resource else None
            self._exist(key for key in self._vocabulary.keys(entity) if key != created)

    def _must_exist_beside(self, caller: Caller, request: Request) -> None:
        """The entities on which a caller holds something that no object of the request is, or lies in."""
        objects = (request.resource, *request.with_.values())
        known = {_path(key) for entity in objects for key in self._vocabulary.keys(entity)}
        for key in sorted({atom.on for atom in caller.held | caller.denied if atom.on and _path(atom.on) not in known}):
            self._exist(self._vocabulary.keys(Entity.parse(key)))

    def _exist(self, keys: Iterable[str]) -> None:
        for key in keys:
            entity = Entity.parse(key)
            kind = self.program.entities[entity.type].principal
            if kind is not None and len(entity.names) == 1:
                self._principals[f"{kind}:{entity.id}"] = None
            else:
                self._entities.setdefault(key, entity)

    def world(self, requests: Iterable[Request]) -> World:
        """The world of all callers that were added."""
        state = self._generated.state()
        principals = [
            *(f"user:{request.user}" for request in requests),
            *(f"group:{group}" for _, group in state.memberships),
            *(name for row in state.assignments for name in (row.principal, f"role:{row.role}")),
            *(owner for _, owner in state.owners),
            *self._principals,
        ]

        def named(kind: str) -> tuple[str, ...]:
            names = (name.removeprefix(f"{kind}:") for name in principals if name.startswith(f"{kind}:"))
            return tuple(dict.fromkeys(names))

        return World(
            state=state,
            entities=tuple(self._entities.values()),
            users=named("user"),
            groups=named("group"),
            roles=named("role"),
        )


class _FinalNames:
    """The final names for one caller: the prefix and the type, with a number if the entity is not shared."""

    def __init__(self, program: Program, prefix: str, number: int, numbered: set[str]) -> None:
        self._program = program
        self._prefix = prefix
        self._number = number
        self._numbered = numbered

    def entity(self, entity: Entity) -> Entity:
        """An entity of the request, or one above."""
        types = vocabulary(self._program).shapes[entity.type].types(entity.id)
        names: list[str] = []
        for depth, (type_, name) in enumerate(zip(types, entity.names, strict=True), 1):
            slot = _SLOT.search(name)
            level = (
                f"_level{level_of(type_)}"
                if level_of(type_) > 1 and self._program.entities[base_type(type_)].nested
                else ""
            )
            own = f"_{self._number}" if "/".join(entity.names[:depth]) in self._numbered else ""
            # A path that leaves off the last name where a type nests ends with an empty one.
            names.append(name and f"{self._prefix}{base_type(type_)}{slot[0] if slot else ''}{level}{own}")
        return Entity(entity.type, "/".join(names))

    def caller(self, caller: Caller) -> Caller:
        """A caller who holds the same on the entities with their final names."""
        values = {self._term(term): value for term, value in caller.values.items()}
        return replace(caller, held=self._atoms(caller.held), denied=self._atoms(caller.denied), values=values)

    def _term(self, term: Term) -> Term:
        if term.target is None:
            return term
        return replace(term, target=replace(term.target, slot=str(self.entity(Entity.parse(term.target.slot)))))

    def _atoms(self, atoms: HeldSet) -> HeldSet:
        return frozenset(
            replace(atom, on=str(self.entity(Entity.parse(atom.on)))) if atom.on else atom for atom in atoms
        )


def _frozen(values: Values) -> Hashable:
    """Values of attributes as a key."""
    return frozenset((term, tuple(value) if isinstance(value, list) else value) for term, value in values.items())


def _path(key: str) -> str:
    return key.partition(":")[2]
