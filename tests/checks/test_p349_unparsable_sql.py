from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from privtab.base import UsageError

FILTERS = """\
dialect: {dialect}
types: {{item: {{row_filters: {{mine: {{requires: READ (item), sql: {sql}}}}}}}}}
tables: {{item: {{read: READ (item)}}}}
"""


@pytest.mark.parametrize(
    ("sql", "under"),
    [("a = = 1", "="), ("a b", None), ("a, b", None), ("SELECT 1", None), ("a = 1 WHERE b", None), ("a FROM t", None), ('"*"', '"*"'),
     ('"a = {user} AND = 1"', "1"), ("TRUE AS x", None)],
)  # fmt: skip
def test_what_is_no_expression(only: Callable[..., Any], sql: str, under: str | None) -> None:
    found = only(FILTERS.format(dialect="trino", sql=sql if sql[0] == '"' else f'"{sql}"'), "P349")
    assert found.message == "the text of `mine` is no expression in the dialect `trino`"
    assert found.help.startswith("the parser says: ")
    assert under in (found.under, None)


@pytest.mark.parametrize(
    "dialect", ["trino", "postgres", "mysql", "sqlite", "duckdb", "spark", "snowflake", "bigquery"]
)
def test_expressions(codes: Callable[[str], list[str]], dialect: str) -> None:
    sql = "\"a IN (SELECT b FROM t WHERE c = {user}) OR EXISTS (SELECT 1 FROM u) AND x IN {groups} AND d LIKE '%{{x'\""
    assert "P349" not in codes(FILTERS.format(dialect=dialect, sql=sql))


def test_without_sqlglot_lint_says_what_is_missing(
    codes: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that nobody read is no clean one."""
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(UsageError, match=r"the SQL of a filter needs sqlglot: pip install .*\[filter\]"):
        codes(FILTERS.format(dialect="trino", sql='"a = 1"'))
