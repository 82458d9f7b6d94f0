"""The operations that each role gives: the permissions of a user who holds the role alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from typing import NamedTuple, TypeAlias

from privtab.base import Decision, Entity, base_type
from privtab.ir import RESOURCE, Member, Program, Rule, asked_condition, atom_words, reached_atoms, vocabulary
from privtab.reference import Reference
from privtab.state import Assignment, Placement, State
from privtab_analysis.caller import Caller, asked_forms, listing
from privtab_analysis.entitlements.universe import names, universe
from privtab_analysis.permissions import what_can
from privtab_testing.scenarios.callers import at_or_below

ALLOWED, DENIED, UNDECIDED = "✓", "\u2013", "?"
"""The marks of cells: the role alone suffices, it gives nothing, and too many objects to try."""
HOLDER = "holder"
"""The name of the users who hold one role each, followed by a number."""
Key: TypeAlias = tuple[str, str]
"""An operation: (entity type, operation)."""


class Section(NamedTuple):
    """The operations on the entities of one type, by roles."""

    entity: str
    roles: Sequence[str]
    """The titles of the roles."""
    rows: Sequence[tuple[Rule, Sequence[str]]]
    """Each operation with its cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleMatrix:
    """Roles by operations."""

    title: str
    about: str
    """The meaning of the cells, in a sentence."""
    roles: tuple[str, ...]
    cells: Mapping[Key, tuple[str, ...]]
    """The meaning of each role for an operation, in the order of `roles`: a mark, what else it takes, or a number of entities."""

    def sections(self, program: Program) -> Iterator[Section]:
        """The matrix by entity types, each with the roles that can be held there or give something."""
        for entity in program.entities:
            rules = [rule for rule in program.rules.values() if rule.entity == entity]
            rows = [(rule, self.cells[rule.entity, rule.operation]) for rule in rules]
            columns = [
                at
                for at, role in enumerate(self.roles)
                if self._held_on(program, role, entity) or any(cells[at] != DENIED for _, cells in rows)
            ]
            titles = [_title(program, self.roles[at]) for at in columns]
            shown = [
                self.roles[at] if titles.count(title) > 1 else title for at, title in zip(columns, titles, strict=True)
            ]
            if rules and columns:
                yield Section(entity, shown, [(rule, [cells[at] for at in columns]) for rule, cells in rows])

    def _held_on(self, program: Program, role: str, entity: str) -> bool:
        declared = program.roles.get(role)
        return declared is not None and (
            not declared.scopes or not {*declared.scopes}.isdisjoint(program.chain(entity))
        )


def default_roles(program: Program) -> RoleMatrix | None:
    """The roles that a policy declares, each asked about with a made-up entity of every type; None if it declares none."""
    if not program.roles:
        return None
    named = list(_one_of_each(program))
    flat = ((entity, above) for entity, above in named if program.entities[entity.type].flat and above)
    placed = tuple(Placement(entity=entity, parent=Entity.parse(above)) for entity, above in flat)
    of_type = {entity.type: entity for entity, _ in named[::-1]}
    scopes: dict[str, list[Entity | None]] = {
        name: [*map(of_type.get, role.scopes)] or [None] for name, role in program.roles.items()
    }
    # A membership in each entity: what a state does not name is not asked about. The last user holds no role.
    entities, state = [entity for entity, _ in named], State(entities=placed)
    reference, held, (*holders, member) = _held(program, state, scopes | {"": []}, entities)
    bare = Caller(reference, member)
    without = {key: _lacking(bare, rule, of_type) for key, rule in program.rules.items()}
    columns = []
    for holder in holders:
        answer, caller = what_can(reference, held, holder), Caller(reference, holder)
        marks = {(rule.entity, rule.operation): UNDECIDED for rule in answer.undecided}
        marks |= {(may.resource.type, may.operation): ALLOWED for may in answer.allowed}
        columns.append(
            [marks.get(key) or _beside(caller, rule, of_type, without[key]) for key, rule in program.rules.items()]
        )
    return RoleMatrix(
        title="Roles",
        about=f"{ALLOWED}: a user who holds the role alone may do it, within its scope and as a member of what contains the entity. "
        f"with …: the role helps, and this is also needed. {DENIED}: the role does not help.",
        roles=tuple(scopes),
        cells=dict(zip(program.rules, zip(*columns, strict=True), strict=True)),
    )


def roles_of_state(program: Program, state: State) -> RoleMatrix | None:
    """The roles that rows of a state name, each with the number of entities on which it gives an operation; None without roles."""
    scopes: dict[str, list[Entity | None]] = {}
    for row in state.assignments:
        scopes.setdefault(row.role, []).append(row.scope)
    holders = [row.grantee for row in state.grants] + [owner for _, owner in state.owners]
    for holder in holders:
        if holder.startswith("role:"):
            scopes.setdefault(holder.removeprefix("role:"), [None])
    if not scopes:
        return None
    asked = (atom for rule in program.rules.values() for atom in reached_atoms(program, rule.item_condition))
    types = {atom.target.type for atom in asked if isinstance(atom, Member)}
    joined = [entity for entity in universe(program, state, types) if entity.type in types] if types else []
    within = {role: list(dict.fromkeys(scopes[role])) for role in sorted(scopes)}
    reference, held, users = _held(program, state, within, joined)
    counts: dict[Key, list[int]] = {key: [0] * len(within) for key in program.rules}
    for at, user in enumerate(users):
        for allowed in what_can(reference, held, user).allowed:
            counts[allowed.resource.type, allowed.operation][at] += 1
    return RoleMatrix(
        title="Roles of the state",
        about="On how many of the entities that the state names a user may do it who holds the role alone, as a member of what contains them.",
        roles=tuple(within),
        cells={key: tuple(str(number) if number else DENIED for number in numbers) for key, numbers in counts.items()},
    )


def _held(
    program: Program, state: State, scopes: Mapping[str, Sequence[Entity | None]], joined: Sequence[Entity]
) -> tuple[Reference, State, list[str]]:
    """A state with a user for each role, who holds it within its scopes and is a member of some entities."""
    known = names(program, state)
    free = (name for number in count() if (name := f"{HOLDER}{number}") not in known)
    holders = dict(zip(scopes, free, strict=False))
    pairs = ((role, scope) for role, within in scopes.items() for scope in within)
    rows = (Assignment(principal=f"user:{holders[role]}", role=role, scope=scope) for role, scope in pairs)
    members = product(holders.values(), joined)
    held = replace(state, assignments=(*state.assignments, *rows), members=(*state.members, *members))
    return Reference(program, held), held, list(holders.values())


def _beside(caller: Caller, rule: Rule, entities: Mapping[str, Entity], without: Sequence[frozenset[str]]) -> str:
    """The rights that a caller lacks for an operation where they lack less than a user `without` a role; else the mark of a denial."""
    lacking = [sorted(rights) for rights in _lacking(caller, rule, entities) if rights and rights not in without]
    why = Decision(allowed=False, context={"missing": lacking}).why_denied(brief=True)
    return f"with {why.removeprefix('missing: ')}" if lacking else DENIED


def _lacking(caller: Caller, rule: Rule, entities: Mapping[str, Entity]) -> list[frozenset[str]]:
    """The sets of rights that a caller lacks for an operation on the entity of its type, without the sets that contain others."""
    program, named = caller.program, asked_forms(caller.program, rule)[0]
    resource, shapes = entities[rule.entity], vocabulary(program)
    if not named:
        above = next((entities[type_] for type_ in shapes.containers(rule.entity)), Entity("", ""))
        resource = Entity(rule.entity, shapes.shapes[rule.entity].unnamed_in(above.type, above.id) or "")
    objects = {slot.name: entities[slot.named[0]] for slot in rule.withs if slot.named}
    caller.about({RESOURCE: resource, **objects})
    sets = listing(caller, rule, asked_condition(program, rule, named=named)).sets
    lacking = {
        frozenset(atom_words(atom, lambda target: base_type(target.type)) for atom in atoms if not caller.holds(atom))
        for atoms in sets
    }
    least = (rights for rights in lacking if not any(other < rights for other in lacking))
    return sorted(least, key=lambda rights: (len(rights), sorted(rights)))


def _title(program: Program, role: str) -> str:
    declared = program.roles.get(role)
    return (declared and declared.title) or role


def _one_of_each(program: Program) -> Iterator[tuple[Entity, str]]:
    """An entity of each type, each with the key of its container."""
    for type_ in program.entities.values():
        if type_.parent is None:
            key = f"{type_.name}:" if type_.single else f"{type_.name}:{type_.name}"
            yield from ((Entity.parse(lower), container) for lower, container in at_or_below(program, key))
