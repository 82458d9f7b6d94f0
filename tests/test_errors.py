"""What exceptions say to somebody who has nothing but a traceback."""

from __future__ import annotations

from dataclasses import replace

from privtab.base.diagnostics import Diagnostic, Severity, Span
from privtab.base.errors import PolicyInvalid, StateInvalid, UnsupportedError
from privtab.state.findings import RowLocation, StateFinding


def finding(row: int, *, message: str = "unknown privilege `SELET`", advice: str | None = None) -> StateFinding:
    place = RowLocation(path="state.yaml", table="grants", row=row, line=row + 1)
    return StateFinding(place=place, message=message, code="S130", help=advice)


def test_a_wrong_state_tells_where_and_what_to_do() -> None:
    error = StateInvalid((finding(1, advice="did you mean `SELECT`?"),), "nothing is decided")
    assert str(error).splitlines() == [
        "1 finding in the state: nothing is decided",
        "state.yaml:2: grants row 1: error[S130]: unknown privilege `SELET`",
        "  help: did you mean `SELECT`?",
    ]


def test_many_wrong_rows_do_not_fill_the_screen() -> None:
    found = tuple(finding(row, message="x" * 1000 + "\n\x1b[31m") for row in range(1, 5001))
    lines = str(StateInvalid(found)).splitlines()
    assert lines[0] == "5,000 findings in the state"
    assert lines[-1] == "and 4,995 more, all in `findings`"
    assert len(lines) == 7
    assert max(map(len, lines)) <= 240
    assert str(found[0]).splitlines()[0].endswith("x\\n\\x1b[31m")


def test_a_wrong_policy_tells_the_first_findings_with_advice() -> None:
    span = Span(path="p.yaml", line=3, column=7, end_line=3, end_column=8)
    diagnostic = Diagnostic(
        code="P100", name="some-name", severity=Severity.ERROR, message="no such thing", span=span, help="leave it out"
    )
    assert str(PolicyInvalid((diagnostic,))).splitlines() == [
        "1 finding in the policy",
        "p.yaml:3:7: P100 no such thing",
        "  help: leave it out",
    ]
    found = [replace(diagnostic, message=f"no such thing {number}") for number in range(500)]
    lines = str(PolicyInvalid([*found, *found])).splitlines()
    assert (lines[0], lines[-1]) == ("500 findings in the policy", "and 480 more, all in `diagnostics`")
    assert str(UnsupportedError("too much", span)) == "p.yaml:3:7: too much"
