"""ASGI middleware that requests a decision before the application handles a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from inspect import isawaitable
from typing import Any, TypeAlias

from privtab.base import DecisionError
from privtab_web._answers import CallerLike, HttpResponse, acting_as, answer, as_caller, decided
from privtab_web._routes import Middleware, Route, asgi_router, open_route, route

__all__ = ["AsgiMiddleware", "Route", "open_route", "route"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
User: TypeAlias = Callable[[Scope], CallerLike | Awaitable[CallerLike]]

WEBSOCKET = "WEBSOCKET"
"""The method of routes for websockets."""


class AsgiMiddleware(Middleware[App, User]):
    """Checks requests by `routes` before `app` runs; unmapped requests are refused, unless `unmapped="allow"`.

    `user` returns the caller from the connection's scope, as a name, a Caller or None; by default, the caller of the guard.
    It is also the caller for guarded functions in `app`. `guard` is a Guard or a client. A websocket is refused before it
    is accepted. The router of Starlette or FastAPI says which parameters the handler will get: if they differ from the
    parameters of the route, the request is refused.
    """

    _router_of = staticmethod(asgi_router)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        method = WEBSOCKET if scope["type"] == "websocket" else str(scope["method"])
        match = self._match(method, _path(scope), self._router(scope))
        if isinstance(match, HttpResponse):
            await _refuse(scope, send, match)
            return
        try:
            caller = await self._caller(scope)
            decision = None
            if match is not None and match[0].needs is not None:
                decision = await self._guard.aask(caller, match[0].needs, match[1])
        except DecisionError as error:
            await _refuse(scope, send, answer(error, self._tell))
            return
        with decided(decision), acting_as(caller):
            await self.app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Any:
        if self._user is None or self._guard.denies_all:
            return self._guard.caller()
        user = self._user(scope)
        return as_caller(await user if isawaitable(user) else user)


def _path(scope: Scope) -> str:
    """The path as the application's own router sees it, relative to where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and (path == root or path.startswith(f"{root}/")):
        return path.removeprefix(root) or "/"
    return path


async def _refuse(scope: Scope, send: Send, refusal: HttpResponse) -> None:
    if scope["type"] == "websocket":
        # Closing before accepting results in an HTTP 403.
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.fields()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    body = b"" if scope.get("method") == "HEAD" else refusal.body
    await send({"type": "http.response.body", "body": body})
