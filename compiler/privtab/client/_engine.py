"""The protocol of engines, OPA or in process, and the flows that share logic between synchronous and asynchronous clients.

A *flow* is a generator that yields its next step as a function without arguments and is sent the result. `run` calls the
step, `arun` also awaits it, and both run a flow that it returns, so that retries, checks and batching are written only once.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from operator import methodcaller
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

from privtab.base.request import Decision, Entity, Request
from privtab.base.sql_text import AppliedFilter
from privtab.base.vocabulary import OperationShape
from privtab.client._protocol import ActiveSystem, Revision

if TYPE_CHECKING:
    from privtab.filters.filter import Filter

T = TypeVar("T")

Flow: TypeAlias = Generator[Callable[[], Any], Any, T]
"""Logic that leaves IO and waiting to `run` or `arun`."""
Eventual: TypeAlias = T | Flow[T] | Awaitable[T]
"""The return value of a step: its result, or the source from which `run` or `arun` gets it."""


class ClientEngine(Protocol):
    """The engine of a client: OPA, or an engine in process. Callers check the names in requests against `active_system()`.

    Every method but `close` and `healthy` may raise PolicyError (the answer is not a decision) and DecisionUnavailable (no
    answer). They are called as steps of flows.
    """

    @property
    def name(self) -> str:
        """The name in logs: `opa` or `python`."""

    @property
    def circuit(self) -> str | None:
        """`closed`, `open` or `half-open`; None for engines in process."""

    def active_system(self) -> Eventual[ActiveSystem]:
        """The vocabulary and the revision of the active policy; cheap, kept current by the engine."""

    def newer(self, active: ActiveSystem) -> Eventual[ActiveSystem]:
        """The vocabulary after another check, for a name that `active` lacks; `active` itself if nothing is newer."""

    def allow(self, request: Request) -> Eventual[bool]:
        """Return whether the request is allowed."""

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> Eventual[list[bool]]:
        """Return whether each request is allowed, by position; `shapes` are the shapes of the requests' operations."""

    def decide(self, request: Request) -> Eventual[Decision]:
        """The decision with its explanation."""

    def decide_many(self, requests: Sequence[Request]) -> Eventual[list[Decision]]:
        """Decisions with explanations, by position."""

    def visible(self, request: Request, items: Sequence[Entity]) -> Eventual[list[int]]:
        """The positions of the allowed items, ascending; of the request's resource only the type counts."""

    def filter(self, request: Request) -> Eventual[Filter]:
        """The filter of the entities of the resource's type on which the request is allowed; the entity that it names does not count."""

    def applied(self, requests: Sequence[Request]) -> Eventual[list[AppliedFilter]]:
        """The row filter or column mask that applies to each request, whose action is the kind, by position."""

    def revision(self) -> Eventual[Revision]:
        """The active revisions."""

    def healthy(self) -> Eventual[bool]:
        """Return whether the engine can answer now; never raises."""

    def close(self) -> Eventual[None]:
        """Release all resources."""


def run(flow: Flow[T]) -> T:
    """Run a flow to its end and return its result."""
    send, throw = flow.send, flow.throw
    try:
        step = send(None)
        while True:
            try:
                value = step()
                if type(value) is GeneratorType:
                    value = run(value)
            except BaseException as error:  # noqa: BLE001  (the flow decides what an error means)
                step = throw(error)
            else:
                step = send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def arun(flow: Flow[T]) -> T:
    """Run a flow to its end, awaiting steps that return awaitables, and return its result."""
    send, throw = flow.send, flow.throw
    try:
        step = send(None)
        while True:
            try:
                value = step()
                if type(value) is GeneratorType:
                    value = await arun(value)
                elif isinstance(value, Awaitable):
                    value = await value
            except BaseException as error:  # noqa: BLE001  (the flow decides what an error means)
                step = throw(error)
            else:
                step = send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


# --- locks after a fork: one held by another thread would never be released in the child ---


class ForkSafeLocks(Protocol):
    """An object with locks."""

    def after_fork(self) -> None:
        """Replace the locks; called in the child process."""


_HOLDERS: WeakSet[ForkSafeLocks] = WeakSet()


def renew_after_fork(holder: ForkSafeLocks) -> None:
    """Call `holder.after_fork()` in processes forked from now on."""
    _HOLDERS.add(holder)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [*map(methodcaller("after_fork"), _HOLDERS)])
