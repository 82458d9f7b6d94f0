"""Bundles: the policy and the state of a system, each a deterministic archive that OPA loads."""

from __future__ import annotations

from privtab.bundle.pack import PolicyArtifacts, policy_artifacts, policy_bundle, state_bundle, wasm_modules

__all__ = ["PolicyArtifacts", "policy_artifacts", "policy_bundle", "state_bundle", "wasm_modules"]
