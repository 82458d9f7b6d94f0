"""Decision points as a server in an event loop asks them: in this process, or an OPA."""

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
"""So many decisions do not hold up the event loop; more of them go to a thread."""


class DecisionPoint(Protocol):
    """Answers requests; every method but `ready` and `close` may raise a DecisionError."""

    searches: bool
    """Whether it knows who and what there is."""

    async def vocabulary(self) -> Vocabulary:
        """The names of the policy that is active."""

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """Yes or no, by position."""

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Answers with explanations, by position."""

    async def directory(self) -> Directory | None:
        """Who and what the state names; None where the point cannot say."""

    async def ready(self) -> bool:
        """Whether it could answer now; never raises."""

    async def refresh(self) -> None:
        """Look for a newer policy and state, where that is not the point's own concern."""

    async def close(self) -> None:
        """Give everything back."""


class LocalDecisionPoint:
    """Bundles in this process."""

    searches = True

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded
        self._directory: tuple[object, Directory] | None = None
        self._lock = asyncio.Lock()

    async def vocabulary(self) -> Vocabulary:
        """As Point.vocabulary."""
        return self._embedded.vocabulary()

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As Point.check_many."""
        if len(requests) == 1:
            return [self._embedded.check(requests[0])]
        if len(requests) <= FEW:
            return self._embedded.check_many(requests)
        return await asyncio.to_thread(self._embedded.check_many, requests)

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As Point.decide_many."""
        if len(requests) == 1:
            # Asked alone, what is wrong with it is told without a number.
            return [self._embedded.decide(requests[0])]
        if len(requests) <= FEW:
            return self._embedded.decide_many(requests)
        return await asyncio.to_thread(self._embedded.decide_many, requests)

    async def directory(self) -> Directory | None:
        """As Point.directory; made once for each state, in a thread, since a large state takes seconds."""
        program, index = self._embedded.contents()
        async with self._lock:
            if self._directory is None or self._directory[0] is not index:
                self._directory = index, await asyncio.to_thread(Directory, program, index)
            return self._directory[1]

    async def ready(self) -> bool:
        """As Point.ready."""
        return self._embedded.health()

    async def refresh(self) -> None:
        """As Point.refresh."""
        await asyncio.to_thread(self._embedded.refresh)

    async def close(self) -> None:
        """As Point.close."""
        self._embedded.close()


class OpaDecisionPoint:
    """An OPA, which keeps itself current. Its state cannot be listed, so nobody and nothing can be searched for."""

    searches = False

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def vocabulary(self) -> Vocabulary:
        """As Point.vocabulary."""
        return await self._client.vocabulary()

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As Point.check_many."""
        if len(requests) == 1:
            # Checks of one turn of the event loop go as one exchange.
            return [await self._client.check(requests[0])]
        return await self._client.check_many(requests)

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As Point.decide_many."""
        if len(requests) == 1:
            return [await self._client.decide(requests[0])]
        return await self._client.decide_many(requests)

    async def directory(self) -> Directory | None:
        """As Point.directory."""
        return None

    async def ready(self) -> bool:
        """As Point.ready."""
        return await self._client.health()

    async def refresh(self) -> None:
        """As Point.refresh."""

    async def close(self) -> None:
        """As Point.close."""
        await self._client.close()
