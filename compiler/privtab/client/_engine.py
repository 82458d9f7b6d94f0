"""What answers: one protocol for OPA over a wire and for engines in process, and how one text of logic drives both kinds.

The logic of asking is written once, as *flows*: generators that yield what has to be done next as a function without
arguments and are sent its result. `run` does it in place, `arun` awaits it. So neither retries nor checks nor batches are
written twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from privtab.client._protocol import Known, Revision
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import OperationShape

T = TypeVar("T")

Flow: TypeAlias = Generator[Callable[[], Any], Any, T]
"""Logic whose waiting is done by whoever runs it."""


class ClientEngine(Protocol):
    """What a client asks: an engine in process or an OPA, which keeps itself current. Names were checked by `known()`.

    Every method but `close` and `healthy` may raise PolicyError (no decision came) and DecisionUnavailable (nobody answered).
    """

    @property
    def name(self) -> str:
        """For logs: `opa`, `python`, `wasm`."""

    def known(self) -> Known:
        """The names and the revision of the policy that is active; cheap, kept current by the engine."""

    def newer(self, known: Known) -> Known:
        """The names after one more look, since a request has one that `known` lacks; `known` itself where nothing is newer."""

    def allow(self, request: Request) -> bool:
        """Yes or no."""

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> list[bool]:
        """Yes or no by position; `shapes` are those of the requests' operations."""

    def decide(self, request: Request) -> Decision:
        """The answer with its explanation."""

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Answers with explanations, by position."""

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the items that pass, ascending; the request's resource gives the type alone."""

    def revision(self) -> Revision:
        """The revisions that are active now."""

    def healthy(self) -> bool:
        """Whether it could answer now; never raises."""

    def close(self) -> None:
        """Give everything back."""


def run(flow: Flow[T]) -> T:
    """Do what a flow asks for, in place; its result."""
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
    """Await what a flow asks for; its result. Steps are coroutine functions, or functions whose result is ready."""
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
