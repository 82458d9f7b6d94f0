"""The registry: stores bundles, and records in channels which of them sidecars run."""

from __future__ import annotations

from privtab.registry.nodes import Canary, Channel, Revision
from privtab.registry.registry import Registry

__all__ = ["Canary", "Channel", "Registry", "Revision"]
