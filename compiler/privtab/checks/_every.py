"""Every check and every kind of finding, and the run of all checks on a policy."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.base.diagnostics import Diagnostic, FindingKind, sorted_diagnostics
from privtab.base.worker import LARGE, beside
from privtab.language import findings
from privtab.language.findings import Builder

if TYPE_CHECKING:
    from privtab.checks._view import Check, View
    from privtab.model.nodes import Policy


@cache
def catalogue() -> tuple[Check, ...]:
    """Every check, by code."""
    from privtab.checks._view import CHECKS

    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not module.name.startswith("_"):
            import_module(f"{__package__}.{module.name}")
    return tuple(CHECKS[code] for code in sorted(CHECKS))


@cache
def kinds() -> tuple[FindingKind, ...]:
    """Every kind of finding, by code."""
    readers = (
        import_module(f"{findings.__name__}.{module.name}") for module in pkgutil.iter_modules(findings.__path__)
    )
    found = {builder.kind for module in readers for builder in vars(module).values() if isinstance(builder, Builder)}
    return tuple(sorted([*found, *(check.kind for check in catalogue())], key=lambda kind: kind.code))


BESIDE = frozenset({"P302", "P304", "P305", "P321", "P322", "P323", "P332", "P337"})
"""The checks for a second process: checks that ask which atoms are needed, and others that together take half of the time."""


def run(policy: Policy, *, parallel: bool = False) -> list[Diagnostic]:
    """Run every check on a valid policy; returns the findings sorted by position.

    `parallel`: for a large policy, some run in a child process if a processor is free.
    """
    from privtab.checks._view import view_of

    checks = {check.kind.code: check for check in catalogue()}
    last = checks.pop("P341")  # says what the others could not decide
    view = view_of(policy)
    for rule in view.program.rules.values():
        view.shape_of(rule)  # both processes need it
    rest = beside(
        lambda: (_found(view, [checks[code] for code in checks if code in BESIDE]), dict(view.undecided_codes)),
        large=parallel and len(policy.rows) >= LARGE,
    )
    found = _found(view, [checks[code] for code in checks if code not in BESIDE])
    more, undecided_codes = rest()
    for pair, codes in undecided_codes.items():
        view.undecided(policy.rows[pair], *codes)
    return list(sorted_diagnostics([*found, *more, *last.find(policy)]))


def _found(view: View, checks: Sequence[Check]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for check in checks:
        view.code = check.kind.code
        found.extend(check.find(view.policy))
    return found
