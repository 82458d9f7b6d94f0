"""Which users hold a privilege on an entity, all rows considered: the reference decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from privtab.diagnostics import Span
from privtab.ir.nodes import ALWAYS, RESOURCE, Has, Program, Rule, Target
from privtab.reference.evaluate import EvaluationContext, Reference
from privtab.request import Entity, Request
from privtab.state.nodes import State

_NOWHERE = Span(path="", line=1, column=1, end_line=1, end_column=1)


class Holders:
    """Looks up who holds what. Each privilege is asked for as an operation that needs nothing else."""

    def __init__(self, program: Program, state: State) -> None:
        rules = {
            (type_, name): Rule(
                id=f"{type_}/{name}",
                entity=type_,
                operation=name,
                title=name,
                origin="row",
                gate=ALWAYS,
                requires=Has(privilege=name, target=Target(slot=RESOURCE, type=type_)),
                each=None,
                span=_NOWHERE,
            )
            for name in program.privileges
            for type_ in program.entities
        }
        self._program = replace(program, rules=rules)
        self._reference = Reference(self._program, state)

    def of(self, privilege: str, entity: Entity, users: Iterable[str]) -> frozenset[str]:
        """Those of the users who hold the privilege on the entity."""
        rule = self._program.rules[entity.type, privilege]
        return frozenset(
            user
            for user in users
            if EvaluationContext(
                self._reference, Request(user=f"user:{user}", action=privilege, resource=entity)
            ).holds(rule.requires)
        )


def users_of(state: State) -> tuple[str, ...]:
    """Every user that a row names as a principal."""
    found = {str(user) for user, _ in state.memberships if not str(user).startswith("group:")}
    principals = [
        *(row.principal for row in state.assignments),
        *(row.grantee for row in state.grants),
        *(owner for _, owner in state.owners),
    ]
    found |= {principal.partition(":")[2] for principal in principals if principal.startswith("user:")}
    return tuple(sorted(found))
