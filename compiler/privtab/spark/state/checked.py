"""Validate rows of files in this process, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from privtab.errors import PolicyError
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.state.nodes import State

DENIES = "they may include a denial, and ignoring it would widen access"
"""Why invalid rows make a state unusable."""


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

    opened = open_policy(cast("Any", policy))
    if opened.program is not None:
        return opened.program
    try:
        return program_from_json(opened.json, opened.system)
    except ValueError as error:
        raise PolicyError(f"this is not the program of a policy bundle: {error}") from error


def checked_rows(program: Program, path: Path) -> State:
    """The valid rows of files; raises StateInvalid if an invalid row may affect a denial."""
    from privtab.errors import StateInvalid
    from privtab.state.load import load
    from privtab.state.validate import validate

    state, findings = validate(program, load(path))
    stopping = tuple(
        f for f in findings if f.severity == "error" and may_deny(program, f.place.table, f.row.get("effect"))
    )
    if stopping:
        raise StateInvalid(stopping, DENIES)
    return state


def may_deny(program: Program, table: str, effect: object) -> bool:
    """Whether leaving a row out could widen access: it may be a denial, or assign a role or group with a denial."""
    if program.semantics.deny == "none":
        return False
    if table == "grants":
        return str(effect or "").lower() != "allow"
    return table in {"assignments", "memberships", ""}
