from __future__ import annotations

from textwrap import dedent

from privtab import model
from privtab.backends.describe import described_policy
from privtab.base.source import SourceFile
from privtab.language import syntax
from privtab.model.lower import lower

TEXT = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {payment:}}
privileges: [ASK, PAY]
tables: {payment: {ask: ASK (shop), pay: PAY (shop)}}
"""


def resolve(conflicts: str) -> tuple[model.Policy | None, list[str]]:
    tables, read = syntax.read_policy(SourceFile.of("shop.yaml", TEXT + dedent(conflicts)))
    assert tables is not None
    policy, found = model.resolve(tables)
    return policy, [f"{d.code} {d.span.line}:{d.span.column} {d.message} {d.help}" for d in (*read, *found)]


def test_conflicts_reach_the_program_and_its_description() -> None:
    policy, found = resolve("conflicts: [{operations: [payment/ask, payment/pay], why: Four eyes.}]\n")
    assert found == []
    assert policy is not None
    (conflict,) = lower(policy).conflicts
    assert conflict.operations == (("payment", "ask"), ("payment", "pay"))
    described = described_policy(lower(policy), revision="")["conflicts"]
    assert described == [{"operations": ["payment/ask", "payment/pay"], "at_most": 1, "why": "Four eyes."}]


def test_unknown_names_are_found_where_they_stand() -> None:
    _, found = resolve("conflicts: [{operations: [payment/aks, paymnt/pay]}]\n")
    assert found == [
        "P105 7:35 unknown operation `aks` on `payment` it has `ask` and `pay`",
        "P102 7:40 unknown entity type `paymnt` did you mean `payment`?",
    ]


def test_a_quoted_name_is_found_as_a_whole() -> None:
    _, found = resolve("conflicts: [{operations: ['payment/aks', payment/pay]}]\n")
    assert found == ["P105 7:27 unknown operation `aks` on `payment` it has `ask` and `pay`"]
