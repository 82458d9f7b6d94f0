"""Evaluators over some rows of a state: those about the entities of one question, or about some principals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from privtab._once import once
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.entitlements.forms import Forms
from privtab.ir.nodes import Program
from privtab.ir.serialise import conditions_json
from privtab.locations import Locations
from privtab.request import Entity
from privtab.state import row_index
from privtab.state.located import lying_in
from privtab.state.nodes import Assignment, State

_HOLDER = "user:"
"""Whoever holds roles within scopes in an index without users."""


def forms(program: Program, where: Locations) -> Forms:
    """The conditions of a program, without minimal sets, for entities that lie somewhere."""
    if not program.flat:
        return _forms(program)
    engine = RowEngine(conditions_json(program), _index(program, State()))
    engine.locations = where
    return Forms(engine)


@once
def _forms(program: Program) -> Forms:
    return Forms(RowEngine(conditions_json(program), _index(program, State())))


def held(
    program: Program,
    state: State,
    rows: Mapping[str, list[int]],
    scoped: Iterable[tuple[str, str]],
    attributes: Mapping[str, Any],
) -> Index:
    """The index of some rows of a state, without its users and groups: who has a principal, subjects tell.

    `scoped`: the roles (`role:…`) that are held within scopes, each with the key of one. `attributes`: as in an index.
    """
    excerpt = state.some(rows)
    assigned = tuple(
        Assignment(principal=_HOLDER, role=role.removeprefix("role:"), scope=Entity.parse(scope))
        for role, scope in sorted(scoped)
    )
    found = _index(program, lying_in(program, replace(excerpt, assignments=assigned), state))
    found.user_attributes = attributes.get("user_attributes", {})
    found.entity_attributes = attributes.get("entity_attributes", {})
    return found


def _index(program: Program, state: State) -> Index:
    return Index({"revision": "", **row_index.document(program, state)})
