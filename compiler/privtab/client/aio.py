"""The asynchronous client of an OPA. Checks that begin together share one exchange."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from privtab.base.errors import InvalidRequest, PolicyError, PrivtabError
from privtab.base.request import Request
from privtab.client import _config
from privtab.client._arguments import Details, EntityLike
from privtab.client._asking import ClientFlows, Item, Mode, described_as
from privtab.client._config import AsyncArguments, Settings
from privtab.client._engine import Flow, arun
from privtab.client._http import HttpTransport, unavailable
from privtab.client._observe import CURRENT, CallContext, HookLike, Observer
from privtab.client._opa import OpaFlows
from privtab.client._protocol import Inactive
from privtab.client._transport import AsyncTransport, Timeout, total
from privtab.client.sync import client_repr, http_transport

P = ParamSpec("P")
T = TypeVar("T")

MOST_THREADS = 64
"""Most exchanges of a client at once; more would wait for Python's lock, not for OPA."""


def _awaited(
    flow: Callable[Concatenate[ClientFlows, P], Flow[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[object, None, T]]:
    """The coroutine that runs a flow, with its arguments and its docstring.

    With `Any` in its type, mypy would take what `gather` gives of several for `Any`.
    """

    @described_as(flow)
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        token = CURRENT.set(CallContext())
        try:
            return await arun(flow(self._client_flows, *args, **kwargs))
        finally:
            CURRENT.reset(token)

    return method


class AsyncClient:
    """Client for asyncio: the same methods, answers and errors, as coroutines.

    `check`s that begin in the same iteration of the event loop, or within `batch_window` seconds, share one exchange;
    `batch_window="off"` sends each separately. Threads wait for OPA in place of the event loop.

    Ask in a coroutine:

        async with AsyncClient("http://127.0.0.1:8181", system="lake") as client:
            await client.require("alice", "load", "table:m/c/s/t")
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        hooks: Sequence[HookLike] = (),
        transport: AsyncTransport | None = None,
        **arguments: Unpack[AsyncArguments],
    ) -> None:
        self._settings = settings = _config.resolve(arguments, AsyncArguments, url=url)
        observer = Observer(hooks)
        self._transport = transport or AsyncHttpTransport(http_transport(settings, observer))
        engine = AsyncOpaFlows(AsyncDriver(self._transport), settings)
        self._client_flows = ClientFlows(engine, settings["mode"], observer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return client_repr(self, self._settings, self._transport, self._client_flows)

    def __getstate__(self) -> dict[str, Any]:
        """Raise TypeError: an AsyncClient belongs to its event loop."""
        raise TypeError("an AsyncClient cannot be pickled: make one where it is used")

    @property
    def mode(self) -> Mode:
        """The mode that the client was created with."""
        return self._client_flows.mode

    async def system(self) -> str:
        """The name of the system; read from OPA if it was not given."""
        return self._settings["system"] or await self._system()

    _system = _awaited(ClientFlows.system)
    close = aclose = _awaited(ClientFlows.close)
    health = _awaited(ClientFlows.health)
    status = _awaited(ClientFlows.status)
    revision = _awaited(ClientFlows.revision)
    vocabulary = _awaited(ClientFlows.vocabulary)

    check = _awaited(ClientFlows.check)
    decide = explain = _awaited(ClientFlows.decide)
    require = _awaited(ClientFlows.require)
    effects = _awaited(ClientFlows.effects)

    check_many = _awaited(ClientFlows.check_many)
    decide_many = _awaited(ClientFlows.decide_many)
    visible = _awaited(ClientFlows.visible)
    row_filter = _awaited(ClientFlows.row_filter)
    column_masks = _awaited(ClientFlows.column_masks)
    if TYPE_CHECKING:

        async def filter(
            self,
            user: str,
            action: str,
            items: Iterable[Item],
            *,
            key: Callable[[Item], EntityLike] | None = None,
            **details: Unpack[Details],
        ) -> list[Item]:
            """The items on which `user` may do `action`, in their order."""
            ...
    else:
        filter = _awaited(ClientFlows.filter)


class AsyncHttpTransport:
    """Sends over an `HttpTransport` in threads. Usable in one event loop after another; a forked process starts its own threads."""

    def __init__(self, transport: HttpTransport) -> None:
        self.url = transport.url
        self._transport = transport
        self._pid: int | None = None

    def __repr__(self) -> str:
        return f"AsyncHttpTransport({self.url!r})"

    async def post(self, path: str, body: bytes, limits: Timeout) -> bytes:
        """Send a JSON body; returns the body of the answer."""
        return await self._in_thread(limits, self._transport.post, path, body, limits)

    async def get(self, path: str, limits: Timeout) -> bytes:
        """Read a path; returns the body of the answer."""
        return await self._in_thread(limits, self._transport.get, path, limits)

    async def close(self) -> None:
        """Close the connections; exchanges whose callers gave up end by themselves."""
        if self._pid == os.getpid():
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._pid = None
        self._transport.close()

    async def _in_thread(self, limits: Timeout, send: Callable[..., bytes], *arguments: Any) -> bytes:
        if self._pid != os.getpid():
            self._pid, self._threads = os.getpid(), ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="privtab")
        try:
            # The transport keeps to the deadline; waiting for a thread, and for the look-up of a name, counts too.
            async with asyncio.timeout(total(limits)):
                # In this context, from which hooks take the headers of a trace.
                exchange = copy_context().run
                return await asyncio.get_running_loop().run_in_executor(self._threads, exchange, send, *arguments)
        except TimeoutError as error:
            raise unavailable(self.url, error) from error


class AsyncDriver:
    """IO in an event loop."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.post = transport.post
        self.get = transport.get
        self.close = transport.close
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


class AsyncOpaFlows(OpaFlows):
    """The engine `opa` in an event loop."""

    def __init__(self, driver: AsyncDriver, settings: Settings) -> None:
        super().__init__(driver, settings)
        self._window: float = settings["batch_window"]
        self._reset()

    def _reset(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_PendingCheck] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def allow(self, request: Request) -> Flow[bool] | Awaitable[bool]:  # type: ignore[override]  # a step of flows
        """As ClientEngine.allow."""
        return super().allow(request) if self._window < 0 else self._allow_with_others(request)

    async def close(self) -> None:
        """As ClientEngine.close."""
        if self._tasks and self._loop is asyncio.get_running_loop():
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().close()

    # --- checks that begin together ---

    async def _allow_with_others(self, request: Request) -> bool:
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

    def _send_waiting(self) -> None:
        waiting, self._waiting = [check for check in self._waiting if not check.answer.done()], []
        if waiting:
            task = asyncio.get_running_loop().create_task(self._answer(waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, waiting: Sequence[_PendingCheck]) -> None:
        context = CallContext()
        deadlines = (check.context.deadline for check in waiting if check.context is not None)
        context.deadline = min((deadline for deadline in deadlines if deadline is not None), default=None)
        CURRENT.set(context)
        try:
            if len(waiting) == 1:
                answers = [await arun(super().allow(waiting[0].request))]
            else:
                answers = await arun(self.allow_together([check.request for check in waiting]))
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
