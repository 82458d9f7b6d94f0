"""The checks, which register themselves by the kind of their findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from privtab.diagnostics import Diagnostic, FindingKind
    from privtab.model.nodes import Policy

Finder: TypeAlias = "Callable[[Policy], Iterator[Diagnostic]]"
CHECKS: dict[str, Check] = {}
"""By code."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check: the kind of its findings, and the function that finds them."""

    kind: FindingKind
    find: Finder


def check(kind: FindingKind) -> Callable[[Finder], Finder]:
    """Register a function as the check for a kind of findings."""

    def register(find: Finder) -> Finder:
        if kind.code in CHECKS:
            raise ValueError(f"two checks have the code {kind.code}")
        CHECKS[kind.code] = Check(kind, find)
        return find

    return register
