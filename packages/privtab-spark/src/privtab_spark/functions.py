"""`register_function`: decisions as an SQL function, `SELECT may(user, 'load', path)`.

`visible`: the rows of a DataFrame that a user may see; `require`: stop a driver program unless a request is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

from privtab.base import (
    NOT_SET,
    AccessDenied,
    Decision,
    InvalidRequest,
    Request,
    UsageError,
    bare_name,
    check_principal,
    hint,
)
from privtab_spark.arguments import ColumnLike, FlagsLike, ResourceLike
from privtab_spark.attribute_columns import COLUMN_TYPES, AttributeColumn, AttributesLike
from privtab_spark.choose import Limits
from privtab_spark.deciding import decide
from privtab_spark.frames import Frame, flag_column, free, opened
from privtab_spark.kernel import Layout, decided_codes
from privtab_spark.matrix.question import listed
from privtab_spark.moments import Moment, at_moment
from privtab_spark.policies import OpenPolicy, PolicyLike, open_policy
from privtab_spark.preflight import check_executors
from privtab_spark.refresh import REFRESH, FollowedState, check_refresh, followed
from privtab_spark.states import prepared

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from privtab.client import Details, EntityLike
    from privtab_spark.shipping import ShippedBytes


ARGUMENTS = 3
"""The number of arguments before the attributes."""
_COLUMNS = ("user", "action", "type", "path")


def register_function(
    spark: SparkSession,
    policy: PolicyLike,
    state: Any,
    *,
    name: str = "may",
    type: str | None = None,  # noqa: A002  (as in Entity)
    flags: Iterable[str] = (),
    attributes: Iterable[str] = (),
    refresh: float | None = REFRESH,
) -> None:
    """Register an SQL function `may(user, action, resource)` in a session; it returns true or false, never null.

    `resource` is an entity, `'table:m/c/s/t'`, or with `type="table"` only the path. `flags` are set for all calls.
    `attributes`: the attributes that further arguments give, in this order: `["request.mfa", "user.rank", "entity.color"]`. The result is
    false for arguments that form no valid request: a null, a malformed path, an operation that needs a second object.

    The function checks the state for changes, so that no answer is based on a check more than `refresh` seconds old; the state must
    be a path or an address that executors can reach. With `refresh=None`, any state that `decide` takes is read now, once.
    """
    check_refresh(refresh)
    opened = open_policy(policy)
    set_flags, given = _flags(opened, flags), _given(opened, attributes)
    if type is not None and type not in opened.vocabulary.chains:
        raise InvalidRequest(f"unknown entity type `{type}`" + hint(type, opened.vocabulary.chains))
    check_executors(spark)
    source = prepared(opened, state, spark).ship(spark) if refresh is None else followed(opened, state, refresh)
    layout = Layout(
        columns=(*_COLUMNS, *(str(attribute.column) for attribute in given)),
        constants=dict.fromkeys((flag_column(flag) for flag in set_flags), True),
        slots=(),
        flags=set_flags,
        given=given,
    )
    types = [opened.vocabulary.attributes.of(attribute.kind)[attribute.name].type for attribute in given]
    spark.udf.register(name, _function(source, layout, type, types))


def _flags(policy: OpenPolicy, flags: Iterable[str]) -> tuple[str, ...]:
    known = {f for shapes in policy.vocabulary.operations.values() for shape in shapes.values() for f in shape.flags}
    found = tuple(dict.fromkeys(listed(flags, "flags")))
    for flag in found:
        if flag not in known:
            raise InvalidRequest(f"unknown flag `{flag}`" + hint(flag, known))
    return found


def _given(policy: OpenPolicy, attributes: Iterable[str]) -> tuple[AttributeColumn, ...]:
    found = []
    for number, place in enumerate(listed(attributes, "attributes")):
        kind, _, name = place.partition(".")
        if kind not in (kinds := ("user", "entity", "request")):
            raise InvalidRequest(f"unknown attribute `{place}`: write KIND.NAME, as in request.mfa" + hint(kind, kinds))
        policy.vocabulary.attributes.requested(kind, name)
        found.append(AttributeColumn(kind=kind, slot="", name=name, column=f"attribute_{number}"))
    return tuple(found)


def _function(source: ShippedBytes | FollowedState, layout: Layout, type_: str | None, types: Sequence[str]) -> Any:
    try:
        from pyspark.sql.pandas.functions import arrow_udf
    except ImportError:
        return _of_series(source, layout, type_, types)

    # Spark reads these annotations.
    def may(columns: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:

        yield from answers(source, layout, type_, types, columns)

    return arrow_udf(may, "boolean")  # type: ignore[call-overload]


def _of_series(source: ShippedBytes | FollowedState, layout: Layout, type_: str | None, types: Sequence[str]) -> Any:
    """For Spark 4.0, which lacks `arrow_udf`."""
    import pandas as pd
    from pyspark.sql.pandas.functions import pandas_udf

    def may(*columns: pd.Series) -> pd.Series:

        arrays = tuple(pa.array(column, from_pandas=True) for column in columns)
        parts = answers(source, layout, type_, types, iter([arrays]))
        return pd.Series([yes for part in parts for yes in part.to_pylist()])

    may.__annotations__ = dict.fromkeys(("columns", "return"), pd.Series)
    return pandas_udf(may, "boolean")  # type: ignore[call-overload]


# --- on executors ----------------------------------------------------------------------------------------------------


def answers(
    source: ShippedBytes | FollowedState,
    layout: Layout,
    type_: str | None,
    types: Sequence[str],
    columns: Iterable[tuple[pa.Array, ...]],
) -> Iterator[pa.Array]:
    """The decision on each row, true or false; `columns` has the users, operations and resources of each batch, then attributes of some types."""
    requests = (
        (
            *_request(*(_texts(column) for column in part[:ARGUMENTS]), type_=type_),
            *(_values(part[n], types[n - ARGUMENTS], n + 1) for n in range(ARGUMENTS, len(part))),
        )
        for part in columns
    )
    for codes in decided_codes(source, layout, requests):
        yield pc.equal(codes, 0)


def _texts(column: pa.Array) -> pa.Array:
    """The column as strings, with null for invalid UTF-8."""
    from privtab_spark.kernel import readable

    return readable(column.cast(pa.string()))


def _values(column: pa.Array, type_: str, number: int) -> pa.Array:
    """The values of an attribute, the argument with a number; raises UsageError for a column of another type."""
    own = COLUMN_TYPES[type_]
    if not own.arrow_suits(column.type) and not pa.types.is_null(column.type):
        raise UsageError(f"argument {number} of the function is of the type `{column.type}`: {own.wanted} is wanted")
    return column.cast(own.arrow)


def _request(users: pa.Array, actions: pa.Array, resources: pa.Array, *, type_: str | None) -> tuple[pa.Array, ...]:
    users = pc.replace_substring_regex(users, "^user:", "")
    if type_ is not None:
        return users, actions, pa.repeat(pa.scalar(type_, pa.string()), len(users)), resources
    parts = pc.extract_regex(resources, r"(?s)^(?P<type>[^:]+):(?P<path>.*)$")
    return users, actions, pc.struct_field(parts, "type"), pc.struct_field(parts, "path")


def user(name: str) -> Column:
    """One user for all rows: `visible(df, …, subject=user("alice"))`. Raises UsageError for an invalid name."""
    value: Any = name
    if not isinstance(value, str) or not value:
        raise UsageError(f"{name!r} is not the name of a user")
    try:
        check_principal(bare_name(value, "user"))
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
    """The decision on a request, if it is allowed; otherwise raises AccessDenied, which names the missing rights.

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
    from privtab.client import checked_request

    opened = open_policy(policy)
    return _decided(opened, state, checked_request(opened.json, name, action, resource, **details), spark, at)


def _decided(opened: OpenPolicy, state: Any, request: Request, spark: SparkSession | None, at: Moment) -> Decision:
    from privtab.engines import RowEngine
    from privtab_spark.states import index_of

    if spark is None:
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
    index = at_moment(at, state, lambda state_: index_of(opened, state_, spark))
    decision = RowEngine(opened.json, index).decide(request)
    if not decision.allowed:
        raise AccessDenied(request, decision)
    return decision
