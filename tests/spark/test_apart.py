"""A state that no process holds has the same matrix, worked out portion by portion."""

from __future__ import annotations

import random
from typing import Any

import generated
import pytest
import worlds
from pyspark.sql import DataFrame, SparkSession

from privtab.errors import UsageError
from privtab.request import Entity
from privtab.spark import SparkState, certify, entitlements
from privtab.spark.matrix import apart, opening
from privtab.spark.policies import open_policy
from privtab.state.nodes import Grant, State


def told(frame: DataFrame) -> list[str]:
    return sorted(map(repr, frame.collect()))


def both(
    spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch, *, rows: int, **asked: Any
) -> tuple[list[str], list[str]]:
    """The matrix of a world from one process, and in portions of so many rows."""
    program = generated.program(seed)
    state = SparkState.of(spark, program, worlds.state(program, seed))
    found = []
    for local in (opening.LOCAL, -1):
        monkeypatch.setattr(opening, "LOCAL", local)
        monkeypatch.setattr(apart, "ROWS", rows)
        monkeypatch.setattr(apart, "MOST_TASKS", 2)
        found.append(told(entitlements(program, state, spark=spark, partitions=1, **asked)))
    monkeypatch.undo()
    return found[0], found[1]


@pytest.mark.slow
def test_portions_have_the_rows_of_the_whole(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Privileges, owners, members, roles and their scopes, names that are users and roles, what anyone may: in portions of two names.
    whole, portions = both(spark, 189, monkeypatch, rows=1)
    assert len(whole) > 100
    assert portions == whole


@pytest.mark.long
@pytest.mark.parametrize("seed", range(30))
def test_portions_of_many_worlds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rnd, program = random.Random(seed), generated.program(seed)
    slots = {w.name: w.types for rule in program.rules.values() for w in rule.withs}
    known = {f for s in open_policy(program).vocabulary.operations.values() for o in s.values() for f in o.flags}
    asked: dict[str, Any] = {
        "ways": rnd.choice(["first", "all"]),
        "with_": {n: worlds.entity(program, rnd.choice(t), rnd) for n, t in slots.items() if rnd.random() < 0.7},
        "flags": sorted(f for f in known if rnd.random() < 0.5),
    }
    if rnd.random() < 0.5:
        named = [worlds.entity(program, type_, rnd) for type_ in program.entities for _ in range(5)]
        asked["entities"] = [*named, *(f"{e.type}:{e.id.rpartition('/')[0]}" for e in named), "low:x//x"]
    match seed % 4:
        case 0:
            asked["users"] = ["ann", "a/b", "nobody"]
        case 1:
            asked["users"] = spark.createDataFrame([("ann",), ("user:c%",), ("nobody",), (None,)], "name string")
            asked["principals"] = ["role:reader", "group:hr"]
        case 2:
            asked["principals"] = ["role:reader", "group:hr", "user:bob"][: rnd.randint(1, 3)]
    whole, portions = both(spark, seed, monkeypatch, rows=rnd.choice([1, 3, 1000]), **asked)
    assert portions == whole


def test_one_entity_with_more_rows_than_a_task_takes_is_told(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    program = generated.program(189)
    grants = tuple(
        Grant(grantee=f"user:u{n}", effect="allow", privilege="READ", entity=Entity("top", "x")) for n in range(3)
    )
    state = SparkState.of(spark, program, State(grants=grants))
    for module, name in ((opening, "LOCAL"), (apart, "LOCAL"), (apart, "ROWS")):
        monkeypatch.setattr(module, name, 2)
    with pytest.raises(UsageError, match="3 rows at and below `x`, more than the 2"):
        entitlements(program, state, spark=spark)
    with pytest.raises(UsageError, match="more than the 2 that one process takes: `entitlements` goes through it"):
        certify(program, state, tmp_path / "it", spark=spark)
    assert not (tmp_path / "it").exists()
