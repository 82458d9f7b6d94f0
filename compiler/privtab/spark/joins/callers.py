"""The callers of requests: whose holdings count for them, all their principals, and which of their roles are active."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.spark.joins.holdings import HOLDER, PRINCIPAL, THROUGH
from privtab.spark.joins.rows import ACTIVE, GROUPS, HIDDEN, USER, ColumnNames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRINCIPALS = HIDDEN + "principals"
"""All principals of a caller."""
USER_AS_HOLDER = f"concat('user:', {USER})"
IS_ACTIVE = f"({PRINCIPAL} NOT LIKE 'role:%' OR arrays_overlap({ACTIVE}, {THROUGH}))"
"""SQL for: what a principal is allowed counts for a row that names active roles."""


def holders(names: ColumnNames) -> str:
    """SQL array of the user and the groups that a request brings."""
    groups = f", transform({GROUPS}, g -> concat('group:', g))" if names.has("groups") else ""
    return f"concat(array({USER_AS_HOLDER}){groups})"


def principals_of(requests: DataFrame, names: ColumnNames, principals: DataFrame) -> tuple[DataFrame, list[str]]:
    """The principals of all callers as `PRINCIPALS`, and the columns that a caller is; `principals`: the table of the state."""
    caller = [USER, *([GROUPS] if names.has("groups") else [])]
    callers = requests.where(f"{USER} IS NOT NULL").select(*caller).distinct()
    pairs = callers.select("*", F.expr(f"explode({holders(names)})").alias(HOLDER)).join(principals, HOLDER, "left")
    return pairs.groupBy(*caller).agg(F.collect_set(PRINCIPAL).alias(PRINCIPALS)), caller


def holds_active_roles() -> str:
    """SQL for: a caller holds all roles that the row names as active. Missing principals deny."""
    roles = f"transform(filter({PRINCIPALS}, p -> p LIKE 'role:%'), p -> substring_index(substr(p, 6), char(10), 1))"
    return f"size(array_except({ACTIVE}, {roles})) = 0"
