"""The paths and payloads of other systems' administration APIs, in front of a store of their policy: one module for each."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from privtab.errors import UsageError

if TYPE_CHECKING:
    from starlette.routing import Route

    from privtab.store.server.app import StoreServer

NAMES = tuple(sorted(module.name for module in iter_modules(__path__)))


def routes(name: str, server: StoreServer) -> list[Route]:
    """The endpoints of an API by its name. Raises UsageError if there is none, or if it does not fit the policy."""
    if name not in NAMES:
        raise UsageError(f"unknown API `{name}`; there are: {', '.join(NAMES)}")
    found: list[Route] = import_module(f"{__name__}.{name}").routes(server)
    return found
