"""Names that connectors derive from a table's: what is asked at a door about them, against what the engine in this process says of the table."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trino_filters
from seeds import seeds
from signed_door import DoorServer, door_server

from privtab import Embedded

TABLES = ("a", "b", "a$b", "b$files", "$c")
COLUMNS = ("c", "d", "e")
OTHER = "of no row"
"""A column that no row of the state mentions."""
USERS = ("ann", "ben", "eve")
SUFFIXES = ("files", "partitions", "data", "what comes", "")


def question(user: str, operation: str, table: str, columns: list[str] | None = None) -> dict[str, Any]:
    resource: dict[str, Any] = {"catalogName": "l", "schemaName": "s", "tableName": table}
    resource |= {} if columns is None else {"columns": columns}
    action = {"operation": operation, "resource": {"table": resource}}
    return {"context": {"identity": {"user": user, "groups": []}}, "action": action}


def listed(user: str, operation: str, resources: list[dict[str, Any]]) -> dict[str, Any]:
    action = {"operation": operation, "filterResources": resources}
    return {"context": {"identity": {"user": user, "groups": []}}, "action": action}


def of_table(table: str, **more: Any) -> dict[str, Any]:
    return {"table": {"catalogName": "l", "schemaName": "s", "tableName": table, **more}}


def column(table: str, name: str) -> dict[str, Any]:
    return {"column": {"catalogName": "l", "schemaName": "s", "tableName": table, "columnName": name}}


class World:
    """A state, its door, and what the engine says."""

    def __init__(self, server: DoorServer, rows: dict[str, Any]) -> None:
        self.server = server
        self.engine: Embedded = server.embedded()
        self.rows = rows

    def mentioned(self, table: str, user: str) -> bool:
        """Whether a row for the user, or a value of an attribute, is about this very name."""
        grantees = {f"user:{user}", "group:public"}
        places = [row["entity"] for row in self.rows["grants"] if row["grantee"] in grantees]
        places += [row["entity"] for row in self.rows["attributes"] if "entity" in row]
        return any(place.partition(":")[2].split("/")[:3] == ["l", "s", table] for place in places)

    def whole(self, user: str, table: str) -> bool:
        """Whether all of a table can be read, unfiltered and unmasked."""
        columns = [f"column:l/s/{table}/{name}" for name in (*COLUMNS, OTHER)]
        return (
            self.engine.check(user, "SelectFromColumns", f"table:l/s/{table}")
            and all(self.engine.check(user, "SelectFromColumns", one) for one in columns)
            and self.engine.row_filter(user, f"table:l/s/{table}").name == "all_rows"
            and {mask.name for mask in self.engine.column_masks(user, columns)} == {"plain"}
        )

    def readable(self, user: str, name: str) -> bool:
        """The same for what a derived name stands for, at each of its signs."""
        parts = name[1:].split("$")
        beginnings = [name[0] + "$".join(parts[:length]) for length in range(1, len(parts) + 1)]
        return all(
            self.whole(user, table)
            for number, table in enumerate(beginnings)
            if number == 0 or self.mentioned(table, user)
        )


def rows(seed: int) -> dict[str, Any]:
    """Many rows that allow, on wide places, and some that deny, on narrow ones."""
    rnd = random.Random(seed)
    tables = [f"table:l/s/{table}" for table in TABLES]
    columns = [f"column:l/s/{table}/{name}" for table in TABLES for name in COLUMNS]
    grants = []
    for user in USERS:
        grants += [
            {
                "grantee": f"user:{user}",
                "effect": "allow",
                "privilege": privilege,
                "entity": rnd.choice(("schema:l/s", "catalog:l", *tables)),
            }
            for privilege in ("SELECT", "ALL_ROWS", "UNMASKED")
        ]
        for _ in range(rnd.randrange(2)):
            privilege = rnd.choice(("SELECT", "ALL_ROWS", "UNMASKED"))
            grantee, effect = rnd.choice((f"user:{user}", "group:public")), rnd.choice(("deny", "deny", "allow"))
            entity = rnd.choice(tables if privilege == "ALL_ROWS" else (*tables, *columns))
            grants.append({"grantee": grantee, "effect": effect, "privilege": privilege, "entity": entity})
    attributes = [
        {"entity": rnd.choice(columns), "attribute": "personal", "value": "true"},
        {"user": rnd.choice(USERS), "attribute": "region", "value": "1"},
    ]
    unlike = {(row["grantee"], row["privilege"], row["entity"]): row for row in grants}
    return {"grants": [*unlike.values()], "attributes": attributes}


def asked(folder: Path, seed: int) -> Iterator[World]:
    found = rows(seed)
    (folder / "trino.yaml").write_text(trino_filters.policy(), encoding="utf-8")
    (folder / "state.json").write_text(json.dumps(found), encoding="utf-8")
    with door_server(folder, folder / "trino.yaml", "trino", folder / "state.json") as server:
        yield World(server, found)


@pytest.mark.parametrize("seed", seeds(range(40), quick=0, full=3))
def test_a_derived_name_takes_reading_all_of_its_table(tmp_path: Path, seed: int) -> None:
    for world in asked(tmp_path, seed):
        ask = world.server.ask
        names = [f"{table}${suffix}" for table in TABLES for suffix in SUFFIXES]
        for user in USERS:
            expected = {name: world.readable(user, name) for name in names}
            shown = [number for number, name in enumerate(names) if expected[name]]
            assert ask("batch", listed(user, "FilterTables", [of_table(name) for name in names])) == shown
            masks = ask("batchColumnMasks", listed(user, "GetColumnMask", [column(name, "c") for name in names]))
            assert [one["index"] for one in masks] == [n for n in range(len(names)) if n not in shown]
            for name, may in expected.items():
                columns = question(user, "SelectFromColumns", name, ["path", OTHER])
                assert ask("allow", columns) == may, (user, name)
                assert ask("allow", question(user, "SelectFromColumns", name, [])) == may, (user, name)
                assert ask("batch", listed(user, "FilterColumns", [of_table(name, columns=["path"])])) == [0] * may
                filters = ask("rowFilters", question(user, "GetRowFilters", name))
                assert filters == ([] if may else [{"expression": "FALSE"}]), (user, name)


@pytest.mark.slow
def test_where_all_is_shown_nothing_is_answered(tmp_path: Path) -> None:
    for world in asked(tmp_path, 1):
        for user in USERS:
            for table in ("a", "b"):
                applied = world.engine.row_filter(user, f"table:l/s/{table}")
                filters = world.server.ask("rowFilters", question(user, "GetRowFilters", table))
                assert filters == ([] if applied.name == "all_rows" else [{"expression": applied.sql}])
                for name in COLUMNS:
                    (mask,) = world.engine.column_masks(user, [f"column:l/s/{table}/{name}"])
                    one = {
                        **listed(user, "GetColumnMask", []),
                        "action": {"operation": "GetColumnMask", "resource": column(table, name)},
                    }
                    assert world.server.ask("columnMask", one) == (
                        None if mask.name == "plain" else {"expression": mask.sql}
                    )
