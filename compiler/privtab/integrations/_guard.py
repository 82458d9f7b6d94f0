"""Guards for the functions of a service."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast

from privtab.client._asking import Mode
from privtab.client._base import Asker
from privtab.errors import DecisionUnavailable, InvalidRequest, Unauthenticated, UsageError
from privtab.integrations._answers import LOG
from privtab.integrations._caller import DECISION, Caller, CallerLike, as_caller, caller
from privtab.integrations._needs import Filled, Needs, Place, needs
from privtab.request import Decision

if TYPE_CHECKING:
    from contextvars import Token

    from privtab.client._protocol import EntityLike
    from privtab.client.aio import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")

AnyAsker: TypeAlias = "Asker | AsyncClient"
"""Any client: a Client, an Embedded or an AsyncClient."""


class Guard:
    """Requests a decision before a function runs. Created when modules load, bound to a client when the service starts.

    `user` returns the caller, as a name or a Caller; by default, the one set by `acting_as`. Until a client is bound, every
    guarded call raises DecisionUnavailable.
    """

    def __init__(self, asker: AnyAsker | None = None, *, user: Callable[[], CallerLike] = caller) -> None:
        self._asker = asker
        self._user = user

    def bind(self, asker: AnyAsker | None) -> None:
        """Use this client from now on; None: no client."""
        self._asker = asker

    @property
    def asker(self) -> AnyAsker:
        """The bound client; raises DecisionUnavailable if there is none."""
        if self._asker is None:
            raise DecisionUnavailable("no decision point is bound to this guard: call bind(client)", retry=False)
        return self._asker

    def requires(
        self,
        action: str,
        resource: Place,
        *,
        arg: str | None = None,
        with_: Mapping[str, Place] | None = None,
        flags: Iterable[str] | Mapping[str, str] = (),
        user: Callable[[], CallerLike] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function only if its caller may do `action` on the entity named by its arguments.

        `@requires("drop", "table", arg="table_id")`: the argument is the path, or an Entity.
        `@requires("load", "table:{catalog}/{schema}/{table}")`: each argument is one name.
        `flags={"override": "force"}` sets the flag `override` if the argument `force` is true.
        Raises AccessDenied for a denial, another DecisionError without a decision, before the function starts.
        """
        wanted = needs(action, resource, arg, with_, flags)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            return _wrapped(function, wanted, self, user or self._user)

        return decorate

    def allowed(
        self,
        action: str,
        resource: EntityLike,
        *,
        with_: Mapping[str, EntityLike] | None = None,
        groups: Iterable[str] = (),
        flags: Iterable[str] = (),
    ) -> Allowed:
        """A context manager that yields the decision if the caller is allowed.

        `with guard.allowed("drop", "table:m/c/s/t") as decision:`, or `async with` in an event loop. Raises like `requires`.
        """
        return Allowed(self, action, resource, {"with_": with_, "groups": groups, "flags": flags})

    def require(self, asked_by: Caller | None, action: str, resource: EntityLike, **beside: Any) -> Decision:
        """The decision if it is an allow; raises like `requires`."""
        asker = self.asker
        if not isinstance(asker, Asker):
            raise UsageError("an AsyncClient is asked by coroutines: use async functions, or bind a Client")
        user, beside = _who(asker, asked_by, beside)
        return asker.require(user, action, resource, **beside)

    async def arequire(self, asked_by: Caller | None, action: str, resource: EntityLike, **beside: Any) -> Decision:
        """`require` without blocking the event loop; raises like `requires`."""
        asker = self.asker
        user, beside = _who(asker, asked_by, beside)
        if not isinstance(asker, Asker):
            return await asker.require(user, action, resource, **beside)
        # An engine in process may block too, while it loads newer bundles.
        return await asyncio.to_thread(asker.require, user, action, resource, **beside)

    def ask(self, asked_by: Caller | None, wanted: Needs, values: Mapping[str, Any]) -> Decision:
        """The decision for a call with these arguments; raises like `requires`."""
        filled = self._fill(wanted, values)
        if isinstance(filled, Decision):
            return filled
        return self.require(asked_by, filled.action, filled.resource, **filled.beside())

    async def aask(self, asked_by: Caller | None, wanted: Needs, values: Mapping[str, Any]) -> Decision:
        """`ask` without blocking the event loop."""
        filled = self._fill(wanted, values)
        if isinstance(filled, Decision):
            return filled
        return await self.arequire(asked_by, filled.action, filled.resource, **filled.beside())

    def _fill(self, wanted: Needs, values: Mapping[str, Any]) -> Filled | Decision:
        """The request, or an allow if the arguments are invalid and the mode lets everything pass."""
        try:
            return wanted.fill(values)
        except InvalidRequest as error:
            if self.enforces():
                raise
            LOG.warning("mode %s, `%s` let pass: %s", self.asker.mode, wanted.action, error)
            return Decision(
                allowed=True, context={"missing": [], "reasons": [], "effects": [], "mode": str(self.asker.mode)}
            )

    def enforces(self) -> bool:
        """Whether denials are enforced, which is also the case without a client."""
        return self._asker is None or self._asker.mode is Mode.ENFORCE

    def caller(self, user: Callable[[], CallerLike] | None = None) -> Caller | None:
        """The current caller."""
        return as_caller((user or self._user)())


GUARD = Guard()
"""The guard behind the module-level functions."""


def _who(asker: AnyAsker, asked_by: Caller | None, beside: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The user, and `beside` with their groups; raises Unauthenticated without a caller if the client enforces decisions."""
    if asked_by is None:
        if asker.mode is Mode.ENFORCE:
            raise Unauthenticated("no caller is known")
        return "", beside
    if asked_by.groups and not beside.get("groups"):
        beside = beside | {"groups": asked_by.groups}
    return asked_by.user, beside


class Allowed:
    """Context manager that requires an allow and yields its decision."""

    def __init__(self, guard: Guard, action: str, resource: EntityLike, beside: dict[str, Any]) -> None:
        self._guard = guard
        self._asked = (action, resource)
        self._beside = beside
        self._tokens: list[Token[Decision | None]] = []

    def __enter__(self) -> Decision:
        return self._enter(self._guard.require(self._guard.caller(), *self._asked, **self._beside))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        DECISION.reset(self._tokens.pop())

    async def __aenter__(self) -> Decision:
        return self._enter(await self._guard.arequire(self._guard.caller(), *self._asked, **self._beside))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        DECISION.reset(self._tokens.pop())

    def _enter(self, decision: Decision) -> Decision:
        self._tokens.append(DECISION.set(decision))
        return decision


# --- the decorator ---


def _wrapped(function: Callable[P, R], wanted: Needs, guard: Guard, user: Callable[[], CallerLike]) -> Callable[P, R]:
    """The guarded function, of the same kind and with the same signature."""
    arguments = _arguments(function, wanted)

    def ask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision:
        return guard.ask(guard.caller(user), wanted, arguments(args, kwargs))

    async def aask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision:
        return await guard.aask(guard.caller(user), wanted, arguments(args, kwargs))

    if inspect.iscoroutinefunction(function):
        coroutine = cast("Callable[P, Awaitable[Any]]", function)

        @wraps(function)
        async def guarded_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            with _deciding(await aask(args, kwargs)):
                return await coroutine(*args, **kwargs)

        return cast("Callable[P, R]", guarded_coroutine)
    if inspect.isasyncgenfunction(function):
        generator = cast("Callable[P, AsyncGenerator[Any, None]]", function)

        @wraps(function)
        async def guarded_generator(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Any]:
            await aask(args, kwargs)
            async with aclosing(generator(*args, **kwargs)) as items:
                async for item in items:
                    yield item

        return cast("Callable[P, R]", guarded_generator)

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        with _deciding(ask(args, kwargs)):
            return function(*args, **kwargs)

    return guarded


@contextmanager
def _deciding(decision: Decision) -> Iterator[None]:
    token = DECISION.set(decision)
    try:
        yield
    finally:
        DECISION.reset(token)


def _arguments(
    function: Callable[..., Any], wanted: Needs
) -> Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]:
    """A reader of the needed arguments of a call, by name; raises UsageError for names that the function lacks."""
    if not inspect.isfunction(function):
        raise UsageError("`requires` goes on functions; on a method, write it below `@staticmethod` or `@classmethod`")
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    places = {
        p.name: (at if p.kind is not p.KEYWORD_ONLY else sys.maxsize, p.kind is not p.POSITIONAL_ONLY, p.default)
        for at, p in enumerate(named)
    }
    unknown = sorted(wanted.names - set(places))
    if unknown:
        name = getattr(function, "__qualname__", "the function")
        raise UsageError(f"`{name}` has no argument `{unknown[0]}`, which `{wanted.action}` needs")
    wanted_places = [(name, *places[name]) for name in sorted(wanted.names)]

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        # By position, since `signature.bind` takes longer than a decision; invalid calls fail when the function is called.
        values: dict[str, Any] = {}
        for name, at, by_name, default in wanted_places:
            # A keyword with the name of a positional-only parameter belongs to `**kwargs`.
            if by_name and name in kwargs:
                values[name] = kwargs[name]
            elif at < len(args):
                values[name] = args[at]
            elif default is not inspect.Parameter.empty:
                values[name] = default
            else:
                signature.bind(*args, **kwargs)
                raise TypeError(f"the argument `{name}` is missing")
        return values

    return arguments
