"""The interface of the synchronous clients, over any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, Unpack

from privtab.client._asking import ClientFlows, Mode
from privtab.client._engine import ClientEngine, Flow, run
from privtab.client._observe import CURRENT, CallContext, HookLike, Observer
from privtab.client._protocol import Details, EntityLike, Revision
from privtab.effects import Effect
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a client."""

    healthy: bool
    """Whether the client can answer now."""
    mode: Mode
    engine: str
    circuit: str | None = None
    """`closed`, `open` or `half-open`; None for engines in process."""


class Asker:
    """Base class of the synchronous clients. A call that cannot be decided raises a DecisionError; it is never an allow.

    InvalidRequest: the request has a name that the policy does not declare. PolicyError: the answer is not a decision.
    DecisionUnavailable: the PDP did not answer, or no policy or state is active.

    Every method takes user, action and resource (`"type:path"`, a pair or an Entity), or one Request instead.
    """

    def __init__(self, engine: ClientEngine, *, mode: Mode = Mode.ENFORCE, hooks: Sequence[HookLike] = ()) -> None:
        self._engine = engine
        self._mode = mode
        self._observer = Observer(hooks)
        self._client_flows = ClientFlows(engine, mode, self._observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release connections, files and threads."""
        self._engine.close()

    @property
    def mode(self) -> Mode:
        """How answers are enforced."""
        return self._mode

    @property
    def system(self) -> str:
        """The name of the system."""
        return self._engine.active_system().system

    def health(self) -> bool:
        """Whether the client can answer now: OPA answers and its bundles are active; never raises."""
        return self._engine.healthy()

    def status(self) -> Status:
        """Health, mode and engine; never raises."""
        return Status(healthy=self.health(), mode=self._mode, engine=self._engine.name)

    def revision(self) -> Revision:
        """The active revisions of the policy and the state; None for one that is not active."""
        return self._run_plain(self._engine.revision)

    def vocabulary(self) -> Vocabulary:
        """The names of the active policy: entity types, operations, and what a request for each must contain."""
        return self._run_plain(self._engine.active_system).vocabulary

    # --- one request ---

    def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> bool:
        """Whether `user` may do `action` on `resource`."""
        return self._run(self._client_flows.check(user, action, resource, **details))

    def decide(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """The decision with its explanation: the rule, what is missing or which grants allow it, and the effects of success."""
        return self._run(self._client_flows.decide(user, action, resource, **details))

    explain = decide

    def require(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Decision:
        """The decision if it is an allow; otherwise raises AccessDenied, which says what is missing."""
        return self._run(self._client_flows.require(user, action, resource, **details))

    def effects(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> tuple[Effect, ...]:
        """The effects to carry out after success; raises AccessDenied if the request is denied."""
        return self._run(self._client_flows.effects(user, action, resource, **details))

    # --- many ---

    def check_many(self, requests: Iterable[Request]) -> list[bool]:
        """Whether each of any number of requests is allowed, by position, in few calls; duplicates are sent once.

        An error in one request fails the whole call.
        """
        return self._run(self._client_flows.check_many(requests))

    def decide_many(self, requests: Iterable[Request]) -> list[Decision]:
        """The decisions with their explanations, by position, in few calls; slower than `check_many`.

        An error in one request fails the whole call.
        """
        return self._run(self._client_flows.decide_many(requests))

    def visible(
        self,
        user: str,
        action: str,
        type_or_items: str | Iterable[T],
        items: Iterable[T] | None = None,
        **details: Unpack[Details],
    ) -> list[T]:
        """The items of a listing that `user` may see, in their order.

        `visible("alice", "list", "table", ["m/c/s/t", "m/c/s/u"])` takes paths (or entities) of one type,
        `visible("alice", "list", ["table:m/c/s/t"])` entities with their type.
        """
        return self._run(self._client_flows.visible(user, action, type_or_items, items, **details))

    def filter(
        self,
        user: str,
        action: str,
        items: Iterable[T],
        *,
        key: Callable[[T], EntityLike] | None = None,
        **details: Unpack[Details],
    ) -> list[T]:
        """The items on which `user` may do `action`, in their order; `key` returns the entity of an item, of any type.

        `filter("alice", "load", rows, key=lambda row: ("table", row.path))`
        """
        return self._run(self._client_flows.filter(user, action, items, key, **details))

    # --- private ---

    def _run(self, flow: Flow[T]) -> T:
        token = CURRENT.set(CallContext())
        try:
            return run(flow)
        finally:
            CURRENT.reset(token)

    def _run_plain(self, ask: Callable[[], T]) -> T:
        token = CURRENT.set(CallContext())
        try:
            return ask()
        finally:
            CURRENT.reset(token)
