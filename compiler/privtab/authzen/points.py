"""PDPs for a server in an event loop: bundles in process, or an OPA."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from privtab.authzen.directory import Directory
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

if TYPE_CHECKING:
    from privtab.client.aio import AsyncClient
    from privtab.client.embedded import Embedded

FEW = 50
"""Maximum decisions made in the event loop; more are made in a thread."""


class DecisionPoint(Protocol):
    """A PDP; every method but `ready` and `close` may raise a DecisionError."""

    searches: bool
    """Whether it can list users and entities."""

    async def vocabulary(self) -> Vocabulary:
        """The vocabulary of the active policy."""

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request is allowed, by position."""

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""

    async def directory(self) -> Directory | None:
        """The users and entities that the state names; None if the PDP cannot list them."""

    async def ready(self) -> bool:
        """Whether it can answer now; never raises."""

    async def refresh(self) -> None:
        """Load a newer policy and state, unless the PDP does so by itself."""

    async def close(self) -> None:
        """Release all resources."""


class LocalDecisionPoint:
    """A PDP in process."""

    searches = True

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._directory: tuple[object, Directory] | None = None
        self._lock = asyncio.Lock()

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary."""
        return self._embedded.vocabulary()

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As DecisionPoint.check_many."""
        if len(requests) == 1:
            return [self._embedded.check(requests[0])]
        if len(requests) <= FEW:
            return self._embedded.check_many(requests)
        return await asyncio.to_thread(self._embedded.check_many, requests)

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As DecisionPoint.decide_many."""
        if len(requests) == 1:
            # For a single request, errors have no position.
            return [self._embedded.decide(requests[0])]
        if len(requests) <= FEW:
            return self._embedded.decide_many(requests)
        return await asyncio.to_thread(self._embedded.decide_many, requests)

    async def directory(self) -> Directory | None:
        """As DecisionPoint.directory; built once for each state, in a thread, since a large state takes seconds."""
        program, index = self._embedded.contents()
        async with self._lock:
            if self._directory is None or self._directory[0] is not index:
                self._directory = index, await asyncio.to_thread(Directory, program, index)
            return self._directory[1]

    async def ready(self) -> bool:
        """As DecisionPoint.ready."""
        return self._embedded.health()

    async def refresh(self) -> None:
        """As DecisionPoint.refresh."""
        await asyncio.to_thread(self._embedded.refresh)

    async def close(self) -> None:
        """As DecisionPoint.close."""
        self._embedded.close()


class OpaDecisionPoint:
    """An OPA, which keeps itself current. Its state cannot be listed, so users and resources cannot be searched."""

    searches = False

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary."""
        return await self._client.vocabulary()

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As DecisionPoint.check_many."""
        if len(requests) == 1:
            # Checks in the same iteration of the event loop share one exchange.
            return [await self._client.check(requests[0])]
        return await self._client.check_many(requests)

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As DecisionPoint.decide_many."""
        if len(requests) == 1:
            return [await self._client.decide(requests[0])]
        return await self._client.decide_many(requests)

    async def directory(self) -> Directory | None:
        """As DecisionPoint.directory."""
        return None

    async def ready(self) -> bool:
        """As DecisionPoint.ready."""
        return await self._client.health()

    async def refresh(self) -> None:
        """As DecisionPoint.refresh."""

    async def close(self) -> None:
        """As DecisionPoint.close."""
        await self._client.close()
