from __future__ import annotations

from privtab import pipeline
from privtab.analysis.explain import explain
from privtab.ir.evaluate import Reference
from privtab.request import Entity, Request
from privtab.state.nodes import Grant, State

TABLE = Entity("table", "m/c/s/t")


def grant(privilege: str, entity: str, effect: str = "allow") -> Grant:
    return Grant(
        grantee="user:ann",
        effect="deny" if effect == "deny" else "allow",
        privilege=privilege,
        entity=Entity.parse(entity),
    )


def test_every_minimal_set_is_told_with_what_holds() -> None:
    program = pipeline.load_program("gravitino/1.1.0")
    state = State(
        members=(("ann", Entity("metalake", "m")),),
        grants=(
            grant("USE_CATALOG", "metalake:m"),
            grant("USE_SCHEMA", "schema:m/c/s"),
            grant("SELECT_TABLE", "schema:m/c/s"),
            grant("SELECT_TABLE", "table:m/c/s/t", "deny"),
        ),
    )
    why = explain(Reference(program, state), Request(user="ann", action="load", resource=TABLE))
    assert not why.decision.allowed
    assert why.decision.missing[0] == ("MODIFY_TABLE (table:m/c/s/t)",)
    assert ("deny SELECT_TABLE (table:m/c/s/t) to user:ann",) in why.decision.missing
    assert why.rule.id == "gravitino/table/load"
    assert len(why.sets) == 6
