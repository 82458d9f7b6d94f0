"""The one interface: what every synchronous client offers, over any engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from privtab.client._asking import Asking, Mode
from privtab.client._engine import ClientEngine, Flow, run
from privtab.client._observe import CURRENT, CallContext, HookLike, Observer
from privtab.client._protocol import EntityLike, Revision
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How a client stands."""

    healthy: bool
    """Whether it could answer now."""
    mode: Mode
    engine: str
    circuit: str | None = None
    """`closed`, `open` or `half-open`; None for engines in process."""


class Asker:
    """Asks for decisions. No answer but a clear yes is ever an allow: a call that cannot be answered raises a DecisionError.

    InvalidRequest: the request names what the policy does not know. PolicyError: the answer is no decision.
    DecisionUnavailable: nobody answered, or no policy or state is active.

    Every method takes user, action and resource (`"type:path"`, a pair or an Entity), or one Request in place of them.
    """

    def __init__(self, engine: ClientEngine, *, mode: Mode = Mode.ENFORCE, hooks: Sequence[HookLike] = ()) -> None:
        self._engine = engine
        self._mode = mode
        self._observer = Observer(hooks)
        self._asking = Asking(engine, mode, self._observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give connections, files and threads back."""
        self._engine.close()

    @property
    def mode(self) -> Mode:
        """Whether answers are enforced."""
        return self._mode

    @property
    def system(self) -> str:
        """The system that is asked."""
        return self._engine.known().system

    def health(self) -> bool:
        """Whether it could answer now: OPA answers and its bundles are active; never raises."""
        return self._engine.healthy()

    def status(self) -> Status:
        """Health, mode and engine in one; never raises."""
        return Status(healthy=self.health(), mode=self._mode, engine=self._engine.name)

    def revision(self) -> Revision:
        """The revisions of the policy and the state that are active now; None for what is not there."""
        return self._run_plain(self._engine.revision)

    def vocabulary(self) -> Vocabulary:
        """The names of the active policy: entity types, operations, and what a request of each must have."""
        return self._run_plain(self._engine.known).vocabulary

    # --- one request ---

    def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> bool:
        """Whether `user` may do `action` on `resource`."""
        return self._run(self._asking.check(user, action, resource, with_=with_, groups=groups, flags=flags))

    def decide(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> Decision:
        """The answer with its explanation: the rule, what is missing or by which grants it holds, what success does."""
        return self._run(self._asking.decide(user, action, resource, with_=with_, groups=groups, flags=flags))

    explain = decide

    def require(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> Decision:
        """The decision of an allow; raises AccessDenied, which says what is missing, for a denial."""
        return self._run(self._asking.require(user, action, resource, with_=with_, groups=groups, flags=flags))

    def effects(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> tuple[str, ...]:
        """What the caller has to carry out on success; raises AccessDenied for a denial, which has no effects."""
        return self._run(self._asking.effects(user, action, resource, with_=with_, groups=groups, flags=flags))

    # --- many ---

    def check_many(self, requests: Iterable[Request]) -> list[bool]:
        """The answers to any number of requests, by position, in few calls; what is asked twice is sent once.

        Any error is the error of the whole: there is no list with holes.
        """
        return self._run(self._asking.check_many(requests))

    def decide_many(self, requests: Iterable[Request]) -> list[Decision]:
        """The answers with their explanations, by position, in few calls; slower than `check_many`.

        Any error is the error of the whole: there is no list with holes.
        """
        return self._run(self._asking.decide_many(requests))

    def visible(
        self,
        user: str,
        action: str,
        type_or_items: str | Iterable[T],
        items: Iterable[T] | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> list[T]:
        """The items of a listing that `user` may see, in their order.

        `visible("alice", "list", "table", ["m/c/s/t", "m/c/s/u"])` takes paths (or entities) of one type;
        `visible("alice", "list", ["table:m/c/s/t"])` entities that say their type.
        """
        return self._run(
            self._asking.visible(user, action, type_or_items, items, with_=with_, groups=groups, flags=flags)
        )

    def filter(
        self,
        user: str,
        action: str,
        items: Iterable[T],
        *,
        key: Callable[[T], EntityLike] | None = None,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] | Mapping[str, bool] = (),
    ) -> list[T]:
        """The items that `user` may do `action` on, in their order; `key` gives the entity of an item, of any type.

        `filter("alice", "load", rows, key=lambda row: ("table", row.path))`
        """
        return self._run(self._asking.filter(user, action, items, key, with_=with_, groups=groups, flags=flags))

    # --- inside ---

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
