"""Real databases, each started once."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from filtered_databases import Run
from mariadb_server import mariadb
from postgresql_server import postgresql
from sqlalchemy import make_url


def _regexp(pattern: str, text: str | None) -> bool | None:
    return None if text is None else re.search(pattern, text) is not None


@pytest.fixture(scope="session")
def _sqlite() -> Iterator[Run]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.create_function("REGEXP", 2, _regexp)
        connection.execute(
            "CREATE TABLE t (id INTEGER, cat TEXT COLLATE NOCASE, sch TEXT COLLATE RTRIM, name TEXT COLLATE NOCASE)"
        )
        yield lambda text, values: connection.execute(text, values).fetchall()


@pytest.fixture(scope="session")
def _duckdb() -> Iterator[Run]:
    duckdb = pytest.importorskip("duckdb")
    with closing(duckdb.connect()) as connection:
        connection.execute("CREATE TABLE t (id INT, cat TEXT COLLATE NOCASE, sch TEXT COLLATE NOACCENT, name TEXT)")
        yield lambda text, values: connection.execute(text, values).fetchall()


@pytest.fixture(scope="session")
def _postgres() -> Iterator[Run]:
    import psycopg

    with postgresql() as address:
        url = make_url(address)
        with psycopg.connect(
            f"host={url.query['host']} user={url.username} dbname=postgres", autocommit=True
        ) as connection:
            connection.execute(
                "CREATE COLLATION folding (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
            )
            connection.execute(
                "CREATE TABLE t (id INT, cat TEXT COLLATE folding, sch VARCHAR COLLATE folding, name TEXT)"
            )

            def run(text: str, values: Sequence[object]) -> Sequence[tuple[object, ...]]:
                found = connection.execute(text, values, prepare=False)  # tables are made again with other types
                return found.fetchall() if found.description else ()

            yield run


@pytest.fixture(scope="session")
def _mysql() -> Iterator[Run]:
    import pymysql  # type: ignore[import-untyped]

    with mariadb() as address:
        socket = str(make_url(address).query["unix_socket"])
        with (
            closing(pymysql.connect(unix_socket=socket, user="root", charset="utf8mb4")) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("CREATE DATABASE d CHARACTER SET utf8mb4")
            cursor.execute("USE d")
            cursor.execute(
                "CREATE TABLE t (id INT, cat TEXT, sch TEXT COLLATE utf8mb4_bin, name TEXT CHARACTER SET utf16 COLLATE utf16_unicode_ci)"
            )

            def run(text: str, values: Sequence[object]) -> Sequence[tuple[object, ...]]:
                cursor.execute(text, values)
                return list(cursor.fetchall())

            yield run


@pytest.fixture
def run(request: pytest.FixtureRequest, dialect: str) -> Run:
    found: Run = request.getfixturevalue(f"_{dialect}")
    return found
