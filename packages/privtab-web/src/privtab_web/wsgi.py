"""WSGI middleware that requests a decision before the application handles a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from privtab.base import DecisionError
from privtab_web._answers import CallerLike, HttpResponse, acting_as, answer, as_caller, decided
from privtab_web._routes import Middleware, Route, open_route, route, wsgi_router

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["Route", "WsgiMiddleware", "open_route", "route"]

App: TypeAlias = "WSGIApplication"
User: TypeAlias = "Callable[[WSGIEnvironment], CallerLike]"


class WsgiMiddleware(Middleware[App, User]):
    """Checks requests by `routes` before `app` runs; unmapped requests are refused, unless `unmapped="allow"`.

    `user` returns the caller from the environment, as a name, a Caller or None; by default, the caller of the guard, else
    REMOTE_USER, which is set by the server and not by a header. It is also the caller for guarded functions during the call
    of `app`. `guard` is a Guard or a client. The router of Flask, or another `url_map` of Werkzeug's, says which parameters the
    handler will get: if they differ from the parameters of the route, the request is refused.
    """

    _router_of = staticmethod(wsgi_router)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Handle one request."""
        method = str(environ["REQUEST_METHOD"])
        path = str(environ.get("PATH_INFO", "")).encode("latin-1").decode("utf-8", "replace") or "/"
        match = self._match(method, path, self._router(environ))
        if isinstance(match, HttpResponse):
            return _refuse(method, start_response, match)
        try:
            caller = self._caller(environ)
            decision = None
            if match is not None and match[0].needs is not None:
                decision = self._guard.ask(caller, match[0].needs, match[1])
        except DecisionError as error:
            return _refuse(method, start_response, answer(error, self._tell))
        with decided(decision), acting_as(caller):
            return self.app(environ, start_response)

    def _caller(self, environ: WSGIEnvironment) -> Any:
        if self._user is not None and not self._guard.denies_all:
            return as_caller(self._user(environ))
        return self._guard.caller() or as_caller(environ.get("REMOTE_USER"))


def _refuse(method: str, start_response: StartResponse, refusal: HttpResponse) -> list[bytes]:
    start_response(f"{refusal.status} {HTTPStatus(refusal.status).phrase}", refusal.fields())
    return [] if method == "HEAD" else [refusal.body]
