"""P311: a condition that every caller meets if the request sets no flag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from privtab.diagnostics import Diagnostic, FindingKind, Severity
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.model import nodes as m

KIND = FindingKind("P311", "open-without-flag", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """`requires` and `each` in which every alternative, or one of them, is only a `when`.

    Flags only add requirements, so a condition that requires nothing without flags is open; if it requires nothing with
    all flags either, it is equivalent to `anyone`. `anyone and (A when f)` states that it is open, and is skipped.
    """
    from privtab.model.walk import conditions

    reported: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        for condition in conditions(row):
            if not requires_nothing(condition, flags=False) or requires_nothing(condition, flags=True):
                continue
            first = _first(condition)
            if first is not None and (key := (id(first.spot.cell), first.spot.start)) not in reported:
                reported.add(key)
                yield _finding(condition, first)


def requires_nothing(condition: m.Condition, *, flags: bool) -> bool:
    """Whether the condition always holds if the request sets all flags, or none. A `can` counts as a requirement."""
    from privtab.model import nodes as m

    match condition:
        case m.AllOf(parts=parts):
            return all(requires_nothing(part, flags=flags) for part in parts)
        case m.AnyOf(parts=parts):
            return any(requires_nothing(part, flags=flags) for part in parts)
        case m.Required(body=body):
            return not flags or requires_nothing(body, flags=flags)
        case m.HoldsPrivilege() | m.Related() | m.IsSelf() | m.IsServiceAdmin() | m.CanDo() | m.Compared():
            return False
        case _:
            assert_never(condition)


def _first(condition: m.Condition) -> m.Required | None:
    """The first `when` that opens the condition; None if `anyone` beside it states that it is meant to be open."""
    from privtab.model import nodes as m

    match condition:
        case m.Required():
            return condition
        case m.AllOf(parts=parts):
            return None if m.AllOf() in parts else next(filter(None, map(_first, parts)), None)
        case m.AnyOf(parts=parts):
            return next(filter(None, (_first(part) for part in parts if requires_nothing(part, flags=False))), None)
        case _:
            return None


def _flags(condition: m.Condition) -> Iterator[str]:
    from privtab.model import nodes as m

    match condition:
        case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
            for part in parts:
                yield from _flags(part)
        case m.Required(body=body, flag=flag):
            yield flag
            yield from _flags(body)
        case _:
            return


def _finding(condition: m.Condition, first: m.Required) -> Diagnostic:
    flags = tuple(dict.fromkeys(_flags(condition)))
    return KIND.at(
        first.spot.span,
        f"without the flag{'s' if len(flags) > 1 else ''} {listed(flags)} this condition holds for every caller",
        f"put it beside what is always required: `A and (B when {first.flag})`",
    )
