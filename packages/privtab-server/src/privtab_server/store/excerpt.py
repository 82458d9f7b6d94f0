"""The rows of a store that a request concerns, read from its tables by their indexes.

A decision depends on few rows: on what the caller holds, and on what they hold on the objects of the request. Whether a new row is wrong
depends on few others: on links that could close a cycle, on where an entity lies, on other values of an attribute. With these rows
alone, `Reference` and `validate` decide and find what they do with all rows; packages/privtab-server/tests/store/test_excerpt.py compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, TypeAlias

from privtab.base import Change, Entity, Request
from privtab.ir import Below, Program, reached_atoms, vocabulary
from privtab.state import ENTITY_COLUMNS, GROUP_PREFIX, ROLE_PREFIX, TABLE_COLUMNS, State, UsedParts
from privtab.state import LINK_COLUMNS as LINKS
from privtab_server.store import lookups
from privtab_server.store.database import CUT, row_id

_NAMING = {
    "group": (
        ("memberships", "group", ""),
        ("memberships", "user", GROUP_PREFIX),
        ("assignments", "principal", GROUP_PREFIX),
        ("grants", "grantee", GROUP_PREFIX),
        ("owners", "owner", GROUP_PREFIX),
    ),
    "role": (
        ("assignments", "role", ""),
        ("assignments", "principal", ROLE_PREFIX),
        ("grants", "grantee", ROLE_PREFIX),
        ("owners", "owner", ROLE_PREFIX),
    ),
}
"""Columns that name principals, and the prefix of the names there, by kind."""
Pending: TypeAlias = Mapping[str, Mapping[str, Change]]
"""The last change of a row that is not written yet, by table and id."""


class Excerpt:
    """The rows that were read so far, within one transaction."""

    def __init__(self, program: Program, reader: lookups.Reader, shown: str, pending: Pending | None = None) -> None:
        """`pending`: changes that count as if they had been carried out."""
        self.program = program
        self.reader = reader
        self.shown = shown
        self.rows = lookups.Rows()
        self._pending = pending or {}
        self._sought_places: set[str] = set()
        self._looked_for: list[tuple[str, Mapping[str, Collection[str]]]] = []
        self._state: tuple[int, State] | None = None
        self._callers: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        """The principals of each user, with the groups of their requests."""

    def another(self) -> Excerpt:
        """An excerpt of the same store that is still empty."""
        return Excerpt(self.program, self.reader, self.shown, self._pending)

    def after(self, changes: Iterable[Change]) -> Excerpt:
        """An excerpt, still empty, of the store as some changes would leave it."""
        pending = {table: dict(rows) for table, rows in self._pending.items()}
        for change in changes:
            pending.setdefault(change.table, {})[row_id(change.row or {})] = change
        return Excerpt(self.program, self.reader, self.shown, pending)

    def state(self) -> State:
        """The state of the rows that were read. Raises StateInvalid if they are wrong under this policy."""
        rows = self.complete()
        size = sum(map(len, rows.tables.values()))
        if self._state is None or self._state[0] != size:
            self._state = size, self._checked(rows, size)
        return self._state[1]

    def _checked(self, rows: lookups.Rows, size: int) -> State:
        if size > lookups.MOST_ROWS:
            return lookups.checked(self.program, rows, self.shown)[0]
        known, key = self.reader.states, tuple(tuple(table) for table in rows.tables.values())
        if key not in known:
            if len(known) >= lookups.MOST_STATES:
                known.clear()
            known[key] = lookups.checked(self.program, rows, self.shown)[0]
        return known[key]

    def complete(self) -> lookups.Rows:
        """The rows that were read, with the rows that say where their entities lie."""
        self.place()
        return self.rows

    # --- what a decision depends on ----------------------------------------------------------------------------------

    def read_for(self, request: Request) -> None:
        """Read every row on which the decision of a request depends. The request uses only names of the policy."""
        program, semantics = self.program, self.program.semantics
        user = request.user
        keys, principals = self.keys_and_principals(request)
        self.find("grants", entity=keys, grantee=principals)
        if semantics.owner is not None:
            self.find("owners", entity=keys)
        used = UsedParts.of(program)
        if used.member_types:
            self.find("members", user=[user])
        if used.service_admins:
            self.find("service_admins", user=[user])
        declared = program.attributes.from_origin("state")
        if declared.user:
            self.find("attributes", user=[user])
        if declared.entity:
            self.find("attributes", entity=keys)
        condition = program.rules[request.resource.type, request.action].item_condition
        if any(isinstance(atom, Below) for atom in reached_atoms(program, condition)):
            # What others hold below does not matter: docs/decisions/0250.
            self._holdings(principals)

    def keys_and_principals(self, request: Request) -> tuple[set[str], set[str]]:
        """The keys of the objects of a request, and the principals through which its user may hold something."""
        caller = request.user, tuple(request.groups)
        if caller not in self._callers:
            self._callers[caller] = self._principals(*caller)
        principals = self._callers[caller]
        objects = (request.resource, *request.with_.values())
        self.place(map(str, objects))
        return self._keys(objects), principals

    def read_held(self, user: str) -> list[lookups.Cells]:
        """Read all that a user holds at any distance, and return the grants, assignments, owners and members among it."""
        return [*self.held_by(self._principals(user, ())), *self.find("members", user=[user])]

    def users_of(self, principals: Iterable[str]) -> set[str]:
        """The users who are some principals, are in these groups or hold these roles, at any distance."""

        def holding(waiting: set[str]) -> set[str]:
            groups = {text.removeprefix(GROUP_PREFIX) for text in waiting if text.startswith(GROUP_PREFIX)}
            roles = {text.removeprefix(ROLE_PREFIX) for text in waiting if text.startswith(ROLE_PREFIX)}
            members = {row["user"] for row in self.find("memberships", group=groups)}
            found = {text if text.startswith(GROUP_PREFIX) else f"user:{text}" for text in members}
            return found | {row["principal"] for row in self.find("assignments", role=roles)}

        seen = reached(principals, holding)
        if self.program.semantics.everybody in seen:
            seen |= self._users()
        return {text.removeprefix("user:") for text in seen if text.startswith("user:")}

    def _users(self) -> set[str]:
        """Every user that some row names, and one that none does."""
        columns = (("memberships", "user"), ("assignments", "principal"), ("grants", "grantee"), ("owners", "owner"))
        texts = {row[column] or "" for table, column in columns for row in self.find(table)}
        return {"user:anyone", *(text if ":" in text else f"user:{text}" for text in texts)}

    def _holdings(self, principals: Collection[str]) -> list[lookups.Cells]:
        return [*self.find("grants", grantee=principals), *self.find("owners", owner=principals)]

    def _principals(self, user: str, request_groups: Iterable[str]) -> set[str]:
        """Every principal through which a user may hold something."""
        semantics = self.program.semantics
        named = set(request_groups) if "request" in semantics.groups else set[str]()
        groups = {f"{GROUP_PREFIX}{group}" for group in named | semantics.everyones}
        if "state" in semantics.groups:
            groups |= {f"{GROUP_PREFIX}{row['group']}" for row in self.find("memberships", user=[user])}
        if "groups" in semantics.hierarchy:
            groups |= self._links_above("groups", groups)
        principals = {f"user:{user}"} | groups
        roles = {f"{ROLE_PREFIX}{row['role']}" for row in self.find("assignments", principal=principals)}
        if "roles" in semantics.hierarchy:
            roles |= self._links_above("roles", roles)
        return principals | roles

    def _keys(self, objects: Iterable[Entity]) -> set[str]:
        """Return the keys on the paths of some entities, and the keys of single types, which have the path of their container."""
        places = {row["entity"]: row["parent"] for _, row in self.rows.tables["entities"].values()}
        singles = [name for name, type_ in self.program.entities.items() if type_.single]
        shapes = vocabulary(self.program).shapes
        found: set[str] = set()
        waiting = list(objects)
        while waiting:
            entity = waiting.pop()
            shape = shapes[entity.type]
            if shape.names_container(entity.id):
                waiting.append(Entity.parse(entity.id[:-1]))
                continue
            keys = shape.written.keys(entity.id)
            above = places.get(shape.anchor(entity.id)) if shape.flat is not None else None
            if above is not None and above not in found:
                waiting.append(Entity.parse(above))
            found.update(keys)
            found |= {f"{single}:{key.partition(':')[2]}" for key in keys for single in singles}
            found |= {f"{single}:" for single in singles}
        return found

    # --- what changes with a row -------------------------------------------------------------------------------------

    def matching(self, table: str, values: Mapping[str, str | None]) -> list[Change]:
        """The removal of every row with these values, whenever it holds."""
        texts = {name: [text] for name, text in values.items() if text is not None and name in lookups.INDEXED[table]}
        return [
            Change("remove", table, row=dict(cells))
            for cells in self.find(table, **texts)
            if all(cells.get(name) == value for name, value in values.items())
        ]

    def about(self, table: str, principal: Entity) -> State:
        """A state with every row of a table about a principal that is an entity, and perhaps others."""
        kind = self.program.entities[principal.type].principal
        # `%2A` in a path is `%2A` in the name of a principal; roles and groups are named by their path, too.
        names = {principal.decoded_names[-1], principal.names[-1]} | (set() if kind == "user" else {principal.id})
        texts = {f"{kind}:{name}" for name in names}
        match table:
            case "members":
                self.find(table, user=names)
            case "memberships":
                self.find(table, user=names | texts)
                self.find(table, group=names)
            case "assignments":
                self.find(table, principal=texts)
                self.find(table, role=names)
            case "grants":
                self.find(table, grantee=texts)
            case _:
                self.find(table, owner=texts)
        return self.state()

    def on_or_below(self, key: str) -> None:
        """Read every row on an entity and on what lies below it."""
        shapes = vocabulary(self.program).shapes
        waiting, seen = [key], {key}
        while waiting:
            around = waiting.pop()
            for row in self._beneath("entities", "parent", around):
                entity = Entity.parse(row["entity"])
                placed = shapes[entity.type].anchor(entity.id) if shapes[entity.type].flat is not None else str(entity)
                if placed not in seen:
                    seen.add(placed)
                    waiting.append(placed)
            for table, columns in TABLE_COLUMNS.items():
                for column in set(columns.all) & {"entity", "of", "scope"}:
                    self._beneath(table, column, around)
            self._named_by_path(around)

    def above(self, principal: str) -> set[str]:
        """A role or a group, and the groups and roles that it holds at any distance, whenever it does."""

        def held(waiting: set[str]) -> set[str]:
            groups = {text for text in waiting if text.startswith(GROUP_PREFIX)}
            found = {f"{GROUP_PREFIX}{row['group']}" for row in self.find("memberships", user=groups)}
            return found | {f"{ROLE_PREFIX}{row['role']}" for row in self.find("assignments", principal=waiting)}

        return reached([principal], held)

    def held_by(self, principals: Collection[str]) -> list[lookups.Cells]:
        """The grants and the owners' rows of some principals, and their assignments."""
        return [*self._holdings(principals), *self.find("assignments", principal=principals)]

    def holding(self, changes: Iterable[Change]) -> set[tuple[str, str]]:
        """(table, id) of the rows of some changes that the store holds."""
        ids: dict[str, list[str]] = {}
        found: set[tuple[str, str]] = set()
        for change in changes:
            id_ = row_id(change.row or {})
            if not self._was_looked_for(change):
                ids.setdefault(change.table, []).append(id_)
            elif id_ in self.rows.tables[change.table]:
                found.add((change.table, id_))
        found |= {
            (table, id_)
            for table, listed in ids.items()
            for part in lookups.batches(listed)
            for (id_,) in self.reader.read(table, lookups.select_ids(table), {"ids": list(part)})
        }
        for table, listed in ids.items():
            pending = self._pending.get(table, {})
            for id_ in pending.keys() & set(listed):
                (found.add if pending[id_].action == "add" else found.discard)((table, id_))
        return found

    def _was_looked_for(self, change: Change) -> bool:
        """Return whether a look-up has read the row of a change, if the store holds it."""
        cells = change.row or {}
        return any(
            table == change.table and all(cells.get(name) in texts[name] for name in texts)
            for table, texts in self._looked_for
        )

    # --- what makes a row wrong --------------------------------------------------------------------------------------

    def read_around(self, added: Mapping[str, Iterable[lookups.Cells]], removed: Iterable[Change]) -> None:
        """Read every row on which it depends whether one of some rows is wrong, and all that could be wrong without some."""
        texts: dict[str, list[lookups.Cells]] = {table: list(rows) for table, rows in added.items()}
        users = {row["user"].removeprefix("user:") for row in texts.get("attributes", ()) if "user" in row}
        self.find("attributes", user=users)
        self.find("attributes", entity={row["entity"] for row in texts.get("attributes", ()) if "entity" in row})
        for kind in self.program.semantics.hierarchy:
            table, member, container, prefix = LINKS[kind]
            links = [row for row in texts.get(table, ()) if row[member].startswith(prefix)]
            self._links_above(kind, {f"{prefix}{row[container].removeprefix(prefix)}" for row in links})
            self._links_below(kind, {row[member] for row in links})
        if not self.program.flat:
            return
        gone = [(change.table, change.row or {}) for change in removed]
        named = [*(row for rows in texts.values() for row in rows), *(row for _, row in gone)]
        self.place({row[name] or "" for row in named for name in ENTITY_COLUMNS if name in row})
        moved = {row["entity"] for row in texts.get("entities", ())}
        moved |= {str(row["entity"]) for table, row in gone if table == "entities"}
        for row in self.find("entities", entity=moved):
            self.on_or_below(row["entity"])

    def _links_above(self, kind: Any, members: Collection[str]) -> set[str]:
        """Return what contains some groups, or is held by some roles, at any distance; both as `group:…` or `role:…`."""
        table, member, container, prefix = LINKS[kind]

        def above(waiting: set[str]) -> set[str]:
            return {f"{prefix}{row[container]}" for row in self.find(table, **{member: waiting})}

        return reached(members, above).difference(members)

    def _links_below(self, kind: Any, containers: Collection[str]) -> None:
        """Read the links of all groups in some groups, or of all roles that hold some roles, at any distance."""
        table, member, container, prefix = LINKS[kind]

        def below(waiting: set[str]) -> set[str]:
            names = {text.removeprefix(prefix) for text in waiting}
            rows = self.beginning(table, (member, prefix), {container: names})
            return {row[member] for row in rows if row[member].startswith(prefix)}

        reached(containers, below)

    def place(self, entities: Iterable[str] = ()) -> None:
        """Read the places of some entities with flat ids, and of the entities of all rows that were read."""
        if not self.program.flat:
            return
        shapes = vocabulary(self.program).shapes
        waiting = set(entities)
        waiting |= {
            cells[name]
            for table in self.rows.tables.values()
            for _, cells in table.values()
            for name in ENTITY_COLUMNS
            if name in cells
        }
        while waiting:
            keys = set()
            for text in waiting:
                # An entity that has no name yet is written as its type and what contains it: `document:folder:f1/`.
                written = text.partition(":")[2][:-1] if text.endswith("/") else text
                type_, _, path = written.partition(":")
                # Texts that name no entity are found wrong elsewhere.
                if type_ in shapes and shapes[type_].flat is not None:
                    keys.add(shapes[type_].anchor(path))
            keys -= self._sought_places
            self._sought_places |= keys
            rows = self.find("entities", entity=keys)
            waiting = {row["parent"] for row in rows}

    # --- statements --------------------------------------------------------------------------------------------------

    def find(self, table: str, **texts: Collection[str]) -> list[lookups.Cells]:
        """The rows with one of some texts in each of some columns."""
        return self.beginning(table, None, texts)

    def beginning(
        self, table: str, begins: tuple[str, str] | None, texts: Mapping[str, Collection[str]]
    ) -> list[lookups.Cells]:
        """As `find`; `begins`: a column, and how its text begins."""
        if not all(texts.values()):
            return []
        columns = tuple(sorted(texts))
        found: list[lookups.Cells] = []
        for part in _parts(texts, columns):
            found += self._found(table, self.reader.where(table, part, begins))
        found += self._added(table, lambda cells: all(cells.get(name) in texts[name] for name in columns))
        if begins is None:
            self._looked_for.append((table, {name: frozenset(texts[name]) for name in columns}))
        return found

    def _beneath(self, table: str, column: str, key: str) -> list[lookups.Cells]:
        """Return the rows with an entity whose text begins like a key, as the texts of all entities below it do."""
        type_, _, path = key.partition(":")
        types = [name for name, chain in self.program.chains.items() if type_ in chain]
        found: list[lookups.Cells] = []
        for name in types:
            found += self._between(table, column, f"{name}:{path}", f"{name}:{path}/" if path else f"{name}:")
        return found

    def _named_by_path(self, key: str) -> None:
        """Read the rows that name a role or a group which is an entity, or lies below it, by its path."""
        type_, _, path = key.partition(":")
        for kind in ("group", "role") if path else ():
            if any(type_ in self.program.chain(name) for name in lookups.types_of_kind(self.program, kind)):
                for table, column, prefix in _NAMING[kind]:
                    self._between(table, column, f"{prefix}{path}", f"{prefix}{path}/")

    def _between(self, table: str, column: str, own: str, begin: str) -> list[lookups.Cells]:
        """The rows with a text in a column, and the rows whose text begins so."""
        end = begin[:-1] + chr(ord(begin[-1]) + 1)
        values = {"cut_own": own[:CUT], "own": own, "begin": begin, "end": end}
        values |= {"cut_begin": begin[:CUT], "cut_end": end[:CUT]}
        statement = lookups.select_below(table, column, within=len(begin) <= CUT)
        found = self._found(table, self.reader.read(table, statement, values))
        return [*found, *self._added(table, partial(_is_below, column, own, begin))]

    def _found(self, table: str, rows: Sequence[Any]) -> list[lookups.Cells]:
        """The cells of rows of a table that were read, as the changes of this excerpt leave them."""
        names = TABLE_COLUMNS[table].all
        own, pending = self.rows.tables[table], self._pending.get(table, {})
        found: list[lookups.Cells] = []
        for id_, change, *texts in rows:
            last = pending.get(id_)
            if last is not None and last.action == "remove":
                continue
            if id_ not in own:
                own[id_] = change, {name: text for name, text in zip(names, texts, strict=True) if text is not None}
            found.append(own[id_][1])
        return found

    def _added(self, table: str, fits: Callable[[lookups.Cells], bool]) -> Iterator[lookups.Cells]:
        """The rows that fit among the rows that the changes of this excerpt add."""
        for id_, change in self._pending.get(table, {}).items():
            cells: Any = change.row
            if change.action == "add" and fits(cells):
                self.rows.tables[table].setdefault(id_, (0, cells))
                yield cells


def reached(start: Iterable[str], step: Callable[[set[str]], set[str]]) -> set[str]:
    """Some texts, and all that steps from them lead to; each step starts from all texts that were found together, once."""
    found, waiting = set[str](), set(start)
    while waiting:
        found |= waiting
        waiting = step(waiting) - found
    return found


def _parts(texts: Mapping[str, Collection[str]], columns: tuple[str, ...]) -> Iterator[dict[str, Sequence[str]]]:
    """The texts of each column in parts, so that no statement looks for too many."""
    if all(len(texts[name]) <= lookups.MOST_TEXTS for name in columns):
        yield {name: sorted(texts[name]) for name in columns}
        return
    for parts in product(*(lookups.batches(sorted(texts[name])) for name in columns)):
        yield dict(zip(columns, parts, strict=True))


def _is_below(column: str, own: str, begin: str, cells: lookups.Cells) -> bool:
    text = cells.get(column)
    return text is not None and (text == own or text.startswith(begin))
