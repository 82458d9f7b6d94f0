"""Guards for the functions of a service."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, TypeAlias, TypeVar, cast

from privtab.base import AccessDenied, Decision, DecisionUnavailable, Entity, InvalidRequest, Request, UsageError
from privtab.client import Asker, as_entity
from privtab_web._answers import DECISION, LOG, Caller, CallerLike, Unauthenticated, as_caller, caller, decided
from privtab_web._needs import EntityTemplate, FilledRequest, RequestTemplate, request_template

if TYPE_CHECKING:
    from contextvars import Token

    from privtab.client import AsyncClient, EntityLike

P = ParamSpec("P")
R = TypeVar("R")

AnyAsker: TypeAlias = "Asker | AsyncClient"
"""Any client: a Client, an Embedded or an AsyncClient."""


NOBODY = Caller(user="privtab-probe")
"""The caller while an application is probed: an identity that holds nothing."""
NEEDS = "__privtab_needs__"
USER = "__privtab_user__"


def mark(guarding: Callable[..., Any], template: RequestTemplate) -> None:
    """Note on a function what it requests before it runs, so that `privtab routes` sees it; `wraps` passes it on to decorators above."""
    setattr(guarding, NEEDS, (template, *getattr(guarding, NEEDS, ())))


@dataclass(slots=True)
class Denials:
    """The questions that guards were asked, and denied, during one request of the probe."""

    asked: list[tuple[str, Entity]] = field(default_factory=list)
    overcome: bool = False
    """True if the handler went on after the last denial: what it answered is its own."""


DENIALS: ContextVar[Denials | None] = ContextVar("privtab_denials", default=None)
"""Record of requests while an application is probed."""


def _refuse(action: str, resource: EntityLike) -> NoReturn:
    """Note a request and deny it. Raises AccessDenied, or InvalidRequest for what is no entity."""
    found = as_entity(resource)
    if (denials := DENIALS.get()) is not None:
        denials.asked.append((action, found))
        denials.overcome = False
    raise AccessDenied(Request(user=NOBODY.user, action=action, resource=found), Decision(allowed=False))


class Guard:
    """Requests a decision before a function runs. Created when modules load, bound to a client when the service starts.

    `user` returns the caller, as a name or a Caller; by default, the one set by `acting_as`. Until a client is bound, every
    guarded call raises DecisionUnavailable.
    """

    denies_all: ClassVar[bool] = False
    """True if an application is being probed: all guards deny, whatever their clients."""

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
        resource: EntityTemplate,
        *,
        arg: str | None = None,
        with_: Mapping[str, EntityTemplate] | None = None,
        flags: Iterable[str] | Mapping[str, str] = (),
        user: Callable[[], CallerLike] | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Run a function only if its caller may do `action` on the entity named by its arguments.

        `@requires("drop", "table", arg="table_id")`: the argument is the path, or an Entity.
        `@requires("load", "table:{catalog}/{schema}/{table}")`: each argument is one name.
        `flags={"override": "force"}` sets the flag `override` if the argument `force` is true.
        Raises AccessDenied for a denial, another DecisionError without a decision, before the function starts.
        """
        template = request_template(action, resource, arg, with_, flags)

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            guarded_function = _guarded(function, self, template, user or self._user)
            mark(guarded_function, template)
            return guarded_function

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

    def require(self, asked_by: Caller | None, action: str, resource: EntityLike, **details: Any) -> Decision:
        """The decision if it is an allow; raises like `requires`."""
        if self.denies_all:
            _refuse(action, resource)
        asker = self.asker
        if not isinstance(asker, Asker):
            raise UsageError("an AsyncClient needs async functions: make this function async, or bind a Client")
        user, details = _user_and_details(asker, asked_by, details)
        return asker.require(user, action, resource, **details)

    async def arequire(self, asked_by: Caller | None, action: str, resource: EntityLike, **details: Any) -> Decision:
        """`require` without blocking the event loop; raises like `requires`."""
        if self.denies_all:
            _refuse(action, resource)
        asker = self.asker
        user, details = _user_and_details(asker, asked_by, details)
        if not isinstance(asker, Asker):
            return await asker.require(user, action, resource, **details)
        # An engine in process may block too, while it loads newer bundles.
        return await asyncio.to_thread(asker.require, user, action, resource, **details)

    def ask(self, asked_by: Caller | None, template: RequestTemplate, values: Mapping[str, Any]) -> Decision:
        """The decision for a call with these arguments; raises like `requires`."""
        filled = self._fill(template, values)
        if isinstance(filled, Decision):
            return filled
        return self.require(asked_by, filled.action, filled.resource, **filled.details())

    async def aask(self, asked_by: Caller | None, template: RequestTemplate, values: Mapping[str, Any]) -> Decision:
        """`ask` without blocking the event loop."""
        filled = self._fill(template, values)
        if isinstance(filled, Decision):
            return filled
        return await self.arequire(asked_by, filled.action, filled.resource, **filled.details())

    def _fill(self, template: RequestTemplate, values: Mapping[str, Any]) -> FilledRequest | Decision:
        """The request, or an allow if the arguments are invalid and the mode lets everything pass."""
        try:
            return template.fill(values)
        except InvalidRequest as error:
            if self.enforces():
                raise
            LOG.warning("mode %s, `%s` let pass: %s", self.asker.mode, template.action, error)
            return Decision(
                allowed=True, context={"missing": [], "reasons": [], "effects": [], "mode": str(self.asker.mode)}
            )

    def enforces(self) -> bool:
        """Return whether denials are enforced, which is also the case without a client."""
        return self.denies_all or self._asker is None or self._asker.mode == "enforce"

    def caller(self, user: Callable[[], CallerLike] | None = None) -> Caller | None:
        """The current caller."""
        return NOBODY if self.denies_all else as_caller((user or self._user)())


GUARD = Guard()
"""The guard behind the module-level functions."""
allowed, bind, requires = GUARD.allowed, GUARD.bind, GUARD.requires


def _user_and_details(asker: AnyAsker, asked_by: Caller | None, details: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The user, and `details` with their groups; raises Unauthenticated without a caller if the client enforces decisions."""
    if asked_by is None:
        if asker.mode == "enforce":
            raise Unauthenticated("no caller is known")
        return "", details
    if asked_by.groups and not details.get("groups"):
        details = details | {"groups": asked_by.groups}
    return asked_by.user, details


class Allowed:
    """Context manager that requires an allow and yields its decision."""

    def __init__(self, guard: Guard, action: str, resource: EntityLike, details: dict[str, Any]) -> None:
        self._guard = guard
        self._request = (action, resource)
        self._details = details
        self._tokens: list[Token[Decision | None]] = []

    def __enter__(self) -> Decision:
        return self._enter(self._guard.require(self._guard.caller(), *self._request, **self._details))

    def __exit__(self, *_: object) -> None:
        DECISION.reset(self._tokens.pop())

    async def __aenter__(self) -> Decision:
        return self._enter(await self._guard.arequire(self._guard.caller(), *self._request, **self._details))

    async def __aexit__(self, *_: object) -> None:
        DECISION.reset(self._tokens.pop())

    def _enter(self, decision: Decision) -> Decision:
        self._tokens.append(DECISION.set(decision))
        return decision


# --- the decorator ---


def _guarded(
    function: Callable[P, R], guard: Guard, template: RequestTemplate, user: Callable[[], CallerLike]
) -> Callable[P, R]:
    """The guarded function, of the same kind and with the same signature."""
    arguments = _arguments(function, template)

    async def aask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Decision:
        return await guard.aask(guard.caller(user), template, arguments(args, kwargs))

    if inspect.iscoroutinefunction(function):
        coroutine = cast("Callable[P, Awaitable[Any]]", function)

        @wraps(function)
        async def guarded_coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
            with decided(await aask(args, kwargs)):
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
        with decided(guard.ask(guard.caller(user), template, arguments(args, kwargs))):
            return function(*args, **kwargs)

    return guarded


def _arguments(
    function: Callable[..., Any], template: RequestTemplate
) -> Callable[[tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]:
    """A reader of the needed arguments of a call, by name; raises UsageError for names that the function lacks."""
    if not inspect.isfunction(function):
        raise UsageError("`requires` goes on functions; on a method, write it below `@staticmethod` or `@classmethod`")
    signature = inspect.signature(function)
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    slots = {
        parameter.name: (
            position if parameter.kind is not parameter.KEYWORD_ONLY else sys.maxsize,
            parameter.kind is not parameter.POSITIONAL_ONLY,
            parameter.default,
        )
        for position, parameter in enumerate(parameters)
    }
    unknown = sorted(template.names - set(slots))
    if unknown:
        name = getattr(function, "__qualname__", "the function")
        raise UsageError(f"`{name}` has no argument `{unknown[0]}`, which `{template.action}` needs")
    needed = [(name, *slots[name]) for name in sorted(template.names)]

    def arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
        # By position, since `signature.bind` takes longer than a decision; invalid calls fail when the function is called.
        values: dict[str, Any] = {}
        for name, position, by_name, default in needed:
            # A keyword with the name of a positional-only parameter belongs to `**kwargs`.
            if by_name and name in kwargs:
                values[name] = kwargs[name]
            elif position < len(args):
                values[name] = args[position]
            elif default is not inspect.Parameter.empty:
                values[name] = default
            else:
                signature.bind(*args, **kwargs)
                raise TypeError(f"the argument `{name}` is missing")
        return values

    return arguments
