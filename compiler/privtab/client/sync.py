"""The synchronous client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from privtab.client import _plan as plan
from privtab.client import _protocol as protocol
from privtab.client._protocol import Call, EntityLike, Known, Revision
from privtab.client._transport import RequestsTransport, Timeout, Transport
from privtab.errors import AccessDenied, DecisionError, InvalidRequest, UsageError
from privtab.request import Decision, Entity, Request

if TYPE_CHECKING:
    import requests

T = TypeVar("T")

DEFAULT_TIMEOUT: Timeout = (1.0, 5.0)
REFRESH_SECONDS = 60.0
"""How long the policy's names are taken for current without a look at its revision."""
RECHECK_SECONDS = 5.0
"""How long after such a look a request with an unknown name is refused without another."""
WINDOW = 50
"""How many chunks of requests are held in memory at once."""


class Client:
    """Asks an OPA for decisions. Safe to share between threads, to fork with, and to pickle into a Spark job (the token too).

    No answer but a clear yes is ever an allow: a call that cannot be answered raises a DecisionError. InvalidRequest: the
    request names what the policy does not know, nothing was sent. PolicyError: the answer is no decision.
    DecisionUnavailable: nobody answered, or no bundle is active.

    `system` may be left out where OPA has one. `timeout` is (connect, read) in seconds, or one number for both.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8181",
        *,
        system: str | None = None,
        timeout: Timeout | float = DEFAULT_TIMEOUT,
        token: str | None = None,
        session: requests.Session | None = None,
        chunk_size: int = 1000,
        pool_size: int = 10,
        transport: Transport | None = None,
    ) -> None:
        if chunk_size < 1 or pool_size < 1:
            raise UsageError("chunk_size and pool_size must be 1 or more")
        connect, read = timeout if isinstance(timeout, tuple) else (timeout, timeout)
        if not (connect > 0 and read > 0):
            raise UsageError(f"timeout is {timeout!r}: give seconds above zero, for connect and read")
        self._timeout = (float(connect), float(read))
        self._asked_system = protocol.check_system(system) if system is not None else None
        self._chunk_size = chunk_size
        self._transport = transport or RequestsTransport(url, token=token, session=session, pool_size=pool_size)
        self._reset()

    def _reset(self) -> None:
        self._known: Known | None = None
        self._looked_at = 0.0
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy in another process is made from."""
        return {
            "_timeout": self._timeout,
            "_asked_system": self._asked_system,
            "_chunk_size": self._chunk_size,
            "_transport": self._transport,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    def close(self) -> None:
        """Give the connections back."""
        self._transport.close()

    # --- one request ---

    def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> bool:
        """May `user` do `action` on `resource`? A Request may stand in place of all arguments."""
        request, known = self._request(user, action, resource, with_=with_, groups=groups, flags=flags)
        return self._send(protocol.allow(known.system, request))

    def decide(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> Decision:
        """The answer with its explanation: the rule, what is missing or by which grants it holds, what success does."""
        request, known = self._request(user, action, resource, with_=with_, groups=groups, flags=flags)
        return self._send(protocol.decision(known.system, request))

    explain = decide

    def require(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> Decision:
        """The decision of an allow; raises AccessDenied, which says what is missing, for a denial."""
        request, known = self._request(user, action, resource, with_=with_, groups=groups, flags=flags)
        decision = self._send(protocol.decision(known.system, request))
        if not decision.allowed:
            raise AccessDenied(request, decision)
        return decision

    # --- many ---

    def check_many(self, requests: Iterable[Request]) -> list[bool]:
        """The answers to any number of requests, by position, in few calls.

        Any error is the error of the whole: there is no list with holes.
        """
        answers: list[bool] = []
        source = iter(requests)
        while window := list(islice(source, self._chunk_size * WINDOW)):
            answers += self._check_window(window, start=len(answers))
        return answers

    def _check_window(self, window: Sequence[Request], start: int) -> list[bool]:
        shapes, known = self._valid(lambda known: plan.check_all(window, known, start=start))
        answers = [False] * len(window)
        for batch in plan.batches(window, shapes, known, self._chunk_size):
            chunk = self._send(batch.call)
            for at, answer in zip(batch.positions, chunk, strict=True):
                answers[at] = answer
        return answers

    def decide_many(self, requests: Iterable[Request]) -> list[Decision]:
        """The answers with their explanations, by position, in few calls; slower than `check_many`.

        Any error is the error of the whole: there is no list with holes.
        """
        answers: list[Decision] = []
        source = iter(requests)
        while chunk := list(islice(source, self._chunk_size)):
            answers += self._decide_chunk(chunk, start=len(answers))
        return answers

    def _decide_chunk(self, chunk: Sequence[Request], start: int) -> list[Decision]:
        _, known = self._valid(lambda known: plan.check_all(chunk, known, start=start))
        return self._send(protocol.explained(known.system, chunk))

    def visible(
        self,
        user: str,
        action: str,
        type_or_items: str | Iterable[T],
        items: Iterable[T] | None = None,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> list[T]:
        """The items of a listing that `user` may see, in their order.

        `visible("alice", "list", "table", ["m/c/s/t", "m/c/s/u"])` takes paths (or entities) of one type;
        `visible("alice", "list", ["table:m/c/s/t"])` entities that say their type.
        """
        kept, entities, type_ = _listing(type_or_items, items)
        if type_ is None:
            return []
        request = protocol.request(user, action, Entity(type_, ""), with_=with_, groups=groups, flags=flags)

        def check(known: Known) -> None:
            plan.check_listing(request, entities, known)
            protocol.check_flags(request.flags, known)

        _, known = self._valid(check)
        calls = plan.listing(request, entities, known, self._chunk_size)
        return [kept[start + at] for start, call in calls for at in self._send(call)]

    # --- the decision point ---

    @property
    def system(self) -> str:
        """The system that is asked; found in OPA where it was not given."""
        return self._asked_system or self._current().system

    def health(self) -> bool:
        """Whether OPA answers and all of its bundles are active; never raises for an OPA that does not."""
        try:
            self._transport.get(protocol.HEALTH_PATH, self._timeout)
        except DecisionError:
            return False
        return True

    def revision(self) -> Revision:
        """The revisions of the policy and the state that are active now; None for what is not there."""
        system = self.system
        own_name = self._send(protocol.system_name(system)) or system
        return Revision(
            policy=self._send(protocol.policy_revision(system)), state=self._send(protocol.state_revision(own_name))
        )

    # --- inside ---

    def _send(self, call: Call[T]) -> T:
        if call.body is None:
            return call.read(self._transport.get(call.path, self._timeout))
        return call.read(self._transport.post(call.path, call.body, self._timeout))

    def _request(self, user: object, action: object, resource: object, **beside: Any) -> tuple[Request, Known]:
        """The request of a call, checked; nothing has been asked yet."""
        request = protocol.request(user, action, resource, **beside)

        def check(known: Known) -> None:
            known.vocabulary.check(request)
            if request is not user:
                # A Request may come from JSON, whose context may hold more than this policy reads.
                protocol.check_flags(request.flags, known)

        _, known = self._valid(check)
        return request, known

    def _valid(self, check: Callable[[Known], T]) -> tuple[T, Known]:
        """What `check` returns, and the names that it held for. A name that is unknown may be new: look once more."""
        known = self._current()
        try:
            return check(known), known
        except InvalidRequest:
            try:
                newer = self._look(known, at_most_every=RECHECK_SECONDS)
            except DecisionError:
                newer = known
            if newer is known:
                raise
            return check(newer), newer

    def _current(self) -> Known:
        known = self._known
        if known is not None:
            return self._look(known, at_most_every=REFRESH_SECONDS)
        with self._lock:
            if self._known is None:
                self._known = self._fetch()
                self._looked_at = time.monotonic()
            return self._known

    def _look(self, known: Known, *, at_most_every: float) -> Known:
        """The names by the policy that is active now: `known` itself where its revision is, or was a moment ago."""
        if time.monotonic() - self._looked_at < at_most_every:
            return self._known or known
        with self._lock:
            if time.monotonic() - self._looked_at < at_most_every:
                return self._known or known
            revision = self._send(protocol.policy_revision(known.system))
            if revision is None or revision != known.revision:
                self._known = self._fetch()
            self._check_state((self._known or known).vocabulary.system)
            self._looked_at = time.monotonic()
            return self._known or known

    def _fetch(self) -> Known:
        if self._asked_system is not None:
            known = self._send(protocol.program(self._asked_system))
        else:
            systems = self._send(protocol.programs())
            if not systems:
                raise protocol.no_bundle(None)
            if len(systems) > 1:
                names = ", ".join(f"`{name}`" for name in sorted(systems))
                raise UsageError(f"OPA has {len(systems)} systems, {names}: say which, as in Client(system=…)")
            (known,) = systems.values()
        self._check_state(known.vocabulary.system)
        return known

    def _check_state(self, system: str) -> None:
        """A policy without a state would deny everything; that is no answer."""
        if self._send(protocol.state_revision(system)) is None:
            raise protocol.no_bundle(system, "state")


def _listing(type_or_items: str | Iterable[T], items: Iterable[T] | None) -> tuple[list[T], list[Entity], str | None]:
    """The items as given, as entities, and their type; None for a listing without items and type."""
    if isinstance(type_or_items, str):
        if items is None:
            raise InvalidRequest("visible needs the items of the listing")
        kept = list(items)
        return kept, [_item(item, type_or_items, at) for at, item in enumerate(kept)], type_or_items
    if items is not None:
        raise InvalidRequest("visible takes a type and its items, or items alone")
    kept = list(type_or_items)
    entities = [protocol.entity(item, f"item {at}") for at, item in enumerate(kept)]
    return kept, entities, entities[0].type if entities else None


def _item(item: object, type_: str, at: int) -> Entity:
    """An item of a listing whose type is known: text is a path."""
    if not isinstance(item, str):
        return protocol.entity(item, f"item {at}")
    if item.startswith(f"{type_}:"):
        raise InvalidRequest(f"item {at} is `{item}`: beside a type, write paths alone")
    return Entity(type_, item)
