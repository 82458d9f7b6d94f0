"""What is said of names that no row knows."""

from __future__ import annotations

import pytest
from generated_programs import read

from privtab.base import Entity
from privtab.state import from_tables, validate
from privtab_analysis.entitlements.universe import notes

POLICY = """\
privtab: 1
system: lake
version: '1'
entities: {lake: {table: , role: , user: }}
privileges: {READ: {on: [lake, table]}}
tables: {table: {read: READ (table)}, role: {grant: READ (lake)}, user: {remove: READ (lake)}}
"""


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("role:l/reader", ()),
        ("role:l/writer", ()),
        ("user:l/ann", ()),
        ("role:l/boss", ("`role:l/boss` is not in the state",)),
        ("user:l/ben", ("`user:l/ben` is not in the state",)),
    ],
)
def test_a_principal_that_rows_name_is_known_as_an_entity_too(key: str, said: tuple[str, ...]) -> None:
    program, found = read(POLICY)
    assert program is not None, found
    tables = {
        "grants": [{"grantee": "role:l/reader", "effect": "allow", "privilege": "READ", "entity": "table:l/t"}],
        "assignments": [{"principal": "user:ann", "role": "writer"}],
    }
    state, wrong = validate(program, from_tables(tables, "rows"))
    assert not wrong
    assert notes(program, state, entities=[Entity.parse(key)]) == said
