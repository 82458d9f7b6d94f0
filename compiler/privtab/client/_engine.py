"""The protocol of engines, OPA or in process, and the flows that share logic between synchronous and asynchronous clients.

A *flow* is a generator that yields its next step as a function without arguments and is sent the result. `run` calls the
step, `arun` also awaits it, so that retries, checks and batching are written only once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from privtab.client._protocol import ActiveSystem, Revision
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import OperationShape

T = TypeVar("T")

Flow: TypeAlias = Generator[Callable[[], Any], Any, T]
"""Logic that leaves IO and waiting to `run` or `arun`."""


class ClientEngine(Protocol):
    """The engine of a client: OPA, or an engine in process. Callers check the names in requests against `active_system()`.

    Every method but `close` and `healthy` may raise PolicyError (the answer is not a decision) and DecisionUnavailable (no
    answer).
    """

    @property
    def name(self) -> str:
        """The name in logs: `opa` or `python`."""

    def active_system(self) -> ActiveSystem:
        """The vocabulary and the revision of the active policy; cheap, kept current by the engine."""

    def newer(self, active: ActiveSystem) -> ActiveSystem:
        """The vocabulary after another check, for a name that `active` lacks; `active` itself if nothing is newer."""

    def allow(self, request: Request) -> bool:
        """Whether the request is allowed."""

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> list[bool]:
        """Whether each request is allowed, by position; `shapes` are those of the requests' operations."""

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the allowed items, ascending; of the request's resource only the type counts."""

    def revision(self) -> Revision:
        """The active revisions."""

    def healthy(self) -> bool:
        """Whether the engine can answer now; never raises."""

    def close(self) -> None:
        """Release all resources."""


def run(flow: Flow[T]) -> T:
    """Run a flow to its end and return its result."""
    send, throw = flow.send, flow.throw
    try:
        step = send(None)
        while True:
            try:
                value = step()
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
                if isinstance(value, Awaitable):
                    value = await value
            except BaseException as error:  # noqa: BLE001  (the flow decides what an error means)
                step = throw(error)
            else:
                step = send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result
