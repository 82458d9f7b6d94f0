"""The functions that handle requests: what guards them, their methods, their code and place."""

from __future__ import annotations

import inspect
import sys
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

from privtab.diagnostics import Span
from privtab.integrations._guard import NEEDS
from privtab.integrations._needs import RequestTemplate

ANY = "ANY"
"""The method of a route that takes every method."""
EVERY = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
DEEPEST = 50


def marks(function: Any) -> tuple[RequestTemplate, ...]:
    """What a function requests before it runs, if a guard says so."""
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
    """The methods of a class of handlers; ANY for a function."""
    if (of_class := _class_of(endpoint)) is None:
        return (ANY,)
    found = [getattr(of_class, method.lower(), None) for method in EVERY]
    # Django's own answer to OPTIONS runs no handler.
    own = [handler is not None and not handler.__module__.startswith("django.views.generic.base") for handler in found]
    return tuple(method for method, is_own in zip(EVERY, own, strict=True) if is_own) or (ANY,)


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
    """The first line of a handler in the working directory: those of frameworks are no place for a finding."""
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
