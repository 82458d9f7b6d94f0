"""`decide` on random worlds against the reference: every word of the language, every plan, every request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import worlds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab import pipeline
from privtab.ir.nodes import Program
from privtab.ir.request_dependence import rule_flags
from privtab.reference.evaluate import Reference
from privtab.request import Request
from privtab.spark import decide
from privtab.state.nodes import State

PLANS = ("kernel", "joins")
POLICIES = {"kernel": 10, "joins": 2}
"""By plan: joins are planned anew for each policy, which takes longer than all that they decide."""
REQUESTS = 20_000
FLAGS = ("force", "deep", "unheard")


def frame(spark: SparkSession, requests: list[Request]) -> DataFrame:
    """Requests as a table that somebody might have: with columns that `decide` has no use for."""
    columns = {
        "number": pa.array(range(len(requests)), pa.int64()),
        "user": pa.array([r.user for r in requests]),
        "action": pa.array([r.action for r in requests]),
        "entity": pa.array([str(r.resource) for r in requests]),
        "thing": pa.array([str(r.with_["thing"]) if "thing" in r.with_ else None for r in requests], pa.string()),
        "groups": pa.array([list(r.groups) for r in requests], pa.list_(pa.string())),
        **{flag: pa.array([flag in r.flags for r in requests]) for flag in FLAGS},
    }
    return spark.createDataFrame(pa.table(columns))


def generated(folder: Path, seed: int, count: int) -> tuple[Program, State, list[Request]]:
    """A policy, a state and about `count` requests."""
    path = folder / f"{seed}.yaml"
    path.write_text(worlds.policy(seed, features=worlds.IN_SPARK if seed % 2 else ()), encoding="utf-8")
    program = pipeline.load_program(path)
    per_rule = count // len(program.rules) + 1
    return program, worlds.state(program, seed), worlds.requests(program, seed, per_rule)


def differences(spark: SparkSession, folder: Path, plan: str, seeds: Iterator[int]) -> tuple[int, int, list[str]]:
    """How many requests, how many allowed, and what differs."""
    total = allowed = 0
    found: list[str] = []
    for seed in seeds:
        program, state, requests = generated(folder, seed, REQUESTS // POLICIES[plan])
        with_ = {"thing": "thing"} if any(rule.withs for rule in program.rules.values()) else {}
        known = {flag for rule in program.rules.values() for flag in rule_flags(program, rule)}
        decided = decide(
            frame(spark, requests), program, state, subject="user", action=F.col("action"), resource="entity",
            with_=with_, flags={flag: flag for flag in FLAGS if flag in known}, groups="groups", plan=plan,
        )  # fmt: skip
        rows = decided.select("number", "allowed", "reason").toArrow().sort_by("number").to_pylist()
        reference = Reference(program, state)
        assert len(rows) == len(requests)
        for row, request in zip(rows, requests, strict=True):
            want = reference.decide(request).allowed
            total += 1
            allowed += want
            if row["allowed"] is not want or row["reason"] != (None if want else "not granted"):
                found.append(f"seed {seed}: {json.dumps(request.to_json())}: {row}, wanted {want}")
    return total, allowed, found


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS)
def test_decide_answers_as_the_reference(plan: str, spark: SparkSession, tmp_path: Path) -> None:
    total, allowed, found = differences(spark, tmp_path, plan, iter(range(700, 700 + POLICIES[plan])))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
    assert total >= REQUESTS
    assert total / 10 < allowed < total * 9 / 10


@pytest.mark.long
@pytest.mark.parametrize("plan", PLANS)
def test_long_decide_answers_as_the_reference(plan: str, spark: SparkSession, tmp_path: Path) -> None:
    total, _, found = differences(spark, tmp_path, plan, iter(range(10_000, 10_060)))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
