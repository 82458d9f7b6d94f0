"""WSGI middleware that requests a decision before the application handles a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from privtab.errors import DecisionError
from privtab.integrations._answers import Answer, Tell, answer, unmapped
from privtab.integrations._caller import DECISION, CallerLike, acting_as, as_caller
from privtab.integrations._guard import GUARD, AnyAsker, Guard
from privtab.integrations._routes import Route, find, open_route, route

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["Route", "WsgiMiddleware", "open_route", "route"]

User: TypeAlias = "Callable[[WSGIEnvironment], CallerLike]"


class WsgiMiddleware:
    """Checks requests by `routes` before `app` runs; unmapped requests are refused, unless `unmapped="allow"`.

    `user` returns the caller from the environment, as a name, a Caller or None; by default, the caller of the guard, else
    REMOTE_USER, which is set by the server and not by a header. It is also the caller for guarded functions during the call
    of `app`. `guard` is a Guard or a client.
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        routes: Iterable[Route],
        guard: Guard | AnyAsker = GUARD,
        user: User | None = None,
        tell: Tell | str = Tell.REASONS,
        unmapped: str = "deny",
    ) -> None:
        if unmapped not in ("deny", "allow"):
            raise ValueError(f"unmapped is `{unmapped}`: write `deny` or `allow`")
        self._app = app
        self._routes = tuple(routes)
        self._guard = guard if isinstance(guard, Guard) else Guard(guard)
        self._user = user
        self._tell = Tell(tell)
        self._open = unmapped == "allow"

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        method = str(environ["REQUEST_METHOD"])
        path = str(environ.get("PATH_INFO", "")).encode("latin-1").decode("utf-8", "replace") or "/"
        match = find(self._routes, method, path)
        if match is None and not self._open:
            refusal = unmapped(method, path)
            if self._guard.enforces():
                return _refuse(method, start_response, refusal)
        try:
            caller = self._caller(environ)
            decision = None
            if match is not None and match[0].needs is not None:
                decision = self._guard.ask(caller, match[0].needs, match[1])
        except DecisionError as error:
            return _refuse(method, start_response, answer(error, self._tell))
        token = DECISION.set(decision)
        try:
            with acting_as(caller):
                return self._app(environ, start_response)
        finally:
            DECISION.reset(token)

    def _caller(self, environ: WSGIEnvironment) -> Any:
        if self._user is not None:
            return as_caller(self._user(environ))
        return self._guard.caller() or as_caller(environ.get("REMOTE_USER"))


def _refuse(method: str, start_response: StartResponse, refusal: Answer) -> list[bytes]:
    start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", refusal.fields())
    return [] if method == "HEAD" else [refusal.body]
