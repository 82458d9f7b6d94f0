"""Bundles that executors build are those that `bundle.pack` makes, and are made again only where rows changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import requests
import signing_keys
from pyspark.sql import DataFrame, SparkSession
from whole_states import merged
from worlds import IN_SPARK, policy
from worlds import state as random_state
from worlds import timed as with_windows

from privtab.base import BrokenBundle, Entity, FileError, SourceFile, StateInvalid, Window
from privtab.bundle import Provenance, json_bytes, shard_bundles
from privtab.bundle.archive import contents
from privtab.bundle.sign import opa_configuration, public_keys
from privtab.engines import OpaServer
from privtab.ir import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state import TABLE_COLUMNS, Assignment, Grant, State, index_bytes, load_raw_state, validate
from privtab_spark.state import Build, build, opened
from privtab_spark.state.files import place

STATE = State(
    members=(("ann", Entity("lake", "l")), ("bob", Entity("lake", "m"))),
    memberships=(("ann", "hr"), ("bob", "it")),
    assignments=(
        Assignment(principal="user:ann", role="keeper", scope=Entity("lake", "l")),
        Assignment(principal="user:ann", role="clerk", scope=Entity("schema", "l/s")),
        Assignment(principal="group:hr", role="clerk"),
        Assignment(principal="user:bob", role="nothing"),
    ),
    grants=(
        Grant(grantee="role:clerk", effect="allow", privilege="ALL", entity=Entity("schema", "l/s")),
        Grant(grantee="role:clerk", effect="allow", privilege="SELECT", entity=Entity("lake", "l")),
        Grant(grantee="user:ann", effect="deny", privilege="SELECT", entity=Entity("table", "l/s/a%2Fb")),
        Grant(grantee="group:it", effect="allow", privilege="MANAGE", entity=Entity("depot", "d")),
    ),
    owners=((Entity("schema", "l/s"), "user:ann"),),
    service_admins=("root",),
)


def cells(state: State) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a state as its tables have them."""
    return {
        "members": [(user, str(entity)) for user, entity in state.members],
        "memberships": list(state.memberships),
        "assignments": [(a.principal, a.role, str(a.scope) if a.scope else None) for a in state.assignments],
        "grants": [(g.grantee, g.effect, g.privilege, str(g.entity)) for g in state.grants],
        "owners": [(str(entity), owner) for entity, owner in state.owners],
        "service_admins": [(user,) for user in state.service_admins],
    }


def frames(spark: SparkSession, state: State) -> dict[str, DataFrame]:
    found = {}
    for table, rows in cells(state).items():
        names = TABLE_COLUMNS[table].names
        timed_rows = rows
        if table in state.windows:
            edges = map(Window.cells, state.windows[table])
            names = TABLE_COLUMNS[table].all
            timed_rows = [(*row, *own) for row, own in zip(rows, edges, strict=True)]
        found[table] = spark.createDataFrame(timed_rows, ", ".join(f"`{c}` string" for c in names))
    return found


def files(built: Build) -> dict[str, bytes]:
    return {key: Path(built.file(key)).read_bytes() for key in ("people", *built.shards)}


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} | {path.name for path in (folder / "bundles").iterdir()}


@pytest.mark.long
def test_a_build_is_what_the_packer_makes_and_only_changes_are_built_again(
    spark: SparkSession, shop: Program, tmp_path: Path
) -> None:
    key = partial(signing_keys.pair().signing, scope="prod")
    made_of = Provenance(sources={"sources.yaml": "0" * 64}, choices={"policy": "shop/1"})
    first = build(spark, frames(spark, STATE), shop, tmp_path, provenance=made_of, signing=key(sequence=1))
    packed = shard_bundles(shop, STATE, provenance=made_of, signing=key(sequence=1))
    assert files(first) == packed
    assert first.rebuilt == ("depot:d", "lake:l", "lake:m")
    assert first.signed == ("people", "depot:d", "lake:l", "lake:m")
    assert first.people
    assert not first.unchanged
    report = first.shards["lake:l"]
    assert (report["allow"], report["deny"], report["owners"], report["members"]) == (3, 1, 1, 1)
    reported = (report["bytes"], report["sha256"])
    assert reported == (len(packed["lake:l"]), hashlib.sha256(packed["lake:l"]).hexdigest())
    assert opened(tmp_path).manifest == first.manifest
    assert {path.name for path in (tmp_path / "bundles").iterdir()} == {Path(first.file(k)).name for k in packed}

    before = listing(tmp_path)
    turned = replace(STATE, grants=STATE.grants[::-1])
    again = build(spark, frames(spark, turned), shop, tmp_path, signing=key(sequence=2))
    assert again.unchanged
    assert listing(tmp_path) == before

    grants = (*STATE.grants[:3], replace(STATE.grants[3], grantee="user:carl"))
    changed = replace(STATE, grants=grants, members=STATE.members[:1])
    second = build(spark, frames(spark, changed), shop, tmp_path, signing=key(sequence=3))
    assert (second.rebuilt, second.removed, second.people) == (("depot:d",), ("lake:m",), True)
    assert second.signed == ("people", "depot:d")
    now = shard_bundles(shop, changed, signing=key(sequence=3))
    assert files(second) == now | {"lake:l": packed["lake:l"]}
    assert second.shards["lake:l"] == first.shards["lake:l"]
    assert place(tmp_path).read_json("manifest.previous.json") == first.manifest


@pytest.mark.long
def test_a_build_of_rows_with_windows_is_what_the_packer_makes(
    spark: SparkSession, shop: Program, tmp_path: Path
) -> None:
    march, april = Window(1_772_000_000 * 10**9), Window(end=1_775_000_000 * 10**9 + 500)
    windows = {
        "grants": (Window(), Window(), april, Window()),
        "assignments": (march, Window(), Window(), Window()),
        "memberships": (Window(), april),
    }
    state = replace(STATE, windows=windows)
    first = build(spark, frames(spark, state), shop, tmp_path)
    assert files(first) == shard_bundles(shop, state)
    listed = json.loads((tmp_path / "shards.json").read_bytes())
    assert "privtab_state/shop/windowed" in listed["people"]["roots"]
    assert build(spark, frames(spark, state), shop, tmp_path).unchanged
    later = replace(state, windows={**windows, "grants": (Window(), Window(), march, Window())})
    second = build(spark, frames(spark, later), shop, tmp_path)
    assert (second.rebuilt, second.people) == (("lake:l",), False)
    assert files(second) == shard_bundles(shop, later)


@pytest.mark.parametrize(
    "timed", [pytest.param(False, marks=pytest.mark.long, id="lasting"), pytest.param(True, id="timed")]
)
@pytest.mark.parametrize(
    "seed", [pytest.param(7, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 5))]
)
def test_the_pipeline_and_the_local_pack_give_the_same_bytes_for_the_same_files(
    spark: SparkSession, seed: int, timed: bool, tmp_path: Path
) -> None:
    program = load_program(SourceFile.of("world.yaml", policy(seed)))
    world = random_state(program, seed)
    (tmp_path / "rows").mkdir()
    for table, frame in frames(spark, with_windows(world, seed) if timed else world).items():
        pq.write_table(frame.toArrow(), tmp_path / "rows" / f"{table}.parquet")
    local, _ = validate(program, load_raw_state(tmp_path / "rows"))
    built = build(spark, str(tmp_path / "rows"), program, tmp_path / "built", allow_partial=True)
    parts = {key: document_of(content, program.system, key) for key, content in files(built).items()}
    assert timed or not local.windows
    assert json_bytes(merged(parts)) == index_bytes(program, local)[1]


def document_of(bundle: bytes, system: str, key: str) -> dict[str, Any]:
    """The document of one part of a state, from its bundle."""
    found = contents(bundle).data["privtab_state"][system]
    document: dict[str, Any] = found if key == "people" else next(iter(found["at"].values()))
    return document


@pytest.mark.long
def test_wrong_rows_stop_a_build_and_leave_the_last_one(spark: SparkSession, shop: Program, tmp_path: Path) -> None:
    entities = spark.createDataFrame([("lake:l",), ("schema:l/s",), ("depot:d",)], "entity string")
    tables: Mapping[str, Any] = {"tables": frames(spark, STATE), "entities": entities}
    good = build(spark, tables, shop, tmp_path)
    orphans = good.findings(spark).filter("code = 'S114'").collect()
    assert {(row.table, row.severity) for row in orphans} == {("grants", "warning"), ("members", "warning")}
    assert files(good) == shard_bundles(shop, STATE)

    wrong = frames(spark, STATE)
    wrong["grants"] = wrong["grants"].unionAll(
        spark.createDataFrame(
            [("user:ann", "allow", "SELET", "lake:l"), ("user:ann", "allow", "SELECT", "nowhere"), (None,) * 4],
            wrong["grants"].schema,
        )
    )
    arguments: Mapping[str, Any] = {"tables": wrong, "entities": entities}
    with pytest.raises(StateInvalid) as raised:
        build(spark, arguments, shop, tmp_path)
    codes = sorted(f.code for f in raised.value.findings)  # type: ignore[attr-defined]
    assert codes == ["S103", "S103", "S103", "S103", "S110", "S130"]
    assert opened(tmp_path).manifest == good.manifest
    assert spark.read.parquet(str(tmp_path / "rejected")).filter("severity = 'error'").count() == 6
    assert files(opened(tmp_path)) == files(good)

    strict = {**arguments, "orphans": "quarantine"}
    partial = build(spark, strict, shop, tmp_path, allow_partial=True)
    correct = replace(STATE, grants=(*STATE.grants[:2], STATE.grants[3]), members=STATE.members[:1])
    assert files(partial) == shard_bundles(shop, correct)
    assert not (tmp_path / "rejected").exists()
    found = partial.findings(spark).filter("severity = 'error'").collect()
    assert {json.loads(row.row).get("privilege") for row in found if row.code == "S130"} == {"SELET"}
    with pytest.raises(StateInvalid):
        build(spark, strict, shop, tmp_path)


def test_a_half_written_build_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles" / "people-0.tar.gz").write_bytes(b"")
    with pytest.raises(FileError, match="no built state"):
        opened(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", [3, 11])
def test_random_worlds(spark: SparkSession, seed: int, tmp_path: Path) -> None:
    program = load_program(SourceFile.of("world.yaml", policy(seed, features=IN_SPARK)))
    world = random_state(program, seed)
    built = build(spark, frames(spark, world), program, tmp_path, allow_partial=True)
    assert files(built) == shard_bundles(program, world)


@pytest.mark.long
def test_the_signing_key_may_change_and_opa_accepts_it(
    spark: SparkSession, shop: Program, tmp_path: Path, opa_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, next_one = (signing_keys.pair("ES256", number) for number in (0, 1))
    folder = tmp_path / "state"

    def build_now(state: State = STATE, **how: Any) -> Build:
        return build(spark, frames(spark, state), shop, folder, **how)

    plain = build_now()
    assert (plain.signed, files(plain)) == ((), shard_bundles(shop, STATE))
    # As if there were many.
    with monkeypatch.context() as patched:
        patched.setattr("privtab_spark.state.sealing.FEW", 0)
        first = build_now(signing=mine.signing(scope="prod"))
    assert (first.signed, first.rebuilt, first.unchanged) == (tuple(files(first)), (), False)
    assert files(first) == shard_bundles(shop, STATE, signing=mine.signing(scope="prod"))
    assert build_now(signing=mine.signing(scope="prod", sequence=7)).unchanged
    # The same name, another key; then another scope.
    other = next_one.signing(id=mine.signing().id, scope="prod")
    assert files(build_now(signing=other)) == shard_bundles(shop, STATE, signing=other)
    last = next_one.signing(scope="prod/2", sequence=8)
    second = build_now(signing=last)
    assert files(second) == shard_bundles(shop, STATE, signing=last)
    assert second.manifest["revision"] == plain.manifest["revision"]
    lake = Path(second.file("lake:l"))
    lake.write_bytes(Path(second.file("lake:m")).read_bytes())
    with pytest.raises(BrokenBundle, match="was changed after it was built, and is not signed"):
        build_now(signing=mine.signing())
    assert opened(folder).manifest == second.manifest
    assert build_now(signing=last, full=True).signed == tuple(files(second))

    bundles = {f"part{at}": Path(second.file(key)) for at, key in enumerate(files(second))}
    bundles["policy"] = tmp_path / "policy.tar.gz"
    bundles["policy"].write_bytes(policy_artifacts(shop, sharded=True).bundle(last))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(opa_configuration(public_keys([next_one.public]), "prod/2", bundles)))
    with OpaServer(bundles, binary=opa_binary, config=config) as opa:
        request = {
            "subject": {"type": "user", "id": "ann"}, "action": {"name": "open"}, "resource": {"type": "crate", "id": "d/1"},
        }  # fmt: skip
        answers = []
        for who in ("ann", "bob"):
            body = {"input": {**request, "subject": {"type": "user", "id": who}}}
            answers.append(requests.post(f"{opa.url}/v1/data/privtab/shop/allow", json=body, timeout=5).json())
        assert [answer.get("result") for answer in answers] == [False, True]

    changed = replace(STATE, members=())
    unsigned = build_now(changed)
    assert (unsigned.rebuilt, set(unsigned.signed)) == (("lake:l",), {"depot:d"})
    assert files(unsigned) == shard_bundles(shop, changed)
    assert all("signature" not in part for part in unsigned.shards.values())
