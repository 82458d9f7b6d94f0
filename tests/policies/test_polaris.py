"""The Apache Polaris table against the facts about Polaris: every privilege, alone, against every operation.

`polaris_facts.json` holds what is known of Polaris' own code: for each operation the privileges needed on the target and
on the secondary, what these are, and where the path begins; for each privilege those that satisfy it. It is read
here by itself, and the policy is asked for decisions; nothing of the compiler's view of privileges is used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT

from privtab.base.attributes import GivenAttributes
from privtab.base.request import Entity, Request
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, resolve_policy
from privtab.reference.evaluate import Reference
from privtab.state.load import from_tables, validate
from privtab.state.nodes import Assignment, Grant, State
from privtab_analysis.changes import change_text
from privtab_analysis.turns import remedies

POLICY = ROOT / "policy_src" / "polaris" / "1.7.yaml"
FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "polaris_facts.json").read_text(encoding="utf-8"))
OPERATIONS: dict[str, dict[str, Any]] = FACTS["operations"]
PRIVILEGES: dict[str, dict[str, Any]] = FACTS["privileges"]

OUTER, INNER = "namespace:c/a", "namespace:c/a/b"
RESOURCES = {
    "root": "root:",
    "principal": "principal:p",
    "principal_role": "principal_role:r",
    "catalog": "catalog:c",
    "catalog_role": "catalog_role:c/r",
    "namespace": INNER,
    **{leaf: f"{leaf}:c/a/b/x" for leaf in ("table", "view", "policy", "semantic_model")},
}
"""One object of each type: two namespaces, one in the other, and what the inner one holds."""
ABOVE = {
    "root:": [],
    **{RESOURCES[t]: ["root:"] for t in ("principal", "principal_role", "catalog")},
    "principal:q": ["root:"],
    "principal_role:s": ["root:"],
    **{e: ["root:", "catalog:c"] for e in (RESOURCES["catalog_role"], "catalog_role:c/s", OUTER, "namespace:c/z")},
    INNER: ["root:", "catalog:c", OUTER],
    **{RESOURCES[t]: ["root:", "catalog:c", OUTER, INNER] for t in ("table", "view", "policy", "semantic_model")},
}
"""The entities above each."""
BESIDE = {
    "destination": "namespace:c/z",
    "the principal": "principal:q",
    "the principal role": "principal_role:s",
    "the catalog role": "catalog_role:c/s",
    "the catalog": "catalog:c",
    "the namespace": INNER,
    "the table": RESOURCES["table"],
}
"""What a secondary is, by the facts' words; of the same catalog as the target."""
SUPERUSER = "RESET_CREDENTIALS"
"""The one operation that no privilege gives."""
ELSEWHERE = ("SERVICE_MANAGE_ACCESS", "CATALOG_MANAGE_ACCESS", "CATALOG_MANAGE_CONTENT", "TABLE_FULL_METADATA")
"""Privileges that give most others."""


def target(operation: str, type_: str) -> str:
    """The entity that the privileges are needed on, by the facts' words for it, in a request for one of the type."""
    words = OPERATIONS[operation]["on"]
    if words.startswith("parent namespace"):
        return OUTER
    if words.startswith("namespace"):
        return INNER
    if words.startswith("the root container"):
        return "root:"
    return "catalog:c" if words == "the catalog" else RESOURCES[type_]


def secondary(operation: str) -> str | None:
    """The secondary that is checked."""
    words = OPERATIONS[operation]["beside"]
    if not OPERATIONS[operation]["secondary"]:
        return None
    return BESIDE["destination" if words.startswith("destination") else words]


def needed_privileges(operation: str, type_: str) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each privilege that an operation needs, and the entities on any of which it may be granted."""
    fact = OPERATIONS[operation]
    privileges_on = {target(operation, type_): fact["target"], secondary(operation): fact["secondary"]}
    for entity, privileges in privileges_on.items():
        if entity is not None:
            path = {*ABOVE[entity], entity} - ({"root:"} if fact["rooting"] == "CATALOG" else set())
            yield from ((p, frozenset(path)) for p in privileges)


def satisfies(granted: str, needed_privilege: str) -> bool:
    return granted in PRIVILEGES[needed_privilege]["satisfied_by"]


def state(grants: dict[str, list[tuple[str, str]]]) -> State:
    """A state in which each user has a principal role of their own, with these grants: privilege and entity."""
    return State(
        assignments=tuple(Assignment(principal=f"user:{user}", role=user) for user in grants),
        grants=tuple(
            Grant(grantee=f"role:{user}", effect="allow", privilege=privilege, entity=Entity.parse(entity))
            for user, rows in grants.items()
            for privilege, entity in rows
        ),
    )


@pytest.fixture(scope="module")
def program() -> Program:
    """With the operations that came after the release."""
    return load_program(POLICY, variant="main")


@pytest.fixture(scope="module")
def types(program: Program) -> dict[str, str]:
    """The entity type of each operation."""
    return {rule.operation.upper(): rule.entity for rule in program.rules.values()}


def request(operation: str, type_: str, user: str) -> Request:
    other = secondary(operation)
    return Request(
        user=user,
        action=operation.lower(),
        resource=Entity.parse(RESOURCES[type_]),
        with_={} if other is None else {"to": Entity.parse(other)},
    )


def test_every_operation_is_a_row(program: Program, types: dict[str, str]) -> None:
    assert types.keys() == OPERATIONS.keys()
    lines = {r.operation.upper(): r.source.line for r in program.rules.values() if r.source}
    assert lines == {name: fact["line"] for name, fact in OPERATIONS.items()}


def test_the_release_lacks_the_operations_on_semantic_models(types: dict[str, str]) -> None:
    released = {rule.operation.upper() for rule in load_program(POLICY).rules.values()}
    assert len(released) == 112
    assert types.keys() - released == {name for name in OPERATIONS if name.endswith("_SEMANTIC_MODEL")}


def test_every_privilege_is_declared_once(program: Program) -> None:
    assert program.privileges.keys() - PRIVILEGES.keys() == {"CATALOG_READ_PROPERTIES_OF_CATALOG"}
    assert PRIVILEGES.keys() <= program.privileges.keys()
    cited = re.findall(r"^  ([A-Z_]+):.*# (\d+)$", POLICY.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: int(line) for name, line in cited} == {name: fact["line"] for name, fact in PRIVILEGES.items()}


@pytest.mark.parametrize(
    "place",
    [
        *(pytest.param(place, marks=pytest.mark.slow) for place in ("root:", INNER, "principal:p")),
        *(pytest.param(place, marks=pytest.mark.long) for place in ("catalog:c", OUTER, "table:c/a/b/x")),
    ],
)
def test_each_privilege_alone_gives_what_it_satisfies(program: Program, types: dict[str, str], place: str) -> None:
    """Every privilege, granted on one place and nothing else, against every operation."""
    reference = Reference(program, state({privilege: [(privilege, place)] for privilege in PRIVILEGES}))
    wrong, allowed = [], 0
    for operation, type_ in types.items():
        needs = list(needed_privileges(operation, type_))
        # Where the place is on none of the paths, a few privileges show that nothing granted there counts.
        near = any(place in on for _, on in needs)
        for granted in PRIVILEGES if near else ELSEWHERE:
            expected = operation != SUPERUSER and all(place in on and satisfies(granted, p) for p, on in needs)
            decided = reference.decide(request(operation, type_, granted)).allowed
            allowed += decided
            if decided != expected:
                wrong.append((operation, granted, place, decided))
    assert wrong == []
    assert allowed > 0


def test_all_privileges_of_an_operation_together_and_each_left_out(program: Program, types: dict[str, str]) -> None:
    """Exactly what is needed, where it is needed, allows; without one of them the rest does, only if the rest satisfies it."""
    grants: dict[str, list[tuple[str, str]]] = {}
    expected: dict[str, tuple[str, bool]] = {}
    for operation, type_ in types.items():
        fact = OPERATIONS[operation]
        needs = ((fact["target"], target(operation, type_)), (fact["secondary"], secondary(operation)))
        rows = [(p, entity) for privileges, entity in needs for p in privileges if entity is not None]
        for left_out in (None, *rows):
            user = f"{operation}-{rows.index(left_out) if left_out else 'all'}"
            grants[user] = [row for row in rows if row != left_out]
            remaining = grants[user]
            enough = all(
                any(e in on and satisfies(q, p) for q, e in remaining) for p, on in needed_privileges(operation, type_)
            )
            expected[user] = (operation, enough and operation != SUPERUSER)
    reference = Reference(program, state(grants))
    decided = {u: reference.decide(request(o, types[o], u)).allowed for u, (o, _) in expected.items()}
    assert decided == {user: allowed for user, (_, allowed) in expected.items()}


def test_exceptions(program: Program) -> None:
    """The superuser alone resets credentials; principals rotate their own."""
    reset = Request(user="ann", action="reset_credentials", resource=Entity.parse("principal:p"))
    rotate = Request(user="p", action="rotate_credentials", resource=Entity.parse("principal:p"))
    assert not Reference(program, State()).decide(reset).allowed
    assert Reference(program, State(service_admins=("ann",))).decide(reset).allowed
    assert Reference(program, State()).decide(rotate).allowed


@pytest.mark.parametrize(("rotated", "allowed"), [(True, True), (False, False), (None, False)])
def test_credentials_that_have_to_be_rotated(program: Program, rotated: bool | None, allowed: bool) -> None:
    """Where the server asks for it, everything but the rotation is refused."""
    given = {} if rotated is None else {"credentials_rotated": rotated}
    asked = request("TABLE_EXISTS", "table", "ann")
    asked = replace(asked, flags=frozenset({"enforce_credential_rotation"}), attributes=GivenAttributes(user=given))
    rights = state({"ann": [("TABLE_LIST", "table:c/a/b/x"), ("TABLE_READ_PROPERTIES", "table:c/a/b/x")]})
    assert Reference(program, rights).decide(asked).allowed is allowed
    own = Request(user="p", action="rotate_credentials", resource=Entity.parse("principal:p"), flags=asked.flags)
    assert Reference(program, State()).decide(own).allowed


@pytest.mark.parametrize("grantee", ["user:ann", "group:staff"])
def test_principals_are_no_grantees(program: Program, grantee: str) -> None:
    """Grants go to roles (`notes.grantees`), and there are no groups; `explain` proposes none to others."""
    row = {"grantee": grantee, "effect": "allow", "privilege": "TABLE_LIST", "entity": "catalog:c"}
    _, found = validate(program, from_tables({"grants": [row]}, "rows"))
    assert [finding.code for finding in found if finding.severity == "error"] == ["S122"]
    reference = Reference(program, State())
    asked = request("LOAD_TABLE", "table", "ann")
    proposed = {change_text(change, "ann") for way in remedies(reference, State(), asked).sets for change in way}
    assert proposed
    assert all(text.endswith("to a new role of user:ann") for text in proposed)


def test_no_findings() -> None:
    findings = resolve_policy(POLICY).check().findings.kept
    assert findings == ()
