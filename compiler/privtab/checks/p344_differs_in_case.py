"""P344: two names that differ in case alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks.p332_near_duplicate_name import aliases, names_by_kind
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P344", "differs-in-case", Severity.WARNING)

_SAME_WORDS = True


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Names of one kind that are the same where case does not count, as in SQL, in HTTP headers and in many file systems."""
    same_privilege = aliases(policy)
    for kind, names in names_by_kind(policy).items():
        first: dict[str, str] = {}
        for name, span in sorted(names.items(), key=_by_place):
            other = first.setdefault(name.casefold(), name)
            if other != name and not (kind == "privilege" and same_privilege(name, other, _SAME_WORDS)):
                yield KIND.at(
                    span,
                    f"the {kind}s `{other}` and `{name}` differ in case alone",
                    "they are different names here; use one spelling if they mean the same, else another word",
                )


def _by_place(named: tuple[str, Span]) -> Span:
    return named[1]
