"""Odd names: what no name can hold is refused in every format, anything else comes through every format unharmed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from unusual_names import CARRIED, UNUSABLE

from privtab.base.names import encode_name
from privtab.base.request import Entity
from privtab.ir.nodes import Program
from privtab.state.findings import StateFinding
from privtab.state.load import load_raw_state, validate
from privtab.state.nodes import Assignment, Grant, State
from privtab.state.raw import RawState

Read = Callable[..., RawState]


def denial(name: str, format_: str) -> dict[str, str | bytes]:
    """The files of a state that denies something on a table with a name."""
    row = {"grantee": "user:ann", "effect": "deny", "privilege": "SELECT", "entity": f"table:l/s/{name}"}
    match format_:
        case "yaml":
            cells = ", ".join(f"{column}: {json.dumps(value)}" for column, value in row.items())
            return {"grants.yaml": f"- {{{cells}}}\n"}
        case "raw yaml":
            cells = "\n  ".join(f"{column}: {value}" for column, value in row.items())
            return {"grants.yaml": f"- {cells}\n"}
        case "json":
            return {"grants.json": json.dumps([row])}
        case "csv":
            text = io.StringIO()
            writer = csv.DictWriter(text, row)
            writer.writeheader()
            writer.writerow(row)
            return {"grants.csv": text.getvalue()}
        case _:
            sink = io.BytesIO()
            pyarrow.parquet.write_table(pyarrow.table({c: pyarrow.array([v]) for c, v in row.items()}), sink)
            return {"grants.parquet": sink.getvalue()}


def is_half(character: str) -> bool:
    """Half of a surrogate pair, which JSON alone can spell."""
    return "\ud800" <= character <= "\udfff"


@pytest.mark.parametrize("format_", ["yaml", "raw yaml", "json", "csv", "parquet"])
def test_a_denial_on_a_name_that_formats_read_differently_is_an_error(
    format_: str, tmp_path: Path, program: Program
) -> None:
    for character in UNUSABLE:
        if is_half(character) and format_ != "json":
            continue
        ((name, content),) = denial(f"hr{character}pay", format_).items()
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        state, findings = validate(program, load_raw_state(tmp_path))
        shown = f"U+{ord(character):04X}"
        assert not state.grants, shown
        found = [f for f in findings if f.severity == "error"]
        assert found, f"the denial on a name with {shown} was lost in silence"
        if format_ in ("csv", "parquet") or (format_ == "json" and not is_half(character)):
            assert [(f.code, f.message.rpartition(" ")[2]) for f in found] == [("S116", shown)]
        if "yaml" in format_ or format_ == "csv":
            assert found[0].place.line is not None, shown


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("members", {"user": "a{}b", "of": "lake:l"}),
        ("memberships", {"user": "a{}b", "group": "g"}),
        ("memberships", {"user": "a", "group": "g{}h"}),
        ("assignments", {"principal": "user:a{}b", "role": "r"}),
        ("assignments", {"principal": "user:a", "role": "r{}s"}),
        ("assignments", {"principal": "user:a", "role": "r", "scope": "lake:l{}m"}),
        ("owners", {"entity": "lake:l", "owner": "a{}b"}),
        ("service_admins", {"user": "a{}b"}),
    ],
)
def test_no_column_takes_such_a_name(
    checked: Callable[..., tuple[State, tuple[StateFinding, ...]]], table: str, row: dict[str, str]
) -> None:
    for character in ("\x00", "\t", "\x7f", "\x85", "\u2028"):
        state, findings = checked(**{table: [{c: v.format(character) for c, v in row.items()}]})
        assert state == State()
        assert [f.code for f in findings] == ["S116"]


def test_a_line_break_of_some_yaml_readers_is_refused_where_it_stands(read: Read) -> None:
    raw = read("service_admins:\n  - user: a # not the end\x85  - user: b\n", "state.yaml")
    (finding,) = raw.findings
    assert (finding.code, finding.place.line) == ("S002", 2)
    assert "U+0085 ends a line for some readers of YAML" in finding.message
    assert not raw.rows


@pytest.mark.parametrize("format_", ["yaml", "json", "csv", "parquet"])
def test_all_other_names_pass_unchanged(
    format_: str, program: Program, dump: Callable[[State, Path, str], Path], tmp_path: Path
) -> None:
    entities = [Entity("schema", f"l/{encode_name(name)}") for name in CARRIED]
    state = State(
        members=tuple((name, Entity("lake", "l")) for name in CARRIED),
        memberships=tuple((name, name) for name in CARRIED),
        assignments=tuple(Assignment(principal=f"group:{name}", role=name) for name in CARRIED),
        grants=tuple(
            Grant(grantee=f"role:{name}", effect="deny", privilege="SELECT", entity=entity)
            for name, entity in zip(CARRIED, entities, strict=True)
        ),
        owners=tuple((entity, f"user:{name}") for name, entity in zip(CARRIED, entities, strict=True)),
        service_admins=CARRIED,
    )
    found, findings = validate(program, load_raw_state(dump(state, tmp_path, format_)))
    assert [f for f in findings if f.severity == "error"] == []
    assert found == state


@pytest.mark.parametrize("format_", ["yaml", "json", "csv", "parquet"])
def test_a_name_beyond_all_measure_is_an_error(format_: str, read: Read, program: Program) -> None:
    state, findings = validate(program, read(denial("x" * 70_000, format_)))
    assert not state.grants
    (finding,) = findings
    assert finding.code == "S117"
    assert len(finding.message) < 200
