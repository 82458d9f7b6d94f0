"""Changes and reads for users who are not trusted with the choice of an operation or of what they may see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from privtab.errors import (
    AccessDenied,
    InvalidRequest,
    PrivtabError,
    StateInvalid,
    StoreConflict,
    UnsupportedError,
    UsageError,
)
from privtab.ir.serialise import vocabulary
from privtab.names import last_name
from privtab.request import Decision, Entity, Request
from privtab.sensitive import SENSITIVE
from privtab.state.load import from_tables
from privtab.state.nodes import StateFinding
from privtab.state.validate import validate
from privtab.store.authority import PRINCIPAL_OF, VERBS, Authority, Places, Verb
from privtab.store.planning import Plan, Proposal, Tables
from privtab.store.store import Outcome, Store
from privtab.store.view import Row, Snapshot, View


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
    """What describes `resource` from now on, for the journal."""

    def rows(self) -> Iterator[tuple[str, Verb, Row]]:
        """(table, `add` or `remove`, row) of each row."""
        for verb, tables in zip(VERBS, (self.add, self.remove), strict=True):
            for table, rows in tables.items():
                yield from ((table, verb, row) for row in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a change is made: idempotent by an id, and not over changes after `expect`."""

    request_id: str | None = None
    expect: int | None = None


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
        """`auditors`: users who may read all rows and the journal. `record` is told of each change, with the seconds it took."""
        self.store = store
        self.view = view
        self.authority = authority
        self.auditors = frozenset(auditors)
        self._record = record
        self.program = store.program
        self._vocabulary = vocabulary(store.program)

    # --- changes ---

    def change(self, desired: DesiredChange, how: WriteOptions) -> Outcome:
        """Add and remove rows by the one operation that authorises all of them.

        Raises AccessDenied; UsageError if no one operation on one object authorises the rows; the errors of `Store.change`.
        """
        snapshot = self.view.now()
        request = self._request(snapshot, desired)
        if _gives(desired) and self._done(request, desired, how) is None:
            self._check_reach(snapshot, request)
        return self._recorded(
            lambda: self.store.change(
                request,
                add=desired.add or None,
                remove=desired.remove or None,
                request_id=how.request_id,
                expect=how.expect,
            )
        )

    def propose(self, desired: DesiredChange) -> Plan:
        """What `change` would do."""
        snapshot = self.view.now()
        request = self._request(snapshot, desired)
        if _gives(desired):
            self._check_reach(snapshot, request)
        return self.store.propose(request, add=desired.add or None, remove=desired.remove or None)

    def perform(self, desired: DesiredChange, how: WriteOptions) -> Outcome:
        """Carry out the effects of an operation that has some, or that creates.

        Raises StoreConflict if it creates what the store names already: its creator would get rights on another's entity.
        """
        snapshot = self.view.now()
        request = self._performed(desired)
        if self._done(request, desired, how) is None:
            self._check_new(snapshot, request)
        # Rows about the same entity after this snapshot are a conflict.
        expect = snapshot.number if how.expect is None else min(how.expect, snapshot.number)
        return self._recorded(
            lambda: self.store.perform(
                request, new=desired.new, document=desired.document, request_id=how.request_id, expect=expect
            )
        )

    def propose_performed(self, desired: DesiredChange) -> Plan:
        """What `perform` would do."""
        request = self._performed(desired)
        self._check_new(self.view.now(), request)
        return self.store.propose(request, new=desired.new)

    def delete(self, desired: DesiredChange, how: WriteOptions) -> Outcome:
        """Delete an entity by the operation of the policy that does: every row on it, and below it, goes too."""
        request = self._deleted(desired)
        self._check_reach(self.view.now(), request)
        return self._recorded(lambda: self.store.delete_entity(request, request_id=how.request_id, expect=how.expect))

    def delete_all(self, desired: Sequence[DesiredChange], how: WriteOptions) -> list[Outcome | PrivtabError]:
        """As `delete`, of each entity that may be deleted, in one transaction; the error for each of the others."""
        snapshot = self.view.now()
        results: list[Outcome | PrivtabError | None] = []
        requests: list[Request] = []
        for change in desired:
            try:
                request = self._deleted(change)
                self._check_reach(snapshot, request)
            except (AccessDenied, InvalidRequest, UsageError) as error:
                results.append(error)
            else:
                results.append(None)
                requests.append(request)
        started = time.perf_counter()
        deleted = self.store.delete_all(requests, request_id=how.request_id, expect=how.expect)
        for outcome in deleted:
            if isinstance(outcome, Outcome):
                self._record(outcome, time.perf_counter() - started)
        remaining = iter(deleted)
        return [next(remaining) if result is None else result for result in results]

    def propose_deleted(self, desired: DesiredChange) -> Plan:
        """What `delete` would do."""
        request = self._deleted(desired)
        self._check_reach(self.view.now(), request)
        return self.store.propose(request, delete=True)

    # --- reads ---

    def visible(self, user: str, tables: Sequence[str], about: str | None = None) -> tuple[int, dict[str, list[Row]]]:
        """The rows that a user may read, by table, and the number of the change that they were read after.

        Users read the rows that name them, their groups or their roles, and those that they may add or remove. `about`: only
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
        """Whether a user may read a row."""
        return bool(self._visible(self.view.now(), user, {table: [row]})[table])

    def _visible(self, snapshot: Snapshot, user: str, rows: Mapping[str, Sequence[Row]]) -> dict[str, list[Row]]:
        if user in self.auditors:
            return {table: list(listed) for table, listed in rows.items()}
        own = _principals(snapshot, f"user:{user}")
        requests: dict[tuple[str, str], Request] = {}
        needed: dict[tuple[str, int], list[tuple[str, str]]] = {}
        for table, listed in rows.items():
            for number, row in enumerate(listed):
                if own.isdisjoint(_named(row)):
                    keys = needed[table, number] = []
                    for request in self._authorising(snapshot, table, row, user):
                        keys.append((request.action, str(request.resource)))
                        requests[keys[-1]] = request
        answers = dict(zip(requests, snapshot.allowed(list(requests.values())), strict=True))
        return {
            table: [
                row
                for number, row in enumerate(listed)
                if (table, number) not in needed or any(answers[key] for key in needed[table, number])
            ]
            for table, listed in rows.items()
        }

    def _authorising(self, snapshot: Snapshot, table: str, row: Row, user: str) -> Iterator[Request]:
        for object_, verb in product(self.authority.objects(table, row, snapshot.places), VERBS):
            if (operation := self.authority.operation(table, verb, object_.type)) is not None:
                yield Request(user=user, action=operation, resource=object_)

    # --- which operation ---

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
            found = set(self.authority.objects(table, row, snapshot.places))
            if desired.resource is not None and self._may_be_about(snapshot, table, row, desired.resource):
                found.add(desired.resource)
            if not found and desired.resource is None and table in PRINCIPAL_OF:
                column, kind = PRINCIPAL_OF[table]
                raise UsageError(
                    f"the store names nothing that contains the {kind} `{row[column]}`: name its entity as `resource`"
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
        operations = {self.authority.operation(table, verb, resource.type) for table, verb, _ in listed}
        if None in operations or len(operations) != 1:
            kinds = sorted({(table, verb) for table, verb, _ in listed})
            advice = "; ".join(self.authority.described(table, verb, resource.type) for table, verb in kinds)
            raise UsageError(
                f"no one operation on {resource} authorises these rows: {advice}; `--authorise TABLE=OPERATION` names another"
            )
        operation = operations.pop()
        assert operation is not None
        if desired.operation not in (None, operation):
            raise UsageError(f"`{desired.operation}` does not authorise these rows: `{operation}` does")
        return self._request_for(desired, operation, resource)

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

    def _may_be_about(self, snapshot: Snapshot, table: str, row: Row, resource: Entity) -> bool:
        """Whether rows about principals may be about an entity that the store does not name yet."""
        known = Places(self.program, snapshot.where, (resource,))
        return resource.type in self.program.entities and resource in self.authority.objects(table, row, known)

    def _request_for(self, desired: DesiredChange, operation: str, resource: Entity) -> Request:
        return Request(user=desired.user, action=operation, resource=resource, with_=desired.with_, flags=desired.flags)

    def _performed(self, desired: DesiredChange) -> Request:
        if desired.resource is None or desired.operation is None:
            raise UsageError("give an operation and its resource")
        request = self._request_for(desired, desired.operation, desired.resource)
        self._vocabulary.check(request)
        rule = self.program.rules[request.resource.type, request.action]
        if not rule.effects and not rule.creates and desired.document is None:
            raise UsageError(f"`{request.action}` on `{request.resource.type}` changes nothing in the store")
        return request

    def _deleted(self, desired: DesiredChange) -> Request:
        assert desired.resource is not None
        self._vocabulary.check_path(desired.resource)
        operation = self.authority.deleting(desired.resource.type)
        if operation is None:
            raise UsageError(f"the policy has no operation that deletes a `{desired.resource.type}`")
        if desired.operation not in (None, operation):
            raise UsageError(f"`{desired.operation}` does not delete a `{desired.resource.type}`: `{operation}` does")
        return self._request_for(desired, operation, desired.resource)

    # --- guards ---

    def _done(self, request: Request, desired: DesiredChange, how: WriteOptions) -> Outcome | None:
        if how.request_id is None:
            return None
        return self.store.done(
            how.request_id,
            request,
            add=desired.add or None,
            remove=desired.remove or None,
            new=desired.new,
            document=desired.document,
        )

    def _recorded(self, work: Callable[[], Outcome]) -> Outcome:
        started = time.perf_counter()
        outcome = work()
        self._record(outcome, time.perf_counter() - started)
        return outcome

    def _check_new(self, snapshot: Snapshot, request: Request) -> None:
        """Raise StoreConflict for an entity to be created that rows name: its creator would get rights on what is there."""
        rule = self.program.rules[request.resource.type, request.action]
        gives = any(effect.kind != "revoke" for effect in rule.effects)
        if (rule.creates or gives) and next(snapshot.rows_on(request.resource), None) is not None:
            self.store.propose(request)  # A caller who is denied must not learn what is there.
            raise StoreConflict(f"{request.resource} exists, or rows are about what lies below it")

    def _check_reach(self, snapshot: Snapshot, request: Request) -> None:
        """Raise AccessDenied if the role or group of a request has rights outside of what contains its entity.

        Names of roles and groups are not qualified: who may assign `role:b/admin` must not assign the grants of `role:a/admin`,
        nor delete them with it.
        """
        container = (snapshot.where.find(request.resource) or ())[-2:-1]
        kind = self.program.entities[request.resource.type].principal
        if not container or kind not in ("group", "role"):
            return
        for name in (last_name(request.resource.id), request.resource.id):
            reached = _principals(snapshot, f"{kind}:{name}")
            entities = [row["entity"] for row in snapshot.tables["grants"] if row["grantee"] in reached]
            entities += [row["entity"] for row in snapshot.tables["owners"] if row["owner"] in reached]
            if not all(snapshot.inside(entity, container[0]) for entity in entities):
                self.store.propose(request)  # A caller who is denied must not learn where it has rights.
                message = f"{kind}:{name} has rights outside {container[0]}"
                context = {"error": {"kind": "reach", "message": message}}
                raise AccessDenied(request, Decision(allowed=False, context=context))


def effect_of(planned: Proposal) -> tuple[dict[str, Any] | None, str]:
    """Who gains and loses which operations, as JSON of `state diff`; or None, and why that is not known."""
    from privtab.analysis.state_diff import state_diff
    from privtab.analysis.state_diff.as_json import state_diff_json

    try:
        return state_diff_json(state_diff(planned.program, planned.before, planned.after), SENSITIVE), ""
    except UnsupportedError as error:
        return None, str(error)


def _gives(desired: DesiredChange) -> bool:
    """Whether a change gives somebody a role or a membership in a group."""
    tables = ("assignments", "memberships")
    return any(verb == "add" and table in tables and not row.get("scope") for table, verb, row in desired.rows())


def _principals(snapshot: Snapshot, principal: str) -> set[str]:
    """A principal and the groups and roles that it holds, whenever it does."""
    reached, waiting = {principal}, [principal]
    while waiting:
        containers = snapshot.containers.get(waiting.pop(), set())
        waiting += containers - reached
        reached |= containers
    return reached


def _named(row: Row) -> set[str]:
    """The principals that a row is about: those who hold what it says."""
    found = {row[name] for name in ("grantee", "principal", "owner") if name in row}
    return found | ({f"user:{row['user'].removeprefix('user:')}"} if "user" in row else set())
