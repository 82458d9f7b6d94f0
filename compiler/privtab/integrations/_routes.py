"""Map methods and paths of a web service to operations and resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from privtab.errors import UsageError
from privtab.integrations._needs import EntityTemplate, RequestTemplate, request_template

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)(:path)?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The requirement for requests with one of `methods` and a path of this shape; `needs` is None if open to all."""

    methods: frozenset[str]
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


def find(routes: Iterable[Route], method: str, path: str) -> tuple[Route, Mapping[str, str]] | None:
    """The first matching route, and the named parts of the path."""
    for candidate in routes:
        values = candidate.values(method, path)
        if values is not None:
            return candidate, values
    return None


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
    for placeholder in _PLACEHOLDER.finditer(path):
        pieces += [
            re.escape(path[position : placeholder.start()]),
            f"(?P<{placeholder[1]}>{'.+' if placeholder[2] else '[^/]+'})",
        ]
        position = placeholder.end()
    rest = path[position:]
    if "{" in rest or "}" in rest or any("{" in piece for piece in pieces[::2]):
        raise UsageError(f"the route `{path}` is malformed: write {{name}} or {{name:path}}")
    try:
        pattern = re.compile("".join([*pieces, re.escape(rest)]), re.DOTALL)
    except re.error as error:
        raise UsageError(f"the route `{path}` is malformed: {error}") from None
    return Route(methods=frozenset(upper_methods), pattern=pattern, needs=template)
