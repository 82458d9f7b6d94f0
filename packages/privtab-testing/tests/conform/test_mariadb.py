"""A real MariaDB obeys the table of its documentation, and a wrong table is told from it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from checkout import ROOT
from mariadb_server import mariadb

from privtab.pipeline import load_program
from privtab_testing.conform import Verdict
from privtab_testing.conform.document import load
from privtab_testing.conform.drivers import SqlDriver
from privtab_testing.conform.plan import PREFIX, plan
from privtab_testing.conform.report import Report, report
from privtab_testing.conform.run import Settings, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mariadb-10-11")]

POLICY = ROOT / "policy_src" / "mariadb" / "10.11.yaml"
DRIVER = ROOT / "examples" / "conform" / "mariadb.yaml"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with mariadb() as url:
        yield url


def conformance(policy: Path, url: str, *, rows: str | None = None) -> Report:
    program = load_program(policy)
    driver = SqlDriver(load(DRIVER, program), program, url)
    planned = plan(
        program,
        changes=driver.changes,
        abilities=driver.abilities,
        rows=lambda rule: rows is None or rule.entity == rows,
    )
    outcome = run(planned, planned.questions, driver, Settings(jobs=4))
    return report(planned, outcome, driver, (), date(2030, 1, 1))


def left_behind(url: str) -> list[str]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(
            f"select user from mysql.global_priv where user like '{PREFIX}%%' "  # noqa: S608
            f"union select schema_name from information_schema.schemata where schema_name like '{PREFIX}%%'"
        )
        return [str(name) for (name,) in found]


def test_every_cell_agrees_and_nothing_is_left_behind(url: str) -> None:
    result = conformance(POLICY, url)
    assert result.outcome.failure is None
    assert result.outcome.left == ()
    assert [(row.name, row.verdict) for row in result.rows if row.verdict is not Verdict.AGREES] == []
    assert set(result.cells) == {Verdict.AGREES}
    assert result.requests == len(result.plan.questions)
    assert left_behind(url) == []


def test_a_table_that_the_server_does_not_obey_is_reported(url: str, tmp_path: Path) -> None:
    policy = tmp_path / "wrong.yaml"
    text = POLICY.read_text(encoding="utf-8")
    text = text.replace("truncate: {requires: DROP (table)", "truncate: {requires: DELETE (table)")
    text = text.replace(
        "grant_select: {requires: SELECT (table) and GRANT_OPTION (table)",
        "grant_select: {requires: GRANT_OPTION (table)",
    )
    policy.write_text(text, encoding="utf-8")
    rows = {row.name: row for row in conformance(policy, url, rows="table").rows}
    assert rows["table/truncate"].verdict is Verdict.NARROWER, "it takes DROP"
    assert rows["table/grant_select"].verdict is Verdict.NARROWER
    assert rows["table/delete"].verdict is Verdict.AGREES
    assert left_behind(url) == []
