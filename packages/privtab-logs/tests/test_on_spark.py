"""On Spark, logs are read and replayed as on one machine, whole and as a stream."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

import pytest
from example_bundles import POLICY, READS, STATES
from pyarrow import parquet

from privtab.ir import Program
from privtab.pipeline import load_program
from privtab.state import load_raw_state, validate_with_places
from privtab_logs import on_spark, reading, replaying
from privtab_logs.distinct import distinct
from privtab_logs.moments import KnownState, Moments, Policy
from privtab_logs.row_use import Observed, unused
from privtab_logs.schema import DAMAGED, NO_ANSWER, Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USERS = ("ann", "ben", "olga", "zoe")


def entry(number: int) -> dict[str, Any]:
    user, action = USERS[number % 4], ("read", "write")[number // 4 % 2]
    found = {
        "decision_id": f"d{number}",
        "bundles": {"policy": {"revision": "p"}, "state": {"revision": "s"}},
        "path": "privtab/shop/allow",
        "input": {
            "subject": {"type": "user", "id": user},
            "action": {"name": action},
            "resource": {"type": "item", "id": "s/a/i"},
        },
        "timestamp": f"2026-11-28T00:{number // 60 % 60:02d}:{number % 60:02d}Z",
    }
    # The owner may not read by this policy, and nobody answered one in a hundred.
    answer = (user, action) in (("ann", "read"), ("ben", "write"), ("olga", "read"))
    return found if number % 100 == 99 else {**found, "result": answer}


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for part in range(6):
        text = json.dumps([entry(part * 1000 + number) for number in range(1000)])
        (folder / f"{part}.json.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "console.log").write_text(
        f'{json.dumps(entry(1))}\n{{"level":"info","msg":"hello"}}\n{{"other":1}}\n{{"cut":\n{json.dumps(entry(2))}'
    )
    (folder / "more.jsonl").write_text(json.dumps(entry(3)))
    wrapped = {"log": f"{json.dumps(entry(4))}\n", "stream": "stdout", "time": "x"}
    (folder / "wrapped.log").write_text(f"{json.dumps(wrapped)}\nopa-1  | {json.dumps(entry(5))}\n")
    parquet.write_table(reading.read(folder / "more.jsonl"), folder / "more.parquet")
    (folder / "more.jsonl").unlink()
    return folder


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    folder = tmp_path_factory.mktemp("policies")

    def program(read: str) -> Program:
        file = folder / f"{len(read)}.yaml"
        file.write_text(POLICY.format(version="1", read=read))
        return load_program(file)

    (folder / "state.yaml").write_text(STATES[0])
    old, known = Policy.of(program(READS)), KnownState(rows=load_raw_state(folder / "state.yaml"))
    return Moments(new=Policy.of(program("WRITE (item)")), policy=lambda _: old, state=lambda _: known)


def test_the_rows_are_those_of_one_machine(spark: SparkSession, logs: Path) -> None:
    account = Reading()
    expected = {row["decision_id"] + row["position"]: row for row in reading.read(logs, reading=account).to_pylist()}
    rows = on_spark.read(spark, [str(logs)]).toArrow().to_pylist()
    damaged = [row for row in rows if row["problem"] == DAMAGED]
    assert len(damaged) == account.damaged == 2
    assert sorted(row["position"] for row in damaged) == sorted(account.places)
    found = {row["decision_id"] + row["position"]: row for row in rows if row["problem"] != DAMAGED}
    assert found.keys() == expected.keys()
    assert found == expected


def test_a_replay_finds_what_one_machine_finds(spark: SparkSession, logs: Path, moments: Moments) -> None:
    account = Reading()
    expected = replaying.replay(reading.batches([logs], account), moments, reading=account)
    found = on_spark.replay_files(spark, [str(logs)], moments)
    assert found.account() == expected.account()
    assert found.not_replayed == {NO_ANSWER: 60}
    names = ["kind", "user", "action", "resource", "requests", "first", "last"]
    for kind in replaying.KINDS:
        assert found.of(kind).select(names).to_pylist() == expected.of(kind).select(names).to_pylist()
        assert found.count(kind) > 0


@pytest.mark.slow
def test_what_is_unused_is_what_one_machine_finds(spark: SparkSession, logs: Path, moments: Moments) -> None:
    program, known = moments.new.program, moments.state
    assert known is not None
    rows = known(None).rows
    assert rows is not None
    state, places, _ = validate_with_places(program, rows)
    observed = Observed(whole=state, places=places, moment=time_ns(), kept={})
    account, expected_account = Reading(), Reading()
    found = on_spark.unused(spark, [str(logs)], program, observed, reading=account)
    expected = unused(program, observed, distinct(reading.batches([logs], expected_account), program))
    assert found.to_json() == expected.to_json()
    assert found.log.timeline == expected.log.timeline
    assert account.to_json() == expected_account.to_json()
    assert found.log.skipped == {NO_ANSWER: 60}
    assert spark.createDataFrame(found.table()).toArrow() == expected.table()


@pytest.mark.slow
def test_what_spark_leaves_out_is_named(spark: SparkSession, tmp_path: Path, moments: Moments, logs: Path) -> None:
    for name in ("a.json", "_b.json", ".c.json", "d/_e/f.json", "_g=1/h.json", "_SUCCESS"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("" if name == "_SUCCESS" else json.dumps([entry(1)]))
    hidden = [f"{tmp_path}/{name}:0" for name in (".c.json", "_b.json", "d/_e")]

    def named(places: list[str]) -> list[str]:
        assert all(place.endswith(": not read: Spark leaves out names that begin with `_` or `.`") for place in places)
        return sorted(place.partition(": ")[0] for place in places)

    found = on_spark.replay_files(spark, [str(tmp_path)], moments)
    assert (found.replayed, found.reading.damaged) == (2, 3)
    assert named(found.reading.places) == hidden
    frame = on_spark.read(spark, [str(tmp_path)])
    assert named([row.position for row in frame.where(f"problem = '{DAMAGED}'").collect()]) == hidden
    assert frame.count() == 5
    account = Reading()
    assert reading.read(tmp_path, reading=account).num_rows == 5, "on one machine all of them are read"
    assert account.damaged == 0


@pytest.mark.slow
def test_a_stream_has_the_same_rows(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    query = (
        on_spark.read(spark, [str(logs)], stream=True)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == reading.read(logs).num_rows + 2
