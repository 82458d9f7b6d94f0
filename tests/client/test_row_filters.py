"""Row filters and column masks: every engine says which applies, and writes the same SQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import filtered_policy
import pytest

from privtab import AsyncClient, Client, DecisionError, Embedded, InvalidRequest, PolicyError, Request
from privtab.base.sql_text import AppliedFilter, denial
from privtab.bundle.pack import state_bundle
from privtab.client._arguments import Details, as_entity, request_details
from privtab.engines.opa.server import OpaServer
from privtab.ir.nodes import Program
from privtab.reference.evaluate import evaluate
from privtab.state.nodes import State

TABLES = ("table:m/s/t", "table:m/s/hidden", "table:m/s/other")
COLUMNS = (
    "column:m/s/t/ssn",
    "column:m/s/t/x",
    'column:m/s/t/a%2F"b',
    "column:m/s/hidden/ssn",
    "column:m/s/t/${x}",
    "column:m/s/t/%2A%3F",
    "column:m/s/t/%252A",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, State, list[Path]]:
    return filtered_policy.made(tmp_path_factory.mktemp("lake"))


@pytest.fixture(scope="module")
def embedded(made: tuple[Program, State, list[Path]]) -> Embedded:
    return Embedded(*made[2])


@pytest.fixture(scope="module")
def opa(made: tuple[Program, State, list[Path]], opa_binary: Path) -> Iterator[OpaServer]:
    with OpaServer(made[2], binary=opa_binary) as server:
        yield server


def test_each_user_sees_the_rows_of_the_first_filter_whose_condition_holds(embedded: Embedded) -> None:
    assert embedded.row_filter("ann", "table:m/s/t") == AppliedFilter("all_rows", "TRUE")
    found = embedded.row_filter("eve", "table:m/s/t", groups=["guests"])
    assert found == AppliedFilter(
        "own_rows",
        "manager = 'eve' AND team IN ('b''c', 'guests', 'staff') AND level <= (-3) AND '{' <> 'the ''board''' "
        "AND purpose = 'work' AND badge IN ('blue', 'red') AND TRUE",
    )
    audit = {"request": {"purpose": "audit"}}
    assert embedded.row_filter("eve", "table:m/s/t", attributes=audit).name == "eu_only"


def test_no_filter_is_a_denial_and_so_is_a_value_that_is_missing(embedded: Embedded) -> None:
    nothing = AppliedFilter(None, "FALSE", denied=True)
    assert embedded.row_filter("zoe", "table:m/s/t") == nothing
    assert embedded.check("ben", "row_filter.own_rows", "table:m/s/t")
    assert embedded.row_filter("ben", "table:m/s/t") == nothing, "ben has no level, and no later filter takes over"
    assert embedded.column_masks("zoe", ["column:m/s/t/x"]) == [AppliedFilter(None, "NULL", denied=True)]


def test_masks_are_given_by_position_and_name_the_column(embedded: Embedded) -> None:
    masks = embedded.column_masks("eve", [*COLUMNS[:2], "column:m/s/t/ssn"])
    assert [mask.sql for mask in masks] == ['sha256(to_utf8("ssn"))', "''", 'sha256(to_utf8("ssn"))']
    assert embedded.column_masks("ann", COLUMNS[:1]) == [AppliedFilter("plain", '"ssn"')]
    odd = embedded.column_masks("ann", COLUMNS[-2:])
    assert [mask.sql for mask in odd] == ['"*?"', '"%2A"'], "a mask reads no column of another name"
    odd = embedded.column_masks("ann", COLUMNS[-2:])
    assert [mask.sql for mask in odd] == ['"*?"', '"%2A"'], "a mask reads no column of another name"
    assert embedded.column_masks("ann", COLUMNS[2:3]) == [denial("column_mask")], "no name of a column has a quote"


def test_types_without_filters_refuse_the_question(embedded: Embedded, opa: OpaServer) -> None:
    for client in (embedded, Client(opa.url)):
        with pytest.raises(InvalidRequest, match="`schema` has no row filters; `table` has"):
            client.row_filter("eve", "schema:m/s")
        with pytest.raises(InvalidRequest, match="`table` has no column masks; `column` has"):
            client.column_masks("eve", ["table:m/s/t"])
        with pytest.raises(InvalidRequest, match="is answered with SQL, not with a decision"):
            client.check("eve", "row_filter", "table:m/s/t")
        with pytest.raises(InvalidRequest, match="wrong depth"):
            client.row_filter("eve", "table:m/s")


def test_engines_agree(made: tuple[Program, State, list[Path]], embedded: Embedded, opa: OpaServer) -> None:
    """The reference says which filter applies; in process, and over OPA, its text is the same."""
    program, state, _ = made
    client = Client(opa.url)
    seen = set()
    for user in filtered_policy.USERS:
        for groups in ((), ("staff", "x'); DROP TABLE t; --")):
            for purpose in ({}, {"request": {"purpose": "audit"}}):
                details: Details = {"groups": groups, "attributes": purpose}
                for table in TABLES:
                    applied = embedded.row_filter(user, table, **details)
                    assert client.row_filter(user, table, **details) == applied
                    decided = _decided(program, state, "row_filter", user, table, **details)
                    assert applied.name in (decided, None)
                    seen.add((decided, applied.denied))
                masks = embedded.column_masks(user, COLUMNS, **details)
                assert client.column_masks(user, COLUMNS, **details) == masks
                decided_masks = [_decided(program, state, "column_mask", user, c, **details) for c in COLUMNS]
                assert all(mask.name in (one, None) for mask, one in zip(masks, decided_masks, strict=True))
    assert seen == {
        ("all_rows", False),
        ("eu_only", False),
        ("own_rows", False),
        ("own_rows", True),
        (None, True),
    }


def _decided(
    program: Program, state: State, kind: str, user: str, resource: str, **details: Unpack[Details]
) -> str | None:

    names = [one.name for one in program.filters if one.kind == kind]
    more = request_details(**details)
    entity = as_entity(resource)
    asked = ((name, Request(user=user, action=f"{kind}.{name}", resource=entity, **more)) for name in names)
    return next((name for name, question in asked if evaluate(program, state, question).allowed), None)


def test_the_asynchronous_client_asks_the_same(embedded: Embedded, opa: OpaServer) -> None:
    async def ask() -> list[AppliedFilter]:
        async with AsyncClient(opa.url) as client:
            return [await client.row_filter("eve", "table:m/s/t"), *await client.column_masks("eve", COLUMNS)]

    expected = [embedded.row_filter("eve", "table:m/s/t"), *embedded.column_masks("eve", COLUMNS)]
    assert asyncio.run(ask()) == expected


def test_a_client_that_enforces_nothing_shows_everything(made: tuple[Program, State, list[Path]]) -> None:
    for mode in ("off", "observe"):
        with Embedded(*made[2], mode=mode) as client:
            assert client.row_filter("zoe", "table:m/s/t") == AppliedFilter(None, "TRUE")
            assert client.column_masks("zoe", COLUMNS[:1]) == [AppliedFilter(None, '"ssn"')]


def test_a_state_that_was_built_before_filters_read_groups_is_refused(
    made: tuple[Program, State, list[Path]], tmp_path: Path, opa_binary: Path
) -> None:
    """It lacks the names of groups and roles: who seems to have none would get a filter that shows more."""
    program, state, (policy, _) = made
    for name, without in (("none", ()), ("others", tuple(one for one in program.filters if one.name == "all_rows"))):
        built = tmp_path / f"{name}.tar.gz"
        built.write_bytes(state_bundle(replace(program, filters=without), state))
        with pytest.raises(PolicyError, match="built for other filters: it lacks groups"):
            Embedded(policy, built).row_filter("eve", "table:m/s/t")
        with OpaServer([policy, built], binary=opa_binary) as server, Client(server.url) as client:
            assert client.check("eve", "row_filter.own_rows", "table:m/s/t"), "what is asked otherwise is answered"
            with pytest.raises(DecisionError):
                client.row_filter("eve", "table:m/s/t")
