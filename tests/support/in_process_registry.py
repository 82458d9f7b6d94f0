"""A registry server that is called in process, without sockets and with real storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from privtab_server.registry import Registry
from privtab_server.registry.server.app import ServerState, application
from privtab_server.registry.server.feeds import Feeds
from privtab_server.registry.server.fleet import FleetTracker
from privtab_server.registry.server.kept_logs import KeptLogs
from privtab_server.serving.tokens import Tokens

POLICY, STATE = "/channels/dev/shop/policy.tar.gz", "/channels/dev/shop/state.tar.gz"


@asynccontextmanager
async def asking(
    registry: Registry, tokens: Tokens | None = None, kept_logs: KeptLogs | None = None, **more: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, ServerState]]:
    feeds = Feeds(registry, poll=0.05, **more)
    served = ServerState(feeds=feeds, fleet=FleetTracker(), tokens=tokens, kept_logs=kept_logs)
    app = application(served)
    started, finished = asyncio.Event(), asyncio.Event()

    async def receive() -> dict[str, str]:
        if not started.is_set():
            return {"type": "lifespan.startup"}
        await finished.wait()
        return {"type": "lifespan.shutdown"}

    async def send(message: Any) -> None:
        started.set()

    async def live() -> None:
        await app({"type": "lifespan"}, receive, send)

    life = asyncio.create_task(live())
    await started.wait()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://registry") as client:
        yield client, served
    finished.set()
    await life


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(0.01)


def within(registry: Registry, body: Callable[[httpx.AsyncClient, ServerState], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        async with asking(registry, **more) as (client, served):
            await body(client, served)

    asyncio.run(run())


def figure(served: ServerState, name: str, **labels: str) -> float | None:
    """The value of a metric."""
    return served.metrics.registry.get_sample_value(f"privtab_registry_{name}", labels)


def waiting(served: ServerState) -> float | None:
    """The number of open long polls."""
    return figure(served, "long_polls")
