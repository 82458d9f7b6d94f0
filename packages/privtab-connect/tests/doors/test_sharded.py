"""Doors over a state in shards, where nothing is allowed or shown by what is not there; and doors that are deployed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bundle_service
import pytest
import requests

from privtab.command._app import run
from privtab.engines import OpaServer

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    for name, text in (("lake.yaml", bundle_service.LAKE), ("engine.yaml", DOOR), ("state.yaml", STATE)):
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def with_door(folder: Path) -> list[str]:
    """A policy with a door and a state, as commands take them."""
    return [str(folder / "lake.yaml"), "--door", str(folder / "engine.yaml"), "--state", str(folder / "state.yaml")]


@pytest.fixture(scope="module")
def bundles(folder: Path) -> dict[str, Path]:
    assert run(["compile", *with_door(folder), "--sharded", "-o", str(folder / "built")]) == 0
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


def test_a_deployed_policy_has_its_door_until_one_without_it(folder: Path, tmp_path: Path) -> None:
    deploy = ["deploy", *with_door(folder), "--accept", "untested=about doors"]
    assert run([*deploy, "--registry", str(tmp_path / "registry")]) == 0
    channel = tmp_path / "registry" / "channels" / "dev" / "lake"
    with OpaServer({part: channel / f"{part}.tar.gz" for part in ("policy", "state")}) as opa:
        assert ask(opa, "batch", "ann", tables=TABLES) == [0, 1, 5]
    with OpaServer() as opa:
        assert run([*deploy, "--push", opa.url]) == 0
        assert ask(opa, "batch", "ann", tables=TABLES) == [0, 1, 5]
        assert run([*deploy[:2], *deploy[-2:], "--push", opa.url]) == 0
        closed = requests.get(f"{opa.url}/v1/data/privtab/lake/doors", timeout=10).json()
        assert "result" not in closed


def test_a_deployment_that_closes_a_door_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deploy = [
        "deploy",
        *with_door(folder),
        "--accept",
        "untested=about doors",
        "--registry",
        str(tmp_path / "registry"),
    ]
    assert run(deploy) == 0
    assert "by the doors" not in capsys.readouterr().err
    assert run([*deploy[:2], *deploy[-4:], "--accept", "kept-state=same table"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "answers other systems by the doors engine, which are not given: these would be denied everything" in said
