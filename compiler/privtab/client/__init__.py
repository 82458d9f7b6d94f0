"""Clients for a PDP: an OPA sidecar or an engine in process. They hold no policy of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.client._address import is_loopback, without_password
    from privtab.client._arguments import Details, EntityLike, as_entity, checked_request
    from privtab.client._asking import Mode, Status
    from privtab.client._base import Asker
    from privtab.client._bundled import BundledEngine
    from privtab.client._bundles import BundleLocation, ReadBundle
    from privtab.client._http import HttpTransport
    from privtab.client._observe import Hook, Outcome, Question
    from privtab.client._protocol import Revision
    from privtab.client._sender import Sender, SendError
    from privtab.client._transport import AsyncTransport, RequestsTransport, Timeout, Transport, restrict_session
    from privtab.client.aio import AsyncClient
    from privtab.client.embedded import Embedded
    from privtab.client.sync import Client, connect
else:
    __getattr__, __dir__, __all__ = face(__name__)
