"""The adapter: asks an OPA sidecar for decisions. It holds no policy."""

from __future__ import annotations

from privtab.client._protocol import EntityLike, Revision
from privtab.client._transport import RequestsTransport, Timeout, Transport
from privtab.client.sync import Client

__all__ = ["Client", "EntityLike", "RequestsTransport", "Revision", "Timeout", "Transport"]
