"""Entities of types that nest in a state: any number of levels up to the policy's bound, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privtab.ir.nodes import Program
from privtab.pipeline import load_program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

LAKE = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: 3}}
privileges: [READ]
semantics: {inheritance: down}
tables:
  table: {read: READ (table)}
"""


@pytest.fixture
def lake(tmp_path: Path) -> Program:
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    return load_program(tmp_path / "lake.yaml")


@pytest.fixture(params=["rows", "columns"])
def checked(request: pytest.FixtureRequest, lake: Program, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Checks grants on some entities, row by row or by columns."""
    if request.param == "columns":
        monkeypatch.setattr(raw, "LARGE", 0)

    def check(*entities: str) -> tuple[State, tuple[StateFinding, ...]]:
        rows = [{"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": e} for e in entities]
        return validate(lake, from_tables({"grants": rows}, "rows"))

    return check


def test_each_number_of_levels_up_to_the_bound(checked: Any) -> None:
    entities = ("catalog:c", "namespace:c/a", "namespace:c/a/b/d", "table:c/a/t", "table:c/a/b/d/t")
    state, findings = checked(*entities)
    assert not findings
    assert {str(grant.entity) for grant in state.grants} == set(entities)


@pytest.mark.parametrize(
    ("entity", "code", "message"),
    [
        ("namespace:c/1/2/3/4", "S184", "`namespace:c/1/2/3/4` has 5 names; the path of a `namespace` has at most 4"),
        ("table:c/1/2/3/4/t", "S184", "`table:c/1/2/3/4/t` has 6 names; the path of a `table` has at most 5"),
        ("table:c/t", "S112", "wrong depth: `table:c/t` has 2 names, a `table` path has 3 to 5"),
        ("namespace:c", "S112", "wrong depth: `namespace:c` has 1 name, a `namespace` path has 2 to 4"),
        ("table:c/a/", "S113", "a name in `table:c/a/` is empty"),
    ],
)
def test_paths_that_are_none(entity: str, code: str, message: str, checked: Any) -> None:
    state, [finding] = checked(entity)
    assert not state.grants
    assert (finding.code, finding.message) == (code, message)
    type_ = entity.partition(":")[0]
    end = "/table" if type_ == "table" else ""
    assert finding.help == f"write `{type_}:catalog/namespace/…{end}`"


def test_a_wildcard_is_advised_to_be_a_grant_on_the_namespace(checked: Any) -> None:
    _, [finding] = checked("table:c/a/b/*")
    assert finding.help.startswith("a grant or a denial on `namespace:c/a/b` holds for everything below it")
