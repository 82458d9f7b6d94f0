"""`decide`: a DataFrame in, the same rows with an answer each out."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from privtab.errors import UsageError
from privtab.spark.arguments import Asked, ColumnLike, FlagsLike, ResourceLike, asked
from privtab.spark.policies import PolicyLike, open_policy

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Plan = Literal["auto", "kernel", "joins"]
"""How rows are decided."""
log = logging.getLogger("privtab.spark")


def decide(
    df: DataFrame,
    policy: PolicyLike,
    state: Any,
    *,
    subject: ColumnLike,
    action: ColumnLike,
    resource: ResourceLike,
    with_: Mapping[str, ResourceLike] | None = None,
    flags: FlagsLike = (),
    groups: ColumnLike | None = None,
    plan: Plan = "auto",
    allowed: str = "allowed",
    reason: str = "reason",
) -> DataFrame:
    """The rows of `df` with two more columns: `allowed`, never null, and `reason`, null where it is true.

    `subject`: the column of user names. `action`: the operation of all rows, or a Column of operations. `resource`: a column of
    entities `type:path`, or (type of all rows, column of paths). `with_`: further objects by name, as `resource`. `flags`: names
    that are set for all rows, or by name whether they are. `groups`: a column of arrays, for policies that take groups from
    requests. `reason` is `not granted` where the answer is no, else it says why the row is no request.
    """
    _check_names(df, allowed, reason)
    policy = open_policy(policy)
    request = asked(
        df, policy, subject=subject, action=action, resource=resource, with_=with_, flags=flags, groups=groups
    )
    from privtab.spark.kernel import CODE, decide_by_kernel
    from privtab.spark.states import prepared

    packed = prepared(policy, state, df.sparkSession)
    frame, yes, why = decide_by_kernel(request, packed.ship(df.sparkSession))
    return _told(request, frame, yes, why, allowed, reason).drop(CODE)


def _told(request: Asked, frame: DataFrame, yes: Column, why: Column, allowed: str, reason: str) -> DataFrame:
    """The answer as columns; rows that are no requests are denied here, whatever a plan made of them."""
    if request.unasked is not None:
        why = F.coalesce(request.unasked, why)
        yes = yes & request.unasked.isNull()
    return frame.select("*", yes.alias(allowed), why.alias(reason))


def _check_names(df: DataFrame, allowed: str, reason: str) -> None:
    taken = {name.lower() for name in df.columns}
    for name in (allowed, reason):
        if name.lower() in taken:
            raise UsageError(
                f"the DataFrame has a column `{name}` already: name the new one by `allowed=` or `reason=`"
            )
    if allowed.lower() == reason.lower():
        raise UsageError(f"`allowed` and `reason` are both `{allowed}`")
