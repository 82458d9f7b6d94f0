"""The Rego back end: one package for a system, one function for a row, readable and fast."""

from __future__ import annotations

from privtab.backends.rego.render import render

__all__ = ["render"]
