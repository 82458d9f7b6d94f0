"""Validate rows of files and of DataFrames in this process, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from privtab.errors import UsageError
from privtab.ir.nodes import Program
from privtab.state.nodes import State
from privtab.state.raw import RawState

DENIES = "they may include a denial, and ignoring it would widen access"
"""Why invalid rows make a state unusable."""
MOST_COLLECTED = 5_000_000
"""Most rows of a state in DataFrames that are collected on the driver, where Spark does not validate them."""
UNREAD = "it was not read whole"
"""Why a state with a file or a table that cannot be read is unusable, if there are no denials."""


def program_of(policy: object) -> Program:
    """The program of a policy given in any supported form; raises PolicyError for JSON that is no program."""
    if isinstance(policy, Program):
        return policy
    if isinstance(policy, str | Path) and not str(policy).endswith(".tar.gz"):
        from privtab.pipeline import load_program

        return load_program(policy)
    program = getattr(policy, "program", None)
    if isinstance(program, Program):
        return program
    from privtab.spark.policies import open_policy

    return open_policy(cast("Any", policy)).as_program


def checked_rows(program: Program, path: Path) -> State:
    """The valid rows of files; raises StateInvalid if an invalid row may affect a denial, or if a file could not be read whole."""
    from privtab.state.load import load

    return _valid(program, load(path))


def collected_rows(program: Program, tables: Mapping[str, Any]) -> State:
    """The valid rows of DataFrames, which are collected on the driver. Raises as `checked_rows`, and UsageError for what cannot be collected."""
    from privtab.state.load import from_tables, no_table

    if not tables:
        raise UsageError(no_table("the mapping of the state"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, frame in tables.items():
        rows[name] = _collected(name, frame, MOST_COLLECTED - sum(map(len, rows.values())))
    return _valid(program, from_tables(rows, "the tables of the state"))


def _collected(name: str, frame: Any, most: int) -> list[dict[str, Any]]:
    import pyarrow as pa

    from privtab.spark.frames import is_frame, of_spark
    from privtab.spark.padding import without_padding

    frame = of_spark(frame)
    if not is_frame(frame):
        raise UsageError(f"the table `{name}` of the state is a {type(frame).__name__}, not a Spark DataFrame")
    if repeated := [column for column in frame.columns if frame.columns.count(column) > 1]:
        raise UsageError(f"the table `{name}` of the state has two columns `{repeated[0]}`")
    table = without_padding(frame).limit(most + 1).toArrow()
    if len(table) > most:
        raise UsageError(f"the tables of the state have more than {MOST_COLLECTED:,} rows: pack them as a bundle")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        raise UsageError(f"the table `{name}` of the state is not UTF-8") from None
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _valid(program: Program, rows: RawState) -> State:
    from privtab.errors import StateInvalid
    from privtab.state.findings import errors, stops
    from privtab.state.validate import validate

    state, findings = validate(program, rows)
    stopping = tuple(error for error in errors(findings) if stops(program, error))
    if stopping:
        raise StateInvalid(stopping, UNREAD if program.semantics.deny == "none" else DENIES)
    return state
