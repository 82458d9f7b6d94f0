"""The Rego back end: one package for a system, one function for a row, readable and fast."""

from __future__ import annotations

from collections.abc import Mapping

from privtab.backends import Compilation
from privtab.backends.rego.render import render

__all__ = ["files", "render"]


def files(policy: Compilation) -> Mapping[str, str]:
    """The Rego modules of the policy bundle."""
    return render(policy.optimised, policy.name, sharded=policy.sharded)
