"""The effects of requests as a column: the text of each, and the row of the state that it adds or removes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.effects import Effect
from privtab.engines.conditions import RESOURCE, ConditionReader
from privtab.errors import UsageError
from privtab.spark.arguments import RequestColumns
from privtab.spark.frames import free

TYPE = "array<struct<effect: string, action: string, table: string, row: map<string, string>, about: string>>"
_ENTITY, _USER, _ROLE = "type:\0", "\1", "\2"
"""What stands for the entity, the user and the first active role of an effect that is not yet about a request."""


def with_effects(request: RequestColumns, program: Mapping[str, Any]) -> RequestColumns:
    """The requests with a hidden column of the effects that each has if it is allowed. Raises UsageError.

    `program`: its JSON.
    """
    name = free("__privtab_effects", [*request.frame.columns, request.code])
    frame = request.frame.select("*", _effects(request, program).alias(name))
    return replace(request, frame=frame, hidden=(*request.hidden, name), effects=name)


def none() -> Column:
    """No effects."""
    return F.array().cast(TYPE)


def of_allowed(effects: Column, allowed: Column) -> Column:
    """The effects of a decided request: none if it is denied."""
    return F.when(allowed, effects).otherwise(none())


def _effects(request: RequestColumns, program: Mapping[str, Any]) -> Column:
    reader = ConditionReader(program)
    if reader.nested or reader.flat:
        raise UsageError(
            "`effects` is not possible where a type nests or ids are flat: let a client decide the rows that are carried out"
        )
    # One `CASE`, since no row is of two rules: a `CASE` in the `else` of another would nest as deep as there are rules.
    found = F.when(F.lit(col=False), none())
    for condition, rule in _rules(request, program):
        if rule["effects"]:
            of_rule = F.array(*(_effect(request, reader, effect) for effect in rule["effects"])).cast(TYPE)
            found = found.when(condition, of_rule)
    return found.otherwise(none())


def _rules(request: RequestColumns, program: Mapping[str, Any]) -> Iterator[tuple[Column, Mapping[str, Any]]]:
    """Each rule that may decide a row, with the condition that it is this one."""
    for type_, operations in program["rules"].items():
        for operation, rule in operations.items():
            condition = F.lit(col=True)
            for name, value in (("type", type_), ("action", operation)):
                if name in request.columns:
                    condition &= request.columns[name] == value
                elif request.constants[name] != value:
                    break
            else:
                yield condition, rule


def _effect(request: RequestColumns, reader: ConditionReader, effect: Mapping[str, Any]) -> Column:
    """One effect as a struct, of which `Effect` says what it changes."""
    target = effect["target"]
    type_ = target["type"]
    named = _entity(_path(request, target["slot"]), type_, reader.depth(type_))
    entity = F.coalesce(named, F.lit(type_))
    change = Effect.of(f"{effect['text']} ({_ENTITY})", _USER, [_ROLE]).change
    assert change is not None
    row, about = F.lit(None), F.lit(None)
    if change.row is None:
        about = entity
    else:
        cells = [part for name, cell in change.row.items() for part in (F.lit(name), _cell(str(cell), named, request))]
        row = F.create_map(*cells)
    text = F.concat(F.lit(f"{effect['text']} ("), entity, F.lit(")"))
    return F.struct(
        text.alias("effect"),
        F.lit(change.action).alias("action"),
        F.lit(change.table).alias("table"),
        row.cast("map<string, string>").alias("row"),
        about.cast("string").alias("about"),
    )


def _path(request: RequestColumns, slot: str) -> Column:
    """The path of an object; null if the rows do not give it, which denies the operations that need it."""
    name = "path" if slot == RESOURCE else f"with_{slot}_path"
    return request.columns[name] if name in request.columns else F.lit(None).cast("string")


def _entity(path: Column, type_: str, depth: int) -> Column:
    """The entity of a type on a path; null if the path leaves off its name."""
    if depth == 0:
        return F.lit(f"{type_}:")
    names = F.length(path) - F.length(F.replace(path, F.lit("/"), F.lit(""))) + 1
    beginning = F.substring_index(path, "/", depth)
    is_named = (names >= depth) & (path != "") & ~beginning.endswith("/")
    return F.when(is_named, F.concat(F.lit(f"{type_}:"), beginning))


def _cell(text: str, entity: Column, request: RequestColumns) -> Column:
    if text == _ENTITY:
        return entity
    if text.endswith(_USER):
        return F.concat(F.lit(text.removesuffix(_USER)), request.columns["user"])
    if text.endswith(_ROLE):  # without the column, the operations that name a role as the owner are denied
        roles = request.columns.get("active_roles", F.array().cast("array<string>"))
        return F.concat(F.lit(text.removesuffix(_ROLE)), F.get(roles, 0))
    return F.lit(text)
