"""Comparisons of conditions with `or below`: witnesses name entities of types that no condition names, and declarations below count."""

from __future__ import annotations

import pytest

from privtab.base import SourceFile
from privtab.pipeline import load_program
from privtab_analysis.diff import Verdict, diff

POLICY = """
privtab: 1
system: lake
version: "1"
entities: {catalog: {schema: {table: }}}
privileges: [READ]
semantics: {owner: {kinds: [user]}}
tables:
  catalog: {see: owner (catalog or below), find: READ (catalog or below)}
"""


def test_witnesses_include_entities_below() -> None:
    before, after = (
        load_program(SourceFile.of("lake.yaml", text)) for text in (POLICY, POLICY.replace(" or below", ""))
    )
    found = {row.operation: row for row in diff(before, after).rows}
    assert {row.verdict for row in found.values()} == {Verdict.NARROWER}
    assert [witness.state for row in found.values() for witness in row.witnesses] == [
        {"owners": [{"entity": "schema:catalog1/other_schema", "owner": "user:alice"}]},
        {
            "grants": [
                {
                    "grantee": "user:alice",
                    "effect": "allow",
                    "privilege": "READ",
                    "entity": "schema:catalog1/other_schema",
                }
            ]
        },
    ]


@pytest.mark.parametrize(
    "text",
    [
        POLICY.replace("[READ]", "{READ: {on: [catalog, schema]}}"),
        POLICY.replace("{table: }", "{table: , view: }"),
        POLICY.replace("{owner", "{inheritance: down, owner"),
    ],
    ids=["privilege", "type", "inheritance"],
)
def test_declarations_of_what_lies_below_decide_too(text: str) -> None:
    before, after = (load_program(SourceFile.of("lake.yaml", each)) for each in (POLICY, text))
    rows = {row.operation: row.verdict for row in diff(before, after).rows}
    assert rows["find"] is Verdict.UNKNOWN, "a grant on what lies below may count in one of them alone"
