"""Names documents: one entity for an object, whichever border names it; mistakes at their places."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base import PolicyInvalid, encode_name
from privtab.pipeline import load_program
from privtab_connect.documents import documents
from privtab_connect.names import Names, names_beside, names_of
from privtab_connect.pushdown import target_module
from privtab_connect.pushdown.document import load as mapping

LAKE = """\
names: 1
title: A lake
case: lower
wildcards: "*?"
macros: ["{", "$["]
reserved: [public, "pg_*"]
kinds:
  database: {type: [schema, database], path: database}
  table: {path: [database, table], sign: "$", reads: read}
  tag: {path: database, holds: {database: tags}}
queries: {rows: select 1}
"""


def lake(tmp_path: Path, text: str = LAKE) -> Names:
    (tmp_path / "names.yaml").write_text(text, encoding="utf-8")
    return names_beside(tmp_path / "import.yaml")


def test_an_object_is_one_entity(tmp_path: Path) -> None:
    names = lake(tmp_path)
    assert names.entity("database:Sales%2FEU", ["database", "table"]) == "database:sales%2Feu"
    assert names.entity("database:Sales", ["schema", "database"]) == "schema:sales"
    assert names.entity("table:tags/x") == "tag:tags"
    assert names.entity("thing:A/b") == "thing:a/b"
    assert names.shows_another("table:sales/orders$files")
    assert not names.shows_another("table:sales/$orders")
    assert not names.shows_another("table:sal$es/orders")
    assert [names.is_reserved(name) for name in ("public", "pg_x", "pg", "publics")] == [True, True, False, False]
    assert [names.changes(name) for name in ("{USER}", "$[x", "a$", "a}")] == [True, True, False, False]
    assert [names.stands_for_several(name) for name in ("a*", "?", "a%")] == [True, True, False]
    assert names.filled("with a as ({rows}) {other}") == "with a as (select 1) {other}"


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2))
def test_names_without_case_stay_names(path: list[str]) -> None:
    folded = Names(folded=True).entity("table:" + "/".join(map(encode_name, path)))
    assert folded == "table:" + "/".join(encode_name(name.lower()) for name in path)


MISTAKES = [
    ("names: 1", "names: 2", 1, "`names` is `2`"),
    ('"*?"', '"*#"', 4, "`wildcards` are of the signs * ? %"),
    ("case: lower", "case: upper", 3, "`case` is `upper`"),
    (", reads: read", "", 9, "`table` needs both `sign` and `reads`"),
    ('sign: "$"', 'sign: ""', 9, "`table` needs both `sign` and `reads`"),
    ("holds:", "hold:", 10, "unknown key `hold` in `tag`"),
    ("queries: {", "querys: {", 11, "unknown key `querys`"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), MISTAKES)
def test_a_mistake_is_told_where_it_is(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    with pytest.raises(PolicyInvalid) as caught:
        lake(tmp_path, LAKE.replace(old, new, 1))
    assert [(d.code, d.span.line) for d in caught.value.diagnostics if message in d.message] == [("N002", line)]


def test_borders_of_a_system_have_the_same_objects() -> None:
    """What is pushed are kinds of the names, each with the path that the target says."""
    policies = {"gravitino": "1.1.0", "mariadb": "10.11", "postgresql": "15"}
    for system, version in policies.items():
        program = load_program(f"{system}/{version}")
        document = mapping(system, program, {"metalake": "m", "server": "s"})
        names = names_of(system)
        assert document.objects == {
            t: k for k in names.kinds if (t := names.type_of(k, program.entities)) in program.entities
        }
        assert target_module(system).TRAITS.kinds == names.paths
    assert {"ranger", "trino", "polaris", *policies} == set(documents("names"))
