"""Bundles: the policy and the state of a system, each a deterministic archive that OPA loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import lazily, listed

if TYPE_CHECKING:
    from privtab.bundle.pack import PolicyArtifacts, state_bundle

__all__ = ["PolicyArtifacts", "state_bundle"]

# Code that stores or verifies bundles does not need the modules that pack them.
__getattr__ = lazily(__name__, dict.fromkeys(__all__, "privtab.bundle.pack"))
__dir__ = listed(__all__)
