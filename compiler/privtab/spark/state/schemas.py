"""The columns of a state's tables in Spark after reading, and those of findings."""

from __future__ import annotations

from collections.abc import Mapping

CANONICAL: Mapping[str, tuple[str, ...]] = {
    "members": ("user", "type", "path"),
    "memberships": ("user", "group"),
    "assignments": ("principal", "role", "scope_type", "scope_path"),
    "grants": ("grantee", "effect", "privilege", "type", "path"),
    "owners": ("type", "path", "owner"),
    "service_admins": ("user",),
}
"""All are strings. The scope is null if a role is held everywhere; `path` does not include the type."""

FINDING = "code: string, severity: string, message: string, help: string"
FINDINGS = (
    "`table` string, `code` string, `name` string, `severity` string, `message` string, `help` string, "
    "`row` string, `rows` bigint, `source` string"
)
"""`row`: the cells as JSON text; `rows`: the number of equal rows with this finding."""


def schema(table: str) -> str:
    """The columns of a table as a Spark DDL schema."""
    return ", ".join(f"`{name}` string" for name in CANONICAL[table])
