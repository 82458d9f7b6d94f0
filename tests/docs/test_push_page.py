"""The example of the page about pushing runs as it is written, on a real PostgreSQL."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import sqlalchemy
from documentation_pages import read
from postgresql_server import postgresql

from privtab.command._app import run

PAGE = "docs/reference/push.md"
DATABASE = "postgresql+psycopg://admin@db/hive"


@pytest.mark.slow
@pytest.mark.xdist_group("postgresql-15")
def test_the_example_for_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = read(PAGE)
    page.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    (block,) = (
        block
        for block in page.blocks
        if block.language == "console" and "postgresql" in block.says and DATABASE in block.text
    )
    with postgresql() as url:
        engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in ("create role ann login", "create role ben login", "create schema sales",
                              "create table sales.orders ()", "create table sales.payroll ()"):  # fmt: skip
                connection.exec_driver_sql(statement)
        for part in block.text.split("$ ")[1:]:
            command, _, expected = part.partition("\n")
            arguments = shlex.split(command.replace(DATABASE, url))[1:]
            code = run(arguments)
            printed = capsys.readouterr()
            assert sorted(
                re.sub(r"postgresql\+psycopg://\S+(?=: )", DATABASE, printed.out + printed.err).splitlines()
            ) == sorted(expected.splitlines())
            assert code == ("cannot be expressed" in expected)
