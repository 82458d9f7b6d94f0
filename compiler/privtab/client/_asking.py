"""The methods of the clients: check requests against the vocabulary, ask an engine, apply the mode.

Written once, as flows, from which the synchronous and the asynchronous clients make methods with the same arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial, wraps
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from privtab.base.effects import Effect
from privtab.base.errors import DecisionError, InvalidRequest
from privtab.base.records import dataclass
from privtab.base.request import AccessDenied, Decision, Entity, Request
from privtab.base.sql_text import DIALECTS, AppliedFilter, FilterKind, shows_all
from privtab.base.vocabulary import OperationShape, Vocabulary
from privtab.client import _arguments as arguments
from privtab.client import _observe as observe
from privtab.client import _plan as plan
from privtab.client._arguments import Details, EntityLike
from privtab.client._engine import ClientEngine, Flow
from privtab.client._observe import LOG, Observer
from privtab.client._protocol import ActiveSystem, Revision

if TYPE_CHECKING:
    from privtab.filters.filter import Filter

T = TypeVar("T")
Item = TypeVar("Item")
Method = TypeVar("Method", bound=Callable[..., Any])

WINDOW = 50_000
"""Maximum number of requests of `check_many` that are held in memory at once."""


class Mode(StrEnum):
    """The enforcement of answers: `Client(url, mode="observe")`. Set when the client is created, never by a request."""

    ENFORCE = "enforce"
    """Denials deny, failures raise."""
    OBSERVE = "observe"
    """Ask for every decision, log denials and failures as warnings, and let everything pass; for rolling out a policy."""
    OFF = "off"
    """Ask for nothing and let everything pass: authorization is disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of a client.

    >>> Status(healthy=True, mode=Mode.ENFORCE, engine="opa").circuit is None
    True
    """

    healthy: bool
    """True if the client can answer now."""
    mode: Mode
    engine: str
    circuit: str | None = None
    """`closed`, `open` or `half-open`; None for engines in process."""


@dataclass(frozen=True, slots=True)
class _AnswerKind(Generic[T]):
    """A kind of answer: the count of allows in an answer, and the answer that replaces it if the mode lets everything pass."""

    kind: str
    count: int
    allowed: Callable[[T], int]
    passing: Callable[[T | None, Mode], T]

    def of_many(self, kind: str, count: int) -> _AnswerKind[list[T]]:

        def passing(found: list[T] | None, mode: Mode) -> list[T]:
            answers: Sequence[T | None] = [None] * count if found is None else found
            return [self.passing(answer, mode) for answer in answers]

        return _AnswerKind(kind, count, lambda answers: sum(map(self.allowed, answers)), passing)


class ClientFlows:
    """The methods of every client, as flows, with the docstrings of the methods."""

    def __init__(self, engine: ClientEngine, mode: Mode, observer: Observer) -> None:
        self.engine = engine
        self.mode = mode
        self.observer = observer
        if mode is not Mode.ENFORCE:
            LOG.warning("authorization is not enforced: mode `%s`", mode)

    # --- the client itself ---

    def close(self) -> Flow[None]:
        """Release connections, files and threads."""
        yield self.engine.close

    def system(self) -> Flow[str]:
        """The name of the system."""
        active: ActiveSystem = yield self.engine.active_system
        return active.system

    def health(self) -> Flow[bool]:
        """Return whether the client can answer now: OPA answers and its bundles are active; never raises."""
        healthy: bool = yield self.engine.healthy
        return healthy

    def status(self) -> Flow[Status]:
        """Health, mode, engine and circuit; never raises."""
        healthy = yield self.engine.healthy
        return Status(healthy=healthy, mode=self.mode, engine=self.engine.name, circuit=self.engine.circuit)

    def revision(self) -> Flow[Revision]:
        """The active revisions of the policy and the state; None for one that is not active."""
        revision: Revision = yield self.engine.revision
        return revision

    def vocabulary(self) -> Flow[Vocabulary]:
        """The names of the active policy: entity types, operations, and what a request for each must contain."""
        active: ActiveSystem = yield self.engine.active_system
        return active.vocabulary

    # --- one request ---

    def check(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Flow[bool]:
        """Return whether `user` may do `action` on `resource`."""
        return (yield from self._single(_CHECK, user, action, resource, details, self.engine.allow))

    def decide(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Flow[Decision]:
        """The decision with its explanation: the rule, what is missing or which grants allow it, and the effects of success."""
        return (yield from self._single(_DECIDE, user, action, resource, details, self.engine.decide))

    def require(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Flow[Decision]:
        """The decision if it is an allow; otherwise raises AccessDenied, which says what is missing."""
        requests: list[Request] = []

        def answer(request: Request) -> Any:
            requests.append(request)
            return self.engine.decide(request)

        decision = yield from self._single(_REQUIRE, user, action, resource, details, answer)
        if not decision.allowed:
            raise AccessDenied(requests[0], decision)
        return decision

    def effects(
        self,
        user: str | Request,
        action: str | None = None,
        resource: EntityLike | None = None,
        **details: Unpack[Details],
    ) -> Flow[tuple[Effect, ...]]:
        """The effects to carry out after success; raises AccessDenied if the request is denied."""
        return (yield from self.require(user, action, resource, **details)).effects

    def _single(
        self,
        answer_kind: _AnswerKind[T],
        user: object,
        action: object,
        resource: object,
        details: Mapping[str, Any],
        answer: Callable[[Request], Any],
    ) -> Flow[T]:
        if self.mode is Mode.OFF:
            return answer_kind.passing(None, Mode.OFF)
        request: Request | None = None

        def body(request: Request) -> Flow[tuple[T, ActiveSystem]]:
            def check(active: ActiveSystem) -> None:
                active.vocabulary.check(request)
                if request is not user:
                    # A Request may come from JSON with a context that this policy does not read.
                    arguments.check_context(request, active)

            _, active = yield from self._check_names(check)
            result = yield partial(answer, request)
            return result, active

        try:
            request = arguments.request(user, action, resource, **details)
        except InvalidRequest as error:
            return self._handle_failure(answer_kind, None, error, self._begin(answer_kind, None))
        return (yield from self._apply_mode(answer_kind, request, body(request)))

    # --- many ---

    def check_many(self, requests: Iterable[Request]) -> Flow[list[bool]]:
        """Return whether each of any number of requests is allowed, by position, in few calls; duplicates are sent once.

        An error in one request fails the whole call.
        """
        return (yield from self._many(_CHECK, "check_many", requests, self.engine.allow_many))

    def decide_many(self, requests: Iterable[Request]) -> Flow[list[Decision]]:
        """The decisions with their explanations, by position, in few calls; slower than `check_many`.

        An error in one request fails the whole call.
        """
        return (
            yield from self._many(_DECIDE, "decide_many", requests, lambda window, _: self.engine.decide_many(window))
        )

    def _many(
        self,
        one: _AnswerKind[T],
        kind: str,
        requests: Iterable[Request],
        ask: Callable[[list[Request], list[OperationShape]], Any],
    ) -> Flow[list[T]]:
        if self.mode is Mode.OFF:
            return [one.passing(None, Mode.OFF) for _ in requests]
        answers: list[T] = []
        for window in _windows(requests):
            many = one.of_many(kind, len(window))
            answers += yield from self._apply_mode(many, None, self._window(window, len(answers), ask))
        return answers

    def _window(
        self, window: list[Request], start: int, ask: Callable[[list[Request], list[OperationShape]], Any]
    ) -> Flow[tuple[list[Any], ActiveSystem]]:
        shapes, active = yield from self._check_names(lambda active: plan.check_all(window, active, start=start))
        answers = yield partial(ask, window, shapes)
        decided = bool(answers) and isinstance(answers[0], Decision)
        return [_with_id(answer) for answer in answers] if decided else answers, active

    def visible(
        self,
        user: str,
        action: str,
        type_or_items: str | Iterable[Item],
        items: Iterable[Item] | None = None,
        **details: Unpack[Details],
    ) -> Flow[list[Item]]:
        """The items of a listing that `user` may see, in their order.

        `visible("alice", "list", "table", ["m/c/s/t", "m/c/s/u"])` takes paths (or entities) of one type,
        `visible("alice", "list", ["table:m/c/s/t"])` entities with their type.
        """
        all_items = arguments.items_of(type_or_items, items)
        if self.mode is Mode.OFF:
            return all_items
        answer_kind: _AnswerKind[list[Item]] = _AnswerKind("visible", len(all_items), len, lambda *_: all_items)

        def body() -> Flow[tuple[list[Item], ActiveSystem | None]]:
            type_, entities = arguments.entities(type_or_items, all_items)
            if type_ is None:
                return all_items, None
            request = arguments.request(user, action, Entity(type_, ""), **details)
            active = yield from self._check_listing(request, entities)
            return [all_items[index] for index in (yield partial(self.engine.visible, request, entities))], active

        return (yield from self._apply_mode(answer_kind, None, body()))

    def filter(
        self,
        user: str,
        action: str,
        items: Iterable[Item] | str,
        *,
        key: Callable[[Item], EntityLike] | None = None,
        **details: Unpack[Details],
    ) -> Flow[list[Item] | Filter]:
        """The items on which `user` may do `action`, in their order; `key` returns the entity of an item, of any type.

        `filter("alice", "load", rows, key=lambda row: ("table", row.path))`; `filter("alice", "load", "table")` is the condition
        under which a table is one of them, for a query: a `Filter`.
        """
        if isinstance(items, str):
            return (yield from self._condition(user, action, items, details))
        all_items = list(items)
        if self.mode is Mode.OFF or not all_items:
            return all_items

        def body() -> Flow[tuple[list[Item], ActiveSystem]]:
            extras = arguments.request_details(**details)
            requests = [
                arguments.item_request(user, action, item, key, extras, index) for index, item in enumerate(all_items)
            ]

            def check(active: ActiveSystem) -> Any:
                shapes = plan.check_all(requests, active, noun="item")
                arguments.check_context(requests[0], active)
                return shapes

            shapes, active = yield from self._check_names(check)
            answers = yield partial(self.engine.allow_many, requests, shapes)
            return [item for item, answer in zip(all_items, answers, strict=True) if answer], active

        answer_kind: _AnswerKind[list[Item]] = _AnswerKind("filter", len(all_items), len, lambda *_: all_items)
        return (yield from self._apply_mode(answer_kind, None, body()))

    def row_filter(self, user: str, resource: EntityLike, **details: Unpack[Details]) -> Flow[AppliedFilter]:
        """Return the row filter that applies to an entity's rows for `user`, as SQL. InvalidRequest: its type declares none."""
        return (yield from self._applied("row_filter", user, [resource], details))[0]

    def column_masks(
        self, user: str, resources: Iterable[EntityLike], **details: Unpack[Details]
    ) -> Flow[list[AppliedFilter]]:
        """Return the mask that applies to each column for `user`, as SQL, by position. InvalidRequest: a type declares none."""
        return (yield from self._applied("column_mask", user, list(resources), details))

    # --- private ---

    def _applied(
        self, kind: FilterKind, user: str, resources: Sequence[EntityLike], details: Details
    ) -> Flow[list[AppliedFilter]]:
        """The filters of one kind that apply to entities; where the mode lets everything pass, texts that show everything."""
        dialect = next(iter(DIALECTS))

        def passing(found: list[AppliedFilter] | None, _: Mode) -> list[AppliedFilter]:
            shown = [shows_all(kind, arguments.as_entity(resource).names[-1], dialect) for resource in resources]
            return shown if found is None else [o if not o.denied else s for o, s in zip(found, shown, strict=True)]

        def body() -> Flow[tuple[list[AppliedFilter], ActiveSystem]]:
            nonlocal dialect
            requests = [arguments.request(user, kind, resource, **details) for resource in resources]

            def check(active: ActiveSystem) -> str:
                for request in requests:
                    active.vocabulary.check_filtered(request)
                    arguments.check_context(request, active)
                return active.vocabulary.dialect

            dialect, active = yield from self._check_names(check)
            return (yield partial(self.engine.applied, requests)), active

        if self.mode is Mode.OFF:
            return passing(None, self.mode)
        answer_kind: _AnswerKind[list[AppliedFilter]] = _AnswerKind(
            kind, len(resources), lambda answers: sum(not answer.denied for answer in answers), passing
        )
        return (yield from self._apply_mode(answer_kind, None, body()))

    def _condition(self, user: str, action: str, type_: str, details: Details) -> Flow[Filter]:
        """Return the filter for the entities of a type on which `user` may do `action`."""
        from privtab.filters.filter import Filter

        everything = Filter(user=user, action=action, type=type_)
        if self.mode is Mode.OFF:
            return everything

        def body() -> Flow[tuple[Filter, ActiveSystem]]:
            request = arguments.request(user, action, Entity(type_, ""), **details)
            active = yield from self._check_listing(request, ())
            return (yield partial(self.engine.filter, request)), active

        kind = _AnswerKind("filter", 1, lambda found: not found.nothing, lambda *_: everything)
        return (yield from self._apply_mode(kind, None, body()))

    def _check_listing(self, request: Request, items: Sequence[Entity]) -> Flow[ActiveSystem]:
        """Check a request for items of its resource's type; the vocabulary it was checked with."""

        def check(active: ActiveSystem) -> None:
            plan.check_listing(request, items, active)
            arguments.check_context(request, active)

        return (yield from self._check_names(check))[1]

    def _check_names(self, check: Callable[[ActiveSystem], T]) -> Flow[tuple[T, ActiveSystem]]:
        """The result of `check` and the vocabulary it used. After InvalidRequest, check again if OPA has a newer vocabulary."""
        active = yield self.engine.active_system
        try:
            return check(active), active
        except InvalidRequest:
            try:
                newer = yield partial(self.engine.newer, active)
            except DecisionError:
                newer = active
            if newer is active:
                raise
        return check(newer), newer

    def _apply_mode(self, answer_kind: _AnswerKind[T], request: Request | None, body: Flow[tuple[T, Any]]) -> Flow[T]:
        """The answer of `body` with the mode applied; reports it to the hooks."""
        watch = self._begin(answer_kind, request)
        try:
            answer, active = yield from body
        except DecisionError as error:
            return self._handle_failure(answer_kind, request, error, watch)
        except BaseException as error:
            # Cancelled, or no system was given: hooks must hear of it, or their spans would stay open.
            if watch is not None:
                self.observer.end(watch, error=error)
            raise
        if isinstance(answer, Decision):
            # Only `decide` gives decisions one by one, so T is Decision here.
            answer = _with_id(answer)  # type: ignore[assignment]
        if watch is not None:
            self.observer.end(
                watch,
                system=active and active.system,
                revision=active and active.revision,
                rule=_rule(active, request),
                allowed=int(answer_kind.allowed(answer)),
                decision=answer if isinstance(answer, Decision) else None,
            )
        if self.mode is Mode.ENFORCE:
            return answer
        allowed = int(answer_kind.allowed(answer))
        if allowed < answer_kind.count:
            self._warn(
                answer_kind, request, f"{answer_kind.count - allowed} of {answer_kind.count} would be denied", answer
            )
        return answer_kind.passing(answer, self.mode)

    def _begin(self, answer_kind: _AnswerKind[T], request: Request | None) -> observe.Watch | None:
        return self.observer.begin(answer_kind.kind, self.engine.name, str(self.mode), request, answer_kind.count)

    def _handle_failure(
        self, answer_kind: _AnswerKind[T], request: Request | None, error: DecisionError, watch: observe.Watch | None
    ) -> T:
        """Raise the error, or let the request pass with a warning, depending on the mode."""
        if watch is not None:
            self.observer.end(watch, error=error)
        if self.mode is Mode.ENFORCE:
            raise error
        self._warn(answer_kind, request, f"{type(error).__name__}: {error}", None)
        return answer_kind.passing(None, self.mode)

    def _warn(self, answer_kind: _AnswerKind[T], request: Request | None, problem: str, answer: object) -> None:
        if request is not None and answer is not None:
            decision = answer if isinstance(answer, Decision) else Decision(allowed=False)
            problem = f"would be denied: {decision.describe(request)}"
        elif request is not None:
            problem = f"user:{request.user} `{request.action}` on {request.resource}: {problem}"
        LOG.log(logging.WARNING, "mode %s, %s let pass: %s", self.mode, answer_kind.kind, problem)


def described_as(flow: Callable[..., Any]) -> Callable[[Method], Method]:
    """Give a method the name, the docstring and the signature of the flow that it runs."""

    def describe(method: Method) -> Method:
        described: Any = wraps(flow)(method)
        shown = signature(flow)
        result = str(shown.return_annotation).removeprefix("Flow[").removesuffix("]")
        described.__signature__ = shown.replace(return_annotation=result)
        return described  # type: ignore[no-any-return]

    return describe


def _allowed_by_mode(decision: Decision | None, mode: Mode) -> Decision:
    """An allow due to the mode, which its context names; the policy's own context is kept."""
    context: dict[str, Any] = {"missing": [], "reasons": [], "effects": []}
    if decision is not None:
        context |= decision.context
        if decision.allowed:
            return decision
    return Decision(
        allowed=True,
        context=context | {"mode": str(mode)},
        id=decision.id if decision is not None else observe.new_id(),
    )


def _with_id(decision: Decision) -> Decision:
    return decision if decision.id is not None else replace(decision, id=observe.new_id())


_CHECK: _AnswerKind[bool] = _AnswerKind("check", 1, int, lambda *_: True)
_DECIDE: _AnswerKind[Decision] = _AnswerKind("decide", 1, bool, _allowed_by_mode)
_REQUIRE = replace(_DECIDE, kind="require")


def _rule(active: ActiveSystem | None, request: Request | None) -> str | None:
    """The id of the rule for a request."""
    if active is None or request is None:
        return None
    return f"{active.vocabulary.system}/{request.resource.type}/{request.action}"


def _windows(requests: Iterable[Request]) -> Iterator[list[Request]]:
    source = iter(requests)
    while window := list(islice(source, WINDOW)):
        yield window
