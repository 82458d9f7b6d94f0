"""Wildcards of other systems: a name made of nothing else is refused, and written in another way where it is meant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from privtab.base.errors import InvalidRequest
from privtab.base.request import Entity, Request
from privtab.base.vocabulary import Vocabulary
from privtab.ir.declarations import Semantics
from privtab.ir.nodes import Program
from privtab.reference.evaluate import Reference
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

Checked = Callable[..., tuple[State, tuple[StateFinding, ...]]]
DENIAL = {"grantee": "user:a", "effect": "deny", "privilege": "SELECT", "entity": "table:l/s/*"}


@pytest.mark.parametrize("effect", ["deny", "allow"])
@pytest.mark.parametrize("name", ["*", "**", "?", "%", "%%", "*?"])
def test_a_wildcard_for_a_name_takes_the_row_out(checked: Checked, effect: str, name: str) -> None:
    state, findings = checked(grants=[{**DENIAL, "effect": effect, "entity": f"table:l/s/{name}"}])
    assert not state.grants
    (finding,) = findings
    assert (finding.code, finding.severity) == ("S115", "error")
    assert finding.message == f"there are no wildcards: `{name}` in `table:l/s/{name}` would be one name"


def test_the_advice_is_the_entity_above_where_rights_are_inherited(program: Program) -> None:
    def advice(of: Program, entity: str) -> str | None:
        _, findings = validate(of, from_tables({"grants": [{**DENIAL, "effect": "allow", "entity": entity}]}, "rows"))
        return findings[0].help

    down = replace(program, semantics=replace(program.semantics, inheritance="down"))
    flat = replace(program, semantics=replace(program.semantics, inheritance="none"))
    written = "; a name that is `*` is written `%2A`"
    assert advice(down, "table:l/s/*") == f"a grant or a denial on `schema:l/s` holds for everything below it{written}"
    assert advice(down, "table:l/*/t") == f"a grant or a denial on `lake:l` holds for everything below it{written}"
    assert advice(down, "table:l/*") == f"a grant or a denial on `lake:l` holds for everything below it{written}"
    assert advice(down, "lake:*") == f"write a row for each entity{written}"
    assert advice(flat, "table:l/s/*") == f"write a row for each entity{written}"


@pytest.mark.parametrize(
    ("tables", "message", "advice"),
    [
        ({"grants": [{**DENIAL, "entity": "table:l/s/t", "grantee": "*"}]}, "one principal", "a group or a role"),
        ({"grants": [{**DENIAL, "entity": "table:l/s/t", "grantee": "user:*"}]}, "one user", "a group or a role"),
        ({"grants": [{**DENIAL, "entity": "table:l/s/t", "grantee": "group:%"}]}, "one group", "`%25`"),
        ({"owners": [{"entity": "settings:l/s", "owner": "?"}]}, "one user", "`%3F`"),
        ({"memberships": [{"user": "*", "group": "hr"}]}, "one user", "a group or a role"),
        ({"memberships": [{"user": "ann", "group": "*"}]}, "one group", "each user"),
        ({"assignments": [{"principal": "user:a", "role": "*"}]}, "one role", "`%2A`"),
        ({"service_admins": [{"user": "*"}]}, "one user", "a group or a role"),
    ],
)
def test_a_wildcard_for_a_principal_takes_the_row_out(
    checked: Checked, tables: dict[str, Any], message: str, advice: str
) -> None:
    state, findings = checked(**tables)
    assert state == State()
    assert [(f.code, f.severity) for f in findings] == [("S115", "error")]
    assert message in findings[0].message
    assert advice in (findings[0].help or "")


def test_a_wildcard_for_a_privilege_or_a_type_is_named_as_such(checked: Checked) -> None:
    _, findings = checked(grants=[{**DENIAL, "entity": "table:l/s/t", "privilege": "*"}])
    assert findings[0].message == "unknown privilege `*`"
    assert (findings[0].help or "").startswith("there are no wildcards: write a row for each privilege")
    _, findings = checked(grants=[{**DENIAL, "entity": "*"}, {**DENIAL, "entity": "*:l"}])
    assert [f.code for f in findings] == ["S115", "S115"]


def test_names_that_only_hold_such_characters_stay_what_they_were(checked: Checked) -> None:
    names = ("a*", "*a", "who?", "100%25", "*%25", "%25", ".*")
    state, findings = checked(
        grants=[{**DENIAL, "entity": f"table:l/s/{name}", "grantee": f"user:{name}"} for name in names]
    )
    assert [g.entity.id for g in state.grants] == [f"l/s/{name}" for name in names]
    assert [g.grantee for g in state.grants] == [f"user:{name}" for name in names]
    assert not [f for f in findings if f.severity == "error"]


def test_a_name_that_really_is_a_wildcard_has_one_spelling(program: Program, checked: Checked) -> None:
    rows = [{**DENIAL, "effect": "allow", "entity": "table:l/s/%2A", "grantee": "user:%2A"}]
    state, findings = checked(grants=rows)
    assert not findings
    assert state.grants[0].entity == Entity("table", "l/s/%2A")
    for wrong in ("%2Aa", "a%2A", "%2a", "%2A%25", "%2A%2F"):
        assert checked(grants=[{**DENIAL, "entity": f"table:l/s/{wrong}"}])[1][0].code == "S113"


def test_requests_name_no_wildcards(program: Program) -> None:
    reference = Reference(replace(program, semantics=Semantics()), State())
    type_, operation = next(iter(program.rules))
    vocabulary: Vocabulary = reference.vocabulary
    depth = vocabulary.chains[type_][-1][1]

    def refusal(user: str, last: str) -> str:
        entity = Entity(type_, "/".join([*"l" * (depth - 1), last]))
        try:
            vocabulary.check_path(entity)
            vocabulary.check(Request(user=user, action=operation, resource=entity))
        except InvalidRequest as error:
            return str(error)
        return ""

    assert "there are no wildcards; name one entity, or write `%2A`" in refusal("ann", "*")
    assert "there are no wildcards" in refusal("ann", "%")
    assert "`*` is not a user: there are no wildcards" in refusal("*", "x")
    for user, last in (("ann", "a*"), ("ann", "%2A"), ("%2A", "x"), ("a*", "x")):
        assert "wildcard" not in refusal(user, last)
