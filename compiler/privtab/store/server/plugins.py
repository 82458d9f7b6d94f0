"""The paths and payloads of other systems' administration APIs, in front of a store of their policy, from plug-ins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab import _plugins
from privtab.errors import UsageError

if TYPE_CHECKING:
    from starlette.routing import Route

    from privtab.store.server.app import StoreServer


def routes(name: str, server: StoreServer) -> list[Route]:
    """The endpoints of an API by its name, which its module's `routes` gives for a server. Raises UsageError if there is none, or if it does not fit the policy."""
    names = _plugins.names(_plugins.STORE_APIS)
    if name not in names:
        raise UsageError(f"unknown API `{name}`; there are: {', '.join(names)}")
    found: list[Route] = _plugins.module(_plugins.STORE_APIS, name).routes(server)
    return found
