"""Map methods and paths of a web service to operations and resources."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias
from uuid import UUID

from privtab.characters import unusable
from privtab.errors import InvalidRequest, UsageError
from privtab.integrations._answers import LOG, Answer, Tell, answer, unmapped
from privtab.integrations._guard import AnyAsker, Guard
from privtab.integrations._needs import EntityTemplate, RequestTemplate, request_template
from privtab.integrations._routers import Reading

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


Matched: TypeAlias = tuple[Route, Mapping[str, str]]
"""A route, and the named parts of the path."""


class RouteTable:
    """The routes of a middleware, and what becomes of requests that match none."""

    def __init__(self, routes: Iterable[Route], guard: Guard | AnyAsker, tell: Tell | str, unmapped: str) -> None:
        if unmapped not in ("deny", "allow"):
            raise ValueError(f"unmapped is `{unmapped}`: write `deny` or `allow`")
        self.guard = guard if isinstance(guard, Guard) else Guard(guard)
        self.tell = Tell(tell)
        self._routes = tuple(routes)
        self._open = unmapped == "allow"

    def match(self, method: str, path: str, reading: Reading | None) -> Matched | Answer | None:
        """The route of a request with the parameters that its handler gets, or the refusal; None if it passes without a decision.

        `reading`: what the application's router makes of it, if that is known.
        """
        try:
            found = self._checked(method.upper(), path, reading)
        except InvalidRequest as error:
            if self.guard.enforces():
                return answer(error, self.tell)
            LOG.warning("mode %s, %s %r let pass: %s", self.guard.asker.mode, method, path, error)
            return None
        if found is None and not self._open:
            refusal = unmapped(method, path)
            return refusal if self.guard.enforces() else None
        return found

    def _checked(self, method: str, path: str, reading: Reading | None) -> Matched | None:
        """Raises InvalidRequest if the application may read the request as another one than this."""
        if (character := unusable(path)) is not None:
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
        for candidate in self._routes:
            values = candidate.values(method, path)
            if values is not None:
                return candidate, values
        return None


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
    for placeholder in _PLACEHOLDER.finditer(path):
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
    return Route(methods=frozenset(upper_methods), pattern=pattern, needs=template)
