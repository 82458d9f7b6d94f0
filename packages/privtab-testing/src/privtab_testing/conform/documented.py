"""Shared by drivers that read a document: create a world call by call, and remove what was created."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping

from privtab.base import Entity, Request, base_type, dataclass
from privtab.ir import Program, Rule, vocabulary
from privtab.state import State
from privtab_testing.conform import SystemAnswer, World
from privtab_testing.conform.document import Call, Calls, DriverDocument, Operation
from privtab_testing.conform.driver import Driver, DriverError, StateFile


class DocumentedDriver(Driver):
    """A driver that follows a document."""

    gives_attributes = False
    odd_names = False

    def __init__(
        self, document: DriverDocument, program: Program, names: SystemNames, file: StateFile | None = None
    ) -> None:
        """`file`: where the system reads its state from, if the document has no calls for it."""
        self._document = document
        self._program = program
        self._names = names
        self.file = file
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
        return operation is not None and operation.changes

    @property
    def there(self) -> frozenset[str]:
        """As Driver.there: entities that no call makes, and that do not come with their container."""
        entries, entities = self._document.entities, self._program.entities
        return frozenset(type_ for type_ in entries if not entries[type_].make and entities[type_].parent is None)

    def makes(self, world: World) -> bool:
        """As Driver.makes: whether the document says how."""
        try:
            return all(True for _ in self._names.creation(world))
        except DriverError:
            return False

    def calls(self, world: World) -> int:
        """As Driver.calls."""
        return sum(len(step.calls) for step in self._names.creation(world)) + (self.file is not None)

    def state(self, world: World) -> State:
        """As Driver.state: with the rows of the document."""
        return world.state if self._document.state is None else State.merged((self._document.state, world.state))

    def prepare(self, world: World) -> None:
        """As Driver.prepare."""
        steps = list(self._names.creation(world))
        self._world = world
        for step in steps:
            for call in step.calls:
                problem = self.call(call, step)
                if problem is not None:
                    raise DriverError(
                        f"{step.what} cannot be made: {problem} (`--clean` removes what an earlier test left)"
                    )
                self._made.add(step.what)
        self.disconnect()
        if self.file is not None:
            self.file.replace(self.state(world), self.probe)

    def clean(self) -> tuple[str, ...]:
        """As Driver.clean."""
        if self._world is None:
            return ()
        left = self._removed(step for step in self._names.removal(self._world) if step.what in self._made)
        return left if self.file is None else (*left, *self.file.restore())

    def clean_world(self, world: World) -> tuple[str, ...]:
        """As Driver.clean_world."""
        return self._removed(self._names.removal(world))

    def _removed(self, steps: Iterable[MakingStep]) -> tuple[str, ...]:
        """Carry out the steps of a removal; returns the remains, with reasons."""
        self.disconnect()
        left: list[str] = []
        for step in steps:
            try:
                problems = [self.call(call, step, absent_is_done=True) for call in step.calls]
            except DriverError as error:
                problems = [str(error)]
            left += [f"{step.what}: {problem}" for problem in problems if problem is not None]
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

    def call(self, call: Call, step: MakingStep, *, absent_is_done: bool = False) -> str | None:
        """Make or remove something as the administrator, for good; returns why that failed, if it did."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Close connections that would keep something from being removed."""


Values = Mapping[str, str]
_KINDS = {"users": "user", "groups": "group", "roles": "role"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MakingStep:
    """One thing to make, with the calls for it, their values, and the entity that it is about."""

    what: str
    calls: Calls
    values: Values
    at: Entity | None = None
    outside: bool = False


class SystemNames:
    """Values as a system writes them; `written`: how it writes one name."""

    def __init__(self, program: Program, document: DriverDocument, written: Callable[[str], str]) -> None:
        self.program = program
        self._shapes = vocabulary(program).shapes
        self.document = document
        self._written = written
        self.password = secrets.token_hex(16)
        """The password of every created user; random, so that no one else can use these users."""

    def entity(self, entity: Entity, before: str = "") -> dict[str, str]:
        """The names on the path of an entity, by type; the names of all levels of a type that nests are one text."""
        found: dict[str, list[str]] = {}
        for type_, name in zip(self._shapes[entity.type].types(entity.id), entity.decoded_names, strict=True):
            if name:
                found.setdefault(base_type(type_), []).append(self._written(name))
        values = {f"{before}{type_}": self.document.separator.join(names) for type_, names in found.items()}
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
        return {"user": caller, **values, "caller": caller, "password": self.password}

    def principal(self, text: str) -> str:
        """A principal, as in `user:alice`."""
        return self._written(text.partition(":")[2])

    def creation(self, world: World) -> Iterator[MakingStep]:
        """The steps that create a world, in order; owners before grants, since a new owner takes over the grants of the old one."""
        yield from self._principals(world, ("users", "groups", "roles"), drop=False)
        for entity in world.entities:
            yield self._entity(entity, drop=False)
        if self.document.state is None:
            yield from self._rows(world)

    def removal(self, world: World) -> Iterator[MakingStep]:
        """The steps that remove a world, in order."""
        for entity in reversed(world.entities):
            yield self._entity(entity, drop=True)
        yield from self._principals(world, ("roles", "groups", "users"), drop=True)

    def _principals(self, world: World, kinds: Iterable[str], *, drop: bool) -> Iterator[MakingStep]:
        if self.document.state is None:
            named = {"users": world.users, "groups": world.groups, "roles": world.roles}
            yield from (self._principal(kind, name, drop=drop) for kind in kinds for name in named[kind])

    def _principal(self, kind: str, name: str, *, drop: bool) -> MakingStep:
        entry = self.document.principals.get(kind)
        if entry is None:
            raise DriverError(f"{self.document.path} does not say how `{kind}` are made")
        what = f"{_KINDS[kind]}:{name}"
        values = {_KINDS[kind]: self._written(name), "password": self.password}
        return MakingStep(what=what, calls=entry.drop if drop else entry.make, values=values)

    def _entity(self, entity: Entity, *, drop: bool) -> MakingStep:
        entry = self.document.entities.get(entity.type)
        if entry is None:
            raise DriverError(f"{self.document.path} does not say how a `{entity.type}` is made")
        calls = entry.drop if drop else entry.make
        return MakingStep(what=str(entity), calls=calls, values=self.entity(entity), at=entity, outside=entry.outside)

    def _rows(self, world: World) -> Iterator[MakingStep]:
        state = world.state
        for user in state.service_admins:
            yield self._row("service_admins", None, {"user": self._written(user)})
        for user, group in state.memberships:
            yield self._row("memberships", None, {"user": self._written(user), "group": self._written(group)})
        for user, of in state.members:
            yield self._row("members", of, {"user": self._written(user)})
        for row in state.assignments:
            values = {"principal": self.principal(row.principal), "role": self._written(row.role)}
            yield self._row("assignments", row.scope, values)
        for owned, owner in state.owners:
            yield self._row("owners", owned, {"owner": self.principal(owner)})
        for grant in state.grants:
            effect = {"effect": grant.effect, "EFFECT": grant.effect.upper()}
            values = {"grantee": self.principal(grant.grantee), **effect, "privilege": grant.privilege}
            yield self._row("grants", grant.entity, values | dict(self.document.privileges.get(grant.privilege, {})))

    def _row(self, table: str, entity: Entity | None, values: dict[str, str]) -> MakingStep:
        type_ = entity.type if entity is not None and (table, "") not in self.document.rows else ""
        calls = self.document.rows.get((table, type_))
        if calls is None:
            about = f" on a `{type_}`" if type_ else ""
            raise DriverError(f"{self.document.path} does not say how a row of `{table}`{about} is made")
        names = {} if entity is None else self.entity(entity)
        return MakingStep(what=f"{table}: {values}", calls=calls, values={"after": " ", **names, **values}, at=entity)
