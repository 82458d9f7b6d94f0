"""Operations of a policy that authorise a change of rows, for callers who must neither choose a weaker operation nor reach further.

The subject of a row decides, not the caller's choice: the entity or the scope that it names, else the role or the group whose members
or holders it changes. The policy says which operations delegate what; if the policy says nothing, the names of operations tell.
docs/reference/store.md has the rule.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from time import time_ns
from typing import Literal, TypeAlias

from privtab.base import (
    AccessDenied,
    Change,
    Decision,
    Entity,
    Locations,
    Request,
    UsageError,
    encode_name,
    hint,
    last_name,
    listed_names,
    once,
)
from privtab.ir import Compare, Program, privilege_names, vocabulary, walk_reached
from privtab.reference import Reference
from privtab.state import TABLE_COLUMNS, State, UsedParts, locations, principal_entity, row_text
from privtab_analysis.principal_rows import may_name_entity, place_of
from privtab_server.store.excerpt import Excerpt
from privtab_server.store.lookups import types_of_kind

Verb: TypeAlias = Literal["add", "remove"]
VERBS: tuple[Verb, ...] = ("add", "remove")
OPERATIONS: Mapping[tuple[str, Verb], tuple[str, ...]] = {
    ("grants", "add"): ("grant_privilege", "grant"),
    ("grants", "remove"): ("revoke_privilege", "revoke"),
    ("owners", "add"): ("set_owner", "change_owner"),
    ("owners", "remove"): ("set_owner", "change_owner"),
    ("assignments", "add"): ("grant_role", "grant", "assign"),
    ("assignments", "remove"): ("revoke_role", "revoke", "unassign"),
    ("memberships", "add"): ("add_member",),
    ("memberships", "remove"): ("remove_member",),
    ("members", "add"): ("add",),
    ("members", "remove"): ("remove",),
}
"""The operations for rows to add and to remove, in a policy without delegations: the first that the type of the object has."""
DELETING = ("drop", "delete", "remove", "deregister")
"""The default operations that delete an entity: the first that its type has."""
MOST_PLACES = 100
"""Entities in which a principal is sought that its name does not place."""
PRINCIPAL_OF: Mapping[str, str] = {"assignments": "role", "memberships": "group", "members": "user"}
"""The kind of the principal whose entity is the object of a row, which is also the name of the column that names it."""
_MOST_SHOWN = 3
_PRIVILEGE = "privilege"
"""The attribute in which a request names a privilege."""


@once
def _delegations(program: Program) -> Mapping[tuple[str, str, str], Sequence[tuple[str, frozenset[str]]]]:
    """Return the operations that delegate rows by table, kind and type, each with the privileges of one effect."""
    found: dict[tuple[str, str, str], list[tuple[str, frozenset[str]]]] = defaultdict(list)
    for rule in program.rules.values():
        for effect in rule.delegations:
            table = "grants" if effect.privileges else "owners" if effect.what == "owner" else effect.what
            found[table, effect.kind, rule.entity].append((rule.operation, frozenset(effect.privileges)))
    return dict(found)


@once
def _asking(program: Program) -> frozenset[tuple[str, str]]:
    """The rows that ask for the privilege that the request names, by type and operation."""
    leaves = (
        (pair, leaf) for pair, rule in program.rules.items() for leaf in walk_reached(program, rule.item_condition)
    )
    terms = ((pair, leaf.left) for pair, leaf in leaves if isinstance(leaf, Compare))
    asked = "request", _PRIVILEGE
    return frozenset(pair for pair, term in terms if (term.kind, term.attribute) == asked)


def declares(program: Program) -> bool:
    """Return whether a policy says which operations delegate what: then, names of operations say nothing."""
    return bool(_delegations(program))


def delegating(
    program: Program, table: str, verb: Verb, type_: str, privileges: Collection[str] = ()
) -> tuple[str, ...]:
    """The operations on an entity of a type that delegate rows of a table; for grants, the operations with all of some privileges."""
    known = _delegations(program)
    found = known.get((table, "delegate" if verb == "add" else "withdraw", type_))
    # Who may add rows may remove them, where the policy does not tell them apart.
    found = found or known.get((table, "delegate", type_), ())
    return tuple(dict.fromkeys(operation for operation, given in found if given.issuperset(privileges)))


def holder_of(row: Mapping[str, str | None]) -> tuple[str, str]:
    """(kind, name) of the principal that has what a row says."""
    text = row.get("grantee") or row.get("owner") or row.get("principal")
    if text is None:
        user = row.get("user") or ""
        text = user if user.startswith("group:") else f"user:{user}"
    kind, _, name = text.partition(":")
    return kind, name


def given_by(program: Program, row: Mapping[str, str | None], type_: str) -> tuple[str, ...]:
    """The privileges on an entity of a type that a row of grants names, by itself, by an alias or by a set."""
    names = privilege_names(program).privileges(row.get("privilege") or "") or ()
    return tuple(name for name in names if type_ in program.privileges[name].on)


def naming(program: Program, request: Request, rows: Sequence[Mapping[str, str | None]]) -> Request:
    """A request that authorises some rows, with what they name and it does not: the privilege, and the principal.

    Raises UsageError for rows that no one request can name.
    """
    rule = program.rules.get((request.resource.type, request.action))
    if rule is None or not rows:
        return request
    given, slots = request.attributes, program.recipients(rule)
    asks = _PRIVILEGE not in given.request and (rule.entity, rule.operation) in _asking(program)
    if not asks and not slots:
        return request
    if asks:
        named = sorted({name for row in rows for name in given_by(program, row, request.resource.type)})
        if len(named) > 1:
            raise UsageError(
                f"`{request.action}` asks for the privilege that is given: send one change for each of {listed_names(named)}"
            )
        if named:
            given = replace(given, request={**given.request, _PRIVILEGE: named[0]})
    objects = dict(request.with_)
    for slot in slots:
        entities = {principal_entity(program, *holder_of(row)) for row in rows}
        entity = entities.pop() if len(entities) == 1 else None
        if slot.name not in objects and entity is not None and entity.type in slot.types:
            objects[slot.name] = entity
    return replace(request, with_=objects, attributes=given)


def check_delegated(program: Program, request: Request, changes: Iterable[Change]) -> None:
    """Raise UsageError for rows that the operation of a request does not delegate, in a policy with delegations.

    Nor may they be to another principal than an object of the request is, or give another privilege than the request names.
    """
    if not declares(program):
        return
    resource, rule = request.resource, program.rules[request.resource.type, request.action]
    slots = program.recipients(rule)
    asks = (rule.entity, rule.operation) in _asking(program)
    named = request.attributes.request.get(_PRIVILEGE) if asks else None
    tables = {table for table, _ in OPERATIONS}
    for change in changes:
        row = change.row or {}
        if change.table not in tables:
            continue
        privileges = given_by(program, row, resource.type)
        problem = None
        if request.action not in delegating(program, change.table, change.action, resource.type, privileges):
            problem = f"`{request.action}` on {resource} does not delegate"
        elif (row.get("entity") or row.get("scope") or str(resource)) != str(resource):
            problem = f"`{request.action}` on {resource} delegates nothing on another entity"
        elif slots and not any(may_name_entity(program, *holder_of(row), request.with_[slot.name]) for slot in slots):
            problem = f"the request names {listed_names(str(request.with_[slot.name]) for slot in slots)}, and not"
        elif named is not None and privileges and {*privileges} != {named}:
            problem = f"the request names the privilege `{named}`, and not"
        if problem is not None:
            raise UsageError(f"{problem} {row_text(change.table, row)}")


class Authority:
    """The operation that authorises each kind of change, by the type of the object that the rows are about."""

    def __init__(self, program: Program, settings: Iterable[str] = ()) -> None:
        """`settings`: `TABLE=OPERATION`, `TABLE.add=…`, `TABLE.remove=…`, each replaces the default. Raises UsageError."""
        self.program = program
        chosen: dict[tuple[str, Verb], tuple[str, ...]] = {}
        for text in settings:
            for key, operation in self._read(text):
                chosen[key] = (*chosen.get(key, ()), operation)
        self._names = {**OPERATIONS, **chosen}
        self._set = frozenset(chosen)

    def operations(self, table: str, verb: Verb, type_: str, privileges: Collection[str] = ()) -> tuple[str, ...]:
        """The operations on an entity of this type that authorise the change, of rows of grants: one that names these privileges."""
        if (table, verb) not in self._set and declares(self.program):
            return delegating(self.program, table, verb, type_, privileges)
        found = self._first(self._names.get((table, verb), ()), type_)
        if found is None and verb == "remove" and (table, verb) not in self._set:
            # Who may add rows may remove them, where the policy does not tell them apart.
            found = self._first(self._names.get((table, "add"), ()), type_)
        return () if found is None else (found,)

    def operation(self, table: str, verb: Verb, type_: str, privileges: Collection[str] = ()) -> str | None:
        """The first of `operations`; None if the policy has none."""
        return next(iter(self.operations(table, verb, type_, privileges)), None)

    def described(self, table: str, verb: Verb, type_: str) -> str:
        """Describe the operation that authorises the change on entities of this type, or the operations that the policy lacks."""
        if (operation := self.operation(table, verb, type_)) is not None:
            return f"`{operation}` authorises {table}.{verb}"
        names = () if declares(self.program) else self._names.get((table, verb), ())
        wanted = f"none of {', '.join(names)}" if names else "no operation that is known to do so"
        return f"for {table}.{verb}, the policy has {wanted} on `{type_}`"

    def deleting(self, type_: str) -> str | None:
        """The operation that deletes an entity of this type; None for one that exists with its parent."""
        return None if self.program.entities[type_].single else self._first(DELETING, type_)

    def to_json(self) -> dict[str, dict[str, dict[str, str]]]:
        """Table → `add`, `remove` → type → operation."""
        found: dict[str, dict[str, dict[str, str]]] = {}
        for table, verb, type_ in product(TABLE_COLUMNS, VERBS, self.program.entities):
            operations = self.operations(table, verb, type_)
            if operations and self._fits(table, type_):
                found.setdefault(table, {}).setdefault(verb, {})[type_] = ", ".join(operations)
        return found

    def objects(self, table: str, row: Mapping[str, str], paths: Callable[[str], Collection[str]]) -> Iterator[Entity]:
        """Yield the entities that a row is about. `paths` returns the paths of entities of a type that can contain principals.

        A role or a group that its name does not place may be in any entity that can contain it.
        """
        key = row.get("entity") or row.get("scope")
        if key is not None:
            if key.partition(":")[0] in self.program.entities:
                yield Entity.parse(key)
            return
        if table not in PRINCIPAL_OF:
            return
        kind = PRINCIPAL_OF[table]
        name = row[kind]
        types = types_of_kind(self.program, kind)
        if table == "members":
            container = Entity.parse(row["of"])
            own = [type_ for type_ in types if self.program.entities[type_].parent == container.type]
            yield from (Entity(type_, f"{container.id}/{encode_name(name)}") for type_ in own)
        elif (named := principal_entity(self.program, kind, name)) is not None:
            yield named
        else:
            for type_ in types:
                found = () if type_ in self.program.flat else paths(self.program.entities[type_].parent or "")
                ids = (f"{path}/{encode_name(name)}" if path else encode_name(name) for path in found)
                yield from (Entity(type_, id_) for id_ in ids if len(found) <= MOST_PLACES)

    def _first(self, names: Iterable[str], type_: str) -> str | None:
        return next((name for name in names if (type_, name) in self.program.rules), None)

    def _fits(self, table: str, type_: str) -> bool:
        """Return whether rows of a table are about entities of this type."""
        principal = self.program.entities[type_].principal
        if table == "grants":
            return any(type_ in privilege.on for privilege in self.program.privileges.values())
        return (
            table not in PRINCIPAL_OF or principal == PRINCIPAL_OF[table] or (table == "assignments" and not principal)
        )

    def _read(self, text: str) -> Iterator[tuple[tuple[str, Verb], str]]:
        place, _, operation = text.partition("=")
        table, dot, verb = place.partition(".")
        tables = [name for name in TABLE_COLUMNS if name != "service_admins"]
        if not operation or table not in tables or (dot and verb not in VERBS):
            raise UsageError(
                f"`--authorise {text}`: write TABLE=OPERATION, TABLE.add=OPERATION or TABLE.remove=OPERATION; "
                f"the tables are {', '.join(tables)}"
            )
        names = {name for _, name in self.program.rules}
        if operation not in names:
            raise UsageError(f"`--authorise {text}`: no type has the operation `{operation}`{hint(operation, names)}")
        for each in VERBS:
            if verb in ("", each):
                yield (table, each), operation


def check_named(program: Program, entity: Entity) -> None:
    """Raise UsageError for a role or a group in a place whose name has a `/`: it would read as the path of another one."""
    kind = program.entities[entity.type].principal
    if kind in ("group", "role") and "/" in last_name(entity.id):
        depths = (vocabulary(program).shapes[type_].written.depth for type_ in types_of_kind(program, kind))
        if max(depths) > 1:
            raise UsageError(f"`{entity}` cannot be changed: the name of a {kind} in a place has no `/`")


def check_reach(
    program: Program,
    excerpt: Excerpt,
    after: State,
    request: Request,
    changes: Sequence[Change],
    paths: Callable[[str], Collection[str]],
) -> None:
    """Raise AccessDenied for changes that reach beyond what an allowed request is about.

    `after`: the state after them. `paths`: of the entities of a type that rows name, for types that contain principals.
    """
    reach = _Reach(program, excerpt, after, request)
    for change in changes:
        reach.check(change)
    found = [*reach.crossing, *(text for text, kind in reach.unplaced.items() if not reach.everywhere(kind, paths))]
    if found:
        more = f"; and {len(found) - _MOST_SHOWN:,} more" if len(found) > _MOST_SHOWN else ""
        message = f"{'; '.join(found[:_MOST_SHOWN])}{more}"
        raise AccessDenied(request, Decision(allowed=False, context={"error": {"kind": "reach", "message": message}}))


class _Reach:
    """The reach of changed rows beyond the subject of their request."""

    def __init__(self, program: Program, excerpt: Excerpt, after: State, request: Request) -> None:
        self.program = program
        self.excerpt = excerpt
        self.request = request
        self.crossing: list[str] = []
        """Reasons why rows may not be added, whoever the caller is: a principal of one place would have rights in another."""
        self.unplaced: dict[str, str] = {}
        """Rows that only callers with the same right in every place may change, each with the kind of the principal."""
        self._after = after
        self._beyond: dict[Entity, bool] = {}
        own = request.resource
        self._within = place_of(program, self._where, own) if program.entities[own.type].principal else str(own)

    def check(self, change: Change) -> None:
        """Find what a change of a row concerns."""
        row = {column: text for column, text in (change.row or {}).items() if text is not None}
        if change.table in ("grants", "owners"):
            self._holder(change, row, Entity.parse(row["entity"]))
        elif change.table in ("assignments", "memberships"):
            kind = PRINCIPAL_OF[change.table]
            scope = Entity.parse(row["scope"]) if "scope" in row else None
            named = self._given(change, kind, row[kind], scope)
            self._holder(change, row, scope or named)

    def everywhere(self, kind: str, paths: Callable[[str], Collection[str]]) -> bool:
        """Return whether the caller may do the same in every place: in a place that no row names or, as a service administrator, in all."""
        chain = self._named_types(self.request.resource.type)
        around = [self._named_types(type_)[-2:-1] for type_ in types_of_kind(self.program, kind)]
        places = {type_ for types in around for type_ in types if type_ in chain} or set(chain[:1])
        unnamed = [(type_, "/".join([secrets.token_hex(16)] * self.program.depth(type_))) for type_ in places]
        if all(self._may(*place) for place in unnamed):
            return True
        known = [(type_, path) for type_ in places for path in paths(type_)]
        administers = bool(self.excerpt.find("service_admins", user=[self.request.user]))
        return administers and 0 < len(known) <= MOST_PLACES and all(self._may(*place) for place in known)

    def _given(self, change: Change, kind: str, name: str, scope: Entity | None) -> Entity | None:
        """Check the role or the group that a row gives or takes, and return it if it is an entity."""
        named = principal_entity(self.program, kind, name)
        if named is None:
            if scope is None or UsedParts.of(self.program).holds:
                self._note(kind, f"`{kind}:{name}` is of no place{self._advice(kind, name)}")
            return None
        self.excerpt.place([str(named)])
        place = place_of(self.program, self._where, named)
        if place is None:
            return named
        if scope is not None and not self._inside(scope, place):
            self._cross(change, kind, f"{kind}:{name} is of {place}, and {scope} is not in it")
        elif scope is None and (self._within is None or not self._inside(named, self._within)):
            self._note(kind, f"{kind}:{name} is of {place}, and {self.request.resource} is not")
        elif self._reaches_beyond(kind, name, place):
            self._note(kind, f"{kind}:{name} has rights outside {place}")
        return named

    def _holder(self, change: Change, row: Mapping[str, str | None], about: Entity | None) -> None:
        """Check the principal that has what a row gives, of which `about` is the entity."""
        kind, name = holder_of(row)
        holder = f"{kind}:{name}"
        named = principal_entity(self.program, kind, name)
        if named is None:
            adds = change.action == "add" and kind == "role" and name not in self.program.roles
            if adds and types_of_kind(self.program, kind):
                self._note(kind, f"`{holder}` is of no place{self._advice(kind, name)}")
            return
        self.excerpt.place([str(named)])
        place = place_of(self.program, self._where, named)
        if place is None or about is None or self._inside(about, place):
            return
        if change.action == "add" or not self._inside(about, str(self.request.resource)):
            self._cross(change, kind, f"{holder} is of {place}, and {about} is not in it")

    def _reaches_beyond(self, kind: str, name: str, place: str) -> bool:
        """Return whether a role or a group has rights outside of its place, or holds roles or is in groups of other places."""
        principals = self.excerpt.above(f"{kind}:{name}")
        named = [principal_entity(self.program, *text.split(":", 1)) for text in principals]
        rows = self.excerpt.held_by(principals)
        entities = [Entity.parse(text) for row in rows if (text := row.get("entity") or row.get("scope"))]
        self.excerpt.place([str(entity) for entity in named if entity is not None])
        return any(entity is None or not self._inside(entity, place) for entity in (*named, *entities))

    def _may(self, place: str, path: str) -> bool:
        """Return whether the caller may do the same in another place: an entity of the type `place`, which contains the resource."""
        own = self.request.resource
        if vocabulary(self.program).lies_in_state(own.type):
            return False
        names = (path, *own.names[self.program.depth(place) :])
        moved = replace(self.request, resource=Entity(own.type, "/".join(names)))
        self.excerpt.read_for(moved)
        state = self.excerpt.state()
        return Reference(self.program, state.at(time_ns())).decide(moved).allowed

    def _named_types(self, type_: str) -> list[str]:
        """The types on a path whose entities have names of their own."""
        return [name for name in self.program.chain(type_) if not self.program.entities[name].single]

    def _inside(self, entity: Entity, place: str) -> bool:
        return any(place in (where.find(entity) or ()) for where in (self._where, locations(self.program, self._after)))

    @property
    def _where(self) -> Locations:
        return locations(self.program, self.excerpt.state())

    def _advice(self, kind: str, name: str) -> str:
        types = types_of_kind(self.program, kind)
        if not types or name in self.program.roles:
            return ""
        example = "/".join([*(self.program.chain(types[-1])[:-1]), name])
        return f": its path, as in `{example}`, says which {kind} is meant"

    def _cross(self, change: Change, kind: str, text: str) -> None:
        if change.action == "add":
            self.crossing.append(text)
        else:
            self._note(kind, text)

    def _note(self, kind: str, text: str) -> None:
        self.unplaced[text] = kind
