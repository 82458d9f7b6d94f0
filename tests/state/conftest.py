"""A small policy, built by hand, that has every part of a state in use; and ways to write a state to files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from privtab.base.diagnostics import Span
from privtab.ir.declarations import OwnerSemantics, Semantics
from privtab.ir.nodes import (
    ALWAYS,
    Alias,
    And,
    ByType,
    EntityType,
    Formula,
    Has,
    Holds,
    Member,
    Or,
    Privilege,
    Program,
    Role,
    Rule,
    ServiceAdmin,
    Target,
    When,
)
from privtab.state.findings import StateFinding
from privtab.state.load import from_tables, load_raw_state, validate
from privtab.state.nodes import State
from privtab.state.raw import TABLE_COLUMNS, RawState

Validated = tuple[State, tuple[StateFinding, ...]]
Rows = dict[str, list[dict[str, str]]]


def rule(entity: str, operation: str, requires: Formula, gate: Formula = ALWAYS, each: Formula | None = None) -> Rule:
    return Rule(
        id=f"shop/{entity}/{operation}",
        entity=entity,
        operation=operation,
        title=operation,
        origin="row",
        gate=gate,
        requires=requires,
        each=each,
        span=Span(path="shop.yaml", line=1, column=1, end_line=1, end_column=1),
    )


def on(type_: str, slot: str = "") -> Target:
    return Target(slot=slot, type=type_)


def make_program() -> Program:
    types = [
        EntityType(name="lake", parent=None),
        EntityType(name="schema", parent="lake"),
        EntityType(name="table", parent="schema"),
        EntityType(name="settings", parent="schema", single=True),
        EntityType(name="user", parent="lake", principal="user"),
        EntityType(name="group", parent="lake", principal="group"),
        EntityType(name="role", parent="lake", principal="role"),
    ]
    privileges = [
        Privilege(name="SELECT", on=("lake", "schema", "table")),
        Privilege(name="MODIFY", on=("lake", "schema", "table")),
        Privilege(name="CREATE_TABLE", on=("lake", "schema")),
        Privilege(name="OLD", on=("table",), deprecated="use MODIFY"),
        Privilege(name="MANAGE", on=("lake",)),
    ]
    rules = [
        rule("table", "load", Has(privilege="SELECT", target=on("table")), gate=Member(target=on("lake"))),
        rule("group", "leave", When(flag="really", body=Or(parts=(Member(target=on("group")),)))),
        rule("role", "show", And(parts=(Holds(target=on("role")),))),
        rule(
            "lake",
            "tag",
            ByType(slot="object", cases=(("schema", Member(target=on("schema", "object"))),), text="member (object)"),
            each=ServiceAdmin(),
        ),
    ]
    return Program(
        system="shop",
        version="1",
        title=None,
        entities={t.name: t for t in types},
        privileges={p.name: p for p in privileges},
        aliases={
            "READ": Alias(name="READ", of="SELECT"),
            "ADD_TABLE": Alias(name="ADD_TABLE", of="CREATE_TABLE", deprecated="use CREATE_TABLE"),
        },
        sets={"ALL": ("SELECT", "MODIFY"), "EVERYTHING": ("READ", "CREATE_TABLE")},
        roles={
            "keeper": Role(name="keeper", scopes=("lake",), grants=(("lake", ("MANAGE",)),)),
            "schema_administrator": Role(name="schema_administrator", scopes=("schema",), grants=()),
            "visitor": Role(name="visitor", scopes=(), grants=(("lake", ("SELECT",)),)),
        },
        semantics=Semantics(inheritance="down", deny="overrides", owner=OwnerSemantics(kinds=("user",))),
        rules={(r.entity, r.operation): r for r in rules},
    )


@pytest.fixture(scope="session")
def program() -> Program:
    return make_program()


@pytest.fixture(scope="session")
def lean(program: Program) -> Program:
    """The same names, but no denials, no owners, and no rule that asks for members, groups or roles."""
    rules = [rule("table", "load", Has(privilege="SELECT", target=on("table")))]
    return replace(program, semantics=Semantics(), rules={(r.entity, r.operation): r for r in rules})


@pytest.fixture(scope="session")
def trusting(program: Program) -> Program:
    """The same policy, which also takes groups from the request."""
    return replace(program, semantics=replace(program.semantics, groups=("state", "request")))


@pytest.fixture(scope="session")
def checked(program: Program) -> Callable[..., Validated]:
    """Validate tables given as `grants=[{...}]`, against `program` or another policy."""

    def check(against: Program | None = None, **tables: Any) -> Validated:
        return validate(against or program, from_tables(tables, "inline"))

    return check


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., RawState]:
    """Write a file and load it; with a directory's file names as keyword-like mapping, load the directory."""

    def read(files: dict[str, str | bytes] | str | bytes, name: str = "state.yaml") -> RawState:
        if not isinstance(files, dict):
            _write(tmp_path / name, files)
            return load_raw_state(tmp_path / name)
        directory = tmp_path / "state"
        directory.mkdir()
        for file, content in files.items():
            _write(directory / file, content)
        return load_raw_state(directory)

    return read


@pytest.fixture(scope="session")
def dump() -> Callable[[State, Path, str], Path]:
    """Write a state in one of the formats; returns what to load."""
    return write_state


def codes(findings: Iterable[StateFinding]) -> list[str]:
    return [finding.code for finding in findings]


@pytest.fixture(scope="session", name="codes")
def codes_of() -> Callable[[Iterable[StateFinding]], list[str]]:
    return codes


def rows_of(state: State) -> Rows:
    def without_none(**cells: str | None) -> dict[str, str]:
        return {name: value for name, value in cells.items() if value is not None}

    return {
        "members": [{"user": user, "of": str(entity)} for user, entity in state.members],
        "memberships": [{"user": user, "group": group} for user, group in state.memberships],
        "assignments": [
            without_none(principal=a.principal, role=a.role, scope=str(a.scope) if a.scope else None)
            for a in state.assignments
        ],
        "grants": [
            {"grantee": g.grantee, "effect": g.effect, "privilege": g.privilege, "entity": str(g.entity)}
            for g in state.grants
        ],
        "owners": [{"entity": str(entity), "owner": owner} for entity, owner in state.owners],
        "service_admins": [{"user": user} for user in state.service_admins],
    }


def write_state(state: State, directory: Path, format_: str) -> Path:
    rows = rows_of(state)
    if format_ in {"json", "yaml"}:
        file = directory / f"state.{format_}"
        write = json.dumps if format_ == "json" else yaml.safe_dump
        file.write_text(write(rows), encoding="utf-8")
        return file
    for table, cells in rows.items():
        names = TABLE_COLUMNS[table].all
        match format_:
            case "csv":
                with (directory / f"{table}.csv").open("w", encoding="utf-8", newline="") as file_:
                    writer = csv.DictWriter(file_, names)
                    writer.writeheader()
                    writer.writerows(cells)
            case "parquet":
                columns = {name: pyarrow.array([row.get(name) for row in cells], pyarrow.string()) for name in names}
                pyarrow.parquet.write_table(pyarrow.table(columns), directory / f"{table}.parquet")
            case "yaml files":
                (directory / f"{table}.yml").write_text(yaml.safe_dump(cells), encoding="utf-8")
            case _:
                (directory / f"{table}.json").write_text(json.dumps(cells, ensure_ascii=False), encoding="utf-8")
    return directory


def _write(file: Path, content: str | bytes) -> None:
    file.write_bytes(content.encode() if isinstance(content, str) else content)
