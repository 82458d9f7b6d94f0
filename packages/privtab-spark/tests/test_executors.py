"""Clients inside executors: a real OPA, and bundles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import decision_rows
import pytest
import requests as http
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import Client, Embedded, pipeline
from privtab.base import UsageError
from privtab.bundle import state_bundle
from privtab.client import Asker
from privtab.engines import OpaServer
from privtab.pipeline import policy_artifacts
from privtab.state import load_raw_state, validate
from privtab_spark import decide_with

ROWS = [*[row[:2] for row in decision_rows.LOOKS], *[("ann", "s/a/1"), ("ann", "s/a/2")] * 200]
WANTED = [*[row[2:] for row in decision_rows.LOOKS], *[(True, None), (False, "not granted")] * 200]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundles")
    policy, state = decision_rows.files(folder)
    program = pipeline.load_program(policy)
    artifacts = policy_artifacts(program)
    rows, _ = validate(program, load_raw_state(state))
    (folder / "policy.tar.gz").write_bytes(artifacts.bundle())
    (folder / "state.tar.gz").write_bytes(state_bundle(program, rows))
    return folder


@pytest.fixture(scope="module")
def opa(bundles: Path, opa_binary: Path) -> Iterator[str]:
    with OpaServer([bundles / "policy.tar.gz", bundles / "state.tar.gz"], binary=opa_binary) as server:
        yield server.url


def test_an_opa_answers_and_hears_each_request_once(spark: SparkSession, opa: str) -> None:
    df = decision_rows.frame(spark, ROWS, "user string, path string").withColumn("wide", F.array("path"))

    def batches() -> float:
        lines = http.get(f"{opa}/metrics", timeout=10).text.splitlines()
        posts = [line for line in lines if 'method="post"' in line and "count" in line]
        return sum(float(line.rpartition(" ")[2]) for line in posts)

    before = batches()
    decided = decide_with(df, opa, subject="user", action="look", resource=("box", "path"))
    assert decision_rows.answer_rows(decided) == WANTED
    assert batches() - before <= 4
    assert decided.columns == [*df.columns, "allowed", "reason"]


@pytest.mark.slow
def test_bundles_in_the_executor_answer_the_whole_request(spark: SparkSession, bundles: Path) -> None:
    where = [str(bundles / "policy.tar.gz"), str(bundles / "state.tar.gz")]

    def connect() -> Asker:
        return Embedded(*where)

    rows = [
        ("bob", "move", "box:s/a/1", "shelf:s/b", None, []),
        ("bob", "move", "box:s/a/1", "box:s/b/1", None, []),
        ("bob", "move", "box:s/a/1", None, None, []),
        ("bob", "take", "box:s/a/1", None, True, []),
        ("dan", "take", "box:s/a/1", None, False, ["hr"]),
        ("dan", "take", "box:s/a/1", None, False, None),
        ("ann", "fly", "box:s/a/1", None, False, []),
        ("ann", "look", "box", None, False, []),
    ]
    schema = "user string, action string, entity string, target string, careful boolean, groups array<string>"
    decided = decide_with(
        decision_rows.frame(spark, rows, schema), connect, subject="user", action=F.col("action"), resource="entity",
        with_={"target": "target"}, flags={"careful": "careful"}, groups="groups",
    )  # fmt: skip
    assert decision_rows.answer_rows(decided) == [
        (True, None),
        (False, "not of a type that the operation takes"),
        (False, "null"),
        (False, "not granted"),
        (True, None),
        (False, "null"),
        (False, "unknown operation"),
        (False, "malformed entity"),
    ]


def test_no_answer_ends_the_job_or_denies(spark: SparkSession, bundles: Path, opa_binary: Path) -> None:
    df = decision_rows.frame(spark, [("ann", "s/a/1"), (None, "s/a/1")], "user string, path string")
    with OpaServer([bundles / "policy.tar.gz", bundles / "state.tar.gz"], binary=opa_binary) as server:
        client = Client(server.url, retries=0, total=1.0)
        asks = [
            decide_with(df, client, subject="user", action="look", resource=("box", "path"), on_error=on_error)
            for on_error in ("deny", "fail")
        ]
        assert decision_rows.answer_rows(asks[0]) == [(True, None), (False, "null")]
    assert decision_rows.answer_rows(asks[0]) == [(False, "no answer"), (False, "null")]
    with pytest.raises(Exception, match=r"DecisionUnavailable"):
        asks[1].collect()


def test_invalid_connections_are_refused(spark: SparkSession) -> None:
    df = decision_rows.frame(spark, [("ann", "s/a/1")], "user string, path string")
    for connect, on_error in ((7, "fail"), ("http://127.0.0.1:1", "ignore")):
        with pytest.raises(UsageError):
            decide_with(df, connect, subject="user", action="look", resource=("box", "path"), on_error=on_error)  # type: ignore[arg-type]
