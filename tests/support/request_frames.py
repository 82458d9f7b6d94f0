"""Requests as DataFrames, and the arguments of `decide` for them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from privtab.base.attributes import AttributeKind
from privtab.base.request import Request

FLAGS = ("force", "Force", "unheard")
"""Flags of the requests, whether or not a policy knows them."""
COLUMNS = {"Force": "other force"}
"""The columns of flags whose own names differ from those of others in case alone, which DataFrames do not allow."""


def slots(requests: list[Request]) -> list[str]:
    """The names of all `with` objects."""
    return sorted({slot for request in requests for slot in request.with_})


def frame(spark: SparkSession, requests: list[Request], flags: Collection[str]) -> DataFrame:
    """Requests as a table that somebody might have: with columns that `decide` has no use for."""
    columns = {
        "number": pa.array(range(len(requests)), pa.int64()),
        "user": pa.array([r.user for r in requests]),
        "action": pa.array([r.action for r in requests]),
        "entity": pa.array([str(r.resource) for r in requests]),
        **{
            slot: pa.array([str(r.with_[slot]) if slot in r.with_ else None for r in requests], pa.string())
            for slot in slots(requests)
        },
        "active": pa.array(
            [None if r.active_roles is None else list(r.active_roles) for r in requests], pa.list_(pa.string())
        ),
        "groups": pa.array([list(r.groups) for r in requests], pa.list_(pa.string())),
        **{column: pa.array(values, kind) for column, (kind, values) in attribute_columns(requests).items()},
        **{COLUMNS.get(flag, flag): pa.array([flag in r.flags for r in requests]) for flag in {*flags, *FLAGS}},
    }
    return spark.createDataFrame(pa.table(columns))


def places(requests: list[Request]) -> dict[str, tuple[AttributeKind, str, str]]:
    """By column, the attributes that any request gives."""
    given = sorted({(kind, slot, name) for r in requests for kind, slot, name, _ in r.attributes.each()})
    return {f"attribute {number}": place for number, place in enumerate(given)}


def attribute_columns(requests: list[Request]) -> dict[str, tuple[pa.DataType, list[Any]]]:
    """The columns of attributes: their types and values."""
    found = {}
    for column, place in places(requests).items():
        given = [{(kind, slot, name): value for kind, slot, name, value in r.attributes.each()} for r in requests]
        values = [of_request.get(place) for of_request in given]
        kinds = {list: pa.list_(pa.string()), bool: pa.bool_(), int: pa.int32(), str: pa.string()}
        [kind] = {kinds[type(value)] for value in values if value is not None}
        found[column] = kind, values
    return found


def attributes_argument(requests: list[Request]) -> dict[str, Any]:
    """The argument `attributes` of `decide`."""
    found: dict[str, Any] = {}
    for column, (kind, slot, name) in places(requests).items():
        place = found.setdefault("with", {}).setdefault(slot, {}) if slot else found.setdefault(kind, {})
        place[name] = column
    return found
