"""The columns of a state's tables in Spark: those that rows have once they were read, and those of findings."""

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
"""All text. A scope is null where a role is held everywhere; `path` is without its type."""

FINDING = "code: string, severity: string, message: string, help: string"
FINDINGS = (
    "`table` string, `code` string, `name` string, `severity` string, `message` string, `help` string, "
    "`row` string, `rows` bigint, `source` string"
)
"""`row`: the cells as JSON text; `rows`: how many rows of the source say exactly this."""


def schema(table: str) -> str:
    """The columns of a table, as Spark writes schemas."""
    return ", ".join(f"`{name}` string" for name in CANONICAL[table])
