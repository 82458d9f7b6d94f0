"""Mapping documents are read with every mistake at its place, and the shipped ones fit the policies that they are for."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranger import LAKE

from privtab.base import PolicyInvalid, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_connect.documents import documents
from privtab_connect.pushdown.document import load

POLICIES = {"gravitino": "gravitino/1.1.0", "mariadb": "mariadb/10.11", "postgresql": "postgresql/15"}
WRONG = """\
push: 1
title: Wrong
target: postgresql
objects:
  catalog: databse
  schema: schema
  tabel: table
privileges:
  SELET: {table: SELECT}
  USE: {schema: [USAGE, SELECT]}
owners: {schema: []}
names: {role: roles, grup: "{name}"}
leave_out:
  tables: {service_admin: no}
operations:
  table/raed: {schema: USAGE}
more: 1
"""


@pytest.mark.parametrize("name", documents("mapping"))
def test_a_shipped_document_fits_its_policy(name: str, tmp_path: Path) -> None:
    (tmp_path / "lake.yaml").write_text(LAKE, encoding="utf-8")
    policy = POLICIES.get(name, tmp_path / "lake.yaml")
    document = load(name, load_program(policy), {"metalake": "prod", "server": "main"})
    assert document.objects


def test_every_mistake_is_found_at_its_place(tmp_path: Path, program: Program) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRONG, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(str(path), program, {})
    found = {(finding.span.line, finding.message) for finding in caught.value.diagnostics}
    assert found == {
        (5, "the target has no databse"),
        (7, "the policy has no type `tabel`"),
        (9, "the policy has no privilege `SELET`"),
        (10, "a schema of the target has no privilege `SELECT`"),
        (12, "`role` must contain `{name}`: two of them would have one name"),
        (12, "unknown key `grup` in `names`"),
        (14, "the policy has no table `service_admin`"),
        (16, "the policy has no operation `table/raed`"),
        (17, "unknown key `more` in a mapping document"),
    }
    helps = {finding.help for finding in caught.value.diagnostics}
    assert {"did you mean `database`?", "did you mean `table`?", "did you mean `service_admins`?"} <= helps


def test_names_that_would_mean_several_objects_are_refused(tmp_path: Path, program: Program) -> None:
    """Two catalogs may have a schema of the same name: the document says which is meant."""
    path = tmp_path / "wrong.yaml"
    text = 'push: 1\ntitle: T\ntarget: postgresql\nwithin: {catalog: "{catalog}"}\nobjects: {table: schema}\n'
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyInvalid) as caught:
        load(str(path), program, {})
    assert [finding.message for finding in caught.value.diagnostics] == [
        "no value for `{catalog}` in `{catalog}`: give it by --set NAME=VALUE"
    ]
    path.write_text(text.replace('within: {catalog: "{catalog}"}\n', ""), encoding="utf-8")
    with pytest.raises(
        PolicyInvalid, match="the path of `table` has the names catalog, schema, table, and a schema has schema"
    ):
        load(str(path), program, {})


def test_an_unknown_document_is_named_with_the_nearest(program: Program) -> None:
    with pytest.raises(UsageError, match="did you mean `postgresql`"):
        load("postgres", program, {})


def test_a_role_as_an_object_is_a_type_of_roles(tmp_path: Path, program: Program) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("push: 1\ntitle: T\ntarget: postgresql\nobjects: {view: role}\n", encoding="utf-8")
    with pytest.raises(PolicyInvalid, match="a role is a role or a group, and `view` is neither"):
        load(str(path), program, {})
