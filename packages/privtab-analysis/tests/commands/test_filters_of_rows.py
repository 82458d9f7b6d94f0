"""Row filters and column masks on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import filtered_policy
import pytest

from privtab.bundle import state_bundle
from privtab.command import load_rows
from privtab.state import validate


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """The options for the policy and the state."""
    filtered_policy.made(tmp_path)
    return ["-p", str(tmp_path / "lake.yaml"), "-s", str(tmp_path / "state.yaml")]


def test_explain_says_which_filter_applies_and_why_no_earlier_one(
    privtab: Callable[..., Any], asked: list[str]
) -> None:
    ran = privtab("explain", "eve", "row_filter", "table:m/s/t", *asked, "--with", "request.purpose=audit")
    assert ran.code == 0, ran.err
    assert ran.out.startswith(
        "row filter eu_only  user:eve table:m/s/t\n  region = 'EU'\n\nDENY  user:eve row_filter.all_rows"
    )
    assert "make user:eve owner of table:m/s/t" in ran.out
    assert ran.out.index("ALLOW  user:eve row_filter.eu_only") > ran.out.index("row_filter.all_rows")
    assert "row_filter.own_rows" not in ran.out


def test_explain_says_that_no_filter_applies_or_that_a_value_is_missing(
    privtab: Callable[..., Any], asked: list[str]
) -> None:
    nobody = privtab("explain", "zoe", "row_filter", "table:m/s/t", *asked)
    assert nobody.out.startswith("no row filter  user:zoe table:m/s/t\n  FALSE\n")
    assert nobody.out.count("DENY") == 3
    ben = privtab("explain", "ben", "row_filter", "table:m/s/t", *asked)
    assert ben.out.startswith("row filter own_rows: a value for its text is missing  user:ben table:m/s/t\n  FALSE\n")


def test_explain_as_json(privtab: Callable[..., Any], asked: list[str]) -> None:
    ran = privtab("explain", "eve", "column_mask", "column:m/s/t/ssn", *asked, "--format", "json")
    document = json.loads(ran.out)
    assert (document["name"], document["sql"], document["denied"]) == ("hashed", 'sha256(to_utf8("ssn"))', False)
    assert [(one["operation"], one["decision"]) for one in document["tried"]] == [
        ("column_mask.plain", False),
        ("column_mask.hashed", True),
    ]


def test_types_without_filters_are_refused(privtab: Callable[..., Any], asked: list[str]) -> None:
    ran = privtab("explain", "eve", "row_filter", "schema:m/s", *asked)
    assert ran.code == 2
    assert "`schema` has no row filters; `table` has" in ran.err


@pytest.mark.parametrize("again", [False, True], ids=["built once", "built again"])
def test_a_bundle_that_was_built_before_filters_read_groups_is_refused(
    privtab: Callable[..., Any], asked: list[str], tmp_path: Path, again: bool
) -> None:
    """It lacks the names of groups: who is in one that a filter leaves out would see its rows."""
    program, state, _ = filtered_policy.made(tmp_path)
    without = replace(program, filters=tuple(one for one in program.filters if one.name == "all_rows"))
    bundle = tmp_path / "built.tar.gz"
    bundle.write_bytes(state_bundle(without, state))
    if again:
        read_back, _ = validate(program, load_rows(program, bundle))
        bundle.write_bytes(state_bundle(program, read_back))
    asked = [*asked[:2], "-s", str(bundle)]
    ran = privtab("explain", "eve", "row_filter", "table:m/s/t", *asked)
    assert (ran.code, ran.out) == (3, "")
    assert "the state was built for other filters: it lacks groups; build it again with this policy" in ran.err
    assert privtab("explain", "ben", "load", "table:m/s/t", *asked).code == 0, "what is asked otherwise is answered"
    bundle.write_bytes(state_bundle(program, state))
    assert privtab("explain", "eve", "row_filter", "table:m/s/t", *asked).out.startswith("row filter own_rows")


def test_describe_shows_the_texts(privtab: Callable[..., Any], asked: list[str]) -> None:
    text = privtab("describe", asked[1]).out
    assert "row_filter.eu_only: sql `region = 'EU'`" in text
    document = json.loads(privtab("describe", asked[1], "--format", "json").out)
    assert document["dialect"] == "trino"
    texts = {row["operation"]: row["sql"] for row in document["operations"] if "sql" in row}
    assert texts["column_mask.hashed"] == "sha256(to_utf8({column}))"
    assert "sql" not in document["operations"][0]
