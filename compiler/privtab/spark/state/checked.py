"""Validate rows of files and of DataFrames in this process, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from privtab.ir.nodes import Program
from privtab.state.nodes import State

DENIES = "they may include a denial, and ignoring it would widen access"
"""Why invalid rows make a state unusable."""
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
    from privtab.errors import StateInvalid
    from privtab.state.findings import errors, stops
    from privtab.state.load import load
    from privtab.state.validate import validate

    state, findings = validate(program, load(path))
    stopping = tuple(error for error in errors(findings) if stops(program, error))
    if stopping:
        raise StateInvalid(stopping, UNREAD if program.semantics.deny == "none" else DENIES)
    return state
