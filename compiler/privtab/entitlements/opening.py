"""Evaluators over some rows of a state: those about the entities of one question, or about some principals."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from privtab._once import once
from privtab.engines.index import Index
from privtab.engines.rows import RowEngine
from privtab.entitlements.forms import Forms
from privtab.ir.formula import RequestAlgebra
from privtab.ir.nodes import Atom, Formula, Program
from privtab.ir.serialise import conditions_json
from privtab.locations import Locations
from privtab.request import Entity
from privtab.state import row_index
from privtab.state.located import lying_in
from privtab.state.nodes import Assignment, State

MOST_PARTS = 100_000
"""The most atoms of a condition that is written out."""
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


def is_too_large(program: Program, condition: Formula, flags: Collection[str], types: Mapping[str, str]) -> bool:
    """Whether a condition has too many atoms to be written out, with those of each `can` wherever it stands: then the reference decides."""
    return _Size(program, flags, types).fold(condition) > MOST_PARTS


class _Size(RequestAlgebra[int]):
    """The number of atoms of a condition, with those of each `can` wherever it stands."""

    def atom(self, atom: Atom) -> int:  # noqa: ARG002  (overridden)
        return 1

    def all_of(self, values: Iterable[int]) -> int:
        return sum(values)

    any_of = all_of
