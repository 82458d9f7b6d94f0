"""PDPs for a server in an event loop, bundles in process or an OPA, and the names in a state from which searches select."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

from privtab.base import Decision, Entity, Locations, Request, UnsupportedError, Vocabulary, last_name
from privtab.client import Details
from privtab.engines import Index

if TYPE_CHECKING:
    from privtab.client import AsyncClient, Embedded

T = TypeVar("T")

FEW = 50
"""Maximum decisions with explanations made in the event loop; more are made in a thread."""
FEW_BRIEF = 200
"""The same for decisions without explanations, which take much less time."""


class DecisionPoint(ABC):
    """A PDP, which may have nothing to list or refresh; every method but `ready` and `close` may raise a DecisionError."""

    searches = False
    """True if it can list users and entities."""

    @abstractmethod
    async def vocabulary(self) -> Vocabulary:
        """The vocabulary of the active policy."""

    @abstractmethod
    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """Decide requests; the results (True: allowed) are in the order of the requests."""

    @abstractmethod
    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""

    async def revision(self) -> Mapping[str, str | None]:
        """The revisions of the policy and of the state that decide now, by kind, as far as they are known."""
        return {}

    async def directory(self) -> Directory | None:
        """The users and entities that the state names; None if the PDP cannot list them."""
        return None

    async def allowed(self, request: Request, paths: Sequence[str]) -> Sequence[str] | None:
        """Return the paths, of some sorted paths, on which a request is allowed, without a decision for each; None if that cannot be told."""
        del request, paths
        return None

    @abstractmethod
    async def ready(self) -> bool:
        """Return whether the decision point can answer now; never raises."""

    async def refresh(self) -> None:  # noqa: B027  (most do so by themselves)
        """Load a newer policy and state, unless the PDP does so by itself."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources."""


class ClientDecisionPoint(DecisionPoint):
    """A client, in process or of an OPA, which keeps itself current. Without a state to list, only actions can be searched."""

    def __init__(self, client: Embedded | AsyncClient) -> None:
        self._client = client

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary."""
        return await _settled(self._client.vocabulary())

    async def check_many(self, requests: Sequence[Request]) -> list[bool]:
        """As DecisionPoint.check_many."""
        if len(requests) == 1:
            # Checks of an OPA in the same iteration of the event loop share one exchange.
            return [await _settled(self._client.check(requests[0]))]
        return await self._many(self._client.check_many, requests, FEW_BRIEF)

    async def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """As DecisionPoint.decide_many."""
        if len(requests) == 1:
            # For a single request, errors have no position.
            return [await _settled(self._client.decide(requests[0]))]
        return await self._many(self._client.decide_many, requests, FEW)

    async def revision(self) -> Mapping[str, str | None]:
        """As DecisionPoint.revision."""
        return asdict(await _settled(self._client.revision()))

    async def ready(self) -> bool:
        """As DecisionPoint.ready."""
        return await _settled(self._client.health())

    async def close(self) -> None:
        """As DecisionPoint.close."""
        await _settled(self._client.close())

    async def _many(
        self, ask: Callable[[Sequence[Request]], T | Awaitable[T]], requests: Sequence[Request], few: int
    ) -> T:
        del few
        return await _settled(ask(requests))


async def _settled(answer: T | Awaitable[T]) -> T:
    """The answer of a client, which one of an OPA gives later."""
    return await answer if isinstance(answer, Awaitable) else answer


class LocalDecisionPoint(ClientDecisionPoint):
    """A PDP in process."""

    searches = True

    def __init__(self, embedded: Embedded) -> None:
        super().__init__(embedded)
        self._embedded = embedded
        self._directory: tuple[object, Directory] | None = None
        self._vocabulary: tuple[object, Vocabulary] | None = None
        self._lock = asyncio.Lock()

    async def vocabulary(self) -> Vocabulary:
        """As DecisionPoint.vocabulary; read once for each policy."""
        program, _ = self._embedded.contents()
        if self._vocabulary is None or self._vocabulary[0] is not program:
            self._vocabulary = program, await super().vocabulary()
        return self._vocabulary[1]

    async def _many(
        self, ask: Callable[[Sequence[Request]], T | Awaitable[T]], requests: Sequence[Request], few: int
    ) -> T:
        return await _settled(ask(requests) if len(requests) <= few else await asyncio.to_thread(ask, requests))

    async def allowed(self, request: Request, paths: Sequence[str]) -> Sequence[str] | None:
        """As DecisionPoint.allowed, by the filter of the request, in a thread."""
        return await asyncio.to_thread(self._allowed, request, paths)

    def _allowed(self, request: Request, paths: Sequence[str]) -> Sequence[str] | None:
        details: dict[str, Any] = {name: getattr(request, name) for name in Details.__annotations__}
        try:
            found: Any = self._embedded.filter(request.user, request.action, request.resource.type, **details)
            allowed: Sequence[str] = found.among(paths)
        except UnsupportedError:
            return None
        return allowed

    async def directory(self) -> Directory | None:
        """As DecisionPoint.directory; built once for each state, in a thread, since a large state takes seconds."""
        program, index = self._embedded.contents()
        async with self._lock:
            if self._directory is None or self._directory[0] is not index:
                self._directory = index, await asyncio.to_thread(Directory, program, index)
            return self._directory[1]

    async def refresh(self) -> None:
        """As DecisionPoint.refresh."""
        await asyncio.to_thread(self._embedded.refresh)


class Directory:
    """The sorted names in one state. Searches cannot find what no row of the state names."""

    def __init__(self, program: Mapping[str, Any], index: Index) -> None:
        """`program`: as in the policy bundle."""
        self._entities: dict[str, set[str]] = {type_: set() for type_ in program["entities"]}
        shapes = Vocabulary.from_program(program).shapes
        locations = Locations(shapes, index.places, index.containers)
        singles: dict[str, list[str]] = {type_: [] for type_ in program["entities"]}
        for type_, entity in program["entities"].items():
            if entity.get("single") and entity["parent"] is not None:
                singles[entity["parent"]].append(type_)
        for type_, path in _paths(index):
            if type_ in shapes:
                for key in locations.find(Entity(type_, path)) or ():
                    link, _, own = key.partition(":")
                    self._add(link, own, singles)
        self.people = frozenset(t for t, entity in program["entities"].items() if entity.get("principal") == "user")
        """The types of entities that represent users."""
        users = _users(index)
        for type_ in self.people:
            users |= {last_name(path) for path in self._entities[type_]}
        self.users: tuple[str, ...] = tuple(sorted(users))
        self._sorted: dict[str, tuple[str, ...]] = {}

    def paths(self, type_: str) -> tuple[str, ...]:
        """The paths of the entities of a type; empty for an unknown type."""
        found = self._sorted.get(type_)
        if found is None:
            found = self._sorted[type_] = tuple(sorted(self._entities.get(type_, ())))
        return found

    def _add(self, type_: str, path: str, singles: Mapping[str, list[str]]) -> None:
        paths = self._entities[type_]
        if path not in paths:
            paths.add(path)
            for single in singles[type_]:
                self._add(single, path, singles)


def _paths(index: Index) -> Iterator[tuple[str, str]]:
    for key in (*index.places, *index.containers, *index.entity_attributes):
        type_, _, path = key.partition(":")
        yield type_, path
    for type_, table in index.tables.items():
        yield from ((type_, path) for path in table)
    for type_, members in index.members.items():
        yield from ((type_, path) for path in members)
    scopes = {scope for _, scope in index.within.values()}
    scopes |= {
        scope
        for assignments in (index.scoped, index.group_scoped)
        for assigned in assignments.values()
        for scope in assigned
    }
    for scope in scopes:
        type_, _, path = scope.partition(":")
        yield type_, path


def _users(index: Index) -> set[str]:
    names = {*index.users, *index.scoped, *index.service_admins, *index.user_attributes}
    for members in index.members.values():
        for users in members.values():
            names |= users
    return names
