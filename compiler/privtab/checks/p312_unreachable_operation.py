"""P312: an operation that no state allows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from privtab.checks._view import view_of
from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.errors import Undecided
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._view import Setting
    from privtab.ir.nodes import Rule
    from privtab.model import nodes as m

KIND = FindingKind("P312", "unreachable-operation", Severity.WARNING)


def find(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows whose condition no state can meet: for a named entity, or for the call without the last name.

    Checks every set of flags and every choice of types, including through `can`. A row for many types is reported once.
    """
    from privtab.ir.formula import call_condition, item_condition

    view = view_of(policy)
    reported: set[Span] = set()
    reachable: set[int] = set()
    """The shapes of rules that some state allows."""
    for row in policy.rows.values():
        rule = view.rule(row)
        if row.decl.span in reported or view.shape_of(rule).number in reachable:
            continue
        condition, unnamed = item_condition(rule), False
        example = view.unreachable_setting(rule, condition)
        if example is None and rule.unnamed:
            condition, unnamed = call_condition(rule), True
            example = view.unreachable_setting(rule, condition, unnamed=True)
        if example is None:
            reachable.add(view.shape_of(rule).number)
        else:
            reported.add(row.decl.span)
            try:
                settings = view.settings(rule)
                unreachable = [s for s in settings if not view.allowed(rule, condition, s, unnamed=unnamed)]
            except Undecided:
                settings, unreachable = [], [example]
            yield _finding(rule, unreachable, always=len(unreachable) == len(settings), unnamed=unnamed)


def _finding(rule: Rule, unreachable: list[Setting], *, always: bool, unnamed: bool) -> Diagnostic:
    call = " without a name" if unnamed else ""
    if unnamed:
        advice = f"such a call names no `{rule.entity}`, so nothing can be held on one: require something on its parent, or use `each`"
    elif always:
        advice = "part of the condition requires what no caller can have: check what it was meant to say"
    else:
        advice = (
            "remove the type from `with`, or write what is required of it"
            if unreachable[0][1]
            else "check what the flag was meant to require"
        )
    return KIND.at(
        rule.span,
        f"no state allows `{rule.entity}/{rule.operation}`{call}{'' if always else _where(rule, unreachable)}",
        advice,
    )


def _where(rule: Rule, unreachable: list[Setting]) -> str:
    """The objects and flags for which the row is unreachable, with as few flags as possible."""
    fewest = min(len(flags) for flags, _ in unreachable)
    flags = next(flags for flags, _ in unreachable if len(flags) == fewest)
    where = ""
    for slot in rule.withs:
        types = list(dict.fromkeys(types[slot.name] for other_flags, types in unreachable if other_flags == flags))
        if len(types) < len(slot.types):
            where = f" where `{slot.name}` is of the type {listed(types, last='or')}"
            break
    return where + (f" with the flag{'s' if len(flags) > 1 else ''} {listed(sorted(flags))}" if flags else "")
