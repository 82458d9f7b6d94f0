"""P343: a privilege that does not give what those that it implies imply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model.nodes import Policy

KIND = FindingKind("P343", "implication-stops", Severity.NOTE)


def find(policy: Policy) -> Iterator[Diagnostic]:
    """One finding for each privilege, about the types on which all three privileges can be granted."""
    privileges = policy.privileges
    for first in privileges.values():
        missing: dict[str, str] = {}
        for name in first.implies:
            second = privileges[name]
            for third in second.implies:
                together = {*first.on} & {*second.on} & {*privileges[third].on}
                if third != first.name and third not in first.implies and together:
                    missing.setdefault(third, name)
        if missing:
            third, second_name = next(iter(missing.items()))
            yield KIND.at(
                policy.declared[first.name].span,
                f"`{first.name}` implies `{second_name}`, which implies `{third}`, but does not imply {listed(missing)}",
                "implication is one step: add it to the list, if the document says so",
            )
