"""Findings that search the whole policy: one file for each code, with its `find(policy)`."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from privtab import findings
from privtab._worker import LARGE, beside
from privtab.diagnostics import Diagnostic, FindingKind, in_order

if TYPE_CHECKING:
    from privtab.model.nodes import Policy


@cache
def catalogue() -> tuple[ModuleType, ...]:
    """The module of every check, by code."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("p"))
    return tuple(import_module(f"{__name__}.{name}") for name in names)


@cache
def kinds() -> tuple[FindingKind, ...]:
    """Every kind of finding, by code."""
    readers = (
        import_module(f"{findings.__name__}.{module.name}") for module in pkgutil.iter_modules(findings.__path__)
    )
    found = [kind for module in readers for kind in vars(module).values() if isinstance(kind, FindingKind)]
    return tuple(sorted([*found, *(module.KIND for module in catalogue())], key=lambda kind: kind.code))


BESIDE = frozenset({"P302", "P304", "P305", "P321", "P322", "P323", "P332", "P337"})
"""The checks for a second process: those that ask which atoms are needed, and others that together take half of the time."""


def run(policy: Policy, *, parallel: bool = False) -> list[Diagnostic]:
    """Run every check on a valid policy; returns the findings sorted by position.

    `parallel`: for a large policy, some run in a child process if a processor is free.
    """
    from privtab.checks import p341_undecided
    from privtab.checks._view import view_of

    modules = [module for module in catalogue() if module is not p341_undecided]
    view = view_of(policy)
    for rule in view.program.rules.values():
        view.shape_of(rule)  # both processes need it
    rest = beside(
        lambda: (_found(policy, [m for m in modules if m.KIND.code in BESIDE]), dict(view.undecided_codes)),
        large=parallel and len(policy.rows) >= LARGE,
    )
    found = _found(policy, [module for module in modules if module.KIND.code not in BESIDE])
    more, undecided_codes = rest()
    for pair, codes in undecided_codes.items():
        view.undecided(policy.rows[pair], *codes)
    return list(in_order([*found, *more, *p341_undecided.find(policy)]))


def _found(policy: Policy, modules: Sequence[ModuleType]) -> list[Diagnostic]:
    from privtab.checks._view import view_of

    found: list[Diagnostic] = []
    for module in modules:
        view_of(policy).code = module.KIND.code
        found.extend(module.find(policy))
    return found
