"""On Spark, logs are read and replayed as on one machine, whole and as a stream."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from example_bundles import POLICY, READS, STATES

from privtab.ir.nodes import Program
from privtab.logs import on_spark, reading, replaying
from privtab.logs.moments import KnownState, Moments, Policy
from privtab.logs.schema import DAMAGED, NO_ANSWER, Reading
from privtab.pipeline import load_program
from privtab.state.load import load

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
    (folder / "console.log").write_text(f'{json.dumps(entry(1))}\n{{"msg":"hello"}}\n{{"cut":\n{json.dumps(entry(2))}')
    return folder


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Moments:
    folder = tmp_path_factory.mktemp("policies")

    def program(read: str) -> Program:
        file = folder / f"{len(read)}.yaml"
        file.write_text(POLICY.format(version="1", read=read))
        return load_program(file)

    (folder / "state.yaml").write_text(STATES[0])
    old, known = Policy.of(program(READS)), KnownState(rows=load(folder / "state.yaml"))
    return Moments(new=Policy.of(program("WRITE (item)")), policy=lambda _: old, state=lambda _: known)


def test_the_rows_are_those_of_one_machine(spark: SparkSession, logs: Path) -> None:
    account = Reading()
    expected = {row["decision_id"] + row["position"]: row for row in reading.read(logs, reading=account).to_pylist()}
    rows = on_spark.read(spark, [str(logs)]).toArrow().to_pylist()
    damaged = [row for row in rows if row["problem"] == DAMAGED]
    assert len(damaged) == account.damaged == 1
    assert damaged[0]["position"].startswith(account.places[0])
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
def test_a_stream_has_the_same_rows(spark: SparkSession, logs: Path, tmp_path: Path) -> None:
    query = (
        on_spark.read(spark, [str(logs)], stream=True)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "rows"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "rows")).count() == reading.read(logs).num_rows + 1
