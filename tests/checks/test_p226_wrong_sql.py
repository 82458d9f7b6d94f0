from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FILTERS = """\
dialect: trino
attributes: {{user: {{team: text}}, entity: {{tags: {{text: true, on: [item]}}, open: {{bool: true, on: [shelf]}}}}}}
types:
  item:
    {kind}: {{mine: {{requires: READ (item), sql: {sql}}}}}
tables: {{item: {{read: READ (item)}}}}
"""


@pytest.mark.parametrize(
    ("sql", "message", "help_", "under"),
    [
        ('"seller = {usr}"', "unknown placeholder `{usr}`", "did you mean `{user}`?", "{usr}"),
        ("\"seller = '{user}'\"", "`{user}` stands in quotes", None, "{user}"),
        ('"seller = {column}"', "a row filter has no `{column}`", "write the names of columns as SQL does", "{column}"),
        ('"a = 1; b"', "one expression has no `;`", "write one expression", ";"),
        ('"a = 1 -- b"', "`--` begins a comment", "write what there is to say in `note`", "--"),
    ],
)
def test_a_text_that_is_refused(
    only: Callable[..., Any], sql: str, message: str, help_: str | None, under: str
) -> None:
    found = only(FILTERS.format(kind="row_filters", sql=sql), "P226")
    assert (found.message, found.under) == (message, under)
    assert help_ in (found.help, None)


@pytest.mark.parametrize(
    "sql", ['"team = {user.tean}"', '"tags = {entity.tag}"', '"x = {shop.open}"', '"x = {room.open}"']
)
def test_attributes_are_those_of_conditions(codes: Callable[[str], list[str]], sql: str) -> None:
    assert codes(FILTERS.format(kind="row_filters", sql=sql))[0] in ("P109", "P103")


@pytest.mark.parametrize("sql", ["\"{user.team} = team AND {entity.tags} <> '{{' AND {shelf.open} AND u IN {groups}\""])
def test_what_placeholders_may_be(codes: Callable[[str], list[str]], sql: str) -> None:
    assert not {"P226", "P109", "P349"} & {*codes(FILTERS.format(kind="row_filters", sql=sql))}


def test_masks_name_their_column(codes: Callable[[str], list[str]]) -> None:
    assert "P226" not in codes(FILTERS.format(kind="column_masks", sql='"substr({column}, 1, 2)"'))


def test_no_dialect(only: Callable[..., Any]) -> None:
    text = FILTERS.format(kind="row_filters", sql='"TRUE"').replace("dialect: trino\n", "")
    found = only(text, "P226")
    assert found.message == "the file does not say in which dialect of SQL its filters are"
    assert found.under == "mine"


@pytest.mark.parametrize(
    ("filters", "code"),
    [("[]", "P008"), ("{}", "P008"), ("{mine: TRUE}", "P008"), ("{mine: {sql: a}}", "P007"), ("{mine: {requires: READ (item)}}", "P007"),
     ("{a.b: {requires: READ (item), sql: a}}", "P010"), ("{mine: {requires: READ (item), sql: a, grants: owner}}", "P006")],
)  # fmt: skip
def test_filters_that_cannot_be_read(codes: Callable[[str], list[str]], filters: str, code: str) -> None:
    assert code in codes(
        f"dialect: trino\ntypes: {{item: {{row_filters: {filters}}}}}\ntables: {{item: {{read: READ (item)}}}}\n"
    )


def test_an_unknown_dialect(codes: Callable[[str], list[str]]) -> None:
    text = FILTERS.format(kind="row_filters", sql='"TRUE"').replace("dialect: trino", "dialect: trimo")
    assert "P009" in codes(text)
