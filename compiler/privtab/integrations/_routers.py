"""Ask an application's own router which handler a request reaches, and with which parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

WRAPPED = ("router", "app", "_app", "wsgi_app", "application", "__self__", "__wrapped__")
"""Where frameworks and middleware keep what they wrap."""
MOST_WRAPPERS = 50
ANY = "x"
"""Takes the place of each parameter in the path of a handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a router makes of a request: the handler's path, with `x` for each parameter, and its parameters in their order."""

    handler: str
    parameters: Mapping[str, object]


Router: TypeAlias = Callable[[Any], Reading | None]
"""Reads an ASGI scope or a WSGI environment; None: no handler runs, or its parameters are unknown."""


def no_router(_: Any) -> None:
    """The router of an application that has none, or hides it."""


def asgi_router(app: object) -> Router:
    """The router of Starlette, FastAPI, or an application made of theirs."""
    router = _found(app, _has_routes)
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
        if len(candidates) < MOST_WRAPPERS:
            candidates += [inner for name in WRAPPED if (inner := getattr(candidate, name, None)) is not None]
    return None


def _has_routes(candidate: Any) -> bool:
    routes = getattr(candidate, "routes", None)
    return isinstance(routes, list) and all(hasattr(route, "matches") for route in routes)


# --- Starlette and FastAPI -------------------------------------------------------------------------------------------


def _read_starlette(router: Any, scope: dict[str, Any], above: str) -> Reading | None:
    """As the router's own loop: the first route that matches fully. `above`: the path where the router is mounted."""
    for route in _leaves(router.routes):
        match, child = route.matches(scope)
        if match.name != "FULL":
            continue
        inner = scope | child
        path = above + getattr(route, "path_format", "")
        if hasattr(route, "routes"):  # a mounted application
            below = _found(route.app, _has_routes)
            return None if below is None else _read_starlette(below, inner, path.removesuffix("/{path}"))
        given = inner.get("path_params", {})
        for name in given:
            path = path.replace(f"{{{name}}}", ANY)
        parameters = _converted(route, given)
        return None if parameters is None else Reading(handler=path, parameters=parameters)
    return None


def _leaves(routes: Iterable[Any]) -> Iterator[Any]:
    """The routes in their order, those of FastAPI's included routers as if they were declared here."""
    for route in routes:
        included = getattr(route, "effective_route_contexts", None)
        for leaf in (route,) if included is None else included():
            yield getattr(leaf, "starlette_route", None) or leaf


def _converted(route: Any, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
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
    from werkzeug.exceptions import HTTPException

    try:
        if hasattr(app, "create_url_adapter"):
            adapter = app.create_url_adapter(app.request_class(dict(environ)))
        else:
            adapter = app.url_map.bind_to_environ(environ)
        rule, parameters = adapter.match(return_rule=True)
    except HTTPException:
        return None  # not found, another method, or a redirection
    pieces = rule._trace  # noqa: SLF001  (nothing public tells the parameters of a path apart, in their order)
    path = "".join(ANY if dynamic else text for dynamic, text in pieces).partition("|")[2]
    return Reading(handler=path, parameters={name: parameters[name] for dynamic, name in pieces if dynamic})
