"""Programs of random policies, without files."""

from __future__ import annotations

from functools import lru_cache

import worlds

from privtab import model
from privtab.base.diagnostics import Diagnostic, Severity
from privtab.base.source import SourceFile
from privtab.ir.nodes import Program
from privtab.language import syntax
from privtab.model.lower import lower
from privtab.model.nodes import Policy


@lru_cache(maxsize=64)
def program(seed: int, *features: str) -> Program:
    """The program of a random policy, with features of the language that not every world has."""
    program_, found = read(worlds.policy(seed, features=features))
    assert program_ is not None, found
    return program_


def read(text: str) -> tuple[Program | None, list[Diagnostic]]:
    """The program of a policy's text, or None if it has errors, and the findings of its readers.

    The checks find no errors, and take most of the time: `tests/checks/test_generated.py` runs them.
    """
    tables, found = syntax.read_policy(SourceFile.of("world.yaml", text))
    assert tables is not None, found
    policy, more = model.resolve(tables)
    found = [*found, *more]
    if policy is None or any(d.severity is Severity.ERROR for d in found):
        return None, found
    return lower(policy), found


def lowered(text: str) -> tuple[Program, Policy]:
    """The program and the resolved policy of a valid policy's text, without running the checks."""
    tables, found = syntax.read_policy(SourceFile.of("world.yaml", text))
    assert tables is not None, found
    policy, more = model.resolve(tables)
    assert policy is not None, more
    return lower(policy), policy
