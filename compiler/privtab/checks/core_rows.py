"""Rows that repeat, deviate from or override others, and parts of rows that nothing uses: P306, P308, P309, P313, P314, P315, P330, P336."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from privtab.base.diagnostics import Located, Severity
from privtab.base.hints import listed_names
from privtab.checks._view import Comparison, Found, View, check, compare, declared, view_of
from privtab.ir.formula import walk_reached
from privtab.ir.nodes import Can, Rule
from privtab.language.syntax.nodes import RowDecl
from privtab.model import nodes as m
from privtab.model.nodes import CanDo, Compared, OnPlaces, Policy, row_terms


@check("P306", Severity.WARNING)
def report_without_each(policy: Policy) -> Iterator[Found]:
    """Rows with `report` and without `each`."""
    for row in policy.rows.values():
        if row.decl.body.report is not None and row.each is None:
            yield Found(
                row.decl.body.report.span,
                f"the row `{row.operation}` reports items, but has no `each`",
                "say which items pass: `each: ADMIN (entity)`, or drop `report`",
            )


@check("P308", Severity.WARNING)
def unused_object(policy: Policy) -> Iterator[Found]:
    """Objects that occur neither in a condition nor in an effect, each once."""
    program = view_of(policy).program
    for row in declared(policy):
        if not row.withs:
            continue
        used = {slot.name for slot in program.recipients(program.rules[row.entity, row.operation])}
        used.update(outcome.slot for outcome in row.outcomes)
        placed = (term for term in row_terms(row) if isinstance(term, OnPlaces | Compared))
        used.update(place.slot for term in placed for place in term.places)
        for with_ in row.decl.withs:
            if with_.name.value not in used:
                yield Found(
                    with_.name.span,
                    f"the row `{row.operation}` never uses its object `{with_.name.value}`",
                    "every request must still name it: require something of it, or drop it",
                )


@check("P309", Severity.NOTE)
def unused_core_row(policy: Policy) -> Iterator[Found]:
    """Core rows that apply to no entity type."""
    used = {row.operation for row in policy.rows.values() if row.origin == "core"}
    for row in policy.tables.core:
        if row.operation.value not in used:
            yield Found(
                row.operation.span,
                f"the core row `{row.operation.value}` applies to no entity type",
                "every entity type has a row of its own: drop it, or drop a row that says the same",
            )


@check("P313", Severity.NOTE)
def repeats_core(policy: m.Policy) -> Iterator[Found]:
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
            yield Found(row.decl.span, f"the row `{row.operation}` repeats the core row", "drop it")
    if recorded:
        names = listed_names(f"{row.entity}/{row.operation}" for row in recorded)
        many = len(recorded) > 1
        message = f"{len(recorded)} row{'s' if many else ''} that record{'' if many else 's'} a cell repeat{'' if many else 's'} core rows"
        yield Found(recorded[0].decl.span, message, f"keep them for what they record, or drop them: {names}")


def _records(row: RowDecl, core: RowDecl) -> bool:
    record, of_core = (
        (decl.title, decl.note, decl.source, decl.ambiguous, decl.deprecated, decl.destructive, decl.sensitive)
        for decl in (row, core)
    )
    return any(record) and record != of_core


@check("P314", Severity.NOTE)
def deviates_from_core(policy: m.Policy) -> Iterator[Found]:
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
        others = listed_names(f"{row.entity}/{row.operation}" for row in rows[1:])
        same_rows = f"; the same applies to {others}" if len(rows) > 1 else ""
        core_row = core_rows.get(operation)
        yield Found(
            first.decl.span,
            f"the row `{first.entity}/{operation}` {difference} the core row",
            f"explain why in a `note`, or drop the row so that the core row applies{same_rows}",
            related=() if core_row is None else (Located("the core row", core_row.operation.span),),
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


@check("P315", Severity.WARNING)
def overridden_any_row(policy: m.Policy) -> Iterator[Found]:
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
            yield Found(
                word.span,
                f"the row `{row.operation}` of `{row.entity}` says {meaning}, so this one never applies to it",
                f"keep one: drop the row of the table, or leave `{row.entity}` out of `for`",
                related=(Located("the row that applies", row.decl.span),),
            )


@check("P330", Severity.NOTE, once=True)
def equal_variant_row(policy: m.Policy) -> Iterator[Found]:
    """Rows of variants that decide the same as the file, with the same effects: compared exactly.

    A row that is reached by `can` may differ in the variant; then only identical conditions count as equal.
    """
    view = view_of(policy)
    rows = list(view.alternative_rows.variants())
    replaced = {variant: {(r.entity, r.operation) for v, r in rows if v == variant} for variant, _ in rows}
    for variant, row in rows:
        file_row = policy.rows[row.entity, row.operation]
        if _equal(view, view.lowering.rule(row), view.rule(file_row), replaced[variant]):
            yield Found(
                row.decl.span,
                f"`{row.entity}/{row.operation}` of the variant `{variant}` means the same as the row of the file",
                "drop it, or write what the variant changes",
                (Located("the row of the file", file_row.decl.span),),
            )


def _equal(view: View, first: Rule, second: Rule, replaced: set[tuple[str, str]]) -> bool:
    if not compare(view, first, second).equal:
        return False
    nodes = (node for rule in (first, second) for node in walk_reached(view.program, rule.item_condition))
    reached = {(node.target.type, node.operation) for node in nodes if isinstance(node, Can)}
    return first.item_condition == second.item_condition or not reached & replaced


@check("P336", Severity.WARNING, once=True)
def deprecated_row(policy: m.Policy) -> Iterator[Found]:
    """`can` on an operation whose row is deprecated, in rows that are not."""
    some = any(row.decl.deprecated is not None for row in policy.rows.values())
    for row in policy.rows.values() if some else ():
        for term in row_terms(row) if row.decl.deprecated is None else ():
            if not isinstance(term, CanDo):
                continue
            referenced = [policy.rows.get((type_, term.operation)) for place in term.places for type_ in place.types]
            deprecated = next(
                (other for other in referenced if other is not None and other.decl.deprecated is not None), None
            )
            if deprecated is not None:
                advice = deprecated.decl.deprecated if deprecated.decl.deprecated != "deprecated" else None
                yield Found(
                    term.spot.span,
                    f"the row `{deprecated.entity}/{deprecated.operation}` is deprecated",
                    advice or "write what is meant without it",
                )
