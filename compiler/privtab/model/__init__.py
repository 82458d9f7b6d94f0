"""`Tables` → `Policy`: names resolved; defaults, variants and readings applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from privtab.diagnostics import Diagnostic, Severity, Span
from privtab.findings import undeclared, unsound_rows
from privtab.hints import listed
from privtab.model import nodes as m
from privtab.model.names import resolve_names, resolve_roles, resolve_semantics
from privtab.model.nodes import Policy
from privtab.model.references import find_cycles, find_deep
from privtab.model.rows import Rows, resolve_conflicts
from privtab.model.select import ChosenRow, Selection, apply_readings, find_variant, same_meaning, select
from privtab.model.walk import flags_read
from privtab.syntax.nodes import RoleDecl, Tables, VariantDecl

__all__ = ["Policy", "resolve"]

_UNKNOWN = frozenset(
    kind.code
    for kind in (
        undeclared.UNKNOWN_PRIVILEGE,
        undeclared.UNKNOWN_TYPE,
        undeclared.UNDEFINED_OBJECT,
        undeclared.TARGET_NOT_ON_PATH,
    )
)
_MANY = 5


def resolve(
    tables: Tables, *, variant: str | None = None, readings: Mapping[str, str] | None = None
) -> tuple[Policy | None, list[Diagnostic]]:
    """Return the policy of a file, or None if the file has any error, and the findings of this stage.

    `readings` maps ambiguous rows (`entity/operation`, `any/operation`) to the reading to take. Raises UsageError for a variant, a
    row or a reading that does not exist.
    """
    found: list[Diagnostic] = []
    names = resolve_names(tables, found)
    semantics = resolve_semantics(tables, names, found)
    sources = {name.value: document.value for name, document in tables.sources}
    overlay = find_variant(tables, variant)
    selection = apply_readings(select(tables, overlay, names, found), readings or {})
    rows = Rows(
        tables=tables,
        names=names,
        semantics=semantics,
        pairs=selection.pairs,
        sources=sources,
        rows_unknown=_unknown_rows(tables),
    )
    names.roles = resolve_roles(_overlaid(tables.roles, overlay), names, found)
    resolved = _resolve_rows(rows, selection.pairs.items(), found)
    _report_clashes(rows, selection, found)
    _check_unused(rows, selection, found)
    cycles = find_cycles(resolved)
    found.extend(cycles or find_deep(resolved))
    found.extend(_unknown_flags(resolved))
    conflicts = resolve_conflicts(tables.conflicts, names, selection.pairs, rows.rows_unknown, found)
    for other in tables.variants:
        if other is not overlay:
            _check_variant(rows, other, found)
    found.extend(_one_per_position(rows.gate_found))
    found[:] = _merge_repeated(dict.fromkeys(found))
    if tables.broken or any(d.severity is Severity.ERROR for d in found):
        return None, found
    ambiguous = {
        f"{r.entity}/{r.operation}": tuple(n for n, _ in r.ambiguous.readings)
        for r in resolved.values()
        if r.ambiguous is not None and r.ambiguous.readings
    }
    policy = Policy(
        tables=tables,
        system=tables.system.value,
        version=tables.version.value,
        title=tables.title,
        sources=sources,
        entities=names.entities,
        hierarchy=names.hierarchy,
        privileges=names.privileges,
        aliases=names.aliases,
        sets=names.sets,
        roles=names.roles,
        semantics=semantics,
        rows=resolved,
        variant=variant,
        variants=tuple(v.name.value for v in tables.variants),
        readings=ambiguous,
        chosen=dict(readings or {}),
        declared=names.declared,
        conflicts=conflicts,
        attributes=names.attributes,
    )
    return policy, found


def _resolve_rows(
    rows: Rows, pairs: Iterable[tuple[m.PairKey, ChosenRow]], found: list[Diagnostic]
) -> dict[m.PairKey, m.Row]:
    resolved: dict[m.PairKey, m.Row] = {}
    shared: list[tuple[Diagnostic, str]] = []
    for pair, chosen in pairs:
        row_findings: list[Diagnostic] = []
        row = rows.resolve(pair[0], chosen, row_findings)
        if row is not None:
            resolved[pair] = row
        if chosen.origin == "row":
            found.extend(row_findings)
        else:
            shared.extend((d, pair[0]) for d in row_findings)
    found.extend(_one_per_position(shared))
    return resolved


def _unknown_flags(rows: Mapping[m.PairKey, m.Row]) -> Iterator[Diagnostic]:
    """One finding for each flag that a row declares and does not read, however many types the row is for."""
    reported: set[int] = set()
    for pair, row in rows.items():
        used = flags_read(rows, pair) if row.decl.flags else None
        for flag in row.decl.flags:
            if used is not None and flag.name.value not in used and id(flag) not in reported:
                reported.add(id(flag))
                yield undeclared.unknown_flag(flag.name.span, row.operation, flag.name.value, used)


def _one_per_position(found: list[tuple[Diagnostic, str]]) -> list[Diagnostic]:
    """One finding for each place and code: a mistake in a row for many types is reported once."""
    groups: dict[tuple[Span, str], tuple[Diagnostic, list[str]]] = {}
    for diagnostic, type_ in found:
        groups.setdefault((diagnostic.span, diagnostic.code), (diagnostic, []))[1].append(type_)
    return [_with_other_types(diagnostic, types[1:]) for diagnostic, types in groups.values()]


def _with_other_types(diagnostic: Diagnostic, others: list[str]) -> Diagnostic:
    if not others or diagnostic.code != undeclared.TARGET_NOT_ON_PATH.code:
        return diagnostic
    return replace(diagnostic, help=f"the same applies to {listed(others)}; {diagnostic.help}")


def _merge_repeated(found: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Replace many findings with the same message about a name by one: most likely its declaration is at fault."""
    groups: dict[tuple[str, str], list[Diagnostic]] = {}
    for diagnostic in found:
        groups.setdefault((diagnostic.code, diagnostic.message), []).append(diagnostic)
    merged: list[Diagnostic] = []
    for (code, _), group in groups.items():
        if code in _UNKNOWN and len(group) > _MANY:
            first = min(group, key=lambda d: d.span)
            note = f"the same in {len(group) - 1} more places"
            merged.append(replace(first, help=f"{first.help}; {note}" if first.help else note))
        else:
            merged.extend(group)
    return merged


def _report_clashes(rows: Rows, selection: Selection, found: list[Diagnostic]) -> None:
    """Report each second row of the same pair once, however many types it is for."""
    shared: list[tuple[Diagnostic, str]] = []
    reported: set[int] = set()
    for clash in selection.clashes:
        row_findings: list[Diagnostic] = []
        first = rows.resolve(clash.pair[0], ChosenRow(clash.first, clash.origin), [])
        second = rows.resolve(clash.pair[0], ChosenRow(clash.second, clash.origin), row_findings)
        shared.extend((d, clash.pair[0]) for d in row_findings)
        if first is None or second is None or id(clash.second) in reported:
            continue
        reported.add(id(clash.second))
        finding = unsound_rows.duplicate_row if same_meaning(first, second) else unsound_rows.contradicting_row
        found.append(finding(clash.second.operation.span, *clash.pair, clash.first.operation.span))
    found.extend(_one_per_position(shared))


def _check_unused(rows: Rows, selection: Selection, found: list[Diagnostic]) -> None:
    """Check the privileges of rows that apply to no pair."""
    used = {id(c.decl) for c in selection.pairs.values()} | {id(c.second) for c in selection.clashes}
    tables = rows.tables
    for decl in (*tables.core, *tables.any, *(row for table in tables.tables for row in table.rows)):
        if id(decl) not in used:
            rows.check_privileges(decl, found)


def _unknown_rows(tables: Tables) -> frozenset[str]:
    """Types whose rows could not be read; the empty name stands for all types."""
    unknown = {table.entity.value for table in tables.tables if not table.readable}
    return frozenset(unknown | ({""} if tables.unreadable & {"tables", "core", "any"} else set()))


def _overlaid(roles: tuple[RoleDecl, ...], overlay: VariantDecl | None) -> list[RoleDecl]:
    by_name = {role.name.value: role for role in roles}
    if overlay is not None:
        by_name |= {role.name.value: role for role in overlay.roles}
    return list(by_name.values())


def _check_variant(rows: Rows, variant: VariantDecl, found: list[Diagnostic]) -> None:
    """Add the findings of a variant that is not applied: those of its own rows, resolved with its overlay."""
    selection = select(rows.tables, variant, rows.names, found)
    own_rows = {id(d) for t in variant.tables for d in t.rows} | {id(d) for d in (*variant.core, *variant.any)}
    variant_rows = Rows(
        tables=rows.tables,
        names=rows.names,
        semantics=rows.semantics,
        pairs=selection.pairs,
        sources=rows.sources,
        rows_unknown=rows.rows_unknown,
        gates=rows.gates,
    )
    _resolve_rows(variant_rows, ((p, c) for p, c in selection.pairs.items() if id(c.decl) in own_rows), found)
    _report_clashes(
        variant_rows, Selection(selection.pairs, tuple(c for c in selection.clashes if id(c.second) in own_rows)), found
    )
    resolve_roles(variant.roles, rows.names, found)
