"""Findings, one file for each code: its code, name, severity, and either a builder or a `find(policy)`."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, in_order

if TYPE_CHECKING:
    from privtab.model.nodes import Policy


@cache
def catalogue() -> tuple[ModuleType, ...]:
    """The module of every finding, by code."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name.startswith("p"))
    return tuple(import_module(f"{__name__}.{name}") for name in names)


def run(policy: Policy) -> list[Diagnostic]:
    """What a sound policy still has to be told, sorted by place."""
    from privtab.checks._view import view

    found: list[Diagnostic] = []
    for module in catalogue():
        if find := getattr(module, "find", None):
            view(policy).code = module.CODE
            found.extend(find(policy))
    return list(in_order(found))
