"""Typed Python for the callers of one policy: wrong names, types and `with` objects are errors for their type checker."""

from __future__ import annotations

from collections.abc import Mapping

from privtab.backends import Compilation
from privtab.backends.stubs.render import render

__all__ = ["files", "render"]


def files(policy: Compilation) -> Mapping[str, str]:
    """One module, which imports only privtab's base install."""
    return {f"{policy.name}.py": render(policy.program)}
