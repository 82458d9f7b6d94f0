"""Types with flat ids: the state places most of their entities, and requests ask about others, too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random

from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.state.located import locations
from privtab.state.nodes import Placement, State
from worlds.names import entity, names


def types(generator: Random | None, known: Collection[str]) -> list[str]:
    """The lines of `types`."""
    if generator is None:
        return []
    chosen = [type_ for type_ in ("low", "leaf", "side") if type_ in known and generator.random() < 0.6] or ["low"]
    return [f"  {type_}: {{flat: true}}" for type_ in chosen]


def placed(program: Program, state: State, seed: int) -> State:
    """The state with places for most entities, without the rows about the others."""
    rnd = Random(f"flat {seed}")
    rows: list[Placement] = []
    for type_ in sorted(program.flat, key=lambda name: (len(program.chain(name)), name)):
        where = locations(program, State(entities=tuple(rows)))
        for name in sorted({entity(program, type_, rnd).id for _ in range(3 * len(names(program).entities))}):
            parents = [entity(program, vocabulary(program).containers(type_)[0], rnd) for _ in range(4)]
            known = [parent for parent in parents if where.find(parent) is not None]
            if known and rnd.random() < 0.8:
                rows.append(Placement(entity=Entity(type_, name), parent=known[0]))
    where = locations(program, State(entities=tuple(rows)))

    def exists(about: Entity | None) -> bool:
        return about is None or where.find(about) is not None

    return replace(
        state,
        members=tuple(row for row in state.members if exists(row[1])),
        assignments=tuple(row for row in state.assignments if exists(row.scope)),
        grants=tuple(row for row in state.grants if exists(row.entity)),
        owners=tuple(row for row in state.owners if exists(row[0])),
        entities=tuple(rows),
    )


def unnamed(program: Program, resource: Entity, rnd: Random) -> Entity:
    """The entity of a call without a named item."""
    if resource.type in program.flat:
        container = entity(program, vocabulary(program).containers(resource.type)[0], rnd)
        return Entity(resource.type, f"{container}/")
    return Entity(resource.type, resource.id.rpartition("/")[0] + rnd.choice(["", "/"]))
