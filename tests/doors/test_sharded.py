"""A door over a state in shards: as over a whole one, and nothing is allowed or shown by what is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bundle_service
import pytest
import requests

from privtab.cli._app import run
from privtab.opa.server import OpaServer

pytestmark = pytest.mark.slow

DOOR = """\
door: 1
title: A query engine
caller: {user: who}
operation: does
answers:
  allow: {form: boolean, about: table}
  batch: {form: positions, about: "tables[]"}
kinds:
  table: {type: table, path: [lake, zone, name]}
operations:
  Read: {kind: table, row: read}
"""
STATE = """\
grants:
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "lake:m"}
  - {grantee: "user:ann", effect: allow, privilege: READ, entity: "table:n/z/t"}
  - {grantee: "user:ben", effect: allow, privilege: READ, entity: "lake:o"}
"""
TABLES = [
    {"lake": lake, "zone": zone, "name": name}
    for lake, zone, name in (
        ("m", "z", "t"),
        ("n", "z", "t"),
        ("n", "z", "u"),
        ("o", "z", "t"),
        ("q", "z", "t"),
        ("m", "a/b", "%"),
    )
]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sharded")
    for name, text in (("lake.yaml", bundle_service.LAKE), ("engine.yaml", DOOR), ("state.yaml", STATE)):
        (folder / name).write_text(text, encoding="utf-8")
    door, state = (str(folder / name) for name in ("engine.yaml", "state.yaml"))
    command = ["compile", str(folder / "lake.yaml"), "--door", door, "--sharded", "--state", state]
    assert run([*command, "-o", str(folder / "built")]) == 0
    found = (folder / "built").glob("*/*/*.tar.gz")
    return {path.name.removesuffix(".tar.gz").replace(".", "_"): path for path in found}


def ask(opa: OpaServer, answer: str, user: str, **about: Any) -> Any:
    url = f"{opa.url}/v1/data/privtab/lake/doors/engine/{answer}"
    return requests.post(url, json={"input": {"who": user, "does": "Read", **about}}, timeout=10).json()["result"]


def test_shards_decide_as_a_whole_state(bundles: dict[str, Path]) -> None:
    assert {"policy", "people", "lake_m", "lake_n", "lake_o"} == bundles.keys()
    with OpaServer(bundles) as opa:
        assert ask(opa, "batch", "ann", tables=TABLES) == [0, 1, 5]
        assert ask(opa, "batch", "ben", tables=TABLES) == [3]
        assert ask(opa, "batch", "eve", tables=TABLES) == []
        assert [ask(opa, "allow", "ann", table=table) for table in TABLES] == [True, True, False, False, False, True]


def test_what_lies_in_an_absent_shard_is_denied_and_hides_its_list(bundles: dict[str, Path]) -> None:
    without = {name: path for name, path in bundles.items() if name != "lake_n"}
    with OpaServer(without) as opa:
        assert ask(opa, "batch", "ann", tables=TABLES) == []
        assert ask(opa, "batch", "ann", tables=[table for table in TABLES if table["lake"] != "n"]) == [0, 3]
        assert [ask(opa, "allow", "ann", table=table) for table in TABLES[:2]] == [True, False]
