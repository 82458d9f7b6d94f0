"""The registry: stores bundles, and records in channels which of them sidecars run."""

from __future__ import annotations

from privtab_server.registry.nodes import Canary, Channel, Revision
from privtab_server.registry.registry import Registry

__all__ = ["Canary", "Channel", "Registry", "Revision"]
