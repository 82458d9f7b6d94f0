"""The adapter: asks a decision point, OPA beside the caller or an engine in process. It holds no policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privtab.client._asking import Mode
from privtab.client._base import Asker, Status
from privtab.client._http import HttpTransport
from privtab.client._observe import Hook, Outcome, Question
from privtab.client._protocol import EntityLike, Revision
from privtab.client._transport import RequestsTransport, Timeout, Transport
from privtab.client.sync import Client

if TYPE_CHECKING:
    from privtab.client._connect import connect
    from privtab.client.aio import AsyncClient

__all__ = [
    "Asker",
    "AsyncClient",
    "Client",
    "EntityLike",
    "Hook",
    "HttpTransport",
    "Mode",
    "Outcome",
    "Question",
    "RequestsTransport",
    "Revision",
    "Status",
    "Timeout",
    "Transport",
    "connect",
]


def __getattr__(name: str) -> Any:
    """What few need is loaded when it is asked for."""
    if name == "AsyncClient":
        from privtab.client.aio import AsyncClient

        return AsyncClient
    if name == "connect":
        from privtab.client._connect import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
