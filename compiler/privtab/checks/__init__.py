"""Findings that search the whole policy: one file for each code, with its `find(policy)`."""

from __future__ import annotations

import pkgutil
import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from privtab import findings
from privtab.diagnostics import Diagnostic, in_order

if TYPE_CHECKING:
    from privtab.model.nodes import Policy


@cache
def catalogue() -> tuple[ModuleType, ...]:
    """The module of every finding, by code."""
    found = [
        (module.name, room.__name__)
        for room in (findings, sys.modules[__name__])
        for module in pkgutil.iter_modules(room.__path__)
        if module.name.startswith("p")
    ]
    return tuple(import_module(f"{room}.{name}") for name, room in sorted(found))


def run(policy: Policy) -> list[Diagnostic]:
    """Run every check on a valid policy; returns the findings sorted by position."""
    from privtab.checks._view import view_of

    found: list[Diagnostic] = []
    for module in catalogue():
        if find := getattr(module, "find", None):
            view_of(policy).code = module.KIND.code
            found.extend(find(policy))
    return list(in_order(found))
