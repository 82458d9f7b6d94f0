"""Rows of a state that hold from a moment on, or until one."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from privtab.base.errors import UsageError
from privtab.base.moments import ALWAYS, FIRST, LAST, Window, WrongTime, moment_text, parse_moment, union
from privtab.ir.nodes import Program
from privtab.state import raw
from privtab.state.findings import StateFinding
from privtab.state.holdings import Holdings
from privtab.state.load import from_tables, load_raw_state, validate, validate_with_places
from privtab.state.nodes import State

Checked = Callable[..., tuple[State, tuple[StateFinding, ...]]]

GRANT = {"grantee": "user:a", "effect": "allow", "privilege": "SELECT", "entity": "table:l/s/t"}
MARCH, APRIL = "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("2026-03-03T12:00:00Z", "2026-03-03T12:00:00Z"),
        ("2026-03-03t12:00z", "2026-03-03T12:00:00Z"),
        ("2026-03-03 12:00:00+00:00", "2026-03-03T12:00:00Z"),
        ("2026-03-03T00:30:00.250+02:00", "2026-03-02T22:30:00.25Z"),
        ("1969-12-31T23:59:59.999999999Z", "1969-12-31T23:59:59.999999999Z"),
        ("0001-01-01T00:00:00Z", "1677-09-21T00:12:43.145224192Z"),
        ("9999-12-31T23:59:59.999999Z", "2262-04-11T23:47:16.854775807Z"),
    ],
)
def test_a_time_is_a_moment_in_utc(written: str, canonical: str) -> None:
    assert moment_text(parse_moment(written)) == canonical


@pytest.mark.parametrize(
    ("written", "why", "advice"),
    [
        ("2026-03-03", "date without a time", "`2026-03-03T00:00:00Z`"),
        ("2026-03-03T12:00:00", "no time zone", "end it with `Z`"),
        ("2026-02-29T00:00:00Z", "not a day of the calendar", "2026"),
        ("2026-03-03T24:00:00Z", "not a time of a day", "23"),
        ("2026-03-03T12:00:60Z", "not a time of a day", "59"),
        ("2026-03-03T12:00:00+24:00", "wrong time zone", "`Z`"),
        ("2026-03-03T12:00:00.1234567890Z", "finer than a nanosecond", "nine"),
        ("tomorrow", "is not a time", "write it as"),
        ("1772539200", "is not a time", "write it as"),
        ("\uff12026-03-03T12:00:00Z", "is not a time", "write it as"),
    ],
)
def test_anything_else_is_not_a_time(written: str, why: str, advice: str) -> None:
    with pytest.raises(WrongTime, match=why) as raised:
        parse_moment(written)
    assert advice in raised.value.help


def test_times_beyond_the_range_of_nanoseconds_mean_always_and_never() -> None:
    assert parse_moment("9999-12-31T23:59:59Z") == LAST
    assert parse_moment("0001-01-01T00:00:00Z") == FIRST


def test_a_window_is_half_open() -> None:
    window = Window(parse_moment(MARCH), parse_moment(APRIL))
    assert [window.holds(at) for at in (window.begin - 1, window.begin, window.end - 1, window.end)] == [
        False,
        True,
        True,
        False,
    ]
    assert not Window(5, 5).holds(5)
    assert ALWAYS.holds(0)


def test_windows_that_touch_are_one() -> None:
    assert union([Window(1, 2), Window(2, 3), Window(9, 8)]) == (Window(1, 3),)


def test_rows_keep_their_windows_and_a_moment_chooses_rows(checked: Checked) -> None:
    state, findings = checked(
        grants=[GRANT, {**GRANT, "privilege": "MODIFY", "from": MARCH, "until": APRIL}],
        memberships=[{"user": "a", "group": "hr", "until": "2026-03-01T01:00:00+01:00"}],
        assignments=[{"principal": "user:a", "role": "x", "scope": "lake:l", "from": APRIL}],
        owners=[{"entity": "table:l/s/t", "owner": "a", "from": MARCH}],
    )
    assert [f for f in findings if f.severity == "error"] == []
    assert state.windows == {
        "grants": (ALWAYS, Window(parse_moment(MARCH), parse_moment(APRIL))),
        "memberships": (Window(end=parse_moment(MARCH)),),
        "assignments": (Window(parse_moment(APRIL)),),
        "owners": (Window(parse_moment(MARCH)),),
    }

    def counts(at: int) -> tuple[int, ...]:
        now = state.at(at)
        assert not now.windows
        return tuple(len(getattr(now, name)) for name in ("grants", "memberships", "assignments", "owners"))

    march, april = parse_moment(MARCH), parse_moment(APRIL)
    assert [counts(at) for at in (march - 1, march, april - 1, april)] == [
        (1, 1, 0, 0),
        (2, 0, 0, 1),
        (2, 0, 0, 1),
        (1, 0, 1, 1),
    ]


@pytest.mark.parametrize("rows", [0, 10**9], ids=["by columns", "by rows"])
def test_a_row_that_ends_before_it_begins_is_wrong(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows: int
) -> None:
    monkeypatch.setattr(raw, "LARGE", rows)
    windows = [("", ""), (APRIL, MARCH), (APRIL, APRIL), (MARCH, APRIL), (MARCH, "soon")]
    lines = [f"{','.join(GRANT.values())},{begin},{end}" for begin, end in windows]
    (tmp_path / "grants.csv").write_text("\n".join([f"{','.join(GRANT)},from,until", *lines]) + "\n", encoding="utf-8")
    state, findings = validate(program, load_raw_state(tmp_path))
    wrong = [(finding.code, finding.place.row) for finding in findings if finding.severity == "error"]
    assert wrong == [("S170", 2), ("S170", 3), ("S170", 5)]
    assert len(state.grants) == 2


def test_a_state_without_windows_is_the_same_at_any_moment(checked: Checked) -> None:
    state, _ = checked(grants=[GRANT])
    assert state.windows == {}
    assert state.at(0) is state


def test_readers_without_windows_refuse_them(checked: Checked, program: Program) -> None:
    state, _ = checked(grants=[{**GRANT, "until": MARCH}])
    with pytest.raises(UsageError, match="takes no rows with `from` or `until`, and `grants` has some"):
        Holdings(program, state)


def test_the_same_row_may_have_several_windows_and_one_only_once(checked: Checked) -> None:
    first, second = {**GRANT, "until": MARCH}, {**GRANT, "from": APRIL}
    state, findings = checked(grants=[first, second, {**GRANT, "until": "2026-03-01T00:00Z"}, GRANT])
    assert [(f.code, f.place.row) for f in findings] == [("S160", 3)]
    assert len(state.grants) == 3
    assert len(state.at(parse_moment(MARCH) - 1).grants) == 1, "rows that say the same at a moment are one"


def test_a_wrong_time_is_a_finding_with_its_column_and_the_row_is_quarantined(checked: Checked) -> None:
    state, findings = checked(
        grants=[GRANT, {**GRANT, "privilege": "MODIFY", "from": "2026-03-03", "until": "soon"}],
        memberships=[{"user": "a", "group": "hr", "from": "2026-03-03T12:00:00"}],
    )
    assert [(f.code, f.place.table, f.place.row, f.message) for f in findings] == [
        ("S170", "grants", 2, "`from`: `2026-03-03` is a date without a time"),
        ("S170", "grants", 2, "`until`: `soon` is not a time"),
        ("S170", "memberships", 1, "`from`: `2026-03-03T12:00:00` has no time zone"),
    ]
    assert findings[0].help == "write `2026-03-03T00:00:00Z` for its beginning in UTC"
    assert findings[0].row["from"] == "2026-03-03"
    assert (len(state.grants), len(state.memberships)) == (1, 0)


def test_members_and_service_admins_have_no_windows(checked: Checked) -> None:
    _, findings = checked(members=[{"user": "a", "of": "lake:l", "until": MARCH}])
    assert [(f.code, f.message) for f in findings] == [("S101", "unknown column `until` in `members`")]


@pytest.mark.parametrize("form", ["yaml", "json", "csv", "parquet"])
@pytest.mark.parametrize("large", [False, True])
def test_every_format_has_windows(
    form: str, large: bool, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(raw, "LARGE", 1)
    rows = [GRANT, {**GRANT, "privilege": "MODIFY", "from": "2026-03-01 01:00+01:00", "until": APRIL}]
    folder = tmp_path / "state"
    folder.mkdir()
    columns = raw.TABLE_COLUMNS["grants"].all
    match form:
        case "csv":
            lines = [",".join(row.get(column, "") for column in columns) for row in rows]
            (folder / "grants.csv").write_text("\n".join([",".join(columns), *lines]))
        case "parquet":
            table = pyarrow.table({column: [row.get(column) for row in rows] for column in columns})
            pyarrow.parquet.write_table(table, folder / "grants.parquet")
        case _:  # JSON is YAML
            (folder / f"grants.{form}").write_text(json.dumps(rows))
    state, places, findings = validate_with_places(program, load_raw_state(folder))
    assert findings == ()
    assert list(state.windows["grants"]) == [ALWAYS, Window(parse_moment(MARCH), parse_moment(APRIL))]
    assert [row.get("from") for row in state.to_tables()["grants"]] == [None, MARCH]
    again, _ = validate(program, from_tables(state.to_tables(), "again"))
    assert {t: list(w) for t, w in again.windows.items()} == {t: list(w) for t, w in state.windows.items()}
    assert tuple(again.grants) == tuple(state.grants)
    then = places.some(state.held(parse_moment(MARCH)))
    assert then.window("grants", 1) == Window(parse_moment(MARCH), parse_moment(APRIL))
    before = places.some(state.held(0))
    assert len(before.rows["grants"]) == len(state.at(0).grants) == 1


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_parquet_are_moments(
    large: bool, unit: str, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(raw, "LARGE", 1)
    begins = pyarrow.array([None, datetime(2026, 3, 1, tzinfo=UTC)], pyarrow.timestamp(unit, "Europe/Berlin"))
    _grants(tmp_path, {"from": begins})
    state, findings = validate(program, load_raw_state(tmp_path))
    assert findings == ()
    assert list(state.windows["grants"]) == [ALWAYS, Window(parse_moment(MARCH))]


@pytest.mark.parametrize("large", [False, True])
def test_timestamps_without_a_zone_and_dates_are_refused(
    large: bool, tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large:
        monkeypatch.setattr(raw, "LARGE", 1)
    begins = pyarrow.array([datetime(2026, 3, 1), None], pyarrow.timestamp("us"))  # noqa: DTZ001  (the point)
    _grants(tmp_path, {"from": begins, "until": pyarrow.array([None, date(2026, 3, 1)])})
    state, findings = validate(program, load_raw_state(tmp_path))
    assert [(f.code, f.message, f.help) for f in findings] == [
        ("S104", "`from` is a time without a time zone, not text", "store it with a time zone, such as UTC"),
        ("S104", "`until` is a date without a time, not text", "store the moment, with a time zone such as UTC"),
    ]
    assert len(state.grants) == 0


def _grants(folder: Path, columns: dict[str, Any]) -> None:
    plain = {name: [GRANT[name]] * 2 for name in GRANT} | {"grantee": ["user:a", "user:b"]}
    pyarrow.parquet.write_table(pyarrow.table(plain | columns), folder / "grants.parquet")
