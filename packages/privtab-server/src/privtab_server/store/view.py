"""A store's content now, for readers: its rows, the state of these rows, and decisions on it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from time import time_ns
from typing import Any

from privtab.base import Entity, InvalidRequest, Locations, Request, StateInvalid, Vocabulary
from privtab.engines import OpenEngine, Opener
from privtab.ir import Program, vocabulary
from privtab.state import ENTITY_COLUMNS, State, index_bytes, locations, principal_entity
from privtab_server.errors import StoreError
from privtab_server.store.journal import Head, Journal
from privtab_server.store.lookups import Rows, checked

Row = Mapping[str, str]


@dataclass(kw_only=True)
class Snapshot:
    """The rows of a store after its last change, and decisions on them. Threads may share it."""

    program: Program
    document: Mapping[str, Any]
    """The program as JSON, as engines run it."""
    head: Head
    rows: Rows
    state: State
    _opened: OpenEngine | None = field(default=None, init=False)

    @property
    def number(self) -> int:
        """The number of the last change."""
        return self.head.number

    @cached_property
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """The rows by table, in the order in which they were added."""
        return self.rows.as_tables()

    @cached_property
    def naming(self) -> Mapping[str, Sequence[tuple[str, Row]]]:
        """Rows by the principal, entity or other text that they name, each with its table."""
        found: dict[str, list[tuple[str, Row]]] = {}
        for table, rows in self.tables.items():
            for row in rows:
                named = table, row
                for name in names_in(row):
                    found.setdefault(name, []).append(named)
        return found

    @cached_property
    def containers(self) -> Mapping[str, set[str]]:
        """Direct groups and roles of each principal, at any time."""
        found: dict[str, set[str]] = {}
        for row in self.tables["memberships"]:
            member = row["user"] if row["user"].startswith("group:") else f"user:{row['user']}"
            found.setdefault(member, set()).add(f"group:{row['group']}")
        for row in self.tables["assignments"]:
            found.setdefault(row["principal"], set()).add(f"role:{row['role']}")
        return found

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The names of the policy."""
        return vocabulary(self.program)

    @cached_property
    def where(self) -> Locations:
        """Locations of the entities."""
        return locations(self.program, self.state)

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """The entities that rows name, sorted."""
        texts = {row[name] for rows in self.tables.values() for row in rows for name in ENTITY_COLUMNS if name in row}
        return tuple(Entity.parse(text) for text in sorted(texts))

    @cached_property
    def named(self) -> Mapping[str, frozenset[Entity]]:
        """Entities by type: entities that rows name, also roles and groups by their paths, and entities that contain them."""
        tables = (rows for table, rows in self.tables.items() if table != "attributes")
        texts = {text for rows in tables for row in rows for text in names_in(row)}
        principals = (text.split(":", 1) for text in texts if text.startswith(("role:", "group:")))
        found: dict[str, set[Entity]] = {}
        for entity in (*self.entities, *(principal_entity(self.program, *each) for each in principals)):
            for key in () if entity is None else self.where.find(entity) or ():
                placed = Entity.parse(key)
                found.setdefault(placed.type, set()).add(placed)
        return {type_: frozenset(entities) for type_, entities in found.items()}

    def paths(self, type_: str) -> Collection[str]:
        """The paths of the entities of a type that rows name or lie in, for roots and types that contain principals."""
        return self._paths.get(type_, ())

    @cached_property
    def _paths(self) -> Mapping[str, set[str]]:
        chains = self.program.chains
        holding = [chain for type_, chain in chains.items() if self.program.entities[type_].principal is not None]
        found: dict[str, set[str]] = {type_: set() for chain in holding for type_ in chain[:-1]}
        found |= {type_: set() for type_, chain in chains.items() if len(chain) == 1}
        for entity in self.entities:
            for key in self.where.find(entity) or ():
                type_, _, path = key.partition(":")
                if type_ in found:
                    found[type_].add(path)
        return found

    @cached_property
    def _kept(self) -> Any:
        return Opener().keep(json.loads(index_bytes(self.program, self.state)[1]))

    def opened(self) -> OpenEngine:
        """The engine for this moment."""
        now, found = time_ns(), self._opened
        if found is None or not found.window.holds(now):
            found = self._opened = Opener().open(self.document, [self._kept], now)
        return found

    def allowed(self, requests: Sequence[Request]) -> list[bool]:
        """Decide requests; a request that the policy cannot answer is not allowed."""
        answerable = [request for request in requests if self._is_valid(request)]
        answers = iter(self.opened().engine.allow_many(answerable) if answerable else ())
        valid = {id(request) for request in answerable}
        return [id(request) in valid and next(answers) for request in requests]

    def _is_valid(self, request: Request) -> bool:
        try:
            self.vocabulary.check(request)
        except InvalidRequest:
            return False
        return True


class View:
    """The newest snapshot of a store: each look asks the database for its last change. Threads may share it."""

    def __init__(self, journal: Journal, program: Program, document: Mapping[str, Any]) -> None:
        self.journal = journal
        self.program = program
        self.document = document
        self._lock = Lock()
        self._last: Snapshot | None = None

    @property
    def known(self) -> int:
        """The number of the last change that was read; 0 if nothing was."""
        last = self._last
        return 0 if last is None else last.number

    def now(self) -> Snapshot:
        """Return the store's content now. Raises StoreError if the database fails, or if its rows are wrong under the policy."""
        with self._lock:
            last = self._last
            head, rows = self.journal.latest(None if last is None else (last.head, last.rows))
            if last is None or last.head is not head:
                try:
                    state, _ = checked(self.program, rows, self.journal.database.shown)
                except StateInvalid as error:
                    raise StoreError(str(error)) from error
                last = self._last = Snapshot(
                    program=self.program, document=self.document, head=head, rows=rows, state=state
                )
            return last


def names_in(row: Row) -> set[str]:
    """The texts of a row, and the principals that it names without their kind, as `user:ann`."""
    return {*row.values(), *(f"{kind}:{row[kind]}" for kind in ("user", "group", "role") if kind in row)}
