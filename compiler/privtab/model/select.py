"""Select the row for each (entity type, operation): tables before `any` before `core`, variants and readings applied."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import fields, replace
from typing import assert_never

from privtab.base.diagnostics import Diagnostic
from privtab.base.errors import UsageError
from privtab.base.hints import hint, nearest
from privtab.base.records import dataclass
from privtab.ir.nodes import Origin
from privtab.language.syntax.expression import names_in
from privtab.language.syntax.nodes import Reading, RowBody, RowDecl, TableDecl, Tables, VariantDecl
from privtab.model import nodes as m
from privtab.model.names import DeclaredNames
from privtab.model.nodes import PairKey


@dataclass(frozen=True, slots=True)
class ChosenRow:
    """The row for a pair and where it comes from."""

    decl: RowDecl
    origin: Origin


@dataclass(frozen=True, slots=True)
class DuplicateRow:
    """Two rows of one origin for the same pair; the first one applies."""

    pair: PairKey
    origin: Origin
    first: RowDecl
    second: RowDecl


@dataclass(frozen=True, slots=True)
class Selection:
    """The row of each pair, in the order of entities and then of the file, and the rows that clash."""

    pairs: Mapping[PairKey, ChosenRow]
    clashes: tuple[DuplicateRow, ...]


@dataclass(slots=True)
class _Layer:
    """The rows of a file or a variant, by type and operation."""

    by_type: dict[str, dict[str, RowDecl]]
    any: list[RowDecl]
    core: list[RowDecl]


def select(tables: Tables, variant: VariantDecl | None, names: DeclaredNames, found: list[Diagnostic]) -> Selection:
    """Select the rows of the file under a variant."""
    clashes: list[DuplicateRow] = []
    base = _layer(tables.tables, tables.any, tables.core, names, found, clashes)
    if variant is not None:
        overlay = _layer(variant.tables, variant.any, variant.core, names, found, clashes)
        for type_, rows in overlay.by_type.items():
            base.by_type.setdefault(type_, {}).update(rows)
        base.any = _overlaid(base.any, overlay.any)
        base.core = _overlaid(base.core, overlay.core)
    pairs: dict[PairKey, ChosenRow] = {}
    everywhere = [row for row in base.any if row.for_types is None]
    somewhere: dict[str, list[RowDecl]] = {}
    for row in base.any:
        for word in row.for_types or ():
            somewhere.setdefault(word.value, []).append(row)
    for type_ in names.entities:
        for operation, decl in base.by_type.get(type_, {}).items():
            pairs[type_, operation] = ChosenRow(decl, "row")
        any_rows: dict[str, RowDecl] = {}
        for decl in (*somewhere.get(type_, ()), *everywhere):
            first = any_rows.setdefault(decl.operation.value, decl)
            if first is not decl and first.span != decl.span:
                clashes.append(DuplicateRow((type_, decl.operation.value), "any", first, decl))
        for operation, decl in any_rows.items():
            pairs.setdefault((type_, operation), ChosenRow(decl, "any"))
        root = names.entities[type_].parent is None
        for decl in base.core:
            if not (root and "parent" in _targets_of(decl)):
                pairs.setdefault((type_, decl.operation.value), ChosenRow(decl, "core"))
    return Selection(pairs, tuple(clashes))


def apply_readings(selection: Selection, readings: Mapping[str, str]) -> Selection:
    """Replace the bodies of rows by the chosen readings. Raises UsageError for a row or reading that does not exist.

    A row is named by its type, or, for every type that it applies to, by its origin: `any/share`, `core/create`. A choice for one
    type takes precedence over one for all.
    """
    if not readings:
        return selection
    by_row = {f"{type_}/{operation}": [(type_, operation)] for type_, operation in selection.pairs}
    shared: dict[str, list[PairKey]] = {}
    for pair, chosen in selection.pairs.items():
        if chosen.origin != "row" and (row := f"{chosen.origin}/{pair[1]}") not in by_row:
            shared.setdefault(row, []).append(pair)
    known = by_row | shared
    pairs = dict(selection.pairs)
    for row, name in sorted(readings.items(), key=lambda choice: choice[0] not in shared):
        if row not in known:
            raise UsageError(f"no row `{row}`" + (hint(row, known) or "; a row is written `entity/operation`"))
        offered: dict[str, list[tuple[PairKey, Reading]]] = {}
        for pair in known[row]:
            for reading in selection.pairs[pair].decl.readings:
                offered.setdefault(reading.name.value, []).append((pair, reading))
        if name not in offered:
            known_readings = f"; it has {', '.join(f'`{n}`' for n in offered)}" if offered else "; it is not ambiguous"
            raise UsageError(f"the row `{row}` has no reading `{name}`" + (hint(name, offered) or known_readings))
        for pair, reading in offered[name]:
            decl = selection.pairs[pair].decl
            pairs[pair] = replace(pairs[pair], decl=replace(decl, body=read_as(decl.body, reading.body)))
    return Selection(pairs, selection.clashes)


def read_as(body: RowBody, reading: RowBody) -> RowBody:
    """The row's body with the entries of the reading in place of its own."""
    entries = {
        name: value
        for name in ("requires", "each", "report", "grants", "becomes", "revokes", "delegates", "withdraws")
        if (value := getattr(reading, name)) is not None
    }
    return replace(body, **entries)


def find_variant(tables: Tables, name: str | None) -> VariantDecl | None:
    """The variant of that name. Raises UsageError if the file does not have it."""
    if name is None:
        return None
    variants = {v.name.value: v for v in tables.variants}
    if name not in variants:
        known_variants = f"; it has {', '.join(f'`{n}`' for n in variants)}" if variants else "; it has none"
        raise UsageError(f"the policy has no variant `{name}`" + (hint(name, variants) or known_variants))
    return variants[name]


def _layer(
    tables: Iterable[TableDecl],
    any_: tuple[RowDecl, ...],
    core: tuple[RowDecl, ...],
    names: DeclaredNames,
    found: list[Diagnostic],
    clashes: list[DuplicateRow],
) -> _Layer:
    by_type: dict[str, dict[str, RowDecl]] = {}
    misspelt: dict[str, list[RowDecl]] = {}
    for table in tables:
        if not names.check_type(table.entity, found):
            intended = nearest(table.entity.value, names.entities)
            if intended is not None:
                misspelt.setdefault(intended, []).extend(replace(decl, poisoned=True) for decl in table.rows)
            continue
        rows = by_type.setdefault(table.entity.value, {})
        for decl in table.rows:
            first = rows.setdefault(decl.operation.value, decl)
            if first is not decl:
                clashes.append(DuplicateRow((table.entity.value, decl.operation.value), "row", first, decl))
    for type_, decls in misspelt.items():
        for decl in decls:
            by_type.setdefault(type_, {}).setdefault(decl.operation.value, decl)
    for decl in any_:
        for word in decl.for_types or ():
            names.check_type(word, found)
    return _Layer(by_type, list(any_), _first_of_each(core, names, clashes))


def _first_of_each(rows: tuple[RowDecl, ...], names: DeclaredNames, clashes: list[DuplicateRow]) -> list[RowDecl]:
    first: dict[str, RowDecl] = {}
    for decl in rows:
        if first.setdefault(decl.operation.value, decl) is not decl:
            for type_ in names.entities:
                if names.entities[type_].parent is not None:
                    clashes.append(
                        DuplicateRow((type_, decl.operation.value), "core", first[decl.operation.value], decl)
                    )
                    break
    return list(first.values())


def _overlaid(rows: list[RowDecl], overlay: list[RowDecl]) -> list[RowDecl]:
    replaced = {row.operation.value for row in overlay}
    return [row for row in rows if row.operation.value not in replaced] + overlay


def _targets_of(decl: RowDecl) -> set[str]:
    uses = (use for cell in decl.body.conditions for use in names_in(cell.expression or ()))
    return {use.name.text for use in uses if use.kind == "target"}


def same_meaning(row: m.Row, other: m.Row) -> bool:
    """Return whether conditions and effects are the same, up to order, repetition, aliases and sets."""
    return _row(row) == _row(other)


def _row(row: m.Row) -> Hashable:
    return (
        tuple(None if c is None else _form(c) for c in (row.gate, row.alternative, row.requires, row.each)),
        row.report,
        row.creates,
        row.decl.destructive,
        row.decl.sensitive,
        row.withs,
        frozenset(flag.name.value for flag in row.decl.flags if flag.required),
        frozenset(
            (o.kind, o.use.members if o.use is not None else o.what, o.slot, o.type, o.of_role)
            for o in (*row.outcomes, *row.delegations)
        ),
    )


def _form(condition: m.Condition) -> Hashable:
    match condition:
        case m.HoldsPrivilege(uses=uses, every=every, places=places):
            terms = [_any(_all(("has", p, _place(place)) for p in use.members) for place in places) for use in uses]
            return _all(terms) if every else _any(terms)
        case m.Related(kind=kind, places=places):
            return _any((kind, _place(place)) for place in places)
        case m.CanDo(operation=operation, places=places):
            return _any(("can", operation, _place(place)) for place in places)
        case m.Named(name=name, places=places):
            return _any(("named", name, _place(place)) for place in places)
        case m.IsSelf():
            return "self"
        case m.OnCaller():
            own = (field.name for field in fields(condition) if field.name != "spot")
            return (type(condition).__name__, *(getattr(condition, name) for name in own))
        case m.Compared(left=left, operator=operator, right=right):
            return ("compare", _use(left), operator, _use(right) if isinstance(right, m.TermUse) else right)
        case m.AllOf(parts=parts):
            return _all(_form(part) for part in parts)
        case m.AnyOf(parts=parts):
            return _any(_form(part) for part in parts)
        case m.Required(body=body, flag=flag):
            return ("when", flag, _form(body))
        case m.LeftOut(slot=slot):
            return ("no", slot)
        case _:
            assert_never(condition)


def _use(use: m.TermUse) -> Hashable:
    return use.kind, use.name, None if use.place is None else _place(use.place)


def _place(place: m.TargetSlot) -> Hashable:
    return (place.slot, place.types, place.below, place.level)


def _all(parts: Iterable[Hashable]) -> Hashable:
    return _joined("all", parts)


def _any(parts: Iterable[Hashable]) -> Hashable:
    return _joined("any", parts)


def _joined(kind: str, parts: Iterable[Hashable]) -> Hashable:
    """Parts as a set, with nested parts of the same kind flattened; a single part is returned as it is."""
    flat: set[Hashable] = set()
    for part in parts:
        if isinstance(part, tuple) and len(part) == 2 and part[0] == kind and isinstance(part[1], frozenset):
            flat |= part[1]
        else:
            flat.add(part)
    return next(iter(flat)) if len(flat) == 1 else (kind, frozenset(flat))
