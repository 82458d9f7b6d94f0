"""A page beside a policy: the cells of the page that the policy decides otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from privtab.base import Diagnostic, FindingKind, Severity, Span
from privtab.ir import Program
from privtab.language import cell_names
from privtab_analysis.diff import Verdict, diff
from privtab_pages.draft import Draft, Mark
from privtab_pages.roles import ALLOWED, RoleMatrix, default_roles

DIFFERS = FindingKind("T105", "differs", Severity.ERROR)
_HELP = "change the page or the policy"


def differences(draft: Draft, page: Program, policy: Program, spans: Mapping[int, Span]) -> Iterator[Diagnostic]:
    """The cells of a page, whose draft is the program `page`, that a policy decides otherwise; what the page does not say is at its top.

    `spans`: the place of each row by its line.
    """
    matrix = default_roles(policy)
    for mark in draft.marks:
        yield from _of_mark(mark, policy, matrix)
    marked = {(mark.type, mark.operation) for mark in draft.marks}
    stated = {key: rule for key, rule in page.rules.items() if key not in marked}
    known = {
        key: rule for key, rule in stated.items() if key in policy.rules and _known(rule.requires_text or "", policy)
    }
    changed = {key: replace(policy.rules[key], requires=rule.requires) for key, rule in known.items()}
    after = replace(policy, rules={**policy.rules, **changed})
    rows = diff(policy, after).rows if changed else ()
    same = {(row.entity, row.operation) for row in rows if row.verdict is Verdict.EQUAL}
    for key, rule in stated.items():
        if key in known and key in same:
            continue
        says = f"`{policy.rules[key].requires_text}`" if key in policy.rules else "has no such row"
        message = f"the page says `{rule.requires_text}` of `{'.'.join(key)}`, the policy {says}"
        yield DIFFERS.at(spans.get(draft.rows[key[0]][key[1]]["source"], spans[0]), message, _HELP)
    for key in policy.rules:
        if key not in page.rules:
            yield DIFFERS.at(spans[0], f"the row `{'.'.join(key)}` of the policy is not on the page", _HELP)


def _known(condition: str, policy: Program) -> bool:
    """Return whether a policy declares all privileges of a condition."""
    names = cell_names(condition, "condition")
    return not isinstance(names, str) and all(
        use.kind != "privilege" or use.name.text in (*policy.privileges, *policy.sets) for use in names
    )


def _of_mark(mark: Mark, policy: Program, matrix: RoleMatrix | None) -> Iterator[Diagnostic]:
    """The difference between what a cell says of a role and what the policy does."""
    cells = matrix.cells.get((mark.type, mark.operation)) if matrix else None
    # A draft declares a role of several types once for each, and so does the policy that it became.
    around = policy.chain(mark.type) if cells is not None else ()
    names = (mark.role, *(f"{type_}_{mark.role}" for type_ in (mark.scope, *around)))
    role = next((name for name in names if name in policy.roles), None)
    if cells is None or role is None or matrix is None:
        what = f"row `{mark.type}.{mark.operation}`" if cells is None and matrix else f"role `{mark.role}`"
        yield DIFFERS.at(mark.span, f"the policy has no {what}", _HELP)
    elif (cells[matrix.roles.index(role)] == ALLOWED) != mark.allowed:
        page, other = ("allows", "denies") if mark.allowed else ("denies", "allows")
        yield DIFFERS.at(
            mark.span, f"the page {page} `{mark.type}.{mark.operation}` to `{role}`, the policy {other} it", _HELP
        )
