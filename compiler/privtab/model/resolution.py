"""`Tables` → `Policy`: names resolved; defaults, variants and readings applied.

In the texts of row filters and column masks, names are placeholders, for values that requests or the state give.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from privtab.base import sql_text
from privtab.base.diagnostics import Diagnostic, Severity, Span
from privtab.base.hints import did_you_mean, listed_names
from privtab.base.paths import SEVERAL
from privtab.base.sql_text import FILTER_KINDS, WORDS, Placeholder, TextError
from privtab.language.findings import undeclared, unsound_rows
from privtab.language.syntax.expression import Name
from privtab.language.syntax.nodes import Cell, RoleDecl, RowDecl, Tables, VariantDecl, rows_of
from privtab.model import nodes as m
from privtab.model.conditions import Scope, term
from privtab.model.names import DeclaredNames, resolve_roles, resolve_semantics
from privtab.model.nodes import Policy, flags_read
from privtab.model.rows import Rows, resolve_conflicts
from privtab.model.select import ChosenRow, Selection, apply_readings, find_variant, same_meaning, select


def resolve_filters(rows: Rows, found: list[Diagnostic]) -> tuple[m.Filter, ...]:
    """The filters of all types, in the order of the file; a text that is refused leaves a finding."""
    dialect = rows.tables.dialect
    filters: list[m.Filter] = []
    for type_ in rows.tables.types:
        for decl in type_.filters:
            if dialect is None:
                found.append(unsound_rows.wrong_sql_dialect(decl.span))
                return ()
            if decl.sql is not None and type_.name.value in rows.names.entities:
                one = _filter(decl, decl.sql, rows.scope(type_.name.value), dialect)
                found.extend(one) if isinstance(one, list) else filters.append(one)
    return tuple(filters)


def _filter(decl: RowDecl, cell: Cell, scope: Scope, dialect: str) -> m.Filter | list[Diagnostic]:
    read = sql_text.read(cell.text, dialect)
    if isinstance(read, TextError):
        return [unsound_rows.wrong_sql(cell.part(read.start, read.end), read.message, read.advice)]
    word, _, name = decl.operation.value.partition(".")
    kind = next(kind for kind in FILTER_KINDS if kind == word)
    parts = [part if isinstance(part, str) else _placeholder(part, kind, cell, scope) for part in read]
    listed = tuple(part for part in parts if part is not None)
    if scope.found or len(listed) < len(parts):
        return scope.found
    return m.Filter(kind=kind, entity=scope.entity, name=name, parts=listed)


def _placeholder(
    part: Placeholder, kind: sql_text.FilterKind, cell: Cell, scope: Scope
) -> Placeholder | m.TermUse | None:
    selector, _, word = part.words.rpartition(" ")
    if part.words in WORDS:
        if part.words == "column" and kind == "row_filter":
            advice = "write the names of columns as SQL does"
            scope.fail(_wrong(part, cell, "a row filter has no `{column}`", advice))
        return part
    if "." not in word:
        known = [f"{{{name}}}" for name in _known(scope)]
        advice = did_you_mean(f"{{{part.words}}}", known) or f"there are {listed_names(known)}"
        scope.fail(_wrong(part, cell, f"unknown placeholder `{{{part.words}}}`", advice))
        return None
    start = part.start + 1 + cell.text[part.start + 1 : part.end].index(word)
    of = Name(selector, part.start + 1, part.start + 1 + len(selector)) if selector else None
    use = term(scope, Name(word, start, start + len(word), selector=of), cell)
    if use is not None and use.place is not None and use.place.level in SEVERAL:
        advice = "name one: `entity`, the type alone for the nearest, or `first TYPE`"
        scope.fail(_wrong(part, cell, f"`{{{part.words}}}` means several entities", advice))
    return use


def _known(scope: Scope) -> Iterator[str]:
    yield from WORDS
    declared = scope.names.attributes
    yield from (f"user.{name}" for name in declared.user)
    yield from (f"entity.{name}" for name in declared.declared_on(scope.entity))
    yield from (f"request.{name}" for name in declared.request)


def _wrong(part: Placeholder, cell: Cell, message: str, advice: str) -> Diagnostic:
    return unsound_rows.wrong_sql(cell.part(part.start, part.end), message, advice)


_UNKNOWN = frozenset(
    builder.kind.code
    for builder in (
        undeclared.unknown_privilege,
        undeclared.unknown_type,
        undeclared.undefined_object,
        undeclared.target_not_on_path,
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
    names = DeclaredNames.of(tables, found)
    semantics = resolve_semantics(names, found)
    sources = {name.value: document.value for name, document in tables.sources}
    overlay = find_variant(tables, variant)
    selection = apply_readings(select(tables, overlay, names, found), readings or {})
    unknown = {table.entity.value for table in tables.tables if not table.readable}
    rows = Rows(
        tables=tables,
        names=names,
        semantics=semantics,
        pairs=selection.pairs,
        sources=sources,
        rows_unknown=frozenset(unknown | ({""} if tables.unreadable & {"tables", "core", "any"} else set())),
    )
    names.roles = resolve_roles(_overlaid(tables.roles, overlay), names, found)
    resolved = _resolve_rows(rows, selection.pairs.items(), found)
    _report_clashes(rows, selection, found)
    _check_unused(rows, selection, found)
    cycles = find_cycles(resolved)
    found.extend(cycles or find_deep(resolved))
    found.extend(_unknown_flags(resolved))
    filters = resolve_filters(rows, found)
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
        filters=filters,
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
    for place, (diagnostic, types) in groups.items():
        if types[1:] and diagnostic.code == undeclared.target_not_on_path.kind.code:
            help_ = f"the same applies to {listed_names(types[1:])}; {diagnostic.help}"
            groups[place] = replace(diagnostic, help=help_), types
    return [diagnostic for diagnostic, _ in groups.values()]


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
    for decl in rows_of(rows.tables):
        if id(decl) not in used:
            rows.check_privileges(decl.body.conditions, found)
    rows.check_privileges([decl.condition for decl in rows.tables.conditions], found)


def _overlaid(roles: tuple[RoleDecl, ...], overlay: VariantDecl | None) -> list[RoleDecl]:
    by_name = {role.name.value: role for role in roles}
    if overlay is not None:
        by_name |= {role.name.value: role for role in overlay.roles}
    return list(by_name.values())


def _check_variant(rows: Rows, variant: VariantDecl, found: list[Diagnostic]) -> None:
    """Add the findings of a variant that is not applied: findings of its own rows, resolved with its overlay."""
    selection = select(rows.tables, variant, rows.names, found)
    own_rows = {id(decl) for decl in rows_of(variant)}
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


def find_cycles(rows: Mapping[m.PairKey, m.Row]) -> list[Diagnostic]:
    """One finding for each cycle of rows; a row for many types makes only one. Depth first, without recursion."""
    found: list[Diagnostic] = []
    done: set[m.PairKey] = set()
    reported: set[Span] = set()
    for start in rows:
        if start in done:
            continue
        path = {start: _edges(rows, start)}
        spots: list[m.CellPart] = []
        """The place of each `can` on the path."""
        while path:
            at = next(reversed(path))
            edge = next(path[at], None)
            if edge is None:
                del path[at]
                done.add(at)
                del spots[-1:]
                continue
            pair, spot = edge
            if pair in path:
                first = list(path).index(pair)
                cycle = _cycle_finding([*path][first:], [*spots[first:], spot])
                if cycle.span not in reported:
                    reported.add(cycle.span)
                    found.append(cycle)
            elif pair not in done and pair in rows:
                path[pair] = _edges(rows, pair)
                spots.append(spot)
    return found


DEEPEST = 150
"""Limit on the levels of a condition, including levels that it reaches through `can`, since conditions are walked recursively."""


def find_deep(rows: Mapping[m.PairKey, m.Row]) -> list[Diagnostic]:
    """One finding for the first row of each chain that is too deep. The rows must have no cycle."""
    found: list[Diagnostic] = []
    levels: dict[m.PairKey, int] = {}
    for start in rows:
        todo = [start]
        while todo:
            pair = todo[-1]
            if pair in levels:
                todo.pop()
                continue
            below = [
                (reference, level) for reference, level in _levels(rows[pair]) if reference is None or reference in rows
            ]
            waiting = [reference for reference, _ in below if reference is not None and reference not in levels]
            if waiting:
                todo += waiting
                continue
            todo.pop()
            deepest = max((level + (levels[reference] if reference else 0) for reference, level in below), default=0)
            if deepest > DEEPEST:
                found.append(unsound_rows.too_deep(rows[pair].decl.span, "/".join(pair), DEEPEST))
                deepest = 0  # report this row only, not each row that refers to it
            levels[pair] = deepest
    return found


def _levels(row: m.Row) -> Iterator[tuple[m.PairKey | None, int]]:
    """The level of each `can` of a row, with its row, and of each other term, with None."""
    waiting = [(part, 1) for part in m.all_conditions(row)]
    while waiting:
        condition, level = waiting.pop()
        match condition:
            case m.AllOf(parts=parts) | m.AnyOf(parts=parts):
                waiting += ((part, level + 1) for part in parts)
            case m.Required(body=body):
                waiting.append((body, level + 1))
            case m.Named(bodies=bodies):
                waiting += ((body, level + 1) for _, body in bodies)
            case m.CanDo(operation=operation, places=places):
                yield from (((type_, operation), level + 1) for place in places for type_ in place.types)
            case _:
                yield None, level


def _cycle_finding(path: list[m.PairKey], spots: list[m.CellPart]) -> Diagnostic:
    spans = [spot.span for spot in spots]
    first = min(range(len(spans)), key=lambda i: (spans[i].line, spans[i].column))
    names = [f"{type_}/{operation}" for type_, operation in path]
    return unsound_rows.can_cycle(spans[first], [*names[first:], *names[:first]], [*spans[first + 1 :], *spans[:first]])


def _edges(rows: Mapping[m.PairKey, m.Row], pair: m.PairKey) -> Iterator[tuple[m.PairKey, m.CellPart]]:
    for condition in m.all_conditions(rows[pair]):
        for one in m.terms(condition):
            if isinstance(one, m.CanDo):
                yield from (((type_, one.operation), one.spot) for place in one.places for type_ in place.types)
