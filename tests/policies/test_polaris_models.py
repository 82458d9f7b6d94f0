"""The semantic models of Apache Polaris 1.8: every privilege, alone, against every operation on them, by the two tables of the facts."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program, Rule
from privtab.pipeline import load_program, resolve_policy
from privtab.reference.evaluate import Reference
from privtab.state.nodes import Assignment, Grant, State

POLICY = ROOT / "policy_src" / "polaris" / "1.8.yaml"
FACTS = POLICY.with_name("semantic-models-1.8.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in FACTS.splitlines() if line.startswith("| ")]
OPERATIONS = {row[0]: row[1:] for row in ROWS if row[0].endswith(("_model", "_role"))}
ALL = re.findall(r"[A-Z_]{5,}", FACTS.partition(" give all.\n")[0].rpartition("\n")[2])
"""The privileges that give every operation on models, grants aside."""
SATISFIED_BY = {
    row[0]: {row[0], *re.findall(r"[A-Z_]{5,}", row[1]), *(ALL if "gives all" in row[1] else ())}
    for row in ROWS
    if row[0].isupper()
}
MODEL, NAMESPACE, ROLE = "semantic_model:c/a/b/x", "namespace:c/a/b", "catalog_role:c/r"
PLACES = {MODEL: ["catalog:c", "namespace:c/a", NAMESPACE, MODEL], NAMESPACE: ["catalog:c", "namespace:c/a", NAMESPACE]}


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(POLICY)


def decide(program: Program, operation: str, grants: dict[str, list[tuple[str, str]]]) -> dict[str, bool]:
    """The answer for each user whose role has these grants: privilege and entity."""
    state = State(
        assignments=tuple(Assignment(principal=f"user:{user}", role=user) for user in grants),
        grants=tuple(
            Grant(grantee=f"role:{user}", effect="allow", privilege=privilege, entity=Entity.parse(entity))
            for user, rows in grants.items()
            for privilege, entity in rows
        ),
    )
    with_ = {"to": Entity.parse(ROLE)} if operation.startswith("revoke") else {}
    reference = Reference(program, state)
    return {
        user: reference.decide(Request(user=user, action=operation, resource=Entity.parse(MODEL), with_=with_)).allowed
        for user in grants
    }


def meaning(rule: Rule) -> tuple[object, ...]:
    return rule.gate, rule.requires, rule.each, rule.effects


def test_the_facts_are_seven_operations_and_seven_privileges(program: Program) -> None:
    assert len(OPERATIONS) == len(SATISFIED_BY) == 7
    assert len(ALL) == 5
    assert {r.operation for r in program.rules.values() if r.entity == "semantic_model"} == OPERATIONS.keys()
    assert {p for p in program.privileges if p.startswith("SEMANTIC_MODEL_")} == SATISFIED_BY.keys()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_each_privilege_alone_gives_what_it_satisfies(program: Program, operation: str) -> None:
    needed, _, on = OPERATIONS[operation][0].partition(" on the ")
    beside = [("CATALOG_ROLE_MANAGE_GRANTS_FOR_GRANTEE", ROLE)] if OPERATIONS[operation][1] else []
    granted = SATISFIED_BY.keys() | set(ALL) | {"TABLE_FULL_METADATA", "VIEW_FULL_METADATA", "CATALOG_MANAGE_ACCESS"}
    on_path = PLACES[NAMESPACE if on else MODEL]
    rows = {f"{p}-{n}": (p, place) for p in granted for n, place in enumerate((*PLACES[MODEL], "namespace:c/z"))}
    assert decide(program, operation, {user: [row, *beside] for user, row in rows.items()}) == {
        user: place in on_path and privilege in SATISFIED_BY[needed] for user, (privilege, place) in rows.items()
    }


def test_revoking_takes_both(program: Program) -> None:
    grants = {
        "model": [("SEMANTIC_MODEL_MANAGE_GRANTS_ON_SECURABLE", MODEL)],
        "role": [("CATALOG_ROLE_MANAGE_GRANTS_FOR_GRANTEE", ROLE)],
        "catalog": [("CATALOG_MANAGE_ACCESS", "catalog:c")],
    }
    decided = decide(program, "revoke_semantic_model_grant_from_catalog_role", grants)
    assert decided == {"model": False, "role": False, "catalog": True}


def test_all_else_is_as_in_1_7(program: Program) -> None:
    before = load_program(POLICY.with_name("1.7.yaml"))
    assert {name: meaning(program.rules[name]) for name in before.rules} == {
        name: meaning(rule) for name, rule in before.rules.items()
    }


def test_no_findings() -> None:
    assert resolve_policy(POLICY).check().findings.kept == ()
