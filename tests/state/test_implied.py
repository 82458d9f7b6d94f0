"""Privileges that imply others: what a row gives, and rows that are read back from what it gave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab import model
from privtab.base.moments import Window
from privtab.base.request import Entity, Request
from privtab.base.source import SourceFile
from privtab.bundle.contents import state_of_index
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.reference.evaluate import Reference
from privtab.state.index import index_document
from privtab.state.links import as_written
from privtab.state.nodes import Grant, State

POLICY = """
privtab: 1
system: lake
version: 1
entities: {catalog: {table:}}
privileges:
  LIST:
  READ: {implies: LIST}
  WRITE: {implies: [READ, LOOK, SEE]}
  DROP: {on: [table], implies: ZAP}
  ZAP:
  SEE: {on: [catalog]}
  LOOK: {alias_of: DROP}
sets: {ALL: [WRITE, SEE]}
semantics: {inheritance: down, deny: overrides}
roles: {editor: {grants: {catalog: [WRITE]}}}
tables: {table: {list: LIST (table), drop: DROP (table)}}
"""


def program(text: str = POLICY) -> Program:
    tables, found = syntax.read_policy(SourceFile.of("lake.yaml", text))
    assert tables is not None, found
    policy, more = model.resolve(tables)
    assert policy is not None, more
    return lower(policy)


def row(privilege: str, entity: str, effect: Any = "allow", who: str = "user:ann") -> Grant:
    return Grant(grantee=who, effect=effect, privilege=privilege, entity=Entity.parse(entity))


def indexed(*rows: Grant) -> dict[str, set[str]]:
    document = index_document(program(), State(grants=rows))
    return {effect: set(document[effect]) for effect in ("allow", "deny") if document[effect]}


@pytest.mark.parametrize(
    ("rows", "privileges"),
    [
        pytest.param([row("READ", "table:c/t")], {"allow": {"READ", "LIST"}}, id="what it implies"),
        pytest.param([row("WRITE", "table:c/t")], {"allow": {"WRITE", "READ", "DROP"}}, id="one step, an alias"),
        pytest.param([row("WRITE", "catalog:c")], {"allow": {"WRITE", "READ", "SEE"}}, id="where it can be granted"),
        pytest.param([row("ALL", "catalog:c")], {"allow": {"WRITE", "READ", "SEE"}}, id="a member of a set"),
        pytest.param([row("LOOK", "table:c/t")], {"allow": {"DROP", "ZAP"}}, id="by an alias"),
        pytest.param([row("WRITE", "table:c/t", "deny")], {"deny": {"WRITE"}}, id="a denial denies it alone"),
        pytest.param([row("ALL", "catalog:c", "deny")], {"deny": {"WRITE", "SEE"}}, id="a denial of a set"),
    ],
)
def test_a_row_gives_what_its_privilege_implies_on_the_type(rows: list[Grant], privileges: dict[str, set[str]]) -> None:
    assert indexed(*rows) == privileges


def test_roles_and_owners_have_what_their_privileges_imply() -> None:
    assert dict(program().roles["editor"].grants)["catalog"] == ("WRITE", "READ", "SEE")
    owned = program(POLICY.replace("deny: overrides", "deny: overrides, owner: {holds: [READ]}"))
    assert owned.semantics.owner is not None
    assert owned.semantics.owner.holds == ("READ", "LIST")


def test_a_denial_of_what_is_implied_takes_it_away_and_leaves_the_rest() -> None:
    rows = (row("WRITE", "catalog:c"), row("READ", "table:c/t"), row("LIST", "table:c/t", "deny"))
    reference = Reference(program(), State(grants=rows))

    def allowed(action: str, table: str) -> bool:
        return reference.decide(Request(user="ann", action=action, resource=Entity("table", table))).allowed

    assert not allowed("list", "c/t")
    assert not allowed("list", "c/other"), "WRITE implies READ, which implies LIST: that is two steps"
    assert not allowed("drop", "c/t"), "DROP cannot be granted on a catalog"


def test_the_policy_keeps_it_in_its_document() -> None:
    document = program_json(program())
    assert document["privileges"]["WRITE"] == {"on": ["catalog", "table"], "implies": ["READ", "DROP", "SEE"]}
    assert document["privileges"]["SEE"] == {"on": ["catalog"]}
    assert program_from_json(document, "p").privileges["WRITE"].implies == ("READ", "DROP", "SEE")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("READ: {implies: READ}", "`READ` implies itself"),
        ("READ: {implies: LISTT}", "unknown privilege `LISTT`"),
        ("READ: {implies: [LIST, LIST]}", "`READ` implies `LIST` twice"),
        ("READ: {on: [table], implies: SEE}", "`SEE` cannot be granted on `table`"),
    ],
)
def test_mistakes_are_found_where_they_are(text: str, message: str) -> None:
    tables, found = syntax.read_policy(SourceFile.of("lake.yaml", POLICY.replace("READ: {implies: LIST}", text)))
    if tables is not None:
        found = [*found, *model.resolve(tables)[1]]
    assert message in [f.message for f in found]


@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_rows_that_are_read_back_give_the_same_index(seed: int) -> None:
    of = generated_programs.program(seed, "implies")
    rows = state_of_index(index_document(of, worlds.state(of, seed)))
    # Not the first index: it also has the entries of roles that only groups without members hold, which no row tells.
    implying_nothing = replace(of, privileges={n: replace(found, implies=()) for n, found in of.privileges.items()})
    exact, again = index_document(implying_nothing, rows), index_document(of, as_written(of, rows))
    assert (again["allow"], again["deny"]) == (exact["allow"], exact["deny"])


def test_rows_read_back_do_not_imply_once_more() -> None:
    document = index_document(program(), State(grants=(row("WRITE", "table:c/t"),)))
    rows = as_written(program(), state_of_index(document)).grants
    assert {grant.privilege for grant in rows} == {"WRITE"}
    assert "LIST" not in index_document(program(), State(grants=rows))["allow"]


def test_rows_with_windows_are_read_back_for_the_time_in_which_they_hold() -> None:
    rows = (row("WRITE", "table:c/t"), row("LIST", "table:c/t"))
    state = State(grants=rows, windows={"grants": (Window(10, 20), Window(15, 30))})
    of = program()
    again = as_written(of, state_of_index(index_document(of, state)))
    for at in (5, 10, 14, 15, 19, 20, 29, 30):
        assert _allowed(of, again.at(at)) == _allowed(of, state.at(at)), at


def _allowed(of: Program, state: State) -> set[str]:
    return set(index_document(of, state)["allow"])
