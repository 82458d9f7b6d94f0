"""Decisions by the part of a large state that the requests need, and what keeps them from being decided by it."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import worlds
from decision_rows import CATALOGS as POLICY
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from request_frames import COLUMNS as REQUEST_COLUMNS
from request_frames import attributes_argument, frame, slots

from privtab import pipeline
from privtab.base import StateInvalid
from privtab.ir import rule_flags
from privtab.reference import Reference
from privtab.state import TABLE_COLUMNS
from privtab_spark import Limits, choose, decide, plan

FEATURES: tuple[tuple[str, ...], ...] = (
    (),
    worlds.IN_SPARK,
    ("nested", "attributes", "hierarchy", "implies"),
    ("active", "hierarchy", "nested"),
)
GRANTS = [
    ("user:ann", "allow", "USE", "catalog:c"),
    ("user:ann", "allow", "READ", "schema:c/s"),
    ("user:ann", "deny", "READ", "table:c/s/closed"),
    ("user:ann", "allow", "READ", "table:c/ü/t"),
    ("user:bob", "allow", "READ", "table:c/other/t"),
]
READ: dict[str, Any] = {"subject": "user", "action": "read", "resource": ("table", "path")}


@pytest.fixture(autouse=True)
def tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "PACKED", 0)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY, encoding="utf-8")
    return path


def tables(spark: SparkSession, **rows: list[tuple[Any, ...]]) -> dict[str, DataFrame]:
    """Tables of a state by name, with their raw rows."""
    return {
        table: spark.createDataFrame(own, ", ".join(f"`{column}` string" for column in TABLE_COLUMNS[table].names))
        for table, own in rows.items()
    }


def needed_rows(caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """Return the number of rows that the requests needed, and the number of all rows, from the log."""
    said = [found for message in caplog.messages if (found := re.search(r"need ([\d,]+) of ([\d,]+) rows", message))]
    assert len(said) == 1
    of_part, of_all = (int(number.replace(",", "")) for number in said[0].groups())
    return of_part, of_all


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(number, marks=() if number % 2 else pytest.mark.long) for number in range(len(FEATURES))]
)
def test_the_rows_that_requests_need_answer_as_the_reference(
    number: int, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(worlds.policy(740 + number, features=FEATURES[number]), encoding="utf-8")
    program = pipeline.load_program(path)
    state = worlds.state(program, 740 + number)
    requests = worlds.requests(program, 740 + number, 4000 // len(program.rules) + 1)
    asked = sorted({str(request.resource) for request in requests})[::7]  # the others are left out
    requests = [request for request in requests if str(request.resource) in asked]
    rows = {
        t: [tuple(row.get(c) for c in TABLE_COLUMNS[t].names) for row in own] for t, own in state.to_tables().items()
    }
    flags = sorted({flag for rule in program.rules.values() for flag in rule_flags(program, rule)})
    narrows = program.semantics.active_roles == "request"
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        decided = decide(
            frame(spark, requests, flags), program, tables(spark, **{t: own for t, own in rows.items() if own}),
            subject="user", action=F.col("action"), resource="entity", with_={slot: slot for slot in slots(requests)},
            flags={flag: REQUEST_COLUMNS.get(flag, flag) for flag in flags}, groups="groups",
            attributes=attributes_argument(requests), active_roles="active" if narrows else None, plan="portions",
        )  # fmt: skip
    part, whole = needed_rows(caplog)
    assert part < whole
    answers = decided.select("number", "allowed", "reason").toArrow().sort_by("number").to_pylist()
    reference = Reference(program, state)
    wanted = [
        (number, reference.decide(request).allowed and not (narrows and request.active_roles is None))
        for number, request in enumerate(requests)
    ]
    assert [(row["number"], row["allowed"]) for row in answers] == wanted
    assert {row["reason"] for row in answers} <= {None, "not granted", *["null"] * narrows}
    assert len(wanted) > 200
    assert 0 < sum(allowed for _, allowed in wanted) < len(wanted)


@pytest.mark.slow
def test_paths_of_every_object_count_and_rows_that_are_no_requests_do_not(
    spark: SparkSession, policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = [
        ("ann", "read", "c/s/t", None, True, None),
        ("ann", "read", "c/s/closed", None, False, "not granted"),
        ("ann", "read", "c/ü/t", "/".join("n" * 5000), True, None),
        ("ann", "copy", "c/s/t", "c/ü/t", True, None),
        ("ann", "copy", "c/s/t", "c/s/closed", False, "not granted"),
        ("ann", "copy", "c/s/t", None, False, "null"),
        ("ann", "create", "c/s/", None, True, None),
        ("ann", "read", None, None, False, "null"),
        ("ann", "read", "", None, False, "wrong depth"),
        ("ann", "read", "c//t", None, False, "malformed path"),
        ("ann", "read", "/".join("c" * 5000), None, False, "wrong depth"),
    ]
    names = "user string, action string, path string, to string, want boolean, why string"
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        decided = decide(
            spark.createDataFrame(wanted, names), policy, tables(spark, grants=GRANTS), subject="user", plan="portions",
            action=F.col("action"), resource=("table", "path"), with_={"to": ("table", "to")},
        )  # fmt: skip
    assert needed_rows(caplog) == (4, 5)
    assert [(row["allowed"], row["reason"]) for row in decided.collect()] == [row[4:] for row in wanted]


@pytest.mark.slow
def test_rows_that_are_others_when_they_are_read_again_are_not_allowed(spark: SparkSession, policy: Path) -> None:
    """All is allowed from above and denied on each table: without the rows of its table, a request would be allowed."""

    def chance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = [f"c/s/t{random.randrange(10**9)}" for _ in range(batch.num_rows)]
            yield pa.RecordBatch.from_pydict({"path": paths})

    rows = spark.range(400).mapInArrow(chance, "path string").withColumn("user", F.lit("ann"))
    decided = decide(rows, policy, tables(spark, grants=GRANTS), plan="portions", **READ)
    assert {(row["allowed"], row["reason"]) for row in decided.collect()} == {(False, "changed between reads")}
    pinned = decide(rows, policy, tables(spark, grants=GRANTS), limits=Limits(large=3, pin=True), **READ)
    assert {(row["allowed"], row["reason"]) for row in pinned.collect()} == {(True, None)}


@pytest.mark.slow
def test_a_row_that_may_deny_is_looked_for_in_all_of_the_state(spark: SparkSession, policy: Path) -> None:
    rows = spark.createDataFrame([("ann", "c/s/t")], "user string, path string")
    wrong = ("user:eve", "deny", "RAED", "table:d/s/t")
    with pytest.raises(StateInvalid) as whole:
        decide(rows, policy, tables(spark, grants=[*GRANTS, wrong]), plan="kernel", **READ)
    with pytest.raises(StateInvalid) as part:
        decide(rows, policy, tables(spark, grants=[*GRANTS, wrong]), plan="portions", **READ)
    assert str(part.value) == str(whole.value)
    harmless = [("user:eve", "allow", "RAED", "table:c/s/t"), ("user:eve", None, "READ", "table:c/s/t")]
    with pytest.raises(StateInvalid, match="effect"):
        decide(rows, policy, tables(spark, grants=[*GRANTS, *harmless]), plan="portions", **READ)
    decided = decide(rows, policy, tables(spark, grants=[*GRANTS, *harmless[:1]]), plan="portions", **READ)
    assert [row["allowed"] for row in decided.collect()] == [True]


@pytest.mark.slow
def test_a_row_about_an_id_that_it_writes_in_another_spelling_is_found(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(
        POLICY[: POLICY.index("entities")] + "entities: {todo: }\ntypes: {todo: {flat: true}}\nprivileges: [READ]\n"
        "semantics: {deny: overrides}\ntables: {todo: {read: READ (todo)}}\n", encoding="utf-8",
    )  # fmt: skip
    grants = [("user:ann", effect, "READ", f"todo:{id_}") for effect, id_ in
              (("allow", "/a"), ("allow", "%2Fb"), ("deny", "/b"), ("allow", "c"))]  # fmt: skip
    rows = spark.createDataFrame([("ann", "%2Fa"), ("ann", "%2Fb"), ("ann", "c")], "user string, path string")
    state = tables(spark, grants=grants)
    for plan_ in ("kernel", "portions"):
        decided = decide(rows, path, state, subject="user", action="read", resource=("todo", "path"), plan=plan_)
        assert [row["allowed"] for row in decided.collect()] == [True, False, True]


@pytest.mark.slow
def test_when_a_part_is_looked_for(spark: SparkSession, policy: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = spark.createDataFrame([("ann", "c/s/t"), ("bob", "c/s/t")], "user string, path string")
    state = tables(spark, grants=[*GRANTS, *((f"user:u{n}", "allow", "READ", f"table:d/s/t{n}") for n in range(95))])
    few = Limits(large=30)
    chosen = plan(rows, policy, state, limits=few, **READ)
    assert (chosen.plan, chosen.selected) == ("kernel", ("grants",))
    assert "  of `grants`, only the rows that the requests need are taken, if these fit" in str(chosen)
    assert plan(rows, policy, state, limits=Limits(large=150), **READ).selected == ()
    assert plan(rows, policy, state, plan="kernel", limits=few, **READ).selected == ()
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        first = decide(rows, policy, state, limits=few, **READ)
    assert needed_rows(caplog) == (2, 100)
    # The next call by the same state prepares all of it.
    assert plan(rows, policy, state, limits=few, **READ).selected == ()
    # A part that does not fit either is divided.
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="privtab.spark"):
        divided = decide(rows, policy, state, limits=Limits(rows=1), **READ)
    assert needed_rows(caplog) == (2, 100)
    for decided in (first, divided, decide(rows, policy, state, limits=few, **READ)):
        assert {(row["user"], row["allowed"]) for row in decided.collect()} == {("ann", True), ("bob", False)}
