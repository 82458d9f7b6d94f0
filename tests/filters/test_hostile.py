"""Hostile names as values and as columns: nothing is allowed by mistake, and no text is read as anything but a column."""
# ruff: noqa: S608  (conditions are what is tested)

from __future__ import annotations

import sqlite3
from contextlib import closing
from random import Random

import pytest
import sqlglot
from sqlglot import exp
from unusual_names import CARRIED, INVISIBLE

from privtab.base.errors import UsageError
from privtab.filters.expression import OneOf, is_valid
from privtab.filters.filter import Filter
from privtab.filters.sql import DIALECTS, column_of, dialect

SIGNS = (
    "'",
    '"',
    "`",
    "\\",
    "%",
    "?",
    ":a",
    "$1",
    "--",
    "/*",
    "*/",
    ";",
    "(",
    ")",
    " OR 1=1",
    "%s",
    "é",
    "\u202e",
    "/",
    ".",
    "[",
    "]",
    "#",
    "\x00",
    "\n",
    "x" * 10_000,
)
COUNT = 10_000


def hostile(random: Random) -> str:
    return "".join(random.choice((*SIGNS, *CARRIED[:40], *INVISIBLE, "a", "b")) for _ in range(random.randint(1, 5)))


def test_values_never_become_sql() -> None:
    random = Random(1)
    names = sorted({name for name in (hostile(random)[:12_000] for _ in range(COUNT * 2)) if is_valid(name)})[:COUNT]
    allowed = tuple(names[::2])
    found = Filter(user="ann", action="load", type="t", levels=("t",), expression=OneOf("t", allowed))
    others = Filter(user="ann", action="load", type="t", levels=("t",), expression=OneOf("t", allowed, other=True))
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("CREATE TABLE t (name TEXT)")
        database.executemany(
            "INSERT INTO t VALUES (?)", [(name,) for name in (*names, *map(hostile, [random] * 1_000))]
        )
        rows = [name for (name,) in database.execute("SELECT name FROM t")]
        for filter_, expected in (
            (found, set(allowed)),
            (others, {name for name in rows if is_valid(name)} - set(allowed)),
        ):
            where = filter_.sql("sqlite", {"t": "name"}, most=COUNT)
            assert not any(name in where.text for name in allowed if len(name) > 20)
            assert {
                name for (name,) in database.execute(f"SELECT name FROM t WHERE {where.text}", where.parameters)
            } == expected
    assert len(allowed) > 3_000


@pytest.mark.parametrize("name", DIALECTS)
def test_only_columns_are_columns(name: str) -> None:
    random, accepted = Random(name), 0
    for _ in range(COUNT // len(DIALECTS)):
        text = hostile(random)[:200]
        quote = random.choice(('"', "`", ""))
        written = f"{quote}{text.replace(quote, quote * 2) if quote and random.random() < 0.7 else text}{quote}"
        try:
            column = column_of(written, dialect(name))
        except UsageError:
            continue
        accepted += 1
        again = sqlglot.parse(column.sql(name), dialect=name)
        assert len(again) == 1
        assert isinstance(again[0], exp.Column), written
        assert [part.this for part in again[0].parts] == [part.this for part in column.parts], written
    assert accepted
