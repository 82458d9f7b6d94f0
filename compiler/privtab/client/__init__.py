"""Clients for a PDP: an OPA sidecar or an engine in process. They hold no policy of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

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
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "_arguments": "EntityLike",
            "_asking": "Mode Status",
            "_base": "Asker",
            "_http": "HttpTransport",
            "_observe": "Hook Outcome Question",
            "_protocol": "Revision",
            "_transport": "AsyncTransport RequestsTransport Timeout Transport",
            "aio": "AsyncClient",
            "embedded": "Embedded",
            "sync": "Client connect",
        },
    )
