"""Deltas between two builds, made and proved by executors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from privtab.bundle.delta import contents, verify_delta
from privtab.errors import FileError
from privtab.ir.nodes import Program
from privtab.request import Entity
from privtab.spark.state import build, deltas
from privtab.state.nodes import Grant, State
from privtab.state.raw import COLUMNS

MANY = tuple(
    Grant(grantee=f"role:r{n}", effect="allow", privilege="SELECT", entity=Entity("schema", f"l/s{n % 40}"))
    for n in range(400)
)
ONE = State(grants=(*MANY, Grant(grantee="role:r1", effect="allow", privilege="MANAGE", entity=Entity("depot", "d"))))


def grants(spark: SparkSession, state: State) -> dict[str, object]:
    rows = [(g.grantee, g.effect, g.privilege, str(g.entity)) for g in state.grants]
    return {"grants": spark.createDataFrame(rows, ", ".join(f"{c} string" for c in COLUMNS["grants"].names))}


@pytest.mark.slow
def test_deltas_lead_from_the_build_before_to_this_one(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    build(spark, grants(spark, ONE), shop, tmp_path)
    with pytest.raises(FileError, match="no built state"):
        deltas(spark, tmp_path)
    more = Grant(grantee="role:new", effect="deny", privilege="SELECT", entity=Entity("table", "l/s1/t%2F~"))
    new = Grant(grantee="role:r1", effect="allow", privilege="SELECT", entity=Entity("lake", "k"))
    build(spark, grants(spark, replace(ONE, grants=(*ONE.grants[:-1], more, new))), shop, tmp_path)
    found = deltas(spark, tmp_path)
    rows = {row["key"]: row for row in found.rows}
    assert {key: row["kind"] for key, row in rows.items()} == {
        "people": "full", "lake:l": "delta", "lake:k": "new", "depot:d": "removed",
    }  # fmt: skip
    assert found.verified_count == 1
    row = rows["lake:l"]
    delta = (tmp_path / row["file"]).read_bytes()
    manifests = [json.loads((tmp_path / name).read_text()) for name in ("manifest.previous.json", "manifest.json")]
    base, full = ((tmp_path / m["shards"]["lake:l"]["file"]).read_bytes() for m in manifests)
    verify_delta(base, delta, full)
    assert len(delta) == row["bytes"] < row["full"] == len(full)
    assert contents(delta).manifest["revision"] == row["revision"]
    assert json.loads((tmp_path / "deltas.json").read_text())["revision"] == manifests[1]["revision"]
