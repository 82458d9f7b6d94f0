"""The asynchronous client of an OPA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from privtab.client import _config
from privtab.client import sync as shared
from privtab.client._asking import ClientFlows, Mode
from privtab.client._async_engine import AsyncDriver, AsyncOpaEngine
from privtab.client._base import Status
from privtab.client._config import AsyncArguments, Settings
from privtab.client._engine import Flow, arun
from privtab.client._observe import CURRENT, CallContext, HookLike, Observer
from privtab.client._opa import OpaFlows
from privtab.client._protocol import Details, EntityLike, Revision
from privtab.client._transport import AsyncTransport
from privtab.effects import Effect
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

T = TypeVar("T")


class AsyncClient:
    """Client for asyncio: the same methods, answers and errors, as coroutines. Needs the extra `async`.

    `check`s that begin in the same iteration of the event loop, or within `batch_window` seconds, share one exchange;
    `batch_window="off"` sends each separately.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        hooks: Sequence[HookLike] = (),
        transport: AsyncTransport | None = None,
        **arguments: Unpack[AsyncArguments],
    ) -> None:
        settings = _config.resolve(arguments, AsyncArguments, url=url)
        observer = Observer(hooks)
        self._settings = settings
        self._transport = transport or _transport(settings, observer)
        self._resilience = shared.resilience(settings)
        flows = OpaFlows(
            AsyncDriver(self._transport), shared.opa_settings(settings), self._resilience, shared.cache(settings)
        )
        self._engine = AsyncOpaEngine(flows, self._transport, settings["batch_window"])
        self._client_flows = ClientFlows(self._engine, settings["mode"], observer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return shared.client_repr(self, self._settings, self._transport, self._resilience.breaker)

    async def close(self) -> None:
        """Release the connections."""
        await self._engine.close()

    aclose = close

    @property
    def mode(self) -> Mode:
        """How answers are enforced."""
        return self._client_flows.mode

    async def system(self) -> str:
        """The name of the system; read from OPA if it was not given."""
        return self._settings["system"] or (await self._engine.active_system()).system

    async def health(self) -> bool:
        """Whether OPA answers and all of its bundles are active; False if it does not answer."""
        return await self._engine.healthy()

    async def status(self) -> Status:
        """Health, mode and circuit; never raises."""
        return Status(healthy=await self.health(), mode=self.mode, engine="opa", circuit=self._resilience.breaker.state)

    async def revision(self) -> Revision:
        """The active revisions of the policy and the state; None for one that is not active."""
        return await self._engine.revision()

    async def vocabulary(self) -> Vocabulary:
        """As Client.vocabulary."""
        return (await self._engine.active_system()).vocabulary

    # --- one request ---

    async def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> bool:
        """As Client.check."""
        return await self._run(self._client_flows.check(user, action, resource, **details))

    async def decide(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """As Client.decide."""
        return await self._run(self._client_flows.decide(user, action, resource, **details))

    explain = decide

    async def require(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """As Client.require."""
        return await self._run(self._client_flows.require(user, action, resource, **details))

    async def effects(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> tuple[Effect, ...]:
        """As Client.effects."""
        return await self._run(self._client_flows.effects(user, action, resource, **details))

    # --- many ---

    async def check_many(self, requests: Iterable[Request]) -> list[bool]:
        """As Client.check_many."""
        return await self._run(self._client_flows.check_many(requests))

    async def decide_many(self, requests: Iterable[Request]) -> list[Decision]:
        """As Client.decide_many."""
        return await self._run(self._client_flows.decide_many(requests))

    async def visible(
        self,
        user: str,
        action: str,
        type_or_items: str | Iterable[T],
        items: Iterable[T] | None = None,
        **details: Unpack[Details],
    ) -> list[T]:
        """As Client.visible."""
        return await self._run(self._client_flows.visible(user, action, type_or_items, items, **details))

    async def filter(
        self,
        user: str,
        action: str,
        items: Iterable[T],
        *,
        key: Callable[[T], EntityLike] | None = None,
        **details: Unpack[Details],
    ) -> list[T]:
        """As Client.filter."""
        return await self._run(self._client_flows.filter(user, action, items, key, **details))

    # --- private ---

    async def _run(self, flow: Flow[T]) -> T:
        token = CURRENT.set(CallContext())
        try:
            return await arun(flow)
        finally:
            CURRENT.reset(token)

    def __getstate__(self) -> dict[str, Any]:
        """Raise TypeError: an AsyncClient belongs to its event loop."""
        raise TypeError("an AsyncClient cannot be pickled: make one where it is used")


def _transport(settings: Settings, observer: Observer) -> AsyncTransport:
    from privtab.client._async_http import AsyncHttpTransport

    return AsyncHttpTransport(
        settings["url"],
        token=settings["token"],
        token_file=settings["token_file"],
        verify=settings["verify"],
        cert=settings["cert"],
        pool_size=settings["pool_size"],
        max_body=settings["max_body"],
        headers=observer.headers if observer.hooks else None,
    )
