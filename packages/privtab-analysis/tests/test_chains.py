"""Questions about users who hold something through groups in groups and roles of roles."""

from __future__ import annotations

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.base import Entity, Request, SourceFile
from privtab.ir import Can, Has, Holds, Program, reached_atoms
from privtab.pipeline import load_program
from privtab.reference import EvaluationContext, Reference
from privtab.state import Assignment, Grant, State
from privtab_analysis.caller import Caller
from privtab_analysis.principals import who_can
from privtab_analysis.provenance import Provenance

POLICY = """\
privtab: 1
system: small
version: "1"
entities: {catalog: {table:}}
privileges: {READ: {on: [catalog, table]}}
semantics: {inheritance: down, hierarchy: [groups, roles]}
tables:
  table: {load: READ (table)}
"""
SILVER = Entity("catalog", "silver")
LOAD = Request(user="ann", action="load", resource=Entity("table", "silver/t"))


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("small.yaml", POLICY))


@pytest.fixture(scope="module")
def state() -> State:
    return State(
        memberships=(("ann", "eu"), ("group:eu", "all"), ("group:all", "world")),
        assignments=(
            Assignment(principal="group:world", role="engineer"),
            Assignment(principal="group:eu", role="engineer"),
            Assignment(principal="role:engineer", role="silver/contributor", scope=SILVER),
            Assignment(principal="role:engineer", role="silver/contributor", scope=Entity("catalog", "gold")),
        ),
        grants=(Grant(grantee="role:silver/contributor", effect="allow", privilege="READ", entity=SILVER),),
    )


def test_explain_follows_the_shortest_chain_row_by_row(program: Program, state: State) -> None:
    evaluation = EvaluationContext(Reference(program, state), LOAD)
    (atom,) = reached_atoms(program, evaluation.condition(program.rules["table", "load"]))
    assert not isinstance(atom, Can)
    (chain,) = Provenance(evaluation, state).of(atom)
    assert [step.text for step in chain] == [
        "READ granted to role:silver/contributor at catalog:silver",
        "role:engineer holds role:silver/contributor within catalog:silver",
        "group:eu holds role:engineer",
        "ann is in group:eu",
    ]


def test_who_can_names_the_chain_between_user_and_role(program: Program, state: State) -> None:
    answer = who_can(Reference(program, state), state, LOAD)
    assert answer.users == ("ann",)
    (evidence,) = answer.through("ann")
    assert (evidence.through, evidence.via) == ("role:silver/contributor", "group:eu → role:engineer")
    principals = {(principal.principal, principal.scope) for principal in answer.principals()}
    groups = {("group:eu", None), ("group:all", None), ("group:world", None)}
    contributor = {("role:silver/contributor", scope) for scope in (None, "catalog:silver")}
    assert principals == {*groups, ("role:engineer", None), *contributor}


@pytest.mark.parametrize("seed", seeds(range(30), quick=10))
def test_every_held_fact_has_a_chain_and_a_sufficient_one_decides_alone(seed: int) -> None:
    program = generated_programs.program(seed, "hierarchy")
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    for request in worlds.requests(program, seed, 2):
        evaluation = EvaluationContext(reference, request)
        rows = Provenance(evaluation, state)
        for atom in reached_atoms(program, evaluation.condition(program.rules[request.resource.type, request.action])):
            if isinstance(atom, Has | Holds):
                assert bool(rows.of(atom)) == (evaluation.why(atom) is not None), (request, atom)


@pytest.mark.parametrize("seed", seeds(range(60, 80), quick=7))
def test_a_principal_suffices_alone_if_a_caller_with_nothing_else_is_allowed(seed: int) -> None:
    program = generated_programs.program(seed, "hierarchy")
    state = worlds.state(program, seed)
    reference = Reference(program, state)
    principals = [f"group:{g}" for g in (*worlds.names(program).groups, "everyone")]
    unscoped = [
        r for r in (*worlds.names(program).roles, "chief") if getattr(program.roles.get(r), "scope", None) is None
    ]
    principals += [f"role:{role}" for role in unscoped]
    for request in worlds.requests(program, seed, 1):
        answer = who_can(reference, state, request)
        found = {p.principal: p for p in answer.principals()}
        if "anyone" in found:
            continue
        rule = program.rules[request.resource.type, request.action]
        objects = request.objects(w.name for w in rule.withs)
        for principal in principals:
            caller = Caller.of_principal(reference, principal, flags=request.flags).about(objects)
            alone = principal in found and () in found[principal].needs
            assert alone == caller.holds(caller.condition(rule)), (request, principal)
