"""Shared by drivers that read a document: create a world call by call, and remove what was created."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.conform.document import Call, DriverDocument, Operation
from privtab.conform.driver import Driver
from privtab.conform.nodes import Answer, World
from privtab.conform.values import Step, SystemNames
from privtab.errors import DriverError
from privtab.ir.nodes import Program, Rule
from privtab.ir.serialise import vocabulary
from privtab.request import Request


class DocumentedDriver(Driver):
    """A driver that does what a document says."""

    gives_attributes = False
    odd_names = False

    def __init__(self, document: DriverDocument, program: Program, names: SystemNames) -> None:
        self._document = document
        self._program = program
        self._names = names
        self.through_roles = "roles" in document.principals
        groups = document.principals.get("groups")
        self.through_groups = groups is not None and bool(groups.make)  # otherwise they are those that there always are
        self._world: World | None = None
        self._made: set[str] = set()
        """What this test has made, at least in part: nothing else is removed."""
        self._said: dict[str, str] = {}

    def asks(self, rule: Rule) -> bool:
        """As Driver.asks: what the document names."""
        return (rule.entity, rule.operation) in self._document.operations

    def changes(self, rule: Rule) -> bool:
        """As Driver.changes: what the document says; over HTTP, otherwise, whatever is not a GET or a HEAD."""
        operation = self._document.operations.get((rule.entity, rule.operation))
        return operation is not None and operation.changes

    def makes(self, world: World) -> bool:
        """As Driver.makes: whether the document says how."""
        try:
            return all(True for _ in self._names.creation(world))
        except DriverError:
            return False

    def calls(self, world: World) -> int:
        """As Driver.calls."""
        return sum(len(step.calls) for step in self._names.creation(world))

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

    def clean(self) -> tuple[str, ...]:
        """As Driver.clean."""
        if self._world is None:
            return ()
        return self._removed(step for step in self._names.removal(self._world) if step.what in self._made)

    def clean_world(self, world: World) -> tuple[str, ...]:
        """As Driver.clean_world."""
        return self._removed(self._names.removal(world))

    def _removed(self, steps: Iterable[Step]) -> tuple[str, ...]:
        """Carry out the steps of a removal; returns what could not be removed, and why."""
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

    def broken(self, request: Request, message: str) -> Answer:
        """The answer to a request that was neither allowed nor refused; keeps what the system said."""
        self._said[str(request.to_json())] = message
        return Answer.BROKEN

    def operation(self, request: Request) -> Operation | None:
        """How a request is asked; None if it cannot be: a request without the last name only of what shows a listing."""
        operation = self._document.operations.get((request.resource.type, request.action))
        if operation is None or (operation.shows is None and not self.is_named(request)):
            return None
        return operation

    def is_named(self, request: Request) -> bool:
        """Whether a request names its resource, rather than only what contains it."""
        return vocabulary(self._program).complete(request.resource)

    def call(self, call: Call, step: Step, *, absent_is_done: bool = False) -> str | None:
        """Make or remove something as the administrator, for good; returns why that failed, if it did."""
        raise NotImplementedError

    def disconnect(self) -> None:
        """Close connections that would keep something from being removed."""
