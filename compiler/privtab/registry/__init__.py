"""Where bundles are kept, and which of them sidecars run."""

from __future__ import annotations

from privtab.registry.nodes import Canary, Channel, Revision
from privtab.registry.registry import Registry

__all__ = ["Canary", "Channel", "Registry", "Revision"]
