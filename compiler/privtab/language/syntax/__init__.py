"""YAML text → `Tables`: the file as written, every value with its position."""

from __future__ import annotations

from privtab.base.diagnostics import Diagnostic
from privtab.base.source import SourceFile
from privtab.language.syntax.nodes import Tables
from privtab.language.syntax.reader import PolicyReader
from privtab.language.syntax.tables import read_tables
from privtab.language.syntax.yaml_tree import compose_yaml

__all__ = ["Tables", "read_policy"]


def read_policy(source: SourceFile) -> tuple[Tables | None, list[Diagnostic]]:
    """Return the tables of a file, or None if it cannot be read at all, and every finding.

    Tables with errors are returned too, marked `broken`, so that later stages can find more; they never become a policy.
    """
    found: list[Diagnostic] = []
    root = compose_yaml(source, found)
    if root is None:
        return None, found
    return read_tables(PolicyReader(source, found), root), found
