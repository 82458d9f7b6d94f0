"""Tables of pages, and what a policy that was read from them allows."""

from __future__ import annotations

from typing import Any

from privtab.base import Diagnostic, SourceFile
from privtab.pipeline import load_program
from privtab_pages.imported import TableReader
from privtab_pages.page_files import page_of
from privtab_pages.roles import ALLOWED, default_roles

Allowed = dict[str, dict[str, set[str]]]


def read(text: str, name: str = "page.md", **options: Any) -> tuple[str | None, list[Diagnostic], TableReader]:
    reader = TableReader(system="page", version="draft", document=name, **options)
    page = page_of(SourceFile.of(name, text))
    return reader.read(page.tables, page.lines), reader.found, reader


def allowed(policy: str | None) -> Allowed:
    """For each type and operation, the roles that may do it."""
    assert policy is not None
    matrix = default_roles(load_program(SourceFile.of("policy.yaml", policy)))
    assert matrix is not None
    found: Allowed = {}
    for (type_, operation), cells in matrix.cells.items():
        roles = {role for role, cell in zip(matrix.roles, cells, strict=True) if cell == ALLOWED}
        found.setdefault(type_, {})[operation] = roles
    return found


def table(*rows: str, head: str = "Action | Guest | Admin", title: str = "Shop roles") -> str:
    return f"# {title}\n\n| {head} |\n|{'---|' * (head.count('|') + 1)}\n" + "".join(f"| {row} |\n" for row in rows)
