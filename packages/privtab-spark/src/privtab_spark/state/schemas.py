"""The columns of a state's tables in Spark after reading, and the columns of findings.

Also helpers that need no Spark: a policy's program, and the rows of files and DataFrames validated in this process.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from privtab.base import WINDOW_COLUMNS
from privtab.ir import Program
from privtab.state import ENTITY_COLUMNS, TABLE_COLUMNS, State, StateFinding

log = logging.getLogger("privtab.spark")
_SPLIT = {"scope": "scope_", "parent": "parent_"}
"""The prefixes of the columns for the type and the path of an entity."""
CANONICAL: Mapping[str, tuple[str, ...]] = {
    table: tuple(
        part
        for name in columns.names
        for part in (
            [f"{_SPLIT.get(name, '')}{half}" for half in ("type", "path")] if name in ENTITY_COLUMNS else [name]
        )
    )
    for table, columns in TABLE_COLUMNS.items()
}
"""All are strings. The scope is null if a role is held everywhere; `path` does not include the type.

A table with rows that hold for a time also has `from` and `until`, as RFC 3339 in UTC, null for an edge that a row lacks."""

TABLES = ("members", "memberships", "assignments", "grants", "owners", "service_admins")
"""The tables that every state has."""

LOCATED = ("grants", "owners", "members")
"""The tables in which every row is about an entity, in the columns `type` and `path`."""

MANIFEST = "_MANIFEST.json"
"""The file that completes a folder of tables that `Read.write` wrote."""

FINDING = ("code", "severity", "message", "help")
"""The fields of a finding about a row, all of which are strings."""
FINDINGS = (
    "`table` string, `code` string, `name` string, `severity` string, `message` string, `help` string, "
    "`row` string, `rows` bigint, `source` string"
)
"""`row`: the cells as JSON text; `rows`: the number of equal rows with this finding."""


def tables_of(program: Program) -> tuple[str, ...]:
    """The tables of a policy's states."""
    further = (("attributes", program.attributes), ("entities", program.flat))
    return (*TABLES, *(table for table, used in further if used))


def entity_column(table: str) -> str | None:
    """The raw column with the entity that a row is about, or within which it holds."""
    return next((name for name in TABLE_COLUMNS[table].names if name in ENTITY_COLUMNS), None)


def schema(table: str, window: Sequence[str] = ()) -> str:
    """The columns of a table as a Spark DDL schema."""
    return ", ".join(f"`{name}` string" for name in (*CANONICAL[table], *window))


def windows_in(rows: Any) -> tuple[str, ...]:
    """The columns with the time in which rows hold: of raw or of canonical rows, none or both."""
    return tuple(name for name in rows.columns if name in WINDOW_COLUMNS)


def is_written(state: object) -> bool:
    """Return whether a state is given as the path of a folder of tables that `Read.write` wrote."""
    return isinstance(state, str | os.PathLike) and (Path(state) / MANIFEST).is_file()


UNREAD = "it was not read whole"
"""The reason why a state with a file or a table that cannot be read is unusable, if there are no denials."""


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
    from privtab_spark.policies import open_policy

    return open_policy(cast("Any", policy)).as_program


def checked_rows(program: Program, path: Path) -> tuple[State, int]:
    """The valid rows of files, and how many findings others have, about which it logs a warning.

    Raises StateInvalid if an invalid row may affect a denial, or if a file could not be read whole.
    """
    from privtab.base import StateInvalid
    from privtab.state import load_raw_state, validate

    state, findings = validate(program, load_raw_state(path))
    if stopping := tuple(finding for finding in findings if finding.stops(program)):
        raise StateInvalid(stopping, UNREAD if program.semantics.deny == "none" else StateFinding.MAY_DENY)
    if wrong := tuple(finding for finding in findings if finding.severity == "error"):
        left_out = StateInvalid(wrong, "answered without these rows")
        log.warning("%s", left_out, extra={"left_out": left_out})
    return state, len(wrong)
