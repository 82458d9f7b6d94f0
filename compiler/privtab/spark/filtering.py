"""`visible`: the rows of a DataFrame that a user may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.errors import InvalidRequest, UsageError
from privtab.names import bare_name, check_user
from privtab.spark.arguments import ColumnLike, FlagsLike, ResourceLike
from privtab.spark.attribute_columns import AttributesLike
from privtab.spark.deciding import decide
from privtab.spark.following import REFRESH
from privtab.spark.frames import Frame, free, opened
from privtab.spark.limits import Limits
from privtab.spark.moments import Moment
from privtab.spark.policies import PolicyLike

if TYPE_CHECKING:
    from pyspark.sql import Column


def user(name: str) -> Column:
    """One user for all rows: `visible(df, …, subject=user("alice"))`. Raises UsageError for an invalid name."""
    value: Any = name
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name!r} is not the name of a user")
    try:
        check_user(bare_name(value, "user"))
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    return F.lit(name)


def visible(
    df: Frame,
    policy: PolicyLike,
    state: Any,
    *,
    subject: ColumnLike,
    resource: ResourceLike,
    action: ColumnLike = "list",
    with_: Mapping[str, ResourceLike] | None = None,
    flags: FlagsLike = (),
    groups: ColumnLike | None = None,
    active_roles: ColumnLike | None = None,
    attributes: AttributesLike | None = None,
    plan: str = "auto",
    limits: Limits | None = None,
    refresh: float | None = REFRESH,
    at: Moment | Column = None,
) -> Frame:
    """The rows of `df` that are allowed: the row's user, or one `user("alice")` for all, may do the action on the row's resource.

    The default action is `list`; for a row of the policy with `each`, both the call and the item must be allowed. Rows that are no
    valid requests are left out. All arguments are as in `decide`.
    """
    frame, to_caller = opened(df)
    allowed, reason = free("__privtab_allowed", frame.columns), free("__privtab_reason", frame.columns)
    decided = decide(
        frame, policy, state, subject=subject, action=action, resource=resource, with_=with_, flags=flags, groups=groups, active_roles=active_roles,
        attributes=attributes, plan=plan, limits=limits, allowed=allowed, reason=reason, refresh=refresh, at=at,
    )  # fmt: skip
    return to_caller(decided.where(F.col(allowed)).drop(allowed, reason))
