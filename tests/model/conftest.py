from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

from privtab import model
from privtab.base.diagnostics import Severity
from privtab.base.source import SourceFile
from privtab.language import syntax

HEAD = {
    "privtab": "privtab: 1",
    "system": "system: shop",
    "version": 'version: "1"',
    "entities": "entities: {shop: {shelf: {item: }, user: , role: }}",
    "privileges": "privileges: [READ, WRITE]",
}


@pytest.fixture
def resolve() -> Callable[..., model.Policy]:
    """The policy of a text, whose head may be left off; it must be sound. Further arguments go to `model.resolve`."""

    def resolved(text: str, **options: Any) -> model.Policy:
        text = dedent(text)
        present = {line.split(":")[0] for line in text.splitlines()}
        document = text + "".join(f"{line}\n" for key, line in HEAD.items() if key not in present)
        tables, found = syntax.read_policy(SourceFile.of("shop.yaml", document))
        assert tables is not None
        policy, model_findings = model.resolve(tables, **options)
        errors = [d for d in (*found, *model_findings) if d.severity is Severity.ERROR]
        assert policy is not None, errors
        assert errors == []
        return policy

    return resolved
