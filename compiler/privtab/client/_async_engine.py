"""The engine `opa` for asyncio. Checks that begin together share one exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from copy import copy
from typing import TYPE_CHECKING, TypeVar

from privtab.client._engine import Flow, arun
from privtab.client._observe import CURRENT, CallContext
from privtab.client._opa import OpaFlows
from privtab.client._protocol import ActiveSystem, Inactive, Revision
from privtab.errors import InvalidRequest, PolicyError, PrivtabError
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import OperationShape

if TYPE_CHECKING:
    from privtab.client._transport import AsyncTransport

T = TypeVar("T")


class AsyncDriver:
    """IO in an event loop."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.post = transport.post
        self.get = transport.get
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Wait."""
        return asyncio.sleep(seconds)

    async def acquire(self, seconds: float) -> bool:
        """Take the lock within `seconds`; returns whether it was taken."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # A lock belongs to one event loop; a lock of a loop that has ended is free.
            self._loop, self._lock = loop, asyncio.Lock()
        try:
            async with asyncio.timeout(seconds):
                return await self._lock.acquire()
        except TimeoutError:
            return False

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    async def run_all(self, flows: Iterator[Flow[None]], limit: int) -> None:
        """Run flows, at most `limit` at once; the first error stops them all."""

        async def work() -> None:
            for flow in flows:
                await arun(flow)

        workers = [asyncio.create_task(work()) for _ in range(limit)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


class AsyncOpaEngine:
    """The engine `opa` over an asynchronous transport."""

    name = "opa"

    def __init__(self, flows: OpaFlows, transport: AsyncTransport, window: float) -> None:
        self._flows = flows
        self._transport = transport
        self._window = window
        self._reset()

    def _reset(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_PendingCheck] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def active_system(self) -> ActiveSystem:
        """As ClientEngine.active_system."""
        active = self._flows.current()
        return active if active is not None else await arun(self._flows.active_system())

    async def newer(self, active: ActiveSystem) -> ActiveSystem:
        """As ClientEngine.newer."""
        return await arun(self._flows.newer(active))

    async def allow(self, request: Request) -> bool:
        """As ClientEngine.allow."""
        if self._window < 0:
            return await arun(self._flows.allow(request))
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._reset()
            self._loop = loop
        waiting = _PendingCheck(request, loop.create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            if self._window:
                loop.call_later(self._window, self._send_waiting)
            else:
                loop.call_soon(self._send_waiting)
        answer = await waiting.answer
        if waiting.context is not None:
            waiting.context.ids.extend(waiting.ids)
            if waiting.cached:
                waiting.context.cached.append(0)
        return answer

    async def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape]) -> list[bool]:
        """As ClientEngine.allow_many."""
        return await arun(self._flows.allow_many(requests, shapes))

    async def decide(self, request: Request) -> Decision:
        """As ClientEngine.decide."""
        return await arun(self._flows.decide(request))

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As ClientEngine.decide_many."""
        return await arun(self._flows.decide_many(requests))

    async def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """As ClientEngine.visible."""
        return await arun(self._flows.visible(request, items))

    async def revision(self) -> Revision:
        """As ClientEngine.revision."""
        return await arun(self._flows.revision())

    async def healthy(self) -> bool:
        """As ClientEngine.healthy."""
        return await arun(self._flows.healthy())

    async def close(self) -> None:
        """As ClientEngine.close."""
        if self._tasks and self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._transport.close()

    # --- checks that begin together ---

    def _send_waiting(self) -> None:
        """Send all waiting checks."""
        waiting, self._waiting = [check for check in self._waiting if not check.answer.done()], []
        if waiting:
            task = asyncio.get_running_loop().create_task(self._answer(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, waiting: Sequence[_PendingCheck]) -> None:
        context = CallContext()
        deadlines = [
            check.context.deadline
            for check in waiting
            if check.context is not None and check.context.deadline is not None
        ]
        context.deadline = min(deadlines, default=None)
        CURRENT.set(context)
        try:
            if len(waiting) == 1:
                answers = [await arun(self._flows.allow(waiting[0].request))]
            else:
                answers = await arun(self._flows.allow_together([check.request for check in waiting]))
        except (PolicyError, InvalidRequest, Inactive) as error:
            if len(waiting) == 1:
                waiting[0].fail(error)
                return
            # One of the requests may be invalid or lack its shard; the others must not fail with it.
            await asyncio.gather(*(self._answer([check]) for check in waiting))
        except BaseException as error:
            for check in waiting:
                check.fail(error)
            if not isinstance(error, PrivtabError):
                raise
        else:
            cached = set(context.cached)
            for index, (check, answer) in enumerate(zip(waiting, answers, strict=True)):
                check.ids, check.cached = context.ids, index in cached
                if not check.answer.done():
                    check.answer.set_result(answer)


class _PendingCheck:
    """A check waiting for its answer."""

    __slots__ = ("answer", "cached", "context", "ids", "request")

    def __init__(self, request: Request, answer: asyncio.Future[bool]) -> None:
        self.request = request
        self.answer = answer
        self.context = CURRENT.get()
        self.ids: list[str] = []
        self.cached = False

    def fail(self, error: BaseException) -> None:
        """Set a copy of the error, since each caller adds its own traceback."""
        if not self.answer.done():
            self.answer.set_exception(copy(error))
