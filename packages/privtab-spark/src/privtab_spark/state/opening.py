"""Open a state given in any supported form, also that of another system, as Spark tables."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from privtab.base import Entity, StateInvalid, UsageError, how_to_install
from privtab.engines import require_kept
from privtab.state import State, StateFinding, UsedParts
from privtab_spark.former import renamed_keyword
from privtab_spark.frames import is_frame, of_spark
from privtab_spark.state.bundles import is_bundle, rows_of_bundles
from privtab_spark.state.read import Read, read_state, read_written
from privtab_spark.state.schemas import checked_rows, is_written, program_of, schema, tables_of
from privtab_spark.state.tables import SparkState

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab_connect.importing.run import ImportResult


def state_tables(spark: SparkSession, policy: object, state: object) -> SparkState:
    """Open a state as Spark tables.

    `state`: a SparkState, a State, rows as a mapping from table names to DataFrames, a Read, or a path: a file or folder
    as for `--state`, a state bundle, a folder with all bundles of a sharded state, or the output of `Read.write`. Raises UsageError
    for anything else and for the state of another system, StateInvalid if invalid rows may affect a denial, and
    DecisionUnavailable if shards are missing.
    """
    if (read := read_of(spark, policy, state)) is not None:
        return read.state().check_policy(policy)
    match state:
        case SparkState():
            return state.check_policy(policy)
        case State():
            return SparkState.from_state(spark, program_of(policy), state)
        case str() | os.PathLike():
            path = Path(state)
        case _:
            raise UsageError(f"a {type(state).__name__} is not a state: give tables, a State, a path or a bundle")
    if is_bundle(path):
        from privtab_spark.policies import open_policy

        opened = open_policy(cast("Any", policy))
        read_back, program = rows_of_bundles(opened, str(path)), opened.as_program
        needed = UsedParts.of(program).for_filters
        require_kept(needed, {*needed} - read_back.lacks)
        rows = SparkState.from_state(spark, None, read_back)
        empty = {t: spark.createDataFrame([], schema(t)) for t in tables_of(program) if t not in rows.tables}
        return replace(rows, tables={**rows.tables, **empty}, system=opened.system)
    if is_written(path):
        return read_written(spark, path, policy)
    return SparkState.from_state(spark, program_of(policy), checked_rows(program_of(policy), path)[0])


def read_of(spark: SparkSession, policy: object, state: object) -> Read | None:
    """The rows of a state that is given as a Read, or as a mapping from table names to DataFrames; None for any other.

    Raises UsageError for a mapping to anything else.
    """
    if isinstance(state, Read) or not isinstance(state, Mapping):
        return state if isinstance(state, Read) else None
    tables = {name: of_spark(table) for name, table in state.items()}
    for name, table in tables.items():
        if not is_frame(table):
            raise UsageError(f"the table `{name}` of the state is a {type(table).__name__}, not a Spark DataFrame")
    return read_state(spark, tables, policy)


@renamed_keyword("given", "values")
def import_state(
    policy: object,
    document: str,
    source: str,
    *,
    values: Mapping[str, str] | None = None,
    entities: Iterable[str | Entity] = (),
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    strict: bool = False,
    allow_partial: bool = False,
    accept: Collection[str] = (),
) -> ImportResult:
    """Import the state of another system on the driver; its `state` is accepted wherever a state is.

    `document`: the name of a shipped import document (`postgresql`, `ranger`, …) or the path of one. `source`: the URL of the system or
    of its database, or a file or folder of saved answers. `values`: the values that the document needs, by name (`--set`). `entities`: the entities that
    wildcards stand for. `accept`: names, in the result, of things that the state may lack. The result also says what was taken, what was
    translated, and what a state cannot express.

    Raises StateInvalid if something that denies or narrows could be lost (unless `allow_partial`) or, if `strict`, if there is anything that a state cannot
    express; UsageError for wrong arguments; FileError if the source does not answer.
    """
    try:
        from privtab_connect.importing.imported import imported
    except ImportError as error:
        raise UsageError(f"`import_state` needs {error.name}: {how_to_install('import')}") from error
    found = imported(
        program_of(policy), document, source, values=values, entities=entities, token=token, headers=headers
    )
    if refused := found.refused(strict=strict, allow_partial=allow_partial, accept=accept):
        raise StateInvalid(refused, "`strict` accepts none" if strict else StateFinding.MAY_DENY)
    return found
