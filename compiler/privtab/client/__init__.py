"""Clients for a PDP: an OPA sidecar or an engine in process. They hold no policy of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import lazily, listed

if TYPE_CHECKING:
    from privtab.client._arguments import EntityLike
    from privtab.client._asking import Mode, Status
    from privtab.client._base import Asker
    from privtab.client._http import HttpTransport
    from privtab.client._observe import Hook, Outcome, Question
    from privtab.client._protocol import Revision
    from privtab.client._transport import AsyncTransport, RequestsTransport, Timeout, Transport
    from privtab.client.aio import AsyncClient
    from privtab.client.embedded import Embedded
    from privtab.client.sync import Client, connect

__all__ = [
    "Asker",
    "AsyncClient",
    "AsyncTransport",
    "Client",
    "Embedded",
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

_PLACES = {
    "_asking": ("Mode", "Status"),
    "_base": ("Asker",),
    "_http": ("HttpTransport",),
    "_observe": ("Hook", "Outcome", "Question"),
    "_arguments": ("EntityLike",),
    "_protocol": ("Revision",),
    "_transport": ("AsyncTransport", "RequestsTransport", "Timeout", "Transport"),
    "aio": ("AsyncClient",),
    "embedded": ("Embedded",),
    "sync": ("Client", "connect"),
}
__getattr__ = lazily(__name__, {name: f"{__name__}.{module}" for module, names in _PLACES.items() for name in names})
__dir__ = listed(__all__)
