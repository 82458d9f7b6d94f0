"""Changes and reads for users who are not trusted with the choice of an operation or of what they may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import Any, Literal, TypeAlias, assert_never

from privtab.base import Entity, InvalidRequest, PrivtabError, Request, StateInvalid, UnsupportedError, UsageError
from privtab.ir import vocabulary
from privtab.state import StateFinding, from_tables, validate
from privtab_analysis.principal_rows import may_name_entity
from privtab_server.store.authority import PRINCIPAL_OF, VERBS, Authority, Verb, given_by, naming
from privtab_server.store.excerpt import reached
from privtab_server.store.journal import Journal
from privtab_server.store.planning import ChangeRequest, Guard, Plan, Tables, raw
from privtab_server.store.store import Outcome, Store
from privtab_server.store.view import Row, Snapshot, View

ChangeKind: TypeAlias = Literal["change", "perform", "delete"]
"""Add and remove rows, by the one operation that authorises all of them; carry out the effects of an operation that has some, or that
creates; or delete an entity, by the operation of the policy that does, with every row on it and below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredChange:
    """A change that a user wants. `resource` and `operation` may be left out where rows or the policy determine them."""

    user: str
    add: Tables = field(default_factory=dict)
    remove: Tables = field(default_factory=dict)
    resource: Entity | None = None
    operation: str | None = None
    with_: Mapping[str, Entity] = field(default_factory=dict)
    flags: frozenset[str] = frozenset()
    new: Entity | None = None
    """The entity with a flat id that the operation creates in `resource`."""
    document: Mapping[str, Any] | None = None
    """The new description of `resource`, for the journal."""

    def rows(self) -> Iterator[tuple[str, Verb, Row]]:
        """(table, `add` or `remove`, row) of each row."""
        for verb, tables in zip(VERBS, (self.add, self.remove), strict=True):
            for table, rows in tables.items():
                yield from ((table, verb, row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Options of a change: an id that makes it idempotent, and the last change (`expect`) that it may follow."""

    request_id: str | None = None
    expect: int | None = None


@dataclass(slots=True)
class Created:
    """Entities in the journal, up to a change."""

    number: int = 0
    """The number of that change."""
    audits: dict[Entity, dict[str, str]] = field(default_factory=dict)
    """Entities that were created or described, and not deleted since: by whom, and when."""
    documents: dict[Entity, Mapping[str, Any]] = field(default_factory=dict)
    """The description of each entity."""
    links: set[tuple[Entity, Entity]] = field(default_factory=set)
    """The entities that an operation associates with others: (resource, other)."""


class CreatedEntities:
    """The entities that were created and not deleted since, as the journal tells, whatever became of their rows.

    Threads may share it.
    """

    def __init__(self, journal: Journal, authority: Authority) -> None:
        self._journal = journal
        self._authority = authority
        self._lock = Lock()
        self._last = Created()
        self._copy = Created()

    def now(self) -> Created:
        """Return the entities in the journal now, as a copy that does not change any more."""
        with self._lock:
            self._read()
            last = self._last
            if self._copy.number != last.number:
                self._copy = Created(last.number, dict(last.audits), dict(last.documents), set(last.links))
            return self._copy

    def exists(self, entity: Entity, number: int) -> bool:
        """Return whether an entity was created until a change, or perhaps a later one, and not deleted since.

        Not for types that the policy has no operation to delete: nothing would tell that one is gone.
        """
        with self._lock:
            if self._last.number < number:
                self._read()
            created = "creator" in self._last.audits.get(entity, ())
        return created and self._authority.deleting(entity.type) is not None

    def _read(self) -> None:
        for number, at, actor, request in self._journal.requests(self._last.number):
            resource = request.get("resource")
            # The others are of operators, or of other versions of the policy.
            if resource is not None and resource["type"] in self._authority.program.entities:
                self._carry_out(self._last, Entity(resource["type"], resource["id"]), request, at, actor)
            self._last.number = number

    def _carry_out(self, created: Created, entity: Entity, request: Mapping[str, Any], at: str, actor: str) -> None:
        action, document = request["action"]["name"], request.get("document")
        rule = self._authority.program.rules.get((entity.type, action))
        # A change of rows does not delete what they are about, but for a user, who is where rows say so.
        deletes = (
            self._authority.program.entities[entity.type].principal == "user" or not {"add", "remove"} & request.keys()
        )
        if rule is not None and rule.creates:
            if not entity.id.endswith("/"):  # A row of `entities` tells of one with a flat id.
                created.audits[entity] = {"creator": actor, "createTime": at}
                created.documents[entity] = document or {}
        elif request.get("delete") or (deletes and action == self._authority.deleting(entity.type)):
            gone = {each for each in created.audits if self._inside(each, entity)} | {entity}
            for each in gone:
                created.audits.pop(each, None)
                created.documents.pop(each, None)
            created.links -= {link for link in created.links if not gone.isdisjoint(link)}
        elif document is not None and (others := request.get("context", {}).get("with")):
            links = {(entity, Entity(other["type"], other["id"])) for other in others.values()}
            (created.links.update if document["associated"] else created.links.difference_update)(links)
        elif document is not None:
            created.documents[entity] = document
            changed = {"lastModifier": actor, "lastModifiedTime": at}
            created.audits[entity] = {**created.audits.get(entity, {}), **changed}

    def _inside(self, entity: Entity, container: Entity) -> bool:
        return entity.id.startswith(f"{container.id}/") and container.type in self._authority.program.chain(entity.type)


class GuardedStore:
    """A store for users who are not trusted: the policy's tables say which operation authorises what they write and read."""

    def __init__(
        self,
        store: Store,
        view: View,
        authority: Authority,
        auditors: Sequence[str] = (),
        record: Callable[[Outcome, float], None] = lambda outcome, seconds: None,  # noqa: ARG005
    ) -> None:
        """`auditors`: users who may read all rows and the journal. `record` gets each change, with the seconds it took."""
        self.store = store
        self.view = view
        self.authority = authority
        self.auditors = frozenset(auditors)
        self._record = record
        self.program = store.program
        self.created = CreatedEntities(store, authority)
        self._vocabulary = vocabulary(store.program)

    # --- changes ---

    def carry_out(self, kind: ChangeKind, desired: DesiredChange, how: WriteOptions) -> Outcome:
        """Make a change, if the policy allows it.

        Raises AccessDenied; UsageError if no one operation on one object authorises the rows; StoreConflict for a creation of what
        exists already, or of what rows name: its creator would get rights on another's entity; and the errors of `Store.change`.
        """
        requested = self._requested(kind, desired)
        started = time.perf_counter()
        outcome = self.store.carry_out(requested, **asdict(how))
        self._record(outcome, time.perf_counter() - started)
        return outcome

    def propose(self, kind: ChangeKind, desired: DesiredChange, expect: int | None = None) -> Plan:
        """Plan what `carry_out` would do."""
        return self.store.plan(self._requested(kind, desired), expect)

    def delete_all(self, desired: Sequence[DesiredChange], how: WriteOptions) -> list[Outcome | PrivtabError]:
        """Delete each entity that may be deleted, in one transaction; the error for each of the others."""
        results: list[Outcome | PrivtabError | None] = []
        requests: list[ChangeRequest] = []
        for change in desired:
            try:
                requests.append(self._deleted(change))
                results.append(None)
            except (InvalidRequest, UsageError) as error:
                results.append(error)
        started = time.perf_counter()
        deleted = self.store.carry_out_each(requests, **asdict(how))
        for outcome in deleted:
            if isinstance(outcome, Outcome):
                self._record(outcome, time.perf_counter() - started)
        remaining = iter(deleted)
        return [next(remaining) if result is None else result for result in results]

    # --- reads ---

    def visible(self, user: str, tables: Sequence[str], about: str | None = None) -> tuple[int, dict[str, list[Row]]]:
        """The rows that a user may read, by table, and the number of the change that they were read after.

        Users read the rows that name them, their groups or their roles, and the rows that they may add or remove. `about`: only
        rows that name this principal or entity.
        """
        snapshot = self.view.now()
        if about is None:
            rows = {table: snapshot.tables[table] for table in tables}
        else:
            named = snapshot.naming.get(about, ())
            rows = {table: [row for of, row in named if of == table] for table in tables}
        return snapshot.number, self._visible(snapshot, user, rows)

    def may_read(self, user: str, table: str, row: Row) -> bool:
        """Return whether a user may read a row."""
        return bool(self._visible(self.view.now(), user, {table: [row]})[table])

    def _visible(self, snapshot: Snapshot, user: str, rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        if user in self.auditors:
            return {table: list(listed) for table, listed in rows.items()}
        containers = snapshot.containers
        own = reached([f"user:{user}"], lambda held: {text for one in held for text in containers.get(one, ())})
        requests: dict[tuple[str, str], Request] = {}
        needed: dict[tuple[str, int], list[list[tuple[str, str]]]] = {}
        for table, listed in rows.items():
            for number, row in enumerate(listed):
                if own.isdisjoint(_named(row)):
                    objects = list(self._authorising(snapshot, table, row, user))
                    needed[table, number] = [[(each.action, str(each.resource)) for each in asked] for asked in objects]
                    requests |= {(each.action, str(each.resource)): each for asked in objects for each in asked}
        answers = dict(zip(requests, snapshot.allowed(list(requests.values())), strict=True))

        def seen(table: str, number: int) -> bool:
            objects = needed.get((table, number))
            # A row that may be about several objects tells of each of them.
            return objects is None or (bool(objects) and all(any(answers[key] for key in keys) for keys in objects))

        return {table: [row for at, row in enumerate(listed) if seen(table, at)] for table, listed in rows.items()}

    def _authorising(self, snapshot: Snapshot, table: str, row: Row, user: str) -> Iterator[list[Request]]:
        """The requests that authorise a change of a row, for each object that the row may be about."""
        for object_ in self.authority.objects(table, row, snapshot.paths):
            given = given_by(self.program, row, object_.type)
            operations = {
                name for verb in VERBS for name in self.authority.operations(table, verb, object_.type, given)
            }
            requests: list[Request] = []
            for name in sorted(operations):
                with suppress(UsageError):
                    requests.append(naming(self.program, Request(user=user, action=name, resource=object_), [row]))
            # A principal that no row places is no object of a request.
            rules = self.program.rules
            yield [each for each in requests if len(each.with_) == len(rules[object_.type, each.action].withs)]

    # --- which operation ---

    def _requested(self, kind: ChangeKind, desired: DesiredChange) -> ChangeRequest:
        match kind:
            case "change":
                return self._changed(desired)
            case "perform":
                return self._performed(desired)
            case "delete":
                return self._deleted(desired)
            case _:
                assert_never(kind)

    def _changed(self, desired: DesiredChange) -> ChangeRequest:
        snapshot = self.view.now()
        return ChangeRequest(
            request=self._request(snapshot, desired),
            add=raw(desired.add or None, "the rows to add"),
            remove=raw(desired.remove or None, "the rows to remove"),
            guard=_guard(snapshot),
        )

    def _request(self, snapshot: Snapshot, desired: DesiredChange) -> Request:
        """The request that authorises all rows of a change."""
        listed = list(desired.rows())
        if not listed:
            raise UsageError("give rows to add or to remove")
        self._check_rows(snapshot, desired)
        if desired.resource is not None:
            self._vocabulary.check_path(desired.resource)
        objects: set[Entity] | None = None
        for table, _, row in listed:
            found = set(self.authority.objects(table, row, snapshot.paths))
            if table in PRINCIPAL_OF and "scope" not in row and "of" not in row:
                kind = PRINCIPAL_OF[table]
                if desired.resource is not None and may_name_entity(self.program, kind, row[kind], desired.resource):
                    found.add(desired.resource)
                if not found and desired.resource is None:
                    raise UsageError(
                        f"the store names nothing that contains the {kind} `{row[kind]}`: name its entity as `resource`, in a sentence by `about ENTITY`"
                    )
            objects = found if objects is None else objects & found
        if desired.resource is not None:
            objects = (objects or set()) & {desired.resource}
        if not objects:
            about = "what the rows are about" if desired.resource is None else str(desired.resource)
            raise UsageError(
                f"all rows of a change must be about one object, and {about} is none: send one change for each"
            )
        if len(objects) > 1:
            raise UsageError("the rows may be about several entities: name one as `resource`")
        (resource,) = objects
        given = {
            name for table, _, row in listed if table == "grants" for name in given_by(self.program, row, resource.type)
        }
        by_rows = [
            self.authority.operations(table, verb, resource.type, given if table == "grants" else ())
            for table, verb, _ in listed
        ]
        operations = [name for name in by_rows[0] if all(name in names for names in by_rows)]
        if not operations:
            kinds = sorted({(table, verb) for table, verb, _ in listed})
            advice = "; ".join(self.authority.described(table, verb, resource.type) for table, verb in kinds)
            raise UsageError(
                f"no one operation on {resource} authorises these rows: {advice}; `--authorise TABLE=OPERATION` names another"
            )
        operation = desired.operation or operations[0]
        if operation not in operations:
            raise UsageError(f"`{operation}` does not authorise these rows: `{operations[0]}` does")
        rows = [row for _, _, row in listed]
        return naming(self.program, self._request_for(desired, operation, resource), rows)

    def _check_rows(self, snapshot: Snapshot, desired: DesiredChange) -> None:
        """Raise StateInvalid for rows that are wrong in themselves, before names in them are used."""
        findings: list[StateFinding] = []
        for tables, shown in ((desired.add, "the rows to add"), (desired.remove, "the rows to remove")):
            placed = [*tables.get("entities", ()), *snapshot.tables["entities"]]
            _, found = validate(
                self.program, from_tables({**tables, **({"entities": placed} if placed else {})}, shown)
            )
            findings += [finding for finding in found if finding.severity == "error"]
        if findings:
            raise StateInvalid(tuple(findings), "nothing was changed")

    def _request_for(self, desired: DesiredChange, operation: str, resource: Entity) -> Request:
        return Request(user=desired.user, action=operation, resource=resource, with_=desired.with_, flags=desired.flags)

    def _performed(self, desired: DesiredChange) -> ChangeRequest:
        if desired.resource is None or desired.operation is None:
            raise UsageError("give an operation and its resource")
        request = self._request_for(desired, desired.operation, desired.resource)
        self._vocabulary.check(request)
        rule = self.program.rules[request.resource.type, request.action]
        if not rule.effects and not rule.creates and desired.document is None:
            raise UsageError(f"`{request.action}` on `{request.resource.type}` changes nothing in the store")
        snapshot = self.view.now()
        exists = rule.creates is not None and self.created.exists(request.resource, snapshot.number)
        guard = replace(_guard(snapshot), exists=exists)
        return ChangeRequest(request=request, new=desired.new, document=desired.document, guard=guard)

    def _deleted(self, desired: DesiredChange) -> ChangeRequest:
        assert desired.resource is not None
        self._vocabulary.check_path(desired.resource)
        operation = self.authority.deleting(desired.resource.type)
        if operation is None:
            raise UsageError(f"the policy has no operation that deletes a `{desired.resource.type}`")
        if desired.operation not in (None, operation):
            raise UsageError(f"`{desired.operation}` does not delete a `{desired.resource.type}`: `{operation}` does")
        request = self._request_for(desired, operation, desired.resource)
        return ChangeRequest(request=request, delete=True, guard=_guard(self.view.now()))


def proposal_json(planned: Plan) -> dict[str, Any]:
    """Return the rows that a change would write, and the JSON of `diff --state` of who gains and loses what, or why it is not known."""
    from privtab_analysis.state_diff import state_diff
    from privtab_analysis.state_diff.summary import state_diff_json

    changes = [change.to_json() for change in planned.changes]
    answer: dict[str, Any] = {"number": planned.number, "dry_run": True, "changes": changes}
    answer["decision"] = planned.decision.to_json()
    try:
        return answer | {"effect": state_diff_json(state_diff(planned.program, planned.before, planned.after))}
    except UnsupportedError as error:
        return answer | {"effect": None, "undecided": str(error)}


def _guard(snapshot: Snapshot) -> Guard:
    return Guard(number=snapshot.number, paths=snapshot.paths)


def _named(row: Row) -> set[str]:
    """The principals that a row is about: the holders of its right."""
    found = {row[name] for name in ("grantee", "principal", "owner") if name in row}
    return found | ({f"user:{row['user'].removeprefix('user:')}"} if "user" in row else set())
