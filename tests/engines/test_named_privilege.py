"""`named privilege (TYPE)`: as if each privilege were listed with the comparison of the attribute that names it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from generated_programs import read

from privtab.base.attributes import GivenAttributes
from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.engines.index import Index
from privtab.engines.python import PythonEngine
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate
from privtab_analysis.diff import diff

PRIVILEGES = ("USAGE", "SELECT", "INSERT")
BEFORE = """\
privtab: 1
system: snow
version: '1'
entities: {database: {table: }}
privileges: {USAGE: {on: [database]}, SELECT: {on: [database, table]}, INSERT: {on: [table]}}
semantics: {inheritance: down, deny: overrides, owner: none}
"""
NAMED = "tables: {table: {pass_on: named privilege (table), below: 'named privilege (database, table)'}}\n"
LISTED = """\
attributes: {request: {privilege: {enum: [USAGE, SELECT, INSERT]}}}
tables:
  table:
    pass_on: request.privilege = SELECT and SELECT (table) or request.privilege = INSERT and INSERT (table)
    below:
      request.privilege = USAGE and USAGE (database) or request.privilege = SELECT and SELECT (database, table)
      or request.privilege = INSERT and INSERT (table)
"""


def program(tables: str) -> Program:
    found, diagnostics = read(BEFORE + tables)
    assert found is not None, diagnostics
    return found


def test_it_is_each_privilege_where_the_request_names_it() -> None:
    named, listed = program(NAMED), program(LISTED)
    assert {row.verdict for row in diff(listed, named).rows} == {"equal"}
    rows: list[dict[str, str]] = [
        {"grantee": "user:ann", "effect": effect, "privilege": name, "entity": entity}
        for name, entity in (("USAGE", "database:d"), ("SELECT", "database:d"), ("INSERT", "table:d/t"))
        for effect in ("allow", "deny")
    ]
    artifacts = policy_artifacts(named)
    allowed = 0
    for chosen in combinations(rows, 2):
        state, wrong = validate(named, from_tables({"grants": list(chosen)}, "rows"))
        assert state is not None, wrong
        engine = PythonEngine(artifacts.program, Index(index_document(named, state)))
        reference, other = Reference(named, state), Reference(listed, state)
        for operation in ("pass_on", "below"):
            asked = Request(user="ann", action=operation, resource=Entity("table", "d/t"))
            for given in (GivenAttributes.NONE, *(GivenAttributes(request={"privilege": name}) for name in PRIVILEGES)):
                request = replace(asked, attributes=given)
                right = other.decide(request).allowed
                assert (reference.decide(request).allowed, engine.allow(request)) == (right, right), (request, chosen)
                assert given or not right
                allowed += right
    assert allowed > 10


def test_a_privilege_that_the_policy_does_not_have_is_refused() -> None:
    policy = program(NAMED)
    request = Request(user="ann", action="pass_on", resource=Entity("table", "d/t"))
    with pytest.raises(InvalidRequest, match="privilege"):
        Reference(policy, validate(policy, from_tables({}, "rows"))[0]).decide(
            replace(request, attributes=GivenAttributes(request={"privilege": "OWN"}))
        )


def test_delegations_are_compared() -> None:
    def rows(cell: str) -> Any:
        text = f"tables: {{table: {{give: {{requires: SELECT (table), sensitive: true{cell}}}}}}}\n"
        return program(text)

    before, after = rows(", delegates: SELECT"), rows(", delegates: any privilege")
    (change,) = diff(before, after).rows
    assert (change.effects, change.parts) == ("wider", ("effects",))
    (witness,) = change.witnesses
    assert witness.effects_before != witness.effects_after
    (change,) = diff(rows(", delegates: SELECT + INSERT"), after).rows
    assert change.verdict == "equal"
    (change,) = diff(rows(""), before).rows
    assert change.effects == "wider"
    (change,) = diff(before, rows(", withdraws: SELECT")).rows
    assert change.effects == "incomparable"


def test_any_privilege_stays_what_it_is_where_there_are_new_ones() -> None:
    row = "tables: {lake: {give: {requires: A (lake), delegates: any privilege, sensitive: true}}}\n"
    before, after = (
        read(f"privtab: 1\nsystem: s\nversion: '1'\nentities: {{lake: }}\nprivileges: {privileges}\n{row}")[0]
        for privileges in ("{A: {on: [lake]}}", "{A: {on: [lake]}, B: {on: [lake]}}")
    )
    assert before is not None
    assert after is not None
    assert not [row for row in diff(before, after).rows if row.effects not in (None, "equal")]
