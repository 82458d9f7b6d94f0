from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from checkout import sources
from filtered_policy import POLICY

from privtab.pipeline import load_program
from privtab.state.findings import RowLocation, StateFinding
from privtab.state.load import from_tables, validate

ROW = StateFinding(
    place=RowLocation(path="grants.csv", table="grants", row=2, line=3),
    message="unknown privilege `SELET`",
    code="S130",
    help="did you mean `SELECT`?",
    row={"privilege": "SELET", "entity": None},
)
FILE = StateFinding(place=RowLocation(path="grants.csv", table="", row=0), message="not UTF-8", code="S001")
WARNING = StateFinding(
    place=RowLocation(path="s.json", table="grants", row=1), message="again", code="S160", severity="warning"
)


def test_findings_for_people() -> None:
    assert "".join(finding.render() for finding in (FILE, ROW, WARNING)) == (
        "grants.csv: error[S001 unreadable-file]: not UTF-8\n"
        "grants.csv:3: grants row 2: error[S130 unknown-privilege]: unknown privilege `SELET`\n"
        "  row: privilege: `SELET`, entity: None\n"
        "  help: did you mean `SELECT`?\n"
        "s.json: grants row 1: warning[S160 duplicate-row]: again\n"
    )


def test_a_finding_stays_on_its_lines_and_controls_no_terminal() -> None:
    text = replace(ROW, message="unknown privilege `A\nB\x1b[31m`", row={"privilege": "A\nB\x1b[31m"}).render()
    assert text.splitlines()[0].endswith(r"unknown privilege `A\nB\x1b[31m`")
    assert text.splitlines()[1] == r"  row: privilege: `A\nB\x1b[31m`"


def test_findings_as_json() -> None:
    first, second = FILE.to_json(), ROW.to_json()
    assert (first["table"], first["row_number"], first["line"]) == (None, None, None)
    assert json.loads(json.dumps(second)) == {
        "code": "S130",
        "name": "unknown-privilege",
        "severity": "error",
        "message": "unknown privilege `SELET`",
        "help": "did you mean `SELECT`?",
        "path": "grants.csv",
        "table": "grants",
        "row_number": 2,
        "line": 3,
        "row": {"privilege": "SELET", "entity": None},
    }


def test_a_row_of_any_kind_can_be_written_as_json(checked: Callable[..., Any]) -> None:
    _, found = checked(grants=[{"grantee": ["a"], "effect": {"b": 1}, "privilege": True, "entity": 1.5}])
    assert json.loads(json.dumps(found[0].to_json()))["row"] == {
        "grantee": "a list",
        "effect": "a mapping",
        "privilege": "the truth value true",
        "entity": "a number",
    }


def test_findings_are_in_the_order_of_their_places() -> None:
    assert sorted([WARNING, ROW, FILE]) == [FILE, ROW, WARNING]


def test_every_code_is_named_and_used() -> None:
    used = {
        code
        for name, file in sources().items()
        if name != "state/findings.py"
        for code in re.findall(r'"(S\d{3})"', file.read_text(encoding="utf-8"))
    }
    assert used == set(StateFinding.NAMES)
    assert len(set(StateFinding.NAMES.values())) == len(StateFinding.NAMES)


def test_where_a_policy_masks_each_wrong_row_stops(tmp_path: Path) -> None:
    """Without `pii`, the next mask would apply, which shows more."""
    rows = {"attributes": [{"entity": "column:m/s/t/ssn", "attribute": "pii", "value": "yes"}]}
    (tmp_path / "lake.yaml").write_text(POLICY.replace("deny: overrides", "deny: none"))
    program = load_program(tmp_path / "lake.yaml")
    (finding,) = validate(program, from_tables(rows, "state"))[1]
    assert finding.stops(program)
    assert not finding.stops(replace(program, filters=()))
