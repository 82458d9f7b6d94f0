from __future__ import annotations

from textwrap import dedent

import pytest

from privtab.base.source import SourceFile
from privtab.language.syntax import read_policy

HEAD = "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: {payment:}}\n"


def test_a_conflict_is_read_with_its_places() -> None:
    text = HEAD + dedent("""\
        conflicts:
          - {operations: [payment/ask, payment/pay], why: Four eyes.}
          - {operations: [payment/ask, payment/pay, payment/check], at_most: 2}
        """)
    tables, found = read_policy(SourceFile.of("shop.yaml", text))
    assert tables is not None
    assert found == []
    first, second = tables.conflicts
    assert [word.value for word in first.operations] == ["payment/ask", "payment/pay"]
    assert (first.at_most, first.why, first.span.line, first.span.column) == (1, "Four eyes.", 6, 19)
    assert (second.at_most, second.why, len(second.operations)) == (2, None, 3)


@pytest.mark.parametrize(
    ("conflicts", "message"),
    [
        ("{operations: [a/b, c/d]}", "`conflicts` must be a list, not a mapping"),
        ("[payment/ask]", "a conflict must be a mapping, not text"),
        ("[{why: Four eyes.}]", "missing key `operations` in a conflict"),
        ("[{operations: [payment/ask]}]", "1 operation, of which 1 may be held"),
        ("[{operations: [payment/ask, payment/pay], at_most: 2}]", "2 operations, of which 2 may be held"),
        ("[{operations: [payment/ask, payment/pay], at_most: 0}]", "`0` operations cannot be held"),
        ("[{operations: [payment/ask, payment/pay], at_most: one}]", "`at_most` must be a number, not text"),
        ("[{operations: [payment/ask, payment/ask]}]", "`payment/ask` occurs twice"),
        ("[{operations: [payment/ask, pay]}]", "`pay` is not an operation"),
        ("[{operations: [payment/ask, shop/payment/pay]}]", "`shop/payment/pay` is not an operation"),
    ],
)
def test_each_mistake_is_one_finding(conflicts: str, message: str) -> None:
    tables, found = read_policy(SourceFile.of("shop.yaml", f"{HEAD}conflicts: {conflicts}\n"))
    assert tables is not None
    assert [d.message for d in found] == [message]
    assert tables.conflicts == ()
