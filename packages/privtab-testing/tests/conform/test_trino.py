"""A real Trino whose OPA has the door of `trino/476` obeys that table, and one whose OPA has a wider table is told from it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from checkout import ROOT
from trino_server import Trino, trino

from privtab.command._app import run
from privtab.engines import OpaServer
from privtab.pipeline import load_program
from privtab_testing.conform.document import load
from privtab_testing.conform.plan import PREFIX

# Tests of the door start the same servers, and leave this one to the long tests.
pytestmark = [pytest.mark.long, pytest.mark.xdist_group("trino")]
pytest.importorskip("trino", reason="the package `trino` has the dialect of SQLAlchemy by which statements are sent")

POLICY = ROOT / "policy_src" / "trino" / "476.yaml"
DRIVER = ROOT / "examples" / "conform" / "trino.yaml"
ICEBERG, HTTP = DRIVER.with_name("trino-iceberg.yaml"), DRIVER.with_name("trino-http.yaml")
LAKE = "/tmp/privtab-lake"  # noqa: S108  (what the document says, which the test replaces)
TRUNCATE = "TruncateTable: {requires: DELETE (table)"
STATE = {
    "owners": [{"entity": "server:", "owner": "user:admin"}],
    "grants": [{"grantee": "group:public", "effect": "allow", "privilege": "EXECUTE_QUERY", "entity": "server:"}],
}
"""What there must be before a test, for `admin` to make catalogs."""
ANYONE_TRUNCATES = {
    "context": {"identity": {"user": "zoe", "groups": []}},
    "action": {
        "operation": "TruncateTable",
        "resource": {"table": {"catalogName": "c", "schemaName": "s", "tableName": "t"}},
    },
}


@dataclass(frozen=True)
class World:
    """Trino, the OPA that it asks, and the files of its bundles."""

    sql: Trino
    door: str
    policy: Path
    state: Path


def compiled(policy: Path, folder: Path) -> tuple[Path, Path]:
    """The bundles of a policy with the door, and of the first state."""
    (folder / "state.json").write_text(json.dumps(STATE), encoding="utf-8")
    assert (
        run(["compile", str(policy), "--door", "trino", "--state", str(folder / "state.json"), "-o", str(folder)]) == 0
    )
    (bundle,) = folder.glob("*/*/policy.tar.gz")
    return bundle, bundle.with_name("state.tar.gz")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    policy, state = compiled(POLICY, tmp_path_factory.mktemp("conform"))
    with OpaServer({"policy": policy, "state": state}) as opa:
        door = f"{opa.url}/v1/data/privtab/trino/doors/trino"
        addresses = {"opa.policy.uri": f"{door}/allow", "opa.policy.batched-uri": f"{door}/batch"}
        with trino(addresses, "admin", further={"catalog.management": "dynamic"}) as sql:
            yield World(sql, door, policy, state)


def conform(
    world: World, output: Path, *options: str, driver: Path = DRIVER, url: str | None = None
) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the rows of the report by their names. `url`: other than that of SQL."""
    command = [
        "conform",
        str(POLICY),
        "--driver",
        str(driver),
        "--url",
        url or f"{world.sql.url.replace('http://', 'trino://admin@')}/system",
        "--set",
        f"state={world.state}",
    ]
    code = run([*command, "--limit", "jobs=2", "--format", "json", "-o", str(output), *options])
    rows = json.loads(output.read_text(encoding="utf-8"))["rows"]
    return code, {row["row"]: row for row in rows}


def test_every_cell_that_a_statement_asks_about_agrees_and_nothing_is_left_behind(world: World, tmp_path: Path) -> None:
    before = world.state.read_bytes()
    code, rows = conform(world, tmp_path / "report.json")
    assert code == 0, [row for row in rows.values() if row["findings"]]
    asked = {"/".join(key) for key in load(DRIVER, load_program(POLICY)).operations}
    assert {name for name, row in rows.items() if row["verdict"] == "agrees"} == asked
    assert len(asked) == 50
    assert not [name for name in world.sql.run("admin", "SHOW CATALOGS").column if name.startswith(PREFIX)]
    assert world.state.read_bytes() == before


def test_what_another_connector_does_agrees(world: World, tmp_path: Path) -> None:
    driver, lake = tmp_path / ICEBERG.name, tmp_path / "lake"
    lake.mkdir()
    text = ICEBERG.read_text(encoding="utf-8")
    assert text.count(f"'{LAKE}'") == 1
    driver.write_text(text.replace(f"'{LAKE}'", f"'{lake}'"), encoding="utf-8")
    code, rows = conform(world, tmp_path / "report.json", driver=driver)
    assert code == 0, [row for row in rows.values() if row["findings"]]
    asked = {"/".join(key) for key in load(ICEBERG, load_program(POLICY)).operations}
    assert {name for name, row in rows.items() if row["verdict"] == "agrees"} == asked
    assert len(asked) == 11
    assert not [path for path in lake.rglob("*") if path.is_file()]


def test_what_trino_asks_over_http_agrees(world: World, tmp_path: Path) -> None:
    code, rows = conform(world, tmp_path / "report.json", driver=HTTP, url=world.sql.url)
    assert code == 0, [row for row in rows.values() if row["findings"]]
    agree = {name for name, row in rows.items() if row["verdict"] == "agrees"}
    assert agree == {"server/ReadSystemInformation", "server/WriteSystemInformation"}


def test_a_wider_row_in_the_opa_is_reported(world: World, tmp_path: Path) -> None:
    text = POLICY.read_text(encoding="utf-8")
    assert TRUNCATE in text
    wider = tmp_path / "trino.yaml"
    wider.write_text(text.replace(TRUNCATE, f"{TRUNCATE} or EXECUTE_QUERY (server)"), encoding="utf-8")
    (tmp_path / "operations-476.md").write_bytes(POLICY.with_name("operations-476.md").read_bytes())
    bundle, _ = compiled(wider, tmp_path)
    world.policy.write_bytes(bundle.read_bytes())
    deadline = time.monotonic() + 30
    while (
        requests.post(f"{world.door}/allow", json={"input": ANYONE_TRUNCATES}, timeout=10).json()["result"] is not True
    ):
        assert time.monotonic() < deadline, "OPA did not load the other policy"
        time.sleep(0.2)
    only = [
        part
        for row in ("DropTable", "TruncateTable", "DeleteFromTable", "SelectFromColumns")
        for part in ("--filter", f"table/{row}")
    ]
    code, rows = conform(world, tmp_path / "report.json", *only)
    assert code == 1
    assert rows["table/TruncateTable"]["verdict"] == "wider"
    assert {rows[name]["verdict"] for name in ("table/DropTable", "table/DeleteFromTable")} == {"agrees"}
    assert "truncate table" in rows["table/TruncateTable"]["findings"][0]["reproduce"]
