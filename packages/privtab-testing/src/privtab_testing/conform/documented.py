"""Shared by drivers that read a document: create a world call by call, and remove what was created."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import jmespath

from privtab.base import Entity, Request, base_type, dataclass, strict_loads
from privtab.ir import Program, Rule, vocabulary
from privtab.state import Grant, State
from privtab_connect.errors import TemplateError
from privtab_testing.conform import SystemAnswer, World
from privtab_testing.conform.document import Call, Calls, DriverDocument, Lifecycle, Operation
from privtab_testing.conform.driver import Driver, DriverError, StateFile


class DocumentedDriver(Driver):
    """A driver that follows a document."""

    gives_attributes = False
    resumes = True

    def __init__(
        self, document: DriverDocument, program: Program, names: SystemNames, file: StateFile | None = None
    ) -> None:
        """`file`: where the system reads its state from, if the document has no calls for it."""
        self._document = document
        self._program = program
        self._names = names
        self.file = file
        self.odd_names = document.exact_names
        in_file = document.state is not None
        self.keeps_state = in_file and file is None
        self.through_roles = in_file or "roles" in document.principals
        groups = document.principals.get("groups")
        # Otherwise they are those that there always are.
        self.through_groups = in_file or (groups is not None and bool(groups.make))
        self._world: World | None = None
        self._made: set[str] = set()
        """The names that this test has made, at least in part: nothing else is removed."""
        self._said: dict[str, str] = {}

    def asks(self, rule: Rule) -> bool:
        """As Driver.asks: the operations that the document names."""
        return (rule.entity, rule.operation) in self._document.operations

    def changes(self, rule: Rule) -> bool:
        """As Driver.changes: the operations that the document declares; otherwise, over HTTP, all methods but GET and HEAD."""
        operation = self._document.operations.get((rule.entity, rule.operation))
        # What is created has a name of its own, also where it is removed again.
        return operation is not None and (operation.changes or bool(rule.creates and operation.restore))

    @property
    def there(self) -> frozenset[str]:
        """As Driver.there: entities that no call makes, and that do not come with their container."""
        entries, entities = self._document.entities, self._program.entities
        return frozenset(type_ for type_ in entries if not entries[type_].make and entities[type_].parent is None)

    def restores(self, rule: Rule) -> bool:
        """As Driver.restores: the operations with `restore`."""
        operation = self._document.operations.get((rule.entity, rule.operation))
        return operation is not None and bool(operation.restore) and not rule.creates

    def lacks(self, world: World, requests: Iterable[Request] = ()) -> tuple[str, ...]:
        """As Driver.lacks: what the document does not say how to make, and placeholders that nothing fills."""
        found: dict[str, None] = {}
        with self._names.assuming() as names:
            for step in (*names.creating(world), *names.removing(world)):
                try:
                    names.fill(step().calls, step().values)
                except DriverError as error:
                    found[str(error)] = None
            for request in requests:
                operation = self.operation(request)
                if operation is not None:
                    values = self.values(request)
                    try:
                        names.fill(self._document.become, values)
                        names.fill((Call(text=text) for _, text in self._document.headers), values)
                        names.fill(operation.calls, values)
                        kept = {name: name for call in operation.calls for name, _ in call.keep}
                        names.fill(operation.restore, {**values, **kept})
                    except DriverError as error:
                        found[str(error)] = None
        return tuple(found)

    def calls(self, world: World) -> int:
        """As Driver.calls."""
        return sum(len(step().calls) for step in self._names.creating(world)) + (self.file is not None)

    def state(self, world: World) -> State:
        """As Driver.state: with the rows of the document."""
        return world.state if self._document.state is None else State.merged((self._document.state, world.state))

    def prepare(self, world: World) -> None:
        """As Driver.prepare: without what the journal has. What was made last before an interruption may be there in part, and is removed first."""
        self._world = world
        known = {} if self.journal is None else {what: dict(kept) for what, kept in self.journal.made.items()}
        self._names.password = known.pop(_PASSWORD, {}).get(_PASSWORD, self._names.password)
        if self.journal is not None and not known:
            self.journal.add_made(_PASSWORD, {_PASSWORD: self._names.password})
        self._names.kept |= known
        self._made |= set(known)
        resumed = bool(known)
        for planned in self._names.creating(world):
            step = planned()
            if step.what in known:
                continue
            if resumed:
                self._removed([partial(self._names.removed, step)])
                resumed = False
            self._make(step)
            if self.journal is not None:
                self.journal.add_made(step.what, self._names.kept.get(step.what, {}))
        self.disconnect()
        if self.file is not None:
            self.file.replace(self.state(world), self.probe)

    def _make(self, step: MakingStep) -> None:
        """Carry out a step, and keep what its calls say. Raises DriverError."""
        values = dict(step.values)
        for call in step.calls:
            answer = self.call(call, replace(step, values=values))
            if isinstance(answer, str):
                raise DriverError(f"{step.what} cannot be made: {answer} (`--clean` removes what an earlier test left)")
            self._made.add(step.what)
            values |= self._keep(step.what, call, answer)
        lifecycle = self._names.lifecycle(step)
        if lifecycle is not None and set(lifecycle.kept) - set(self._names.kept.get(step.what, {})):
            self._find(step, lifecycle)

    def _find(self, step: MakingStep, lifecycle: Lifecycle) -> bool:
        """Keep of an existing object what its making keeps; returns whether it is there. Raises DriverError."""
        for call in lifecycle.find:
            answer = self.call(call, replace(step, calls=lifecycle.find), absent_is_done=True)
            if isinstance(answer, str):
                raise DriverError(f"{step.what} cannot be found: {answer}")
            if answer is None:
                return False
            self._keep(step.what, call, answer)
        missing = set(lifecycle.kept) - set(self._names.kept.get(step.what, {}))
        if missing:
            raise DriverError(f"{step.what}: no answer has `{min(missing)}`")
        return True

    def _keep(self, what: str, call: Call, answer: bytes | None) -> Mapping[str, str]:
        """Keep of an answer what a call says. Raises DriverError if the answer does not have it, and the call made something."""
        found = {} if answer is None else kept_of(call, answer)
        if found:
            self._names.kept.setdefault(what, {}).update(found)
        return found

    def clean(self) -> tuple[str, ...]:
        """As Driver.clean."""
        if self._world is None:
            return ()
        left = self._removed(step for step in self._names.removing(self._world) if step().what in self._made)
        return left if self.file is None else (*left, *self.file.restore())

    def clean_world(self, world: World) -> tuple[str, ...]:
        """As Driver.clean_world."""
        return self._removed(self._names.removing(world))

    def _removed(self, steps: Iterable[Planned]) -> tuple[str, ...]:
        """Carry out the steps of a removal; returns the remains, with reasons."""
        self.disconnect()
        left: list[str] = []
        for planned in steps:
            step = planned()
            lifecycle = self._names.lifecycle(step)
            problems: list[str] = []
            try:
                if step.calls and lifecycle is not None and lifecycle.find and step.what not in self._names.kept:
                    if not self._find(step, lifecycle):
                        continue
                    step = planned()
                answers = [self.call(call, step, absent_is_done=True) for call in step.calls]
                problems += [answer for answer in answers if isinstance(answer, str)]
            except DriverError as error:
                problems.append(str(error))
            left += [f"{step.what}: {problem}" for problem in problems]
        self.disconnect()
        return tuple(left)

    def message(self, request: Request) -> str:
        """As Driver.message."""
        return self._said.get(str(request.to_json()), "")

    def broken(self, request: Request, message: str) -> SystemAnswer:
        """The answer to a request that was neither allowed nor refused; keeps the system's message."""
        self._said[str(request.to_json())] = message
        return SystemAnswer.BROKEN

    def operation(self, request: Request) -> Operation | None:
        """The operation by which a request is asked; None if it cannot be asked. Without the last name, only a listing can be asked.

        A request that names groups or active roles cannot be asked either, since no call can say so.
        """
        operation = self._document.operations.get((request.resource.type, request.action))
        if request.groups or request.active_roles is not None:
            return None
        if operation is None or (operation.shows is None and not self.is_named(request)):
            return None
        return operation

    def is_named(self, request: Request) -> bool:
        """Return whether a request names its resource, rather than only its container."""
        return vocabulary(self._program).complete(request.resource)

    def values(self, request: Request) -> Mapping[str, object]:
        """The values of the placeholders of an operation."""
        return self._names.request(request)

    def undo(self, request: Request, operation: Operation, kept: Mapping[str, str]) -> None:
        """Undo what an allowed question changed. Raises DriverError if that fails, since every further answer is then of another state."""
        step = MakingStep(
            what=str(request.resource),
            calls=operation.restore,
            values={**self._names.request(request), **kept},
            at=request.resource,
        )
        for call in operation.restore:
            answer = self.call(call, step)
            if isinstance(answer, str):
                raise DriverError(f"what `{request.action}` changed on {request.resource} cannot be undone: {answer}")

    def call(self, call: Call, step: MakingStep, *, absent_is_done: bool = False) -> bytes | str | None:
        """Make or remove something as the administrator, for good; returns the answer, why that failed as text, or None for what is not there."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Close connections that would keep something from being removed."""


Values = Mapping[str, str]
_PASSWORD = "password"  # noqa: S105  (the word)
_KINDS = {"users": "user", "groups": "group", "roles": "role"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingStep:
    """One thing to make, with the calls for it, their values, and the entity that it is about."""

    what: str
    calls: Calls
    values: Values
    at: Entity | None = None
    outside: bool = False
    of: str = ""
    """The key of the document that makes it, for principals: `users`."""


Planned: TypeAlias = Callable[[], MakingStep]
"""A step whose values are filled in when it is carried out, since it may need what was kept of the steps before it."""


def _names(calls: Calls, *placeholders: str) -> bool:
    """Return whether calls have one of some placeholders, by their beginnings."""
    texts = [template.text for call in calls for template in call.templates]
    return any(beginning in text for beginning in placeholders for text in texts)


def _levels(program: Program, grants: Iterable[Grant]) -> Iterator[list[Grant]]:
    """The grants of each grantee on each entity, without those whose privilege another one implies."""
    held: dict[tuple[str, str, Entity], list[Grant]] = {}
    for grant in dict.fromkeys(grants):
        held.setdefault((grant.grantee, grant.effect, grant.entity), []).append(grant)
    for together in held.values():
        implied = {name for grant in together for name in program.privileges[grant.privilege].implies}
        yield [grant for grant in together if grant.privilege not in implied]


def kept_of(call: Call, answer: bytes) -> dict[str, str]:
    """What a call keeps of an answer, by name. Raises DriverError if the answer has no such text or number."""
    found: dict[str, str] = {}
    for name, path in call.keep:
        try:
            value = jmespath.search(path, strict_loads(answer))
        except (ValueError, jmespath.exceptions.JMESPathError):
            value = None
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise DriverError(
                f"the answer has no `{path}` to be kept as `{name}`: {answer[:200].decode(errors='replace')}"
            )
        found[name] = str(value)
    return found


class SystemNames:
    """Values as a system writes them; `written`: how it writes one name."""

    def __init__(self, program: Program, document: DriverDocument, written: Callable[[str], str]) -> None:
        self.program = program
        self._vocabulary = vocabulary(program)
        self._shapes = self._vocabulary.shapes
        self.document = document
        self._written = written
        self.password = secrets.token_hex(16)
        """The password of every created user; random, so that no one else can use these users."""
        self.kept: dict[str, dict[str, str]] = {}
        """What was kept of what was made, by `MakingStep.what`."""
        self._assumes = False

    @contextmanager
    def assuming(self) -> Iterator[SystemNames]:
        """Take it that everything is made, and that something was kept of it."""
        self._assumes = True
        try:
            yield self
        finally:
            self._assumes = False

    def fill(self, calls: Iterable[Call], values: Mapping[str, object]) -> None:
        """Fill in the placeholders of calls. Raises DriverError if there is no value for one."""
        told = dict(values)
        for call in calls:
            for template in call.templates:
                try:
                    template.plain(told)
                except TemplateError as error:
                    raise DriverError(f"{self.document.path}: {error}") from error
            told |= {name: name for name, _ in call.keep}

    def lifecycle(self, step: MakingStep) -> Lifecycle | None:
        """The entry of the document by which something is made; None for rows."""
        if step.of:
            return self.document.principals.get(step.of)
        return self.document.entities.get(step.at.type) if step.at is not None and step.what == str(step.at) else None

    def _kept(self, what: str, entry: Lifecycle | None) -> dict[str, str]:
        """What was kept of something that was made."""
        if self._assumes and entry is not None:
            return {name: name for name in entry.kept}
        return self.kept.get(what, {})

    def kept_principal(self, text: str) -> dict[str, str]:
        """What was kept of a principal, as in `user:alice`."""
        return self._kept(text, self.document.principals.get(f"{text.partition(':')[0]}s"))

    def entity(self, entity: Entity, before: str = "") -> dict[str, str]:
        """The names on the path of an entity, by type, and what was kept of these; the names of all levels of a type that nests are one text."""
        found: dict[str, list[str]] = {}
        for type_, name in zip(self._shapes[entity.type].types(entity.id), entity.decoded_names, strict=True):
            if name:
                found.setdefault(base_type(type_), []).append(self._written(name))
        values = {f"{before}{type_}": self.document.separator.join(names) for type_, names in found.items()}
        for key in self._vocabulary.keys(entity):
            kept = self._kept(key, self.document.entities.get(Entity.parse(key).type))
            values |= {f"{before}{name}": text for name, text in kept.items()}
        return values | {
            f"{before}{type_}_name": found[type_][-1] for type_ in found if self.program.entities[type_].nested
        }

    def request(self, request: Request) -> dict[str, str]:
        """The names in a request; objects of `with` as `slot_type`, flags as `true` and `false`.

        The caller is `caller`, and also `user` unless a type has that name.
        """
        values = self.entity(request.resource)
        for slot, entity in request.with_.items():
            values |= self.entity(entity, f"{slot}_")
        rule = self.program.rules[request.resource.type, request.action]
        values |= {flag: str(flag in request.flags).lower() for flag in rule.required_flags}
        caller = self._written(request.user)
        kept = self.kept_principal(f"user:{request.user}")
        return {"user": caller, **kept, **values, "caller": caller, "password": self.password}

    def principal(self, text: str) -> str:
        """A principal, as in `user:alice`."""
        return self._written(text.partition(":")[2])

    def creating(self, world: World) -> Iterator[Planned]:
        """The steps that create a world, in order; owners before grants, since a new owner takes over the grants of the old one."""
        yield from self._principals(world, ("users", "groups", "roles"), drop=False)
        for entity in world.entities:
            yield partial(self._entity, entity, drop=False)
        if self.document.state is None:
            yield from self._rows(world)

    def removing(self, world: World) -> Iterator[Planned]:
        """The steps that remove a world, in order."""
        for entity in reversed(world.entities):
            yield partial(self._entity, entity, drop=True)
        yield from self._principals(world, ("roles", "groups", "users"), drop=True)

    def removed(self, step: MakingStep) -> MakingStep:
        """The step that removes what another one made; without calls for rows, which go with what they are about."""
        if step.of:
            return self._principal(step.of, step.what.partition(":")[2], drop=True)
        if self.lifecycle(step) is not None and step.at is not None:
            return self._entity(step.at, drop=True)
        return replace(step, calls=())

    def _principals(self, world: World, kinds: Iterable[str], *, drop: bool) -> Iterator[Planned]:
        if self.document.state is None:
            named = {"users": world.users, "groups": world.groups, "roles": world.roles}
            yield from (partial(self._principal, kind, name, drop=drop) for kind in kinds for name in named[kind])

    def _principal(self, kind: str, name: str, *, drop: bool) -> MakingStep:
        entry = self.document.principals.get(kind)
        if entry is None:
            raise DriverError(f"{self.document.path} does not say how `{kind}` are made")
        what = f"{_KINDS[kind]}:{name}"
        values = {
            _KINDS[kind]: self._written(name),
            "password": self.password,
            **self._kept(what, entry if drop else None),
        }
        return MakingStep(what=what, calls=entry.drop if drop else entry.make, values=values, of=kind)

    def _entity(self, entity: Entity, *, drop: bool) -> MakingStep:
        entry = self.document.entities.get(entity.type)
        if entry is None:
            raise DriverError(f"{self.document.path} does not say how a `{entity.type}` is made")
        calls = entry.drop if drop else entry.make
        return MakingStep(what=str(entity), calls=calls, values=self.entity(entity), at=entity, outside=entry.outside)

    def _rows(self, world: World) -> Iterator[Planned]:
        state = world.state
        for user in state.service_admins:
            yield partial(self._row, "service_admins", None, user=f"user:{user}")
        for user, group in state.memberships:
            member = user if ":" in user else f"user:{user}"
            yield partial(self._row, "memberships", None, user=member, group=f"group:{group}")
        for user, of in state.members:
            yield partial(self._row, "members", of, user=f"user:{user}")
        for row in state.assignments:
            yield partial(self._row, "assignments", row.scope, principal=row.principal, role=f"role:{row.role}")
        for owned, owner in state.owners:
            yield partial(self._row, "owners", owned, owner=owner)
        separately = ([grant] for grant in state.grants)
        for grants in _levels(self.program, state.grants) if self.document.levels else separately:
            yield partial(self._grant, *grants)

    def _grant(self, grant: Grant, *others: Grant) -> MakingStep:
        """The step that makes a grant. Raises DriverError for others on the same entity, where privileges are levels."""
        if others:
            raise DriverError(f"{grant.grantee} cannot have more than one level on {grant.entity}")
        effect = {"effect": grant.effect, "EFFECT": grant.effect.upper(), "privilege": grant.privilege}
        more = effect | dict(self.document.privileges.get(grant.privilege, {}))
        step = self._row("grants", grant.entity, more, grantee=grant.grantee)
        if grant.effect == "deny" and not _names(step.calls, "{effect", "{EFFECT"):
            raise self._lost(f"a denial on a `{grant.entity.type}` would be a grant", "`{effect}` or `{EFFECT}`")
        return step

    def _lost(self, what: str, needed: str) -> DriverError:
        return DriverError(f"{self.document.path}: {what}: its calls need {needed}")

    def _row(
        self, table: str, entity: Entity | None, more: Mapping[str, str] | None = None, **principals: str
    ) -> MakingStep:
        """The step that makes a row. `principals`: its principals with their kinds, by column; `more`: its other values."""
        type_ = entity.type if entity is not None and (table, "") not in self.document.rows else ""
        calls = self.document.rows.get((table, type_))
        if calls is None:
            about = f" on a `{type_}`" if type_ else ""
            raise DriverError(f"{self.document.path} does not say how a row of `{table}`{about} is made")
        if (
            table == "assignments"
            and entity is not None
            and entity.id
            and not _names(calls, f"{{{base_type(entity.type)}")
        ):
            raise self._lost(f"a role within a `{entity.type}` would be held everywhere", f"`{{{entity.type}}}`")
        values = {column: self.principal(text) for column, text in principals.items()} | dict(more or {})
        kept = {
            name: text for principal in principals.values() for name, text in self.kept_principal(principal).items()
        }
        kind = next(iter(principals.values())).partition(":")[0]
        names = {} if entity is None else self.entity(entity)
        on = "" if entity is None else f" on {entity}"
        filled = {"after": " ", **names, **kept, **values, "kind": kind}
        return MakingStep(what=f"{table}: {values}{on}", calls=calls, values=filled, at=entity)
