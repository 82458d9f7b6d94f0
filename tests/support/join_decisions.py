"""Requests as canonical columns, and their decisions by joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from privtab.ir.nodes import Program
from privtab.request import Request, flag_name
from privtab.spark.joins import decide_by_joins, forget
from privtab.spark.state import SparkState, state_tables
from privtab.state.nodes import State

Answers: TypeAlias = list[tuple[bool, str | None]]


def columns(program: Program, requests: Sequence[Request]) -> Mapping[str, Any]:
    """The canonical columns, and `number`."""
    slots = sorted({w.name for rule in program.rules.values() for w in rule.withs})
    flags = sorted({flag for request in requests for flag in map(flag_name, request.flags)})
    found: dict[str, Any] = {
        "number": pa.array(range(len(requests)), pa.int64()),
        "user": [r.user for r in requests],
        "action": [r.action for r in requests],
        "type": [r.resource.type for r in requests],
        "path": [r.resource.id for r in requests],
    }
    for slot in slots:
        objects = [r.with_.get(slot) for r in requests]
        found[f"with_{slot}_type"] = pa.array([o and o.type for o in objects], pa.string())
        found[f"with_{slot}_path"] = pa.array([o and o.id for o in objects], pa.string())
    for flag in flags:
        found[f"flag_{flag}"] = [flag in r.flags for r in requests]
    if "request" in program.semantics.groups:
        found["groups"] = pa.array([list(r.groups) for r in requests], pa.list_(pa.string()))
    return found


def frame(spark: SparkSession, program: Program, requests: Sequence[Request]) -> DataFrame:
    """Requests as a DataFrame."""
    return spark.createDataFrame(pa.table(dict(columns(program, requests))))


def ask(
    spark: SparkSession, program: Program, state: State | SparkState, requests: Sequence[Request], **more: Any
) -> Answers:
    """The answers to requests, by position."""
    tables = state_tables(spark, program, state)
    decided = decide_by_joins(frame(spark, program, requests), program, tables, **more)
    rows = decided.select("number", "allowed", "reason").toArrow().sort_by("number").to_pylist()
    forget(tables)
    assert [row["number"] for row in rows] == list(range(len(requests)))
    return [(row["allowed"], row["reason"]) for row in rows]
