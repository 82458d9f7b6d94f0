"""Secrets are compared by `hmac.compare_digest` alone, whose time tells nothing of how much was right."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from checkout import sources

WORD = re.compile(r"token|secret|password|bearer|hmac|mac|signature_bytes", re.IGNORECASE)
SECRET = re.compile(rf"(^|_)({WORD.pattern})($|_)", re.IGNORECASE)


def compared(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of each `==`, `!=` or `in` whose side is named for a secret; constants and None tell nothing."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        if not any(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops) or any(
            isinstance(side, ast.Constant) for side in sides
        ):
            continue
        for side in sides:
            name = side.id if isinstance(side, ast.Name) else side.attr if isinstance(side, ast.Attribute) else ""
            if SECRET.search(name):
                yield node.lineno, name


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("token == given", ["token"]),
        ("served.token != given", ["token"]),
        ("bearer_token == self.expected", ["bearer_token"]),
        ("token == ''", []),
        ("tokens == 3 or kind == other", []),
    ],
)
def test_a_comparison_of_a_secret_is_found(code: str, found: list[str]) -> None:
    assert [name for _, name in compared(ast.parse(code))] == found


def test_secrets_are_compared_in_constant_time() -> None:
    found = [
        f"{place}:{line}: {name}"
        for place, path in sources().items()
        if WORD.search(text := path.read_text(encoding="utf-8"))
        for line, name in compared(ast.parse(text))
    ]
    assert found == []
    assert "hmac.compare_digest" in sources()["privtab_server/serving/tokens.py"].read_text(encoding="utf-8")
