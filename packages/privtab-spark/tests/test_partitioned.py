"""A state that no process holds has the same matrix, worked out portion by portion."""

from __future__ import annotations

import random
from typing import Any

import generated_programs
import pytest
import worlds
from pyspark.sql import DataFrame, SparkSession

from privtab.base import Entity, UsageError
from privtab.ir import Program
from privtab.state import Grant, State
from privtab_spark import certify, entitlements, portions
from privtab_spark.matrix import opening
from privtab_spark.matrix.opening import open_matrix, open_state
from privtab_spark.matrix.question import Question
from privtab_spark.policies import open_policy
from privtab_spark.state import state_tables


def world(seed: int) -> tuple[Program, State]:
    """A generated policy and state: every second one with all features that Spark supports."""
    program = generated_programs.program(seed, *((*worlds.IN_SPARK, "inside") if seed % 2 else ()))
    return program, worlds.state(program, seed)


def sorted_rows(frame: DataFrame) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in frame.collect())


def in_portions(
    spark: SparkSession, seed: int, monkeypatch: pytest.MonkeyPatch, depth: int, **arguments: Any
) -> list[str]:
    """The matrix of a world in portions that begin with so many names."""
    program, rows = world(seed)
    state = state_tables(spark, program, rows)
    with monkeypatch.context() as patched:
        patched.setattr(opening, "LOCAL", -1)
        patched.setattr(portions, "depth_of", lambda *_: depth)
        return sorted_rows(entitlements(program, state, spark=spark, partitions=1, **arguments))


def unset(program: Program) -> tuple[str, ...]:
    """Every flag of a policy, said not to be set."""
    shapes = (s for of_type in open_policy(program).vocabulary.operations.values() for s in of_type.values())
    return tuple(sorted({f"{flag}=false" for shape in shapes for flag in shape.flags}))


@pytest.mark.slow
def test_portions_have_the_rows_of_the_whole(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # Privileges, owners, members, roles and their scopes, names that are users and roles, what anyone may, and single types within
    # single types: in portions of two names.
    seed = 1303
    program, rows = world(seed)
    policy = open_policy(program)
    source = open_state(policy, rows)
    flags = unset(program)
    matrix = open_matrix(policy, source, Question(flags=frozenset(flags)))
    keys = opening.of_source(policy, source)
    whole = sorted(repr(row) for batch in matrix.of(keys) for row in batch.to_pylist())
    assert len(whole) > 100
    assert in_portions(spark, seed, monkeypatch, 2, flags=flags) == whole


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_portions_of_many_worlds(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, search_seed: int, seed: int
) -> None:
    seed += search_seed
    rnd, (program, rows) = random.Random(seed), world(seed)
    slots = {w.name: w.types for rule in program.rules.values() for w in rule.withs}
    known = {f for s in open_policy(program).vocabulary.operations.values() for o in s.values() for f in o.flags}
    arguments: dict[str, Any] = {
        "ways": rnd.choice(["first", "all"]),
        "with_": {n: worlds.entity(program, rnd.choice(t), rnd) for n, t in slots.items() if rnd.random() < 0.7},
        "flags": sorted(f if rnd.random() < 0.5 else f"{f}=false" for f in known),
    }
    if rnd.random() < 0.5:
        named = [worlds.entity(program, type_, rnd) for type_ in program.entities for _ in range(5)]
        arguments["entities"] = [*named, *(f"{e.type}:{e.id.rpartition('/')[0]}" for e in named), "low:x//x"]
    match seed % 4:
        case 0:
            arguments["users"] = ["ann", "a/b", "nobody"]
        case 1:
            arguments["users"] = spark.createDataFrame([("ann",), ("user:c%",), ("nobody",), (None,)], "name string")
            arguments["principals"] = ["role:reader", "group:hr"]
        case 2:
            arguments["principals"] = ["role:reader", "group:hr", "user:bob"][: rnd.randint(1, 3)]
    state = state_tables(spark, program, rows)
    whole = sorted_rows(entitlements(program, state, spark=spark, partitions=1, **arguments))
    assert in_portions(spark, seed, monkeypatch, rnd.randint(1, 3), **arguments) == whole


@pytest.mark.long
def test_portions_begin_where_they_are_small_and_repeat_little(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    program = generated_programs.program(189)
    below = [f"x/{mid}/{low}" for mid in "ab" for low in "cde"]
    on = [Entity("low", path) for path in below] + [Entity("top", "x")] * 3
    grants = tuple(
        Grant(grantee=f"user:u{n}", effect="allow", privilege="READ", entity=entity) for n, entity in enumerate(on)
    )
    state = state_tables(spark, program, State(grants=grants))

    def depth(rows: int, repeated: int = 4) -> int:
        monkeypatch.setattr(portions, "ROWS", rows)
        monkeypatch.setattr(portions, "REPEATED", repeated)
        return portions.depth_of(state.tables["grants"].select("path"), len(grants), 3)

    # Below x/a and x/b there are three rows each, and three more above both.
    assert [depth(6), depth(6, repeated=1)] == [2, 1]
    for module, name in ((opening, "LOCAL"), (portions, "LOCAL"), (portions, "ROWS")):
        monkeypatch.setattr(module, name, 2)
    with pytest.raises(UsageError, match="4 rows at, above and below `x/b/e`, more than the 2"):
        entitlements(program, state, spark=spark, flags=unset(program))
    with pytest.raises(UsageError, match="more than the 2 that one process can hold: use `entitlements`"):
        certify(program, state, tmp_path / "it", spark=spark, flags=unset(program))
    assert not (tmp_path / "it").exists()
