"""`privtab unused`: from the log of a real OPA to a narrower state, in the form of the state, and a page."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import logged_world
import pyarrow as pa
import pytest
from lake_policy import POLICY, asks, grant
from pyarrow import parquet

from privtab.base import Request
from privtab.pipeline import load_program
from privtab.state import load_raw_state, validate

Command = Callable[..., Any]
HOSTILE = "<script>alert(1)</script>=cmd|'"
YAML = """\
# who holds what in the lake
owners:
- {entity: "lake:l", owner: user:root}  # set up
grants:
# analysts
- {grantee: role:analyst, effect: allow, privilege: READ, entity: "lake:l"}
- grantee: user:ann  # before there were roles
  effect: allow
  privilege: SELECT
  entity: "schema:l/s"
- {grantee: user:idle, effect: allow, privilege: SELECT, entity: "lake:l"}
- {grantee: role:etl, effect: allow, privilege: CREATE, entity: "lake:l"}
assignments:
- {principal: user:ann, role: analyst}
- {principal: user:bob, role: analyst}
- {principal: user:cid, role: etl}
"""
NARROWER = """\
# who holds what in the lake
owners:
grants:
# analysts
- {grantee: role:analyst, effect: allow, privilege: READ, entity: "lake:l"}
- {grantee: role:etl, effect: allow, privilege: CREATE, entity: "lake:l"}
assignments:
- {principal: user:ann, role: analyst}
- {principal: user:bob, role: analyst}
- {principal: user:cid, role: etl}
"""
REQUESTS = [
    asks("ann", "read", "table:l/s/t"),
    asks("bob", "read", "table:l/s/u"),
    asks("cid", "create", "schema:l/new"),
    asks("dan", "read", "table:l/s/t"),
    asks("ann", "drop", "table:l/s/t"),
]


def entry(number: int, request: Request, *, allowed: bool) -> dict[str, Any]:
    """An entry of OPA's decision log."""
    return {
        "decision_id": f"d{number}",
        "path": "privtab/lake/allow",
        "input": request.to_json(),
        "result": allowed,
        "timestamp": f"2026-10-{1 + number:02d}T10:00:00Z",
    }


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with a policy, a state and a log."""
    (tmp_path / "lake.yaml").write_text(POLICY)
    (tmp_path / "state.yaml").write_text(YAML)
    lines = [json.dumps(entry(n, request, allowed=n < 3)) for n, request in enumerate(REQUESTS)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


def unused(privtab: Command, lake: Path, *more: str | Path, state: str = "state.yaml") -> Any:
    return privtab("unused", lake / "log.jsonl", "-p", lake / "lake.yaml", "-s", lake / state, *more)


def test_the_log_of_an_opa_gives_a_state_by_which_a_fresh_opa_allows_the_same(
    privtab: Command, lake: Path, opa_binary: Path
) -> None:
    program = load_program(lake / "lake.yaml")
    state = validate(program, load_raw_state(lake / "state.yaml"))[0]
    log, answers = logged_world.decided(lake / "before", opa_binary, program, state, REQUESTS)
    assert answers == [True, True, True, False, False]
    target = lake / "narrower.yaml"
    ran = privtab(
        "unused", log, "-p", lake / "lake.yaml", "-s", lake / "state.yaml", "--propose", target, "--format", "json"
    )
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    # What clients ask of listings is in the log, too.
    assert found["requests"]["allows"] >= 3
    assert found["proposed"] == 3
    assert found["difference"]["summary"]["gained"]["permissions"] == 0
    assert target.read_text() == NARROWER
    narrower = validate(program, load_raw_state(target))[0]
    assert logged_world.decided(lake / "after", opa_binary, program, narrower, REQUESTS)[1] == answers


def rows_of(path: Path) -> dict[str, list[dict[str, str]]]:
    return {table: [dict(row.cells) for row in rows] for table, rows in load_raw_state(path).rows.items()}


def as_csv(folder: Path, tables: dict[str, list[dict[str, str]]]) -> None:
    for table, rows in tables.items():
        text = io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(rows)
        (folder / f"{table}.csv").write_bytes(text.getvalue().encode())


def as_parquet(folder: Path, tables: dict[str, list[dict[str, str]]]) -> None:
    for table, rows in tables.items():
        parquet.write_table(pa.Table.from_pylist(rows), folder / f"{table}.parquet")


def as_parts(folder: Path, tables: dict[str, list[dict[str, str]]]) -> None:
    for table, rows in tables.items():
        (folder / table).mkdir()
        for number, row in enumerate(rows):
            (folder / table / f"part-{number}.json.gz").write_bytes(gzip.compress(json.dumps(row).encode()))


def test_the_rest_of_packed_files_in_parts_is_csv(privtab: Command, lake: Path) -> None:
    (lake / "state").mkdir()
    as_parts(lake / "state", {table: rows for table, rows in rows_of(lake / "state.yaml").items() if rows})
    assert unused(privtab, lake, "--propose", lake / "narrower", state="state").code == 0
    (lake / "narrower.yaml").write_text(NARROWER)
    assert rows_of(lake / "narrower") == rows_of(lake / "narrower.yaml")


@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_a_folder_of_tables_stays_one(
    privtab: Command, lake: Path, write: Callable[[Path, dict[str, list[dict[str, str]]]], None]
) -> None:
    (lake / "state").mkdir()
    write(lake / "state", rows_of(lake / "state.yaml"))
    assert unused(privtab, lake, "--propose", lake / "narrower", state="state").code == 0
    (lake / "narrower.yaml").write_text(NARROWER)
    assert rows_of(lake / "narrower") == rows_of(lake / "narrower.yaml")
    assert {file.name for file in (lake / "narrower").iterdir()} == {f.name for f in (lake / "state").iterdir()}


def test_json_stays_json_and_rows_on_one_line_are_written_anew(privtab: Command, lake: Path) -> None:
    tables = rows_of(lake / "state.yaml")
    (lake / "state.json").write_text(json.dumps(tables, indent=2))
    assert unused(privtab, lake, "--propose", lake / "out.json", state="state.json").code == 0
    assert '\n  "grants": [\n' in (lake / "out.json").read_text()
    flow = "".join(f"{table}: {json.dumps(rows)}\n" for table, rows in tables.items())
    (lake / "flow.yaml").write_text(flow)
    assert unused(privtab, lake, "--propose", lake / "out.yaml", state="flow.yaml").code == 0
    (lake / "narrower.yaml").write_text(NARROWER)
    assert rows_of(lake / "out.json") == rows_of(lake / "out.yaml") == rows_of(lake / "narrower.yaml")


def test_rows_that_say_the_same_go_together(privtab: Command, lake: Path) -> None:
    idle = '- {grantee: user:idle, effect: allow, privilege: SELECT, entity: "lake:l"}\n'
    (lake / "state.yaml").write_text(YAML.replace(idle, idle * 3))
    assert unused(privtab, lake, "--propose", lake / "narrower.yaml").code == 0
    assert (lake / "narrower.yaml").read_text() == NARROWER


def test_exit_codes_and_formats(privtab: Command, lake: Path) -> None:
    assert unused(privtab, lake).code == 0
    assert unused(privtab, lake, "--fail-on", "unused").code == 1
    assert unused(privtab, lake, "--fail-on", "operations").code == 1
    assert unused(privtab, lake, "--fail-on", "nothing").code == 2
    (lake / "narrower.yaml").write_text(NARROWER)
    assert unused(privtab, lake, "--fail-on", "unused", state="narrower.yaml").code == 0
    marked = unused(privtab, lake, "--format", "markdown").out
    assert "### Unused rows of the state: 2" in marked
    rows = list(csv.DictReader(io.StringIO(unused(privtab, lake, "--format", "csv").out)))
    assert [row["row"] for row in rows if row["use"] == "unused"] == [
        "lake:l is owned by user:root",
        "SELECT granted to user:idle at lake:l",
    ]


def test_what_the_log_does_not_say_is_counted(privtab: Command, lake: Path) -> None:
    more = [
        entry(7, asks("ann", "fly", "table:l/s/t"), allowed=True),
        entry(8, asks("zoe", "read", "table:l/s/t"), allowed=True),
    ]
    with (lake / "log.jsonl").open("a") as log:
        log.write("\n".join(map(json.dumps, more)) + '\n{"cut": ')
    ran = unused(privtab, lake, "--fail-on", "incomplete")
    assert ran.code == 1
    assert "1 decision not used: no request of the policy, such as: " in ran.out
    assert "1 logged allow that this state does not give" in ran.out
    assert "cannot be read" in ran.out
    target = lake / "narrower.yaml"
    ran = unused(privtab, lake, "--propose", target)
    assert ran.code == 1
    assert "failed: incomplete" in ran.err
    assert not target.exists()
    allowed = "--accept=incomplete-logs"
    assert unused(privtab, lake, "--fail-on", "incomplete", allowed, "--propose", target).code == 2
    assert unused(privtab, lake, allowed, "--propose", target).code == 0
    assert target.exists()


def test_a_log_without_a_decision_shows_nothing(privtab: Command, lake: Path) -> None:
    target = lake / "narrower.yaml"
    (lake / "log.jsonl").write_text('no log\n{"level":"info","msg":"x"}\n')
    ran = unused(privtab, lake, "--propose", target)
    assert ran.code == 1
    assert "nothing was observed" in ran.err
    assert "1 entry or rest of a file cannot be read" in ran.err
    assert unused(privtab, lake, "--propose", target, "--accept", "incomplete-logs").code == 1
    assert unused(privtab, lake, "--propose", target, "--accept", "empty-logs").code == 0
    assert not target.exists()


def test_what_decision_points_dropped_stands_in_the_way_of_a_proposal(privtab: Command, lake: Path) -> None:
    (lake / "metrics").write_text('decision_logs_dropped_rate_limit_exceeded{name="x"} 7\n')
    target = lake / "narrower.yaml"
    ran = unused(privtab, lake, "--metrics", lake / "metrics", "--propose", target)
    assert ran.code == 1
    assert "not covered: 7 dropped by decision points: decision_logs_dropped_rate_limit_exceeded" in ran.out
    assert not target.exists()


def test_a_wrong_file_of_rows_to_keep_writes_nothing(privtab: Command, lake: Path) -> None:
    (lake / "keep.yaml").write_text("keep:\n- {principal: role:emergancy, why: break-glass access}\n")
    ran = unused(privtab, lake, "--keep", lake / "keep.yaml", "--propose", lake / "narrower.yaml")
    assert ran.code == 1
    assert "keep.yaml:2" in ran.err
    assert not (lake / "narrower.yaml").exists()


def test_rows_that_an_earlier_state_lacks_stay(privtab: Command, lake: Path) -> None:
    earlier = YAML.replace('- {grantee: user:idle, effect: allow, privilege: SELECT, entity: "lake:l"}\n', "")
    (lake / "earlier.yaml").write_text(earlier)
    ran = unused(privtab, lake, "--earlier", lake / "earlier.yaml", "--propose", lake / "narrower.yaml")
    assert ran.code == 0
    assert "user:idle" in (lake / "narrower.yaml").read_text()
    assert "user:root" not in (lake / "narrower.yaml").read_text()


def page_of(privtab: Command, lake: Path, rows: Iterable[dict[str, str]]) -> str:
    (lake / "state.json").write_text(json.dumps({"grants": list(rows)}))
    ran = unused(privtab, lake, "--html", lake / "report.html", state="state.json")
    assert ran.code == 0, ran.err
    return (lake / "report.html").read_text()


def test_the_page_shows_hostile_names_as_text(privtab: Command, lake: Path) -> None:
    with (lake / "log.jsonl").open("a") as log:
        log.write(
            json.dumps(entry(6, asks(HOSTILE, "read", f"table:l/{HOSTILE.replace('/', '%2F')}/t"), allowed=False))
            + "\n"
        )
    text = page_of(privtab, lake, [grant(f"user:{HOSTILE}", "SELECT", "table:l/s/t")])
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "default-src 'none'" in text
    for heading in ("Decisions over time", "Denials, and what was missing", "Roles: used and held", "Who would lose"):
        assert heading in text


def test_the_page_has_what_roles_hold_and_what_was_used(privtab: Command, lake: Path) -> None:
    ran = unused(privtab, lake, "--html", lake / "report.html")
    assert ran.code == 0, ran.err
    text = (lake / "report.html").read_text()
    assert 'title="role:analyst · table/read: 2"' in text
    assert 'title="role:etl · schema/create: 1"' in text
    assert '<label for="map2">held: entities on which a role allows an operation</label>' in text
    assert "SELECT (table)" in text


def test_the_page_names_every_set_that_was_missing_and_the_least_privilege(privtab: Command, lake: Path) -> None:
    """Of several sets of one size none is called the least, and a denial in the way is named."""
    rows = [
        grant("role:analyst", "SELECT", "schema:l/s"),
        {**grant("user:ann", "SELECT", "table:l/s/t"), "effect": "deny"},
    ]
    (lake / "state.json").write_text(
        json.dumps({"grants": rows, "assignments": [{"principal": "user:ann", "role": "analyst"}]})
    )
    lines = [
        json.dumps(entry(n, asks(user, "read", "table:l/s/t"), allowed=False)) for n, user in enumerate(("ann", "dan"))
    ]
    (lake / "log.jsonl").write_text("\n".join(lines))
    ran = unused(privtab, lake, "--html", lake / "report.html", state="state.json")
    assert ran.code == 0, ran.err
    text = (lake / "report.html").read_text()
    missing = re.findall(r'data-name="why"[^>]*>(.*?)</td>', text)
    assert sorted(missing) == [
        "blocked by a denial of SELECT (table); or missing: owner (table)",
        "missing: SELECT (table), or owner (table)",
    ]
    assert "least that was missing" not in text
    assert "remove the denial of SELECT at table:l/s/t to user:ann" in text.replace("<wbr>", "")


def test_a_log_is_not_written_over(privtab: Command, lake: Path) -> None:
    log = (lake / "log.jsonl").read_bytes()
    for option in ("--propose", "--html"):
        ran = unused(privtab, lake, option, lake / "log.jsonl")
        assert (ran.code, "is not written over" in ran.err) == (2, True), ran.err
    assert (lake / "log.jsonl").read_bytes() == log
