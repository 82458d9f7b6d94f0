"""`visible`: the rows of a DataFrame that a user may see; `require`: stop a driver program unless a request is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.errors import AccessDenied, InvalidRequest, UsageError
from privtab.names import bare_name, check_user
from privtab.request import NOT_SET, Decision, Request
from privtab.spark.arguments import ColumnLike, FlagsLike, ResourceLike
from privtab.spark.attribute_columns import AttributesLike
from privtab.spark.choose import Limits
from privtab.spark.deciding import decide
from privtab.spark.following import REFRESH
from privtab.spark.frames import Frame, free, opened
from privtab.spark.moments import Moment, at_moment
from privtab.spark.policies import PolicyLike, open_policy

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from privtab.client._arguments import Details, EntityLike


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


def require(
    policy: PolicyLike | None,
    state: Any,
    subject: str,
    action: str,
    resource: EntityLike,
    *,
    spark: SparkSession | None = None,
    at: Moment = None,
    **details: Unpack[Details],
) -> Decision:
    """The decision on a request, if it is allowed; otherwise raises AccessDenied, which says what is missing.

    `state`: as in `decide`, or a client (`Client`, `Embedded`) that decides by its own policy; `policy` may then be None.
    `at`: the time for which rows of the state with `from` or `until` count; default: now. A client decides by its own time.
    `resource`: `"type:path"`, a pair or an Entity. Raises InvalidRequest if a part is missing or unknown to the policy.
    """
    name: Any = subject
    if isinstance(name, str):
        name = bare_name(name, "user")
    flags = details.get("flags")
    if isinstance(flags, Mapping):
        details["flags"] = [f"{flag}{NOT_SET}" if value is False else flag for flag, value in flags.items()]
    ask = getattr(state, "require", None)
    if callable(ask):
        decision = ask(name, action, resource, **details)
        if not isinstance(decision, Decision):
            # An AsyncClient returns a coroutine, which must not count as an allow.
            getattr(decision, "close", lambda: None)()
            raise UsageError(f"a {type(state).__name__} is not synchronous: give a Client or an Embedded")
        return decision
    if policy is None:
        raise UsageError("a policy is required unless a client is given: give its name or path")
    if not name or name == "user:":
        raise InvalidRequest(f"subject is {subject!r}: give the name of a user")
    from privtab.client._arguments import request

    return _decided(policy, state, request(name, action, resource, **details), spark, at)


def _decided(policy: PolicyLike, state: Any, request: Request, spark: SparkSession | None, at: Moment) -> Decision:
    from privtab.client._arguments import check_context
    from privtab.client._protocol import read_active_system
    from privtab.engines.python import PythonEngine
    from privtab.spark.states import index_of

    opened = open_policy(policy)
    opened.vocabulary.check(request)
    check_context(request, read_active_system(opened.system, opened.json))
    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
    index = at_moment(at, state, lambda state_: index_of(opened, state_, spark))
    decision = PythonEngine(opened.json, index).decide(request)
    if not decision.allowed:
        raise AccessDenied(request, decision)
    return decision
