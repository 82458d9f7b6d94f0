"""Rows that repeat, deviate from or override others, and parts of rows that nothing uses: P306, P308, P309, P313, P314, P315, P330, P336."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never

from privtab.checks._view import check, compare, view_of
from privtab.diagnostics import Diagnostic, FindingKind, Related, Severity, Span
from privtab.hints import listed

if TYPE_CHECKING:
    from privtab.checks._view import Comparison, View
    from privtab.ir.nodes import Rule
    from privtab.model import nodes as m
    from privtab.model.nodes import Policy, Row
    from privtab.syntax.nodes import RowDecl


# P306: `report` in a row that has no items.
REPORT_WITHOUT_EACH = FindingKind("P306", "report-without-each", Severity.WARNING)


@check(REPORT_WITHOUT_EACH)
def report_without_each(policy: Policy) -> Iterator[Diagnostic]:
    """Rows with `report` and without `each`."""
    for row in policy.rows.values():
        if row.decl.body.report is not None and row.each is None:
            yield REPORT_WITHOUT_EACH.at(
                row.decl.body.report.span,
                f"the row `{row.operation}` reports items, but has no `each`",
                "say which items pass: `each: ADMIN (entity)`, or drop `report`",
            )


# P308: a `with` object that the row never uses.
UNUSED_OBJECT = FindingKind("P308", "unused-object", Severity.WARNING)


@check(UNUSED_OBJECT)
def unused_object(policy: Policy) -> Iterator[Diagnostic]:
    """Objects that occur neither in a condition nor in an effect, each once."""
    from privtab.ir.formula import recipients

    program = view_of(policy).program
    reported: set[int] = set()
    for row in policy.rows.values():
        if not row.withs or id(row.decl.withs) in reported:
            continue
        reported.add(id(row.decl.withs))
        used = {*_slots(row), *(slot.name for slot in recipients(program, program.rules[row.entity, row.operation]))}
        for with_ in row.decl.withs:
            if with_.name.value not in used:
                yield UNUSED_OBJECT.at(
                    with_.name.span,
                    f"the row `{row.operation}` never uses its object `{with_.name.value}`",
                    "every request must still name it: require something of it, or drop it",
                )


def _slots(row: Row) -> Iterator[str]:
    from privtab.model.nodes import CanDo, Compared, HoldsPrivilege, Related, row_terms

    for term in row_terms(row):
        if isinstance(term, (HoldsPrivilege, Related, CanDo, Compared)):
            yield from (place.slot for place in term.places)
    yield from (outcome.slot for outcome in row.outcomes)


# P309: a core row that every entity type overrides.
UNUSED_CORE_ROW = FindingKind("P309", "unused-core-row", Severity.NOTE)


@check(UNUSED_CORE_ROW)
def unused_core_row(policy: Policy) -> Iterator[Diagnostic]:
    """Core rows that apply to no entity type."""
    used = {row.operation for row in policy.rows.values() if row.origin == "core"}
    for row in policy.tables.core:
        if row.operation.value not in used:
            yield UNUSED_CORE_ROW.at(
                row.operation.span,
                f"the core row `{row.operation.value}` applies to no entity type",
                "every entity type has a row of its own: drop it, or drop a row that says the same",
            )


# P313: a row that repeats the core row.
REPEATS_CORE = FindingKind("P313", "repeats-core", Severity.NOTE)


@check(REPEATS_CORE)
def repeats_core(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows without which the core row would decide the same, with the same effects: compared exactly.

    A row with a note, title, source or readings of its own records a cell, which would be lost with it; these are
    reported in one finding.
    """
    view = view_of(policy)
    recorded: list[m.Row] = []
    for row in policy.rows.values():
        core = view.alternative_rows.core(row)
        if core is None or not compare(view, view.rule(row), view.lowering.rule(core)).equal:
            continue
        if _records(row.decl, core.decl):
            recorded.append(row)
        else:
            yield _finding(row.decl.span, f"the row `{row.operation}` repeats the core row", "drop it")
    if recorded:
        names = listed(f"{row.entity}/{row.operation}" for row in recorded)
        many = len(recorded) > 1
        message = f"{len(recorded)} row{'s' if many else ''} that record{'' if many else 's'} a cell repeat{'' if many else 's'} core rows"
        yield _finding(recorded[0].decl.span, message, f"keep them for what they record, or drop them: {names}")


def _records(row: RowDecl, core: RowDecl) -> bool:
    record, of_core = (
        (decl.title, decl.note, decl.source, decl.ambiguous, decl.deprecated, decl.destructive, decl.sensitive)
        for decl in (row, core)
    )
    return any(record) and record != of_core


def _finding(span: Span, message: str, advice: str) -> Diagnostic:
    return REPEATS_CORE.at(span, message, advice)


# P314: a row that differs from the core row for its operation.
DEVIATES_FROM_CORE = FindingKind("P314", "deviates-from-core", Severity.NOTE)


@check(DEVIATES_FROM_CORE)
def deviates_from_core(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows that differ from a core row for the operation, one finding for each operation and kind of difference."""
    view = view_of(policy)
    groups: dict[tuple[str, str], list[m.Row]] = {}
    for row in policy.rows.values():
        core = view.alternative_rows.core(row)
        if core is not None:
            comparison = compare(view, view.rule(row), view.lowering.rule(core))
            if not comparison.equal and comparison.breadth != "unknown":
                groups.setdefault((row.operation, _difference(comparison)), []).append(row)
    core_rows = {row.operation.value: row for row in policy.tables.core}
    for (operation, difference), rows in groups.items():
        first = rows[0]
        others = listed(f"{row.entity}/{row.operation}" for row in rows[1:])
        same_rows = f"; the same applies to {others}" if len(rows) > 1 else ""
        core_row = core_rows.get(operation)
        yield DEVIATES_FROM_CORE.at(
            first.decl.span,
            f"the row `{first.entity}/{operation}` {difference} the core row",
            f"explain why in a `note`, or drop the row so that the core row applies{same_rows}",
            related=() if core_row is None else (Related(message="the core row", span=core_row.operation.span),),
        )


def _difference(comparison: Comparison) -> str:
    if not comparison.same_objects:
        return "takes other objects than"
    match comparison.breadth:
        case "wider":
            return "allows more than"
        case "narrower":
            return "allows less than"
        case "incomparable":
            return "allows and refuses other callers than"
        case "equal":
            return "has other effects than" if not comparison.same_effects else "reports otherwise than"
        case "unknown":
            raise AssertionError("an undecided comparison is not reported")
        case _:
            assert_never(comparison.breadth)


# P315: a row of `any` that names a type which has a row of its own.
OVERRIDDEN_ANY_ROW = FindingKind("P315", "overridden-any-row", Severity.WARNING)


@check(OVERRIDDEN_ANY_ROW)
def overridden_any_row(policy: m.Policy) -> Iterator[Diagnostic]:
    """Types in `for` to which the row never applies, because the type's own table takes precedence."""
    view = view_of(policy)
    for decl in policy.tables.any:
        for word in decl.for_types or ():
            row = policy.rows.get((word.value, decl.operation.value))
            if row is None or row.origin != "row":
                continue
            any_row = view.alternative_rows.row(word.value, decl, "any")
            comparison = None if any_row is None else compare(view, view.rule(row), view.lowering.rule(any_row))
            unknown = comparison is not None and comparison.breadth == "unknown"
            meaning = (
                "the same"
                if comparison is not None and comparison.equal
                else "something"
                if unknown
                else "something else"
            )
            yield OVERRIDDEN_ANY_ROW.at(
                word.span,
                f"the row `{row.operation}` of `{row.entity}` says {meaning}, so this one never applies to it",
                f"keep one: drop the row of the table, or leave `{row.entity}` out of `for`",
                related=(Related(message="the row that applies", span=row.decl.span),),
            )


# P330: a row of a variant that means the same as the row that it replaces.
EQUAL_VARIANT_ROW = FindingKind("P330", "equal-variant-row", Severity.NOTE)


@check(EQUAL_VARIANT_ROW)
def equal_variant_row(policy: m.Policy) -> Iterator[Diagnostic]:
    """Rows of variants that decide the same as the file, with the same effects: compared exactly.

    A row that is reached by `can` may differ in the variant; then only identical conditions count as equal.
    """
    view = view_of(policy)
    reported: set[Span] = set()
    rows = list(view.alternative_rows.variants())
    replaced = {variant: {(r.entity, r.operation) for v, r in rows if v == variant} for variant, _ in rows}
    for variant, row in rows:
        file_row = policy.rows[row.entity, row.operation]
        if row.decl.span in reported or not _equal(
            view, view.lowering.rule(row), view.rule(file_row), replaced[variant]
        ):
            continue
        reported.add(row.decl.span)
        yield EQUAL_VARIANT_ROW.at(
            row.decl.span,
            f"`{row.entity}/{row.operation}` of the variant `{variant}` means the same as the row of the file",
            "drop it, or write what the variant changes",
            related=(Related(message="the row of the file", span=file_row.decl.span),),
        )


def _equal(view: View, first: Rule, second: Rule, replaced: set[tuple[str, str]]) -> bool:
    from privtab.ir.formula import followed, item_condition
    from privtab.ir.nodes import Can

    if not compare(view, first, second).equal:
        return False
    nodes = (node for rule in (first, second) for node in followed(view.program, item_condition(rule)))
    reached = {(node.target.type, node.operation) for node in nodes if isinstance(node, Can)}
    return item_condition(first) == item_condition(second) or not reached & replaced


# P336: a deprecated row that another row refers to.
DEPRECATED_ROW = FindingKind("P336", "deprecated-row", Severity.WARNING)


@check(DEPRECATED_ROW)
def deprecated_row(policy: m.Policy) -> Iterator[Diagnostic]:
    """`can` on an operation whose row is deprecated, in rows that are not."""
    from privtab.model.nodes import CanDo, row_terms

    reported: set[tuple[int, int]] = set()
    for row in policy.rows.values():
        for term in row_terms(row) if row.decl.deprecated is None else ():
            if not isinstance(term, CanDo) or (id(term.spot.cell), term.spot.start) in reported:
                continue
            referenced = [policy.rows.get((type_, term.operation)) for place in term.places for type_ in place.types]
            deprecated = next(
                (other for other in referenced if other is not None and other.decl.deprecated is not None), None
            )
            if deprecated is not None:
                reported.add((id(term.spot.cell), term.spot.start))
                advice = deprecated.decl.deprecated if deprecated.decl.deprecated != "deprecated" else None
                yield DEPRECATED_ROW.at(
                    term.spot.span,
                    f"the row `{deprecated.entity}/{deprecated.operation}` is deprecated",
                    advice or "write what is meant without it",
                )
