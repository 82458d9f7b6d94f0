"""Changes of an allowed request: the rows of its effects, rows that go with a deleted entity, and rows that it authorises."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import time_ns
from typing import Any, TypeAlias

from privtab.base import (
    PRINCIPAL_KINDS,
    PRINCIPAL_TABLES,
    AccessDenied,
    Change,
    Decision,
    Entity,
    InvalidRequest,
    Locations,
    Request,
    StateInvalid,
    UsageError,
)
from privtab.ir import Program, vocabulary
from privtab.reference import Reference
from privtab.state import (
    TABLE_COLUMNS,
    RawState,
    State,
    from_tables,
    locations,
    principal_entity,
    row_text,
)
from privtab_analysis.principal_rows import about_principal, may_name_entity
from privtab_server.errors import StoreConflict
from privtab_server.store.authority import check_delegated, check_named, check_reach
from privtab_server.store.conflicts import check_conflicts
from privtab_server.store.database import row_id
from privtab_server.store.excerpt import Excerpt
from privtab_server.store.lookups import Rows, checked

Tables: TypeAlias = Mapping[str, Sequence[Mapping[str, str]]]
"""Rows by table, each with its cells by column."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The decision of a request, the rows that it would change, and the states before and after."""

    number: int
    """The number of the change that it was planned after."""
    decision: Decision
    changes: tuple[Change, ...]
    rows: Callable[[], Rows] = field(repr=False, compare=False)
    """Reads all rows of the store after change `number`."""
    program: Program = field(repr=False, compare=False)

    @cached_property
    def before(self) -> State:
        """The whole state that would be changed, read when it is asked for."""
        return checked(self.program, self._rows, "the store")[0]

    @cached_property
    def after(self) -> State:
        """The whole state after the change."""
        changes = self.changes
        return checked(self.program, self._rows.changed(self.number + 1, changes), "the store")[0]

    @cached_property
    def _rows(self) -> Rows:
        return self.rows()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The known part of a store before a change that must neither reach beyond its subject nor create what is there."""

    number: int
    """The last change that is known."""
    exists: bool = False
    """True if the entity to create had been created until then."""
    paths: Callable[[str], Collection[str]] = field(repr=False, compare=False)
    """The paths of the entities of a type that rows name, for types that contain principals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequest:
    """The caller's request: to perform an operation, to delete its resource with all that is below, or to change rows."""

    request: Request
    delete: bool = False
    new: Entity | None = None
    add: RawState | None = None
    remove: RawState | None = None
    document: Mapping[str, Any] | None = None
    """The caller's new description of the resource: the journal keeps it, and no decision reads it."""
    guard: Guard | None = None
    """The guard for callers who are not trusted."""

    @property
    def creates(self) -> str | None:
        """The entity that the request would create, or would give its caller rights on, if it changes no other rows."""
        alone = not self.delete and self.add is None and self.remove is None
        return str(self.new or self.request.resource) if alone else None

    def to_json(self) -> dict[str, Any]:
        """As the journal records it; requests with the same id must be equal in it."""
        found: dict[str, Any] = self.request.to_json()
        if self.delete:
            found["delete"] = True
        if self.new is not None:
            found["new"] = str(self.new)
        if self.document is not None:
            found["document"] = self.document
        for name, raw in (("add", self.add), ("remove", self.remove)):
            if raw is not None:
                found[name] = {table: [dict(row.cells) for row in rows] for table, rows in raw.rows.items()}
        return found


def plan(program: Program, excerpt: Excerpt, requested: ChangeRequest) -> tuple[Decision, tuple[Change, ...]]:
    """Decide a request, and work out what it changes.

    Raises AccessDenied; InvalidRequest for names that the policy does not know; StateInvalid for wrong rows; StoreConflict for
    rows to remove that are not there, and an entity to create that is; UsageError for rows that the request cannot authorise.
    """
    request = requested.request
    vocabulary(program).check(request)
    excerpt.read_for(request)
    before = excerpt.state()
    decision = Reference(program, before.at(time_ns())).decide(request)
    if not decision.allowed:
        raise AccessDenied(request, decision)
    if requested.guard is not None:
        check_named(program, request.resource)
        _check_new(program, excerpt, requested, exists=requested.guard.exists)
    placed = None if requested.new is None else _placed(program, excerpt, request, requested.new)
    removed, added = _effects(excerpt, request, decision, requested.new)
    if placed is not None:
        added["entities"] = [placed]
    if requested.delete:
        removed, added = _deletion(program, excerpt, request, removed, added)
    own = [] if requested.remove is None else _removals(excerpt, requested.remove)
    removed = _distinct([*removed, *own])
    more = _joined(from_tables(added, "the effects of the request"), requested.add)
    if not removed and not more.rows and not more.findings:
        return decision, ()
    after, additions = _after(excerpt, removed, more)
    if requested.add is not None or requested.remove is not None:
        own += [change for change in additions if change.row not in added.get(change.table, ())]
        excerpt.read_around({}, own)
        _check_covered(program, excerpt, after, request, own)
        check_delegated(program, request, own)
    changes = (*removed, *additions)
    if requested.guard is not None:
        check_reach(program, excerpt, after, request, changes, requested.guard.paths)
    check_conflicts(program, excerpt, changes)
    return decision, changes


def raw(tables: Tables | RawState | None, shown: str) -> RawState | None:
    """Rows as they were read, or from a mapping."""
    return tables if tables is None or isinstance(tables, RawState) else from_tables(tables, shown)


def _check_new(program: Program, excerpt: Excerpt, requested: ChangeRequest, *, exists: bool) -> None:
    """Raise StoreConflict for an entity to be created that is there, or that rows name: its creator would get their rights."""
    rule = program.rules[requested.request.resource.type, requested.request.action]
    key = requested.creates
    if key is None or not (rule.creates or any(effect.kind != "revoke" for effect in rule.effects)):
        return
    named = excerpt.another()
    if requested.new is None:
        named.on_or_below(key)
    if (exists and rule.creates) or any(named.rows.tables.values()):
        raise StoreConflict(f"{key} exists, or rows are about it or what lies below it")


def _placed(program: Program, excerpt: Excerpt, request: Request, new: Entity) -> dict[str, str]:
    """The row that places a new entity with a flat id in the entity in which the request creates it."""
    type_, parent = request.resource.type, request.resource.id.removesuffix("/")
    if new.type != type_ or type_ not in program.flat or not request.resource.id.endswith("/"):
        raise UsageError(
            f"`{new}` is not new in {request.resource}: a new entity has a flat id, and the request names what contains it, as in "
            "document:folder:f1/"
        )
    if excerpt.find("entities", entity=[str(new)]):
        raise StoreConflict(f"`{new}` is there already")
    return {"entity": str(new), "parent": parent}


def _effects(
    excerpt: Excerpt, request: Request, decision: Decision, new: Entity | None
) -> tuple[list[Change], dict[str, list[dict[str, str]]]]:
    """The rows that the effects of a decision remove, and the rows that they add."""
    removed: list[Change] = []
    added: dict[str, list[dict[str, str]]] = {}
    for effect in decision.effects:
        change = effect.change or Change.of(effect, request.user, request.active_roles)
        if change.row is None:
            removed += _about(excerpt, change.table, Entity.parse(change.about or ""))
            continue
        if None in change.row.values() and new is None:
            how = "give its flat id as `new`" if excerpt.program.flat else "name the new entity in the resource"
            raise InvalidRequest(f"`{effect}` does not say on which entity: {how}")
        cells = {name: str(new if text is None else text) for name, text in change.row.items()}
        if change.action == "add":
            added.setdefault(change.table, []).append(cells)
        else:
            removed += excerpt.matching(change.table, cells)
            added[change.table] = [row for row in added.get(change.table, ()) if row != cells]
    return removed, {table: rows for table, rows in added.items() if rows}


def _about(excerpt: Excerpt, table: str, principal: Entity) -> Iterator[Change]:
    """The removal of every row of a table about a principal, in what contains it."""
    for cells in about_principal(excerpt.about(table, principal), table, principal, excerpt.program).cells(table):
        # Whenever they hold: the rows have no `from` and `until` here.
        values = {name: cells.get(name) for name in TABLE_COLUMNS[table].names}
        yield from excerpt.matching(table, values)


def _deletion(
    program: Program,
    excerpt: Excerpt,
    request: Request,
    removed: list[Change],
    added: dict[str, list[dict[str, str]]],
) -> tuple[list[Change], dict[str, list[dict[str, str]]]]:
    """As `_effects`, with every row on the resource and below it, or about a principal there, and about it if it is one itself."""
    key = _named(locations(program, excerpt.state()), request.resource)
    excerpt.on_or_below(key)
    where = locations(program, excerpt.state())

    def on_or_below(cells: Mapping[str, str | None]) -> bool:
        text = _entity_of(cells)
        entities = [principal_entity(program, kind, name) for kind, name in _principals(cells)]
        entities.append(None if text is None else Entity.parse(text))
        return any(entity is not None and key in (where.find(entity) or ()) for entity in entities)

    for table, rows in excerpt.rows.tables.items():
        removed += [Change("remove", table, row=dict(cells)) for _, cells in rows.values() if on_or_below(cells)]
    if program.entities[request.resource.type].principal is not None:
        for table in PRINCIPAL_TABLES:
            removed += _about(excerpt, table, request.resource)
    remaining = {table: [row for row in rows if not on_or_below(row)] for table, rows in added.items()}
    return removed, {table: rows for table, rows in remaining.items() if rows}


def _after(excerpt: Excerpt, removed: Sequence[Change], more: RawState) -> tuple[State, list[Change]]:
    """The state of the rows around a change after it, and the rows that it adds; StateInvalid if any row would be wrong."""
    rows_by_table = {table: [row.cells for row in rows] for table, rows in more.rows.items()}
    excerpt.read_around(rows_by_table, removed)
    rows = excerpt.complete()
    gone = [change for change in removed if row_id(change.row or {}) in rows.tables[change.table]]
    after, additions = checked(excerpt.program, rows.changed(0, gone) if gone else rows, excerpt.shown, more)
    existing = excerpt.holding(additions) - {(change.table, row_id(change.row or {})) for change in removed}
    return after, [change for change in additions if (change.table, row_id(change.row or {})) not in existing]


def _removals(excerpt: Excerpt, rows: RawState) -> list[Change]:
    """The removal of some rows, each of which must be there exactly."""
    if errors := tuple(finding for finding in rows.findings if finding.severity == "error"):
        raise StateInvalid(errors, "nothing was changed")
    listed = [
        Change("remove", table, row=dict(row.cells)) for table, table_rows in rows.rows.items() for row in table_rows
    ]
    existing = excerpt.holding(listed)
    missing = [change for change in listed if (change.table, row_id(change.row or {})) not in existing]
    if missing:
        texts = "; ".join(row_text(change.table, change.row or {}) for change in missing[:5])
        more = f" and {len(missing) - 5:,} more" if len(missing) > 5 else ""
        raise StoreConflict(
            f"the store does not hold these rows: {texts}{more}; `privtab store show` prints them as it does"
        )
    return listed


def _joined(effects: RawState, requested: RawState | None) -> RawState:
    """The rows of effects and the rows of the caller. Only the caller's rows keep their numbers, which tell rows apart."""
    if requested is None:
        return effects
    rows = {table: tuple(listed) for table, listed in requested.rows.items()}
    for table, listed in effects.rows.items():
        own = rows.get(table, ())
        first = max((row.number for row in own), default=0) + 1
        rows[table] = (*own, *(replace(row, number=number) for number, row in enumerate(listed, first)))
    return RawState(rows=rows, findings=(*effects.findings, *requested.findings))


def _distinct(changes: Iterable[Change]) -> list[Change]:
    """Changes without repetitions."""
    return list({(c.table, tuple(sorted((c.row or {}).items()))): c for c in changes}.values())


def _named(where: Locations, entity: Entity) -> str:
    """The key of an entity. Raises InvalidRequest if its last name is missing, or if no row tells where it lies."""
    keys = where.find(entity)
    if not keys or keys[-1] != str(entity):
        raise InvalidRequest(f"`{entity}` names no entity: write its whole path")
    return keys[-1]


def _entity_of(cells: Mapping[str, str | None]) -> str | None:
    """The entity that a row is about, if it is about one."""
    return cells.get("entity") or cells.get("of") or cells.get("scope")


def _check_covered(
    program: Program, excerpt: Excerpt, after: State, request: Request, changes: Sequence[Change]
) -> None:
    """Raise UsageError for rows that are not about the objects of the request, so that it cannot authorise them."""
    objects = (request.resource, *request.with_.values())
    before_places, after_places = locations(program, excerpt.state()), locations(program, after)
    keys = {_named(before_places, entity) for entity in objects}
    wrong: list[str] = []
    for change in changes:
        where = after_places if change.action == "add" else before_places
        cells = change.row or {}
        entity = cells.get("parent") or _entity_of(cells)
        if entity is not None:
            covered = not keys.isdisjoint(where.find(Entity.parse(entity)) or ()) or (
                # To add a user to an entity is an operation on the user in it.
                change.table == "members"
                and any(
                    _is_about(program, object_, cells) and (where.find(object_) or ())[-2:-1] == [entity]
                    for object_ in objects
                )
            )
        elif change.table == "service_admins":
            covered = bool(excerpt.find("service_admins", user=[request.user]))
        else:
            covered = any(_is_about(program, object_, cells) for object_ in objects)
        if not covered:
            wrong.append(row_text(change.table, cells))
    if wrong:
        raise UsageError(
            f"`{request.action}` on {request.resource} does not authorise rows that are about something else: {'; '.join(wrong[:5])}"
            + (f" and {len(wrong) - 5:,} more" if len(wrong) > 5 else "")
        )


def _is_about(program: Program, object_: Entity, cells: Mapping[str, str | None]) -> bool:
    """Return whether a row that names principals alone is about an object: a principal, or a root, which contains all principals."""
    if len(program.chain(object_.type)) == 1:
        return True
    return any(may_name_entity(program, kind, name, object_) for kind, name in _principals(cells))


def _principals(cells: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """(kind, name) of each principal that a row names."""
    for column, text in cells.items():
        kind, colon, name = (text or "").partition(":")
        if column in ("user", "principal", "grantee", "owner") and colon and kind in PRINCIPAL_KINDS:
            yield kind, name
        elif column in PRINCIPAL_KINDS:
            yield column, text or ""
