"""The routes of a web application, each with what guards it, by looking at the application's own routers."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from enum import Enum
from importlib import import_module
from itertools import islice, product
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, get_args

from privtab.base import InvalidRequest, Span, UsageError
from privtab_web._guard import NOBODY, USER
from privtab_web._needs import RequestTemplate
from privtab_web._routes import (
    ANY_METHOD,
    DEEPEST,
    EVERY,
    WRAPPED,
    Middleware,
    codes_of,
    converted,
    handler_of,
    has_routes,
    leaves,
    marks,
    matched,
    methods_of,
    selected,
    span_of,
)
from privtab_web.asgi import WEBSOCKET, AsgiMiddleware

MADE_UP = ("privtab-probe", "7", "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "90210", "1.5", "2030-01-01", "a", "true")
"""Values for parameters of paths, of every type that routers tell apart."""
MOST_TRIED = 1_000
MOST_SAMPLES = 4
_PLACEHOLDER = re.compile(r"\{\w+(:\w+)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cover:
    """The guard of a route, and its request; `needs` is None where every request is refused."""

    by: str
    needs: RequestTemplate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRoute:
    """A route and a method."""

    method: str
    path: str
    """As in `/tables/{name}`, `/numbers/{number:int}`, `/files/{path:path}`."""
    covers: tuple[Cover, ...] = ()
    span: Span | None = None
    """The handler, or the operation of a document."""
    methods: tuple[str, ...] = ()
    """The methods that the handler takes: with GET also HEAD, all of them for ANY."""
    samples: tuple[str, ...] = ()
    """Paths with made-up parameters that reach the handler."""
    codes: tuple[CodeType, ...] = ()
    """The code of the handler, of its decorators and of its dependencies."""
    problem: str | None = None
    """Reason why no request reaches the handler."""

    @property
    def name(self) -> str:
        """The method and the path."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """An application, its routes, and what the probe of it needs."""

    app: Any
    routes: tuple[AppRoute, ...]
    settings: tuple[tuple[MutableMapping[Any, Any], Any, Any], ...] = ()
    """Mappings with a key and a value to set: dependencies that tell who calls, and that exceptions are handed on."""
    documents: tuple[tuple[str, Callable[[], Any]], ...] = ()
    """FastAPI's descriptions of its applications, by where they are mounted."""


def load_app(name: str) -> Any:
    """The application `module:name`, `module:factory()` or, for Django, a module with `urlpatterns`. Raises UsageError."""
    module_name, _, attribute = name.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: Any = import_module(module_name)
        if not attribute and not hasattr(found, "urlpatterns"):
            raise AttributeError("a module without `urlpatterns`: write module:name")
        for part in attribute.removesuffix("()").split(".") if attribute else ():
            found = getattr(found, part)
        return found() if attribute.endswith("()") else found
    except Exception as error:
        raise UsageError(f"no application `{name}`: {type(error).__name__}: {error}") from error


def inspected(app: Any) -> Inspected:
    """The routes of an application. Raises UsageError if it is none that this knows."""
    walk = _Walk()
    found = tuple(route for leaf in walk.app(app, _Position()) for route in leaf.routes())
    if hasattr(app, "urlpatterns"):
        from django.core.handlers.wsgi import WSGIHandler

        app = WSGIHandler()
    return Inspected(app=app, routes=found, settings=tuple(walk.settings), documents=tuple(walk.documents))


@dataclass(frozen=True, slots=True)
class _Position:
    """The position of the walk: the path so far, the middleware around, and what each router above must select."""

    prefix: str = ""
    around: tuple[tuple[Middleware[Any, Any], str], ...] = ()
    levels: tuple[tuple[Callable[[str, str, str], object], str, object], ...] = ()
    wraps: bool = False
    """True if a middleware wraps the application directly."""

    def within(self, middleware: Middleware[Any, Any]) -> _Position:
        return replace(self, around=(*self.around, (middleware, self.prefix)), wraps=True)

    def below(self, select: Callable[[str, str, str], object], expected: object, path: str = "") -> _Position:
        level = (select, self.prefix, expected)
        return replace(self, prefix=self.prefix + path, levels=(*self.levels, level), wraps=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Leaf:
    """A handler of a router."""

    at: _Position
    path: str
    methods: tuple[str, ...]
    endpoint: Any = None
    covers: tuple[Cover, ...] = ()
    codes: tuple[CodeType, ...] = ()
    """The code of the dependencies."""
    values: tuple[str, ...] = MADE_UP

    def routes(self) -> Iterator[AppRoute]:
        """The routes of a handler, one for each method; HEAD belongs to GET."""
        for method in self.methods:
            if method == "HEAD" and "GET" in self.methods:
                continue
            methods = (
                EVERY if method == ANY_METHOD else (method, *({"HEAD"} & {*self.methods} if method == "GET" else ()))
            )
            handler = handler_of(self.endpoint, method)
            handlers = [handler_of(self.endpoint, other) for other in methods]
            needed = marks(handler) if all(map(marks, handlers)) else ()
            yield self._checked(
                AppRoute(
                    method=method,
                    path=_written(self.at.prefix + self.path) or "/",
                    methods=methods,
                    span=span_of(handler),
                    covers=(*self.covers, *(Cover(by="decorator", needs=needs) for needs in needed)),
                    codes=(*self.codes, *(code for run in (self.endpoint, *handlers) for code in codes_of(run))),
                )
            )

    def _checked(self, route: AppRoute) -> AppRoute:
        """The route with paths that reach it, and the middleware that guards all of them."""
        names = [found[0] for found in _PLACEHOLDER.finditer(route.path)]
        # Of each value also a longer path, where that reaches the handler: a pattern of a middleware may take one part alone.
        tried = islice(product(self.values, repeat=len(names)), MOST_TRIED)
        paths = (
            _filled(
                route.path, names, [v + more * name.endswith(":path}") for name, v in zip(names, values, strict=True)]
            )
            for values in tried
            for more in ("", "/a")
        )
        taken: object = None
        samples: dict[str, None] = {}
        for path in paths:
            if (taken := self._taken(route.methods[0], path)) is None:
                samples[path] = None
            if len(samples) == MOST_SAMPLES:
                break
        if not samples:
            other = getattr(taken, "path", None) or getattr(taken, "rule", None)
            comes_first = other is not None and getattr(taken, "route", None) is not self.at.levels[-1][2]
            problem = (
                f"its requests go to `{other}`, which comes first" if comes_first else "no made-up path reaches it"
            )
            return replace(route, problem=problem)
        covers = [
            cover for middleware, prefix in self.at.around for cover in self._by(middleware, prefix, route, samples)
        ]
        return replace(route, covers=(*covers, *route.covers), samples=tuple(samples))

    def _taken(self, method: str, path: str) -> object:
        """Return the other handler that takes a request first; None if the request reaches this handler."""
        for select, prefix, expected in self.at.levels:
            if (taken := select(method, _root(prefix, path), path)) is not expected:
                return taken or "nothing"
        return None

    def _by(
        self, middleware: Middleware[Any, Any], prefix: str, route: AppRoute, samples: Iterable[str]
    ) -> Iterator[Cover]:
        """Yield the requests of a middleware for the paths of a route; nothing if any path passes without a decision."""
        needs: dict[str, RequestTemplate | None] = {}
        # Where a route of the middleware is open, a path of this route may match it.
        opened = [_PLACEHOLDER.sub(MADE_UP[0], prefix + r.path) for r in middleware.routes if r.needs is None]
        request = scope_of if isinstance(middleware, AsgiMiddleware) else environ_of
        for path in (*samples, *(path for path in opened if self._taken(route.methods[0], path) is None)):
            root = _root(prefix, path)
            for method in route.methods:
                try:
                    found = middleware.verdict(method, path.removeprefix(root) or "/", request(method, root, path))
                except InvalidRequest:
                    continue
                if (found is not None and found[0].needs is None) or (found is None and middleware.is_open):
                    return
                needs.setdefault("" if found is None else repr(found[0]), found and found[0].needs)
        by = f"middleware of {prefix}".removesuffix(" of ")
        templates: list[RequestTemplate | None] = [template for template in needs.values() if template is not None]
        yield from (Cover(by=by, needs=template) for template in templates or [None] * bool(needs))


_ANGLES = re.compile(r"<(?:(\w+)(?:\([^>]*\))?:)?(\w+)>")


def _written(path: str) -> str:
    """A path in Starlette's notation, from Werkzeug's or Django's. Types stay: two routes may differ by them alone."""
    return _ANGLES.sub(lambda found: f"{{{found[2]}{f':{found[1]}' if found[1] else ''}}}", path)


def _root(prefix: str, path: str) -> str:
    """The beginning of a path that a prefix with placeholders takes."""
    return "/".join(path.split("/")[: prefix.count("/") + 1])


def _filled(path: str, names: Iterable[str], values: Iterable[str]) -> str:
    for name, value in zip(names, values, strict=True):
        path = path.replace(name, value, 1)
    return path


def scope_of(method: str, root: str, path: str) -> dict[str, Any]:
    kind = "websocket" if method == WEBSOCKET else "http"
    return {"type": kind, "method": method, "path": path, "root_path": root, "query_string": b"", "headers": []}


def environ_of(method: str, root: str, path: str) -> dict[str, Any]:
    from wsgiref.util import setup_testing_defaults

    environ: dict[str, Any] = {"REQUEST_METHOD": method, "SCRIPT_NAME": root, "PATH_INFO": path[len(root) :]}
    setup_testing_defaults(environ)
    return environ


# --- the walk ---


class _Walk:
    """Goes through an application, its middleware, and what it mounts."""

    def __init__(self) -> None:
        self.settings: list[tuple[MutableMapping[Any, Any], Any, Any]] = []
        self.documents: list[tuple[str, Callable[[], Any]]] = []
        self.depth = 0

    def app(self, app: Any, at: _Position) -> Iterator[_Leaf]:
        """The handlers of an application."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise UsageError("the application wraps itself")
        if isinstance(app, Middleware):
            yield from self.app(app.app, at.within(app))
        elif type(app).__module__.startswith("django.core.handlers.") or hasattr(app, "urlpatterns"):
            yield from self.django(app, at)
        elif hasattr(app, "url_map"):
            yield from self.flask(app, at)
        elif has_routes(app):
            yield from self.starlette(app, at)
        elif isinstance(mounts := getattr(app, "mounts", None), Mapping):
            yield from self.dispatched(app, mounts, at)
        elif (inner := _wrapped_by(app)) is not None:
            yield from self.app(inner, at)
        elif not callable(app):
            raise UsageError(f"a {type(app).__name__} is no application of FastAPI, Starlette, Flask or Django")
        else:
            yield from _opaque(app, at)
        self.depth -= 1

    def starlette(self, app: Any, at: _Position) -> Iterator[_Leaf]:
        """The routes of Starlette or FastAPI."""
        for middleware in getattr(app, "user_middleware", ()):
            if isinstance(middleware.cls, type) and issubclass(middleware.cls, Middleware):
                at = at.within(middleware.cls(app, *middleware.args, **middleware.kwargs))
        router = getattr(app, "router", app)
        overrides: dict[Any, Any] = getattr(app, "dependency_overrides", {})
        if hasattr(app, "openapi"):
            self.documents.append((at.prefix, app.openapi))
        shared = dict(_shared(router))

        def select(method: str, root: str, path: str) -> object:
            found = selected(app, scope_of(method, root, path))
            if found is None or converted(found[0], found[1].get("path_params", {})) is not None:
                return found and found[0]
            return SimpleNamespace(path=found[0].path, route=found[0])  # its handler takes other values

        for route in leaves(app.routes):
            path = getattr(route, "path", "")
            codes: list[CodeType] = []
            covers = tuple(self.dependencies(route, shared, overrides, codes))
            if hasattr(route, "routes"):  # a mounted application
                yield from self.app(route.app, at.below(select, route, path))
                continue
            below, inner = at.below(select, route), getattr(route, "app", None)
            while (inner := _wrapped_by(inner) if not isinstance(inner, Middleware) else inner) is not None:
                if isinstance(inner, Middleware):
                    below, inner = below.within(inner), inner.app
            endpoint = getattr(route, "endpoint", None)
            is_websocket = "WebSocket" in type(route).__name__
            methods = (WEBSOCKET,) if is_websocket else tuple(sorted(route.methods or methods_of(endpoint)))
            values = (*_choices(route), *MADE_UP)
            yield _Leaf(
                at=below,
                path=path,
                methods=methods,
                endpoint=endpoint,
                covers=covers,
                codes=tuple(codes),
                values=values,
            )
        for group in getattr(router, "_iter_low_priority_routes", tuple)():
            group = getattr(group, "original_route", group)  # noqa: PLW2901
            for route in getattr(group, "routes", ()):
                covers = tuple(self.dependencies(group, shared, overrides, []))
                yield _Leaf(
                    at=at, path=f"{route.path.rstrip('/')}/{{path:path}}", methods=("GET", "HEAD"), covers=covers
                )
        if (default := getattr(router, "default", None)) != getattr(router, "not_found", None):
            yield from _opaque(default, replace(at, wraps=False))

    def dependencies(
        self, route: Any, shared: Mapping[int, frozenset[Any]], overrides: dict[Any, Any], codes: list[CodeType]
    ) -> Iterator[Cover]:
        """Yield the requests of a FastAPI route's dependencies, except overridden ones; `codes` gets the code of all of them."""
        of_routers = shared.get(id(getattr(route, "original_route", route)), ())
        waiting = [dependant] if (dependant := getattr(route, "dependant", None)) is not None else []
        while waiting:
            dependant = waiting.pop()
            for inner in dependant.dependencies:
                codes += codes_of(overrides.get(inner.call, inner.call))
                if inner.call in overrides:
                    continue
                waiting.append(inner)
                if (user := getattr(inner.call, USER, None)) is not None:
                    self.settings.append((overrides, user, lambda: NOBODY))
                by = "router dependency" if inner.call in of_routers else "dependency"
                yield from (Cover(by=by, needs=needs) for needs in marks(inner.call))

    def flask(self, app: Any, at: _Position) -> Iterator[_Leaf]:
        """The rules of Flask, or of another `url_map` of Werkzeug's."""
        inner = getattr(app, "wsgi_app", None)
        while inner is not None and inner is not app:
            at = at.within(inner) if isinstance(inner, Middleware) else at
            inner = inner.app if isinstance(inner, Middleware) else _wrapped_by(inner)

        def select(method: str, root: str, path: str) -> object:
            found = matched(app, environ_of(method, root, path))
            return found and found[0]

        if hasattr(app, "config"):
            self.settings.append((app.config, "PROPAGATE_EXCEPTIONS", True))
        for rule in app.url_map.iter_rules():
            if not rule.build_only and not rule.redirect_to:
                automatic = {"OPTIONS"} if getattr(rule, "provide_automatic_options", False) else set()
                endpoint = getattr(app, "view_functions", {}).get(rule.endpoint, rule.endpoint)
                methods = tuple(sorted(rule.methods - automatic)) if rule.methods else (ANY_METHOD,)
                yield _Leaf(at=at.below(select, rule), path=rule.rule, methods=methods, endpoint=endpoint)

    def dispatched(self, app: Any, mounts: Mapping[str, Any], at: _Position) -> Iterator[_Leaf]:
        """The applications of a dispatcher of Werkzeug's."""

        def select(method: str, root: str, path: str) -> object:
            del method
            within = path[len(root) :]
            return next((m for m in sorted(mounts, key=len, reverse=True) if f"{within}/".startswith(f"{m}/")), app)

        for prefix, mounted in mounts.items():
            yield from self.app(mounted, at.below(select, prefix, prefix))
        yield from self.app(app.app, at.below(select, app))

    def django(self, app: Any, at: _Position) -> Iterator[_Leaf]:
        """The patterns of Django's URL configuration."""
        import django
        from django.apps import apps
        from django.conf import settings
        from django.urls import Resolver404, get_resolver
        from django.utils.regex_helper import normalize

        if not apps.ready:
            django.setup()
        self.settings.append((vars(settings), "DEBUG_PROPAGATE_EXCEPTIONS", True))
        if hasattr(app, "urlpatterns"):
            self.settings.append((vars(settings), "ROOT_URLCONF", app.__name__))
        resolver = get_resolver(app.__name__ if hasattr(app, "urlpatterns") else None)

        def select(method: str, root: str, path: str) -> object:
            del method
            try:
                return resolver.resolve(path[len(root) :]).func
            except Resolver404:
                return None

        def walk(patterns: Iterable[Any], before: str) -> Iterator[tuple[str, Any]]:
            for pattern in patterns:
                path = str(pattern.pattern)
                if not hasattr(pattern.pattern, "converters") or pattern.pattern.regex.groups > len(
                    pattern.pattern.converters
                ):
                    (path, names), *_ = normalize(pattern.pattern.regex.pattern)
                    path %= {name: f"{{{name}}}" for name in names}
                path = before + path
                if hasattr(pattern, "url_patterns"):
                    yield from walk(pattern.url_patterns, path)
                else:
                    yield path, pattern.callback

        for path, view in walk(resolver.url_patterns, "/"):
            yield _Leaf(at=at.below(select, view), path=path, methods=methods_of(view), endpoint=view)


def _wrapped_by(app: Any) -> Any:
    """Return the application inside an application or a bound method, if it is known."""
    return next((inner for name in WRAPPED if (inner := getattr(app, name, None)) is not None), None)


def _opaque(app: Any, at: _Position) -> Iterator[_Leaf]:
    """Yield the leaves of an application with unknown routes: the routes of its middleware, and all that the middleware lets pass."""
    middleware = at.around[-1][0] if at.wraps else None
    for route in middleware.routes if middleware is not None else ():
        yield _Leaf(at=at, path=route.path, methods=tuple(sorted(route.methods)), endpoint=app)
    if middleware is None or middleware.is_open:
        yield _Leaf(at=at, path="/{path:path}", methods=(ANY_METHOD,), endpoint=app)


def _shared(router: Any, above: frozenset[Any] = frozenset()) -> Iterator[tuple[int, frozenset[Any]]]:
    """The dependencies that routers add to their routes, by the identity of the route."""
    above = above.union(depends.dependency for depends in getattr(router, "dependencies", ()))
    for route in getattr(router, "routes", ()):
        if (included := getattr(route, "original_router", None)) is not None:
            given = [depends.dependency for depends in route.include_context.dependencies]
            yield from _shared(included, above.union(given))
        else:
            yield id(route), above


def _choices(route: Any) -> Iterator[str]:
    """The values that FastAPI takes for parameters of the path that have few."""
    for field in getattr(getattr(route, "dependant", None), "path_params", ()):
        kind = field.field_info.annotation
        members = [m.value for m in kind] if inspect.isclass(kind) and issubclass(kind, Enum) else get_args(kind)
        yield from (value for value in members if isinstance(value, str))
