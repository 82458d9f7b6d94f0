from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_two_names_for_one_role(only: Callable[..., Any]) -> None:
    found = only(
        """\
        sets: {ALL: [READ, WRITE]}
        roles: {keeper: {grants: {shelf: READ + WRITE}}, tender: {grants: {shelf: [ALL]}}}
        """,
        "P333",
    )
    assert found.message == "the role `tender` grants the same as `keeper`"
    assert found.help == "one role is enough, unless states grant more to one of them"
    assert found.under == "tender"


def test_no_finding(codes: Callable[[str], list[str]]) -> None:
    roles = "{a: {grants: {shelf: [READ]}}, b: {grants: {shelf: [WRITE]}}, c: {scope: shop, grants: {shelf: [READ]}}, d: , e: }"
    assert "P333" not in codes(f"roles: {roles}\n")
