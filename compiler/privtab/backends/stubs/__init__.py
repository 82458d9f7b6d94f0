"""Typed Python for the callers of one policy: wrong names, types and objects beside fail in their type checker."""

from __future__ import annotations

from privtab.backends.stubs.render import render

__all__ = ["render"]
