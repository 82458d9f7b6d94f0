"""Map methods and paths of a web service to operations and resources, and ask its own router how it reads them.

Of the functions that handle requests: what guards them, their methods, their code and place.
"""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

from privtab.base import InvalidRequest, Span, UsageError, unusable_character
from privtab_web._answers import LOG, HttpResponse, Tell, answer, unmapped
from privtab_web._guard import GUARD, NEEDS, AnyAsker, Guard
from privtab_web._needs import EntityTemplate, RequestTemplate, request_template

A = TypeVar("A")
U = TypeVar("U")

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(:path)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The requirement for requests with one of `methods` and a path of this shape; `needs` is None if open to all."""

    methods: frozenset[str]
    path: str
    pattern: re.Pattern[str]
    needs: RequestTemplate | None

    def values(self, method: str, path: str) -> Mapping[str, str] | None:
        """The named parts of the path; None if it does not match."""
        if method not in self.methods:
            return None
        found = self.pattern.fullmatch(path)
        return None if found is None else found.groupdict()


def route(
    methods: str,
    path: str,
    action: str,
    resource: EntityTemplate,
    *,
    arg: str | None = None,
    with_: Mapping[str, EntityTemplate] | None = None,
    flags: Iterable[str] = (),
) -> Route:
    """`route("GET", "/tables/{table_id:path}", "load", "table", arg="table_id")`; several methods are separated by spaces.

    `{name}` is one part of the path, `{name:path}` any number of them. The resource is as in `requires`, filled with these
    parts. GET includes HEAD. Raises UsageError if it can never be filled.
    """
    template = request_template(action, resource, arg, with_, flags)
    new_route = _route(methods, path, template)
    unknown = sorted(template.names - set(new_route.pattern.groupindex))
    if unknown:
        raise UsageError(f"the route `{path}` has no `{{{unknown[0]}}}`, which `{action}` needs")
    return new_route


def open_route(methods: str, path: str) -> Route:
    """A route open to all: health, sign-in, static files."""
    return _route(methods, path, None)


Matched: TypeAlias = tuple[Route, Mapping[str, str]]
"""A route, and the named parts of the path."""


class Middleware(Generic[A, U]):
    """The routes of an application, and what becomes of requests that match none."""

    def __init__(
        self,
        app: A,
        *,
        routes: Iterable[Route],
        guard: Guard | AnyAsker = GUARD,
        user: U | None = None,
        tell: Tell | str = Tell.SUMMARY,
        unmapped: str = "deny",
    ) -> None:
        if unmapped not in ("deny", "allow"):
            raise ValueError(f"unmapped is `{unmapped}`: write `deny` or `allow`")
        self.app = app
        """The wrapped application."""
        self._guard = guard if isinstance(guard, Guard) else Guard(guard)
        self._user = user
        self._tell = Tell(tell)
        self.routes = tuple(routes)
        """The routes, in their order."""
        self.is_open = unmapped == "allow"
        """True if requests that match no route pass."""
        self._router = self._router_of(app)

    @staticmethod
    def _router_of(app: A) -> Router:
        """The application's router."""
        raise NotImplementedError

    def verdict(self, method: str, path: str, request: Any) -> Matched | None:
        """The route of a request, given as scope or environment; None if there is none. Raises InvalidRequest if it is refused as ambiguous."""
        return self._checked(method.upper(), path, self._router(request))

    def _match(self, method: str, path: str, reading: Reading | None) -> Matched | HttpResponse | None:
        """The route of a request with the parameters that its handler gets, or the refusal; None if it passes without a decision.

        `reading`: what the application's router makes of it, if that is known.
        """
        try:
            found = self._checked(method.upper(), path, reading)
        except InvalidRequest as error:
            if self._guard.enforces():
                return answer(error, self._tell)
            LOG.warning("mode %s, %s %r let pass: %s", self._guard.asker.mode, method, path, error)
            return None
        if found is None and not self.is_open:
            refusal = unmapped(method, path)
            return refusal if self._guard.enforces() else None
        return found

    def _checked(self, method: str, path: str, reading: Reading | None) -> Matched | None:
        """Raises InvalidRequest if the application may read the request as another one than this."""
        if (character := unusable_character(path)) is not None:
            raise InvalidRequest(f"the path contains the character {character}, which routers read differently")
        found = self._find(method, path)
        is_guarded = found is not None and found[0].needs is not None
        # Where a handler is reached by more spellings than the routes know, one of the others must not be a way around them.
        other = self._find(method, _plain(path) if reading is None else reading.handler)
        if other is not None and other[0].needs is not None and not is_guarded:
            raise InvalidRequest("the path is another spelling of one that needs a decision")
        if found is None or not is_guarded or reading is None:
            return found
        return found[0], _agreed(found[1], reading.parameters)

    def _find(self, method: str, path: str) -> Matched | None:
        found = ((route, values) for route in self.routes if (values := route.values(method, path)) is not None)
        return next(found, None)


def _plain(path: str) -> str:
    """A path as lenient routers read it: without repeated slashes, a slash at the end, and segments of dots."""
    return "/" + posixpath.normpath(path.replace("\\", "/")).lstrip("/")


def _agreed(values: Mapping[str, str], parameters: Mapping[str, object]) -> dict[str, str]:
    """The parts of a path as the handler gets them, by name or, if it has other names, by position. Raises InvalidRequest if they differ."""
    if not parameters.keys() >= values.keys():
        if len(parameters) != len(values):
            raise InvalidRequest("the application reads the path differently")
        parameters = dict(zip(values, parameters.values(), strict=True))
    found = {}
    for name, text in values.items():
        value = parameters[name]
        if isinstance(value, Enum):
            value = value.value
        is_number = isinstance(value, int | UUID) and not isinstance(value, bool)  # may be written in several ways
        found[name] = str(value) if is_number else text
        if found[name] != str(value):
            raise InvalidRequest("the application reads the path differently")
    return found


def _route(methods: str, path: str, template: RequestTemplate | None) -> Route:
    upper_methods = {method.upper() for method in methods.split()}
    if not upper_methods:
        raise UsageError(f"the route `{path}` has no method")
    if not path.startswith("/"):
        raise UsageError(f"the path of a route begins with `/`, unlike `{path}`")
    if "GET" in upper_methods:
        upper_methods.add("HEAD")
    pieces: list[str] = []
    position = 0
    for placeholder in PLACEHOLDER.finditer(path):
        pieces += [
            re.escape(path[position : placeholder.start()]),
            f"(?P<{placeholder[1]}>{'.*' if placeholder[2] else '[^/]+'})",
        ]
        position = placeholder.end()
    rest = path[position:]
    if "{" in rest or "}" in rest or any("{" in piece for piece in pieces[::2]):
        raise UsageError(f"the route `{path}` is malformed: write {{name}} or {{name:path}}")
    try:
        pattern = re.compile("".join([*pieces, re.escape(rest)]), re.DOTALL)
    except re.error as error:
        raise UsageError(f"the route `{path}` is malformed: {error}") from None
    return Route(methods=frozenset(upper_methods), path=path, pattern=pattern, needs=template)


WRAPPED = ("router", "app", "_app", "wsgi_app", "application", "__self__", "__wrapped__")
"""Attributes in which frameworks and middleware keep the wrapped application."""
ANY = "x"
"""Takes the place of each parameter in the path of a handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A router's reading of a request: the handler's path, with `x` for each parameter, and its parameters in their order."""

    handler: str
    parameters: Mapping[str, object]


Router: TypeAlias = Callable[[Any], Reading | None]
"""Reads an ASGI scope or a WSGI environment; None: no handler runs, or its parameters are unknown."""


def no_router(_: Any) -> None:
    """The router of an application that has none, or hides it."""


def asgi_router(app: object) -> Router:
    """The router of Starlette, FastAPI, or an application made of theirs."""
    router = _found(app, has_routes)
    return no_router if router is None else lambda scope: _read_starlette(router, dict(scope), "")


def wsgi_router(app: object) -> Router:
    """The router of Flask, or of an application with a `url_map` of Werkzeug's."""
    flask = _found(app, lambda candidate: hasattr(candidate, "url_map"))
    return no_router if flask is None else lambda environ: _read_werkzeug(flask, environ)


def _found(app: object, wanted: Callable[[Any], bool]) -> Any:
    """The first wanted object among an application and what it wraps."""
    candidates: list[Any] = [app]
    for candidate in candidates:  # grows
        if wanted(candidate):
            return candidate
        if len(candidates) < DEEPEST:
            candidates += [inner for name in WRAPPED if (inner := getattr(candidate, name, None)) is not None]
    return None


def has_routes(candidate: Any) -> bool:
    routes = getattr(candidate, "routes", None)
    return isinstance(routes, list) and all(hasattr(route, "matches") for route in routes)


# --- Starlette and FastAPI -------------------------------------------------------------------------------------------


def _read_starlette(router: Any, scope: dict[str, Any], above: str) -> Reading | None:
    """As the router's own loop. `above`: the path where the router is mounted."""
    if root := getattr(router, "root_path", ""):  # which FastAPI takes off the path, whatever the server says
        scope = scope | {"root_path": root}
    if (found := selected(router, scope)) is None:
        return None
    route, inner = found
    path = above + getattr(route, "path_format", "")
    if hasattr(route, "routes"):  # a mounted application
        below = _found(route.app, has_routes)
        return None if below is None else _read_starlette(below, inner, path.removesuffix("/{path}"))
    given = inner.get("path_params", {})
    for name in given:
        path = path.replace(f"{{{name}}}", ANY)
    parameters = converted(route, given)
    return None if parameters is None else Reading(handler=path, parameters=parameters)


def selected(router: Any, scope: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
    """The route that a router takes for a request, and the scope that the route gets."""
    for route in leaves(router.routes):
        match, child = route.matches(scope)
        if match.name == "FULL":
            return route, scope | child
    return None


def leaves(routes: Iterable[Any]) -> Iterator[Any]:
    """Yield the routes in their order; routes of FastAPI's included routers come as if they were declared here."""
    for route in routes:
        included = getattr(route, "effective_route_contexts", None)
        for leaf in (route,) if included is None else included():
            yield getattr(leaf, "starlette_route", None) or leaf


def converted(route: Any, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parameters as FastAPI hands them to the handler and its dependencies; None if it refuses them."""
    found = dict(parameters)
    waiting = [route.dependant] if getattr(route, "dependant", None) is not None else []
    while waiting:
        dependant = waiting.pop()
        waiting += dependant.dependencies
        for field in dependant.path_params:
            if field.alias not in parameters:
                continue
            value, errors = field.validate(parameters[field.alias], {}, loc=("path", field.alias))
            if errors:
                return None
            if not isinstance(value, str) or value != parameters[field.alias]:
                found[field.alias] = value
    return found


# --- Werkzeug and Flask ----------------------------------------------------------------------------------------------


def _read_werkzeug(app: Any, environ: Mapping[str, Any]) -> Reading | None:
    if (found := matched(app, environ)) is None:
        return None
    rule, parameters = found
    pieces = rule._trace  # noqa: SLF001  (nothing public tells the parameters of a path apart, in their order)
    path = "".join(ANY if dynamic else text for dynamic, text in pieces).partition("|")[2]
    return Reading(handler=path, parameters={name: parameters[name] for dynamic, name in pieces if dynamic})


def matched(app: Any, environ: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]] | None:
    """The rule for a request, and its parameters; None if there is none, as for another method or a redirection."""
    from werkzeug.exceptions import HTTPException

    try:
        if hasattr(app, "create_url_adapter"):
            adapter = app.create_url_adapter(app.request_class(dict(environ)))
        else:
            adapter = app.url_map.bind_to_environ(environ)
        found: tuple[Any, Mapping[str, Any]] = adapter.match(return_rule=True)
    except HTTPException:
        return None
    return found


ANY_METHOD = "ANY"
"""The method of a route that takes every method."""
EVERY = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
DEEPEST = 50
"""Most wrappers around an application or a handler."""


def marks(function: Any) -> tuple[RequestTemplate, ...]:
    """Return the requests that a function's guards make before it runs."""
    while isinstance(function, partial):
        function = function.func
    found: tuple[RequestTemplate, ...] = getattr(function, NEEDS, ())
    return found


def _class_of(endpoint: Any) -> Any:
    return endpoint if inspect.isclass(endpoint) else getattr(endpoint, "view_class", None)


def handler_of(endpoint: Any, method: str) -> Any:
    """The function that handles a method: the endpoint, or a method of its class."""
    if (of_class := _class_of(endpoint)) is None or marks(endpoint):
        return endpoint
    found = getattr(of_class, method.lower(), None)
    return getattr(of_class, "get", None) if found is None and method == "HEAD" else found


def methods_of(endpoint: Any) -> tuple[str, ...]:
    """The methods of a class of handlers; `ANY_METHOD` for a function."""
    if (of_class := _class_of(endpoint)) is None:
        return (ANY_METHOD,)
    found = [getattr(of_class, method.lower(), None) for method in EVERY]
    # Django's own answer to OPTIONS runs no handler.
    own = [handler is not None and not handler.__module__.startswith("django.views.generic.base") for handler in found]
    return tuple(method for method, is_own in zip(EVERY, own, strict=True) if is_own) or (ANY_METHOD,)


def codes_of(handler: Any) -> tuple[CodeType, ...]:
    """The code of a handler and of the decorators around it, the outermost first."""
    found: list[CodeType] = []
    for _ in range(DEEPEST):
        is_plain = hasattr(handler, "__code__")
        run = handler if is_plain else handler.__init__ if inspect.isclass(handler) else type(handler).__call__
        if isinstance(code := getattr(run, "__code__", None), CodeType):
            found.append(code)
        handler = handler.func if isinstance(handler, partial) else getattr(handler, "__wrapped__", None)
        if not callable(handler):
            break
    return tuple(found)


def span_of(handler: Any) -> Span | None:
    """Return the first line of a handler in the working directory; a framework's handler is no place for a finding."""
    codes = codes_of(handler) if callable(handler) else ()
    return _place(codes[-1].co_filename, codes[-1].co_firstlineno) if codes else None


def _place(path: str, line: int) -> Span | None:
    file = Path(path)
    if not file.is_relative_to(Path.cwd()):
        return None
    return Span(path=file.relative_to(Path.cwd()).as_posix(), line=line, column=1, end_line=line, end_column=1)


def place_of(name: str) -> Span:
    """The place of findings about an application by its name: its module, or else the name itself."""
    file = getattr(sys.modules.get(name.partition(":")[0]), "__file__", None)
    return (file and _place(file, 1)) or Span(path=name, line=1, column=1, end_line=1, end_column=1)
