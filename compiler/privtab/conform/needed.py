"""The part of a plan's world that some of its questions need: a sample, or what is left after a break, makes less."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.conform.nodes import Plan, Question, World
from privtab.ir.serialise import vocabulary
from privtab.state.nodes import TABLES, State


def needed(plan: Plan, questions: Iterable[Question]) -> World:
    """The users, entities and rows that the questions are about, in the order of the plan's world."""
    chosen = tuple(questions)
    whole = plan.world
    if len(chosen) == len(plan.questions):
        return whole
    states = tuple({question.request.user: question.state for question in chosen}.values())
    tables = {table: {row for state in states for row in getattr(state, table)} for table in TABLES}
    tables["attributes"] = {row for question in chosen for row in question.state.attributes}
    request_groups = {f"group:{group}" for question in chosen for group in question.request.groups}
    tables["owners"] |= {row for row in whole.state.owners if row[1] in request_groups}
    rows = {t: tuple(row for row in getattr(whole.state, t) if row in tables[t]) for t in TABLES}
    state = State(**rows)  # type: ignore[arg-type]
    objects = [entity for q in chosen for entity in (q.request.resource, *q.request.with_.values())]
    objects += [grant.entity for grant in state.grants]
    objects += [entity for entity, _ in state.owners]
    objects += [entity for _, entity in state.members]
    objects += [row.scope for row in state.assignments if row.scope is not None]
    principals = {f"user:{question.request.user}" for question in chosen}
    principals |= request_groups
    principals |= {f"group:{group}" for _, group in state.memberships}
    principals |= {name for row in state.assignments for name in (row.principal, f"role:{row.role}")}
    principals |= {owner for _, owner in state.owners} | {grant.grantee for grant in state.grants}
    principals |= {f"{plan.program.entities[entity.type].principal}:{entity.id}" for entity in objects}
    keys = vocabulary(plan.program).keys
    known = {key for entity in set(objects) for key in keys(entity)}
    return World(
        state=state,
        entities=tuple(entity for entity in whole.entities if str(entity) in known),
        users=tuple(name for name in whole.users if f"user:{name}" in principals),
        groups=tuple(name for name in whole.groups if f"group:{name}" in principals),
        roles=tuple(name for name in whole.roles if f"role:{name}" in principals),
    )
