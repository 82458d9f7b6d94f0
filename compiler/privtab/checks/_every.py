"""Every check and every kind of finding, and the run of all checks on a policy."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from privtab.base import resources
from privtab.base.diagnostics import Diagnostic, FindingKind
from privtab.base.hints import nearest
from privtab.base.lazy import pattern
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
    return sorted({*found, *more, *last.find(policy)}, key=Diagnostic.in_order)


def _found(view: View, checks: Sequence[Check]) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for check in checks:
        view.code = check.kind.code
        found.extend(check.find(view.policy))
    return found


_FINDS = pattern(r"## What it finds\n+(.*?)(?:\n\n|\n*\Z)", re.DOTALL)
_DIGITS = str.maketrans("OIL", "011")
FIRST_CONFIGURABLE = "P300"
"""Findings with smaller codes are errors that stop a policy; they can be neither ignored nor given another severity."""


class CatalogueEntry(FindingKind):
    """A kind of findings, with its page."""

    __slots__ = ()

    @property
    def configurable(self) -> bool:
        """True if the check can be ignored or given another severity."""
        return self.code >= FIRST_CONFIGURABLE

    @property
    def path(self) -> Path:
        """The path of its page."""
        return resources.rules() / f"{self.code}-{self.name}.md"

    def page(self) -> str:
        """The text of its page; empty if this installation has none."""
        try:
            return self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""

    def summary(self) -> str:
        """The findings of the check, on one line."""
        found = _FINDS.search(self.page())
        return " ".join(found[1].split()) if found else self.name.replace("-", " ")


@cache
def codes() -> dict[str, CatalogueEntry]:
    """Every kind of finding by its code, in order.

    >>> codes()["P305"].severity.value
    'warning'
    """
    readers = (
        import_module(f"{findings.__name__}.{module.name}") for module in pkgutil.iter_modules(findings.__path__)
    )
    found = {builder.kind for module in readers for builder in vars(module).values() if isinstance(builder, Builder)}
    kinds = sorted([*found, *(check.kind for check in catalogue())], key=lambda kind: kind.code)
    return {kind.code: CatalogueEntry(kind.code, kind.name, kind.severity) for kind in kinds}


def intended_code(word: str) -> str | None:
    """The code that was most likely meant: another case, a letter for a digit, a digit too many, or a name."""
    upper = word.upper().translate(_DIGITS)
    for guess in (upper, upper[:4]):
        if guess in codes():
            return guess
    names = {code.name: code.code for code in codes().values()}
    near = nearest(word, names, cutoff=0.8)
    return None if near is None else names[near]


def unknown(word: str) -> tuple[str, str, str | None]:
    """A message for a code that does not exist, advice, and the code that was meant."""
    code = intended_code(word)
    help_ = f"did you mean `{code}`?" if code else "`privtab lint --explain all` lists them"
    return f"there is no finding `{word}`", help_, code
