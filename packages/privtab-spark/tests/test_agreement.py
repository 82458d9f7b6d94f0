"""`decide` on random worlds against the reference: every word of the language, every plan, every request."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
import worlds
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from request_frames import COLUMNS, attributes_argument, frame, slots

from privtab import pipeline
from privtab.base import Request
from privtab.ir import Program, rule_flags
from privtab.reference import Reference
from privtab.state import State
from privtab_spark import decide

POLICIES = {"kernel": 4, "portions": 2}
"""Number of policies by plan: dividing a state takes longer than all that is decided by its portions."""
BY_ARRAYS: tuple[tuple[str, ...], ...] = ((), worlds.IN_SPARK)
"""Features of policies for which the kernel needs no index."""
BEYOND_ARRAYS: tuple[tuple[str, ...], ...] = (
    ("nested",),
    ("below", "hierarchy"),
    ("attributes",),
    ("flat",),
    ("nested", "below", "hierarchy", "implies"),
    ("flat", "nested", "below"),
    ("attributes", "below", "implies"),
    ("flat", "below", "hierarchy", "implies"),
    ("active", "hierarchy"),
    ("active", "hierarchy", "nested", "implies"),
)
"""Features of policies that arrays do not support, one or several at once."""
REQUESTS = 5_000
World: TypeAlias = tuple[Program, State, list[Request]]


def generated(folder: Path, seed: int, count: int, features: Collection[str]) -> World:
    """A policy, a state and about `count` requests."""
    path = folder / f"{seed}.yaml"
    path.write_text(worlds.policy(seed, features=features), encoding="utf-8")
    return world_of(pipeline.load_program(path), seed, count)


def world_of(program: Program, seed: int, count: int) -> World:
    """A random state of a policy, and about `count` requests."""
    per_rule = count // len(program.rules) + 1
    return program, worlds.state(program, seed), worlds.requests(program, seed, per_rule)


def differences(spark: SparkSession, plan: str, generated_worlds: Iterable[World]) -> tuple[int, int, list[str]]:
    """How many requests, how many allowed, and what differs."""
    total = allowed = 0
    found: list[str] = []
    for program, state, requests in generated_worlds:
        known = sorted({flag for rule in program.rules.values() for flag in rule_flags(program, rule)})
        narrows = program.semantics.active_roles == "request"
        spoilt = worlds.with_unusable_names(program, requests[:200], len(requests))
        decided = decide(
            frame(spark, [*requests, *spoilt], known), program, state, subject="user", action=F.col("action"), resource="entity",
            with_={slot: slot for slot in slots(requests)}, flags={flag: COLUMNS.get(flag, flag) for flag in known}, groups="groups", attributes=attributes_argument(requests),
            active_roles="active" if narrows else None, plan=plan,
        )  # fmt: skip
        rows = decided.select("number", "allowed", "reason").toArrow().sort_by("number").to_pylist()
        reference = Reference(program, state)
        assert len(rows) == len(requests) + len(spoilt)
        for row, request in zip(rows[len(requests) :], spoilt, strict=True):
            unnamed = narrows and request.active_roles is None
            if row["allowed"] or row["reason"] not in ("malformed name", "malformed path", *["null"] * unnamed):
                found.append(f"{program.version}: {json.dumps(request.to_json())}: {row}, which is no request")
        for row, request in zip(rows, requests, strict=False):
            unnamed = narrows and request.active_roles is None
            want = not unnamed and reference.decide(request).allowed
            total += 1
            allowed += want
            if row["allowed"] is not want or row["reason"] != (None if want else "null" if unnamed else "not granted"):
                found.append(f"{program.version}: {json.dumps(request.to_json())}: {row}, wanted {want}")
    return total, allowed, found


def plain_worlds(folder: Path, plan: str, seeds: Iterable[int]) -> Iterator[World]:
    """Policies that a plan supports; of the kernel, those that arrays support."""
    features = BY_ARRAYS if plan == "kernel" else worlds.IN_PORTIONS
    for seed in seeds:
        yield generated(folder, seed, REQUESTS // POLICIES[plan], features[seed % len(features)])


def other_worlds(folder: Path, seeds: Iterable[int]) -> Iterator[World]:
    """Policies that arrays do not support."""
    for seed in seeds:
        yield generated(folder, seed, REQUESTS // len(BEYOND_ARRAYS), BEYOND_ARRAYS[seed % len(BEYOND_ARRAYS)])


@pytest.mark.slow
@pytest.mark.parametrize("plan", POLICIES)
def test_decide_answers_as_the_reference(plan: str, spark: SparkSession, tmp_path: Path) -> None:
    seeds = range(701, 701 + POLICIES[plan])  # in portions: those with most features
    total, allowed, found = differences(spark, plan, plain_worlds(tmp_path, plan, seeds))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
    assert total >= REQUESTS
    assert total / 10 < allowed < total * 9 / 10


@pytest.mark.slow
def test_decide_answers_as_the_reference_where_arrays_do_not(spark: SparkSession, tmp_path: Path) -> None:
    seeds = range(720, 720 + len(BEYOND_ARRAYS))
    total, allowed, found = differences(spark, "auto", other_worlds(tmp_path, seeds))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
    assert total / 10 < allowed < total * 9 / 10


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["cdap/manual", pytest.param("polaris/1.7", marks=pytest.mark.long)])
def test_shipped_policies_answer_as_the_reference(policy: str, spark: SparkSession) -> None:
    program = pipeline.load_program(policy)
    total, allowed, found = differences(spark, "auto", (world_of(program, seed, 2_000) for seed in range(3)))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
    assert allowed > total / 50


@pytest.mark.long
@pytest.mark.parametrize("plan", POLICIES)
def test_long_decide_answers_as_the_reference(plan: str, spark: SparkSession, tmp_path: Path, search_seed: int) -> None:
    seeds = range(search_seed, search_seed + 15)
    total, _, found = differences(spark, plan, plain_worlds(tmp_path, plan, seeds))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"


@pytest.mark.long
def test_long_decide_answers_as_the_reference_where_arrays_do_not(
    spark: SparkSession, tmp_path: Path, search_seed: int
) -> None:
    seeds = range(search_seed, search_seed + 15)
    total, _, found = differences(spark, "auto", other_worlds(tmp_path, seeds))
    assert not found, f"{len(found)} of {total} differ, such as {found[:3]}"
